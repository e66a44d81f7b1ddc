#include "server/ids.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <random>

#include "core/base/keyed_hash.h"

namespace llmrt::server {
namespace {

HashKey random_key() {
  std::random_device device;
  const auto word = [&] { return (static_cast<uint64_t>(device()) << 32) | device(); };
  return {word(), word()};
}

}  // namespace

// The counter of calls, through a keyed hash: a different input each time, and nobody has the key.
std::string make_id(std::string_view prefix) {
  static const HashKey key = random_key();
  static std::atomic<uint64_t> counter{0};
  const auto digits = [number = counter.fetch_add(1, std::memory_order_relaxed)](char half) {
    char input[sizeof(number) + 1];
    std::memcpy(input, &number, sizeof(number));
    input[sizeof(number)] = half;
    return siphash({input, sizeof(input)}, key, 2, 4);
  };
  return fmt::format("{}-{:016x}{:016x}", prefix, digits(0), digits(1));
}

}  // namespace llmrt::server
