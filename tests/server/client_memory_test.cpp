// The bound on what clients make the server hold: who may grow below half of it, above, and at it.
#include "server/client_memory.h"

#include <catch2/catch_test_macros.hpp>

#include <thread>
#include <vector>

namespace llmrt::server {
namespace {

constexpr uint64_t kMiB = 1 << 20;

TEST_CASE("below half of the bound one account may hold it all") {
  const auto memory = std::make_shared<ClientMemory>(64 * kMiB);
  MemoryAccount one(memory);
  CHECK(one.set(MemoryAccount::kBody, 20 * kMiB));
  CHECK(one.set(MemoryAccount::kAnswer, 12 * kMiB));
  CHECK_FALSE(one.set(MemoryAccount::kAnswer, 13 * kMiB));
  CHECK(memory->used_bytes() == 32 * kMiB);  // a refusal changes nothing
  CHECK(one.set(MemoryAccount::kBody, 0));
  CHECK(one.set(MemoryAccount::kAnswer, 13 * kMiB));
  CHECK(memory->used_bytes() == 13 * kMiB);
}

TEST_CASE("above half, accounts below their fair share grow on and large ones do not") {
  const auto memory = std::make_shared<ClientMemory>(64 * kMiB);
  MemoryAccount large(memory), small(memory);
  REQUIRE(large.set(MemoryAccount::kAnswer, 31 * kMiB));
  REQUIRE(small.set(MemoryAccount::kAnswer, 1 * kMiB));
  CHECK_FALSE(large.set(MemoryAccount::kAnswer, 32 * kMiB));
  CHECK(small.set(MemoryAccount::kAnswer, 16 * kMiB));  // half of a half
  CHECK_FALSE(small.set(MemoryAccount::kAnswer, 17 * kMiB));
  CHECK(memory->used_bytes() == 47 * kMiB);
}

TEST_CASE("nothing grows past the bound, and what ends is given back") {
  const auto memory = std::make_shared<ClientMemory>(4 * kMiB);
  std::vector<std::unique_ptr<MemoryAccount>> accounts;
  uint64_t refused = 0;
  for (int i = 0; i < 5000; ++i) {
    accounts.push_back(std::make_unique<MemoryAccount>(memory));
    refused += !accounts.back()->set(MemoryAccount::kBody, 1024);
  }
  CHECK(memory->used_bytes() == 4 * kMiB);
  CHECK(refused == 5000 - 4096);
  accounts.clear();
  CHECK(memory->used_bytes() == 0);
  MemoryAccount whole(memory);  // no large account is left over in the count either
  CHECK(whole.set(MemoryAccount::kBody, 2 * kMiB));
}

TEST_CASE("many threads: the sum stays within the bound and ends at nothing") {
  const auto memory = std::make_shared<ClientMemory>(8 * kMiB);
  std::atomic<bool> passed{false};
  std::vector<std::thread> threads;
  for (uint64_t seed = 1; seed <= 4; ++seed)
    threads.emplace_back([&, seed] {
      MemoryAccount account(memory);
      uint64_t state = seed;
      for (int i = 0; i < 20000; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        account.set(static_cast<MemoryAccount::Part>((state >> 60) % MemoryAccount::kNumParts),
                    (state >> 33) % (4 * kMiB));
        if (memory->used_bytes() > memory->limit_bytes()) passed = true;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK_FALSE(passed);
  CHECK(memory->used_bytes() == 0);
}

}  // namespace
}  // namespace llmrt::server
