#include "tests/sim/seeds.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace llmrt::test {
namespace {

char running_seed[64];

// A failed LLMRT_CHECK stops the process.
void on_abort(int) {
  const std::string_view text = running_seed;
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;
}

}  // namespace

int Seeds::reached(bool everything) const {
  if (num < 100 || everything) return 0;
  fmt::print(stderr, "FAILED: {} seeds did not reach everything\n", num);
  return 1;
}

Seeds parse_seeds(int argc, char** argv) {
  Seeds seeds;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    if (option == "--seeds") seeds.num = std::strtoull(argv[i + 1], nullptr, 10);
    if (option == "--first-seed") seeds.first = std::strtoull(argv[i + 1], nullptr, 10);
  }
  return seeds;
}

bool run_seeds(const char* program, const Seeds& seeds, const std::function<std::string(uint64_t, bool)>& run) {
  std::signal(SIGABRT, on_abort);
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.num; ++seed) {
    std::snprintf(running_seed, sizeof(running_seed), "%s: in seed %llu\n", program,
                  static_cast<unsigned long long>(seed));
    for (const bool overlap : {false, true}) {
      const std::string wrong = run(seed, overlap);
      if (wrong.empty()) continue;
      fmt::print(stderr, "FAILED: {}\nreplay: {} --first-seed {} --seeds 1\n", wrong, program, seed);
      return false;
    }
  }
  return true;
}

}  // namespace llmrt::test
