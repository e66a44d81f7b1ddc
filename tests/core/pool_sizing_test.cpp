// How memory is shared between the KV pool and copies of weights in f16.
#include "core/engine/pool_sizing.h"

#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>

#include "core/backend/f16_copies.h"

namespace llmrt {
namespace {

constexpr uint64_t kGiB = 1ull << 30;

struct World {
  EngineConfig config;
  Caps caps;
  KvGroup group{.num_layers = 32, .num_kv_heads = 8, .head_dim = 128, .block_tokens = 16};
  MemoryReport before, loaded;

  World() {
    config.context_max = 8192;
    config.sequences_max = 256;  // 256 GiB of f16
    config.f16_copies_share = 0.15;
    config.memory_utilization = 0.9;
    before.total_bytes = 100 * kGiB;
    before.free_bytes = 96 * kGiB;
    caps.f16_copies_rows_min = 65;
    loaded = before;
    loaded.weight_bytes = 6 * kGiB;
  }
  uint64_t bound() const { return f16_copies_bound(config, caps, group, before, loaded); }
};

}  // namespace

TEST_CASE("copies in f16 take a share of the pool's memory", "[pool]") {
  World world;
  // 90 less 4 of others and 6 of weights.
  CHECK(world.bound() == static_cast<uint64_t>(0.15 * 80 * kGiB));
  world.loaded.f16_copy_bytes = 5 * kGiB;  // of an engine before: they go first
  world.loaded.weight_bytes += 5 * kGiB;
  CHECK(world.bound() == static_cast<uint64_t>(0.15 * 80 * kGiB));
  world.config.f16_copies_share = 0;
  CHECK(world.bound() == 0);
}

TEST_CASE("copies in f16 take what the pool has no use for", "[pool]") {
  World world;
  world.config.sequences_max = 16;  // 16 GiB of keys and values
  const uint64_t bound = world.bound();
  CHECK(bound > 55 * kGiB);
  CHECK(bound < 80 * kGiB - 16 * kGiB);  // the workspace has a part
  world.config.kv_tokens = 8192;
  CHECK(world.bound() > bound + 14 * kGiB);
  world.config.f16_copies_share = 0;
  CHECK(world.bound() == 0);
}

TEST_CASE("there are no copies in f16 without room for them", "[pool]") {
  World world;
  world.loaded.weight_bytes = 87 * kGiB;
  CHECK(world.bound() == 0);
  world.loaded.weight_bytes = 6 * kGiB;
  world.caps.unified_memory = true;
  CHECK(world.bound() == 0);
  world.caps.unified_memory = false;
  world.caps.is_cpu = true;
  CHECK(world.bound() == 0);
  world.caps.is_cpu = false;
  CHECK(world.bound() > 0);
  world.config.batch_invariant = true;
  CHECK(world.bound() == 0);
}

TEST_CASE("there are no copies in f16 that no step reads", "[pool]") {
  World world;
  world.config.step_tokens_max = 65;
  CHECK(world.bound() > 0);
  world.config.step_tokens_max = 64;
  CHECK(world.bound() == 0);
  world.config.step_tokens_max = 2048;
  world.caps.f16_copies_rows_min = 0;
  CHECK(world.bound() == 0);
}

TEST_CASE("the smallest matrices are copied in f16, or none where that is less than half of them", "[pool]") {
  const std::vector<uint64_t> bytes = {40, 10, 30, 10, 10};
  CHECK(choose_f16_copies(bytes, 100) == std::vector<size_t>{1, 3, 4, 2, 0});
  CHECK(choose_f16_copies(bytes, 99) == std::vector<size_t>{1, 3, 4, 2});
  CHECK(choose_f16_copies(bytes, 59).empty());
  CHECK(choose_f16_copies(bytes, 0).empty());
  CHECK(choose_f16_copies({}, 100).empty());
  const std::vector<uint64_t> halves = {50, 50};
  CHECK(choose_f16_copies(halves, 50) == std::vector<size_t>{0});
}

TEST_CASE("a layer of a pool is no larger than what a device addresses", "[pool]") {
  World world;
  world.config.kv_host_bytes = 40 * kGiB;
  world.caps.range_bytes_max = 1000 * world.group.data_bytes_block_layer() + 5;
  const Result<MemoryPlan> plan = size_pool(world.config, world.caps, world.group, world.before, world.loaded);
  REQUIRE(plan.ok());
  CHECK(plan->num_blocks == 1000);
  CHECK(plan->limited_by == "what the device addresses");
  CHECK(plan->num_host_blocks == 1000);
  world.config.kv_tokens = 999 * world.group.block_tokens;
  CHECK(size_pool(world.config, world.caps, world.group, world.before, world.loaded)->limited_by == "--kv-tokens");
}

TEST_CASE("the plan shows copies in f16 apart from the weights", "[pool]") {
  World world;
  MemoryReport after = world.loaded;
  after.f16_copy_bytes = 4 * kGiB;
  after.weight_bytes += after.f16_copy_bytes;
  after.peak_bytes = after.weight_bytes + kGiB;
  const Result<MemoryPlan> plan = size_pool(world.config, world.caps, world.group, world.before, after);
  REQUIRE(plan.ok());
  CHECK(plan->f16_copy_bytes == 4 * kGiB);
  CHECK(plan->blocks_by_memory == ((90 - 4 - 10 - 1) * kGiB - plan->reserve_bytes) / plan->block_bytes);
  const std::string table = print(*plan, 0, 0);
  CHECK(table.find(fmt::format("{:<28}{:>16}\n", "- weights", "6144.0 MiB")) != std::string::npos);
  CHECK(table.find(fmt::format("{:<28}{:>16}\n", "- weights' copies in f16", "4096.0 MiB")) != std::string::npos);
  after.f16_copy_bytes = 0;
  CHECK(print(*size_pool(world.config, world.caps, world.group, world.before, after), 0, 0).find("copies") ==
        std::string::npos);
}

}  // namespace llmrt
