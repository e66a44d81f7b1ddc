// What the seeded simulations share: the command line [--seeds N] [--first-seed S], and the loop over the seeds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace llmrt::test {

struct Seeds {
  uint64_t num = 100, first = 1;

  // The exit status of a program whose seeds passed: 1 where so many seeds must have reached everything and did not.
  int reached(bool everything) const;
};
Seeds parse_seeds(int argc, char** argv);

// Each seed without and with a step planned ahead (`overlap`), until `run` says what went wrong (empty: nothing). It is
// printed then with the command that replays the seed. A process that stops itself says in which seed.
bool run_seeds(const char* program, const Seeds& seeds, const std::function<std::string(uint64_t, bool overlap)>& run);

}  // namespace llmrt::test
