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

  PoolShapes shapes() const { return PoolShapes(group); }
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
  uint64_t bound() const { return f16_copies_bound(config, caps, shapes(), before, loaded); }
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
  const Result<MemoryPlan> plan = size_pools(world.config, world.caps, world.shapes(), world.before, world.loaded);
  REQUIRE(plan.ok());
  CHECK(plan->num_blocks == 1000);
  CHECK(plan->limited_by == "what the device addresses");
  CHECK(plan->num_host_blocks == 1000);
  world.config.kv_tokens = 999 * world.group.block_tokens;
  CHECK(size_pools(world.config, world.caps, world.shapes(), world.before, world.loaded)->limited_by == "--kv-tokens");
}

TEST_CASE("the plan shows copies in f16 apart from the weights", "[pool]") {
  World world;
  MemoryReport after = world.loaded;
  after.f16_copy_bytes = 4 * kGiB;
  after.weight_bytes += after.f16_copy_bytes;
  after.peak_bytes = after.weight_bytes + kGiB;
  const Result<MemoryPlan> plan = size_pools(world.config, world.caps, world.shapes(), world.before, after);
  REQUIRE(plan.ok());
  CHECK(plan->f16_copy_bytes == 4 * kGiB);
  CHECK(plan->blocks_by_memory == ((90 - 4 - 10 - 1) * kGiB - plan->reserve_bytes) / plan->block_bytes);
  const std::string table = print(*plan, 0, 0);
  CHECK(table.find(fmt::format("{:<28}{:>16}\n", "- weights", "6144.0 MiB")) != std::string::npos);
  CHECK(table.find(fmt::format("{:<28}{:>16}\n", "- weights' copies in f16", "4096.0 MiB")) != std::string::npos);
  after.f16_copy_bytes = 0;
  CHECK(print(*size_pools(world.config, world.caps, world.shapes(), world.before, after), 0, 0).find("copies") ==
        std::string::npos);
}

TEST_CASE("token counts for every sequence, or for as many as memory allows", "[pool]") {
  World world;
  const auto rows = [&](uint32_t vocab_size) {
    return penalty_rows_of(world.config, world.caps, vocab_size, world.before, world.loaded);
  };
  world.caps.range_bytes_max = 4 * kGiB;
  CHECK(rows(152'000).value() == 256);
  // 80 GiB are left, an eighth of them for 4,096 rows of 4 MiB.
  world.config.sequences_max = 4096;
  CHECK(rows(1 << 20).value() == 1024);  // a range
  world.caps.range_bytes_max = 0;
  CHECK(rows(1 << 20).value() == 2560);
  world.loaded.weight_bytes = 85 * kGiB + kGiB / 2;
  CHECK(rows(1 << 20).value() == 16);
  // What is asked for is had, or said.
  world.config.penalty_rows_max = 100;
  CHECK(rows(1 << 20).value() == 100);
  world.config.penalty_rows_max = 300;
  const Result<uint32_t> too_many = rows(1 << 20);
  REQUIRE_FALSE(too_many.ok());
  CHECK(too_many.error().code == ErrorCode::kInvalidArgument);
  CHECK(too_many.error().message == "penalty rows: 300 were asked for, found room for 128: 4.0 MiB each");
  world.config.sequences_max = 8;  // more than run are of no use
  CHECK(rows(1 << 20).value() == 8);
}

TEST_CASE("what is asked for and finds no room is an error with both numbers", "[pool]") {
  World world;
  const auto message = [&] {
    const Result<MemoryPlan> plan = size_pools(world.config, world.caps, world.shapes(), world.before, world.loaded);
    return plan ? std::string() : plan.error().message;
  };
  CHECK(message().empty());
  world.config.kv_tokens = 100'000'000;
  CHECK(message().empty());  // a program's own figure, of which it reads in the plan what it got
  world.config.asked.kv_tokens = true;
  CHECK(message() ==
        "KV tokens: 100000000 were asked for, found room for 647984 (limited by memory): 2.0 MiB a block of 16 tokens");
  world.config.kv_tokens = 647'984;
  CHECK(message().empty());

  world.config.kv_tokens = 0;
  world.config.context_max = 700'000;
  CHECK(message().empty());
  world.config.asked.context = true;
  CHECK(message() ==
        "context: 700000 tokens were asked for, found room for 647984 in the KV pool (limited by memory): 2.0 MiB a "
        "block of 16 tokens");
  world.config.context_max = 8192;

  world.config.kv_host_bytes = 40 * kGiB;
  world.config.asked.kv_host = true;
  CHECK(message().empty());
  world.caps.range_bytes_max = 1000 * world.group.data_bytes_block_layer();
  CHECK(message() == "KV host memory: 40960.0 MiB were asked for, the device addresses 2000.0 MiB of a host pool");
  world.config.kv_host_bytes = 1 << 20;
  CHECK(message() == "KV host memory: expected at least one block of 2.0 MiB, found 1.0 MiB");
}

TEST_CASE("memory that is the host's is taken by the share that was asked for", "[pool]") {
  World world;
  world.caps.unified_memory = true;
  const auto budget = [&] {
    return size_pools(world.config, world.caps, world.shapes(), world.before, world.loaded)->budget_bytes;
  };
  CHECK(budget() == 24 * kGiB);
  world.config.memory_utilization = 0.5;
  CHECK(budget() == 24 * kGiB);
  world.config.asked.memory_utilization = true;
  CHECK(budget() == 48 * kGiB);
}

TEST_CASE("an engine takes no more than its bound, beside what others have", "[pool]") {
  World world;
  const auto budget = [&] {
    return size_pools(world.config, world.caps, world.shapes(), world.before, world.loaded)->budget_bytes;
  };
  CHECK(budget() == 90 * kGiB);
  CHECK(memory_for_engines(world.config, world.caps, world.before) == 86 * kGiB);
  world.config.memory_bytes_max = 20 * kGiB;
  CHECK(budget() == 24 * kGiB);  // others have 4
  CHECK(memory_for_engines(world.config, world.caps, world.before) == 86 * kGiB);
  world.before.free_bytes = 20 * kGiB;
  CHECK(budget() == 90 * kGiB);  // 100 would be too much
  world.before.free_bytes = 96 * kGiB;
  world.caps.unified_memory = true;
  CHECK(budget() == 20 * kGiB);
  CHECK(memory_for_engines(world.config, world.caps, world.before) == 24 * kGiB);
}

// Eight layers: `num_recurrent` of each four have a state of 1 MiB, the others attention.
ModelConfig hybrid_model(uint32_t num_recurrent) {
  ModelConfig model;
  for (uint32_t i = 0; i < 8; ++i) {
    LayerSpec& layer = model.layers.emplace_back();
    if (i % 4 >= num_recurrent) {
      layer.num_heads = layer.num_kv_heads = 8;
      layer.head_dim = 128;
      continue;
    }
    layer.attention = AttentionKind::kGatedDelta;
    layer.recurrent = {.conv_width = 2, .value_heads = 8, .key_dim = 128, .value_dim = 128};
    layer.recurrent.conv_columns = ((1 << 18) - layer.recurrent.state_columns()) / conv_slots(2);
  }
  assign_cache_groups(model.layers);
  return model;
}

TEST_CASE("a pool of states has a record for each sequence, and fewer where they would take more than the blocks",
          "[pool]") {
  World world;
  world.config.sequences_max = 64;
  const PoolShapes shapes(hybrid_model(3), world.config);
  REQUIRE(shapes.size() == 2);
  const uint64_t block_bytes = 2 * 2ull * 8 * 16 * 128 * 2, record_bytes = 6ull << 20;
  CHECK(shapes.first().num_layers == 2);
  CHECK(shapes.bytes_block() == block_bytes);
  CHECK(shapes.blocks_of(1, 0) == 0);
  CHECK(shapes.blocks_of(1, 1) == 8);
  CHECK(shapes.blocks_of(1, 480) == 480 * block_bytes / record_bytes);
  CHECK(shapes.blocks_of(1, 100'000) == 128);  // those that run, and a checkpoint of each
  CHECK(shapes.bytes_of(100'000) == 100'000 * block_bytes + 128 * record_bytes);
  for (const uint64_t bytes : {uint64_t{0}, 8 * record_bytes, 8 * record_bytes + block_bytes, kGiB, 77 * kGiB + 5}) {
    const uint64_t blocks = shapes.blocks_in(bytes);
    CHECK(shapes.bytes_of(blocks) <= bytes);
    CHECK(shapes.bytes_of(blocks + 1) > bytes);
  }
  Caps caps;
  caps.range_bytes_max = 20ull << 20;  // of a layer: 20 records, or 320 blocks
  const PoolShapes few(hybrid_model(1), world.config);
  const uint64_t by_range = few.blocks_by_range(caps);
  CHECK(by_range < 320);
  CHECK((few.blocks_of(1, by_range) == 20 && few.blocks_of(1, by_range + 1) == 21));
  CHECK(shapes.blocks_by_range(caps) == 320);
  caps.range_bytes_max = 7ull << 20;
  CHECK(few.blocks_by_range(caps) == 0);
  const std::vector<KvPoolSize> books = shapes.books(480, 0);
  REQUIRE(books.size() == 2);
  CHECK((books[0].kind == CacheKind::kBlocks && books[1].kind == CacheKind::kState));
  CHECK((books[1].num_blocks == 10 && books[1].num_host_blocks == 0 && books[1].block_tokens == 64));
  CHECK(shapes.groups(480, 0)[1].state_columns == 1 << 18);
  world.config.kv_tokens = 100'000 * 16;
  const Result<MemoryPlan> plan = size_pools(world.config, world.caps, shapes, world.before, world.loaded);
  REQUIRE(plan.ok());
  const std::string table = print(*plan, 0, 0);
  INFO(table);
  CHECK(table.find(fmt::format("{:<28}{:>16}\n", "  states", "128 records, 768.0 MiB")) != std::string::npos);
  CHECK(table.find(fmt::format("{:<28}{:>16}\n", "    of running sequences", "64")) != std::string::npos);
  CHECK(table.find(fmt::format("{:<28}{:>16}\n", "    checkpoints beside them", "64")) != std::string::npos);
  // Blocks for a thousand short sequences, records for 128.
  CHECK(print(*plan, 100, 0).find(fmt::format("{:<28}{:>16}\n", "sequences that fit", "128 of 100 tokens")) !=
        std::string::npos);
}

// Twelve layers, every sixth of which sees all positions, the others 1,024.
ModelConfig windowed_model() {
  ModelConfig model;
  for (uint32_t i = 0; i < 12; ++i) {
    LayerSpec& layer = model.layers.emplace_back();
    layer.num_heads = layer.num_kv_heads = 8;
    layer.head_dim = 128;
    if (i % 6 == 5) continue;
    layer.attention = AttentionKind::kWindow;
    layer.window = 1024;
  }
  assign_cache_groups(model.layers);
  return model;
}

TEST_CASE("pools of windows are as large as running rows and cached beginnings need", "[pool]") {
  World world;
  world.config.sequences_max = 8;
  world.config.step_tokens_max = 2048;
  const PoolShapes shapes(windowed_model(), world.config);
  REQUIRE(shapes.size() == 2);
  CHECK(shapes.first().num_layers == 2);
  constexpr uint64_t kInside = 8 * (64 + 1) + 128;  // 1,023 positions and the block of the next one; a step's chunks
  CHECK(shapes.blocks_of(0, 100'000) == 100'000);
  CHECK(shapes.blocks_of(1, 100'000) == kInside + 25'000);
  CHECK(shapes.blocks_of(1, 500) == 500);  // never more than the first
  const uint64_t layer_bytes = 2ull * 8 * 16 * 128 * 2;
  CHECK(shapes.bytes_block() == 12 * layer_bytes);
  CHECK(shapes.bytes_of(100'000) == (2 * 100'000 + 10 * (kInside + 25'000)) * layer_bytes);
  for (const uint64_t bytes : {uint64_t{0}, 12 * layer_bytes - 1, 12 * layer_bytes, kGiB, 77 * kGiB + 5}) {
    const uint64_t blocks = shapes.blocks_in(bytes);
    CHECK(shapes.bytes_of(blocks) <= bytes);
    CHECK(shapes.bytes_of(blocks + 1) > bytes);
  }

  world.config.context_max = 100'000'000;  // memory is the limit
  world.config.kv_host_bytes = kGiB;
  const Result<MemoryPlan> plan = size_pools(world.config, world.caps, shapes, world.before, world.loaded);
  REQUIRE(plan.ok());
  CHECK(plan->limited_by == "memory");
  CHECK(plan->num_blocks == shapes.blocks_in(80 * kGiB - plan->reserve_bytes));
  REQUIRE(plan->pools.size() == 2);
  CHECK(plan->pools[0].window == 0);
  CHECK(plan->pools[0].num_blocks == plan->num_blocks);
  CHECK(plan->pools[1].window == 1024);
  CHECK(plan->pools[1].num_blocks == shapes.blocks_of(1, plan->num_blocks));
  CHECK(plan->pools[1].num_host_blocks == shapes.blocks_of(1, plan->num_host_blocks));
  CHECK(plan->pool_bytes == shapes.bytes_of(plan->num_blocks));
  CHECK(plan->host_pool_bytes <= kGiB);
  CHECK(print(*plan, 0, 0)
            .find(fmt::format("{:<28}{:>16}\n", "  of 1024 in a window",
                              fmt::format("{} blocks", plan->pools[1].num_blocks))) != std::string::npos);

  // A layer of each pool is a range.
  CHECK(size_pools(world.config, world.caps, shapes, world.before, world.loaded)->limited_by == "memory");
  world.caps.range_bytes_max = 700 * layer_bytes;
  CHECK(size_pools(world.config, world.caps, shapes, world.before, world.loaded)->num_blocks == 700);
}

TEST_CASE("where all layers have a window, the first pool keeps all positions", "[pool]") {
  ModelConfig model = windowed_model();
  std::erase_if(model.layers, [](const LayerSpec& layer) { return layer.window == 0; });
  assign_cache_groups(model.layers);
  const PoolShapes shapes(model, EngineConfig());
  REQUIRE(shapes.size() == 1);
  CHECK(shapes.blocks_of(0, 100'000) == 100'000);
  CHECK(shapes.books(100, 0)[0].window == 0);
}

TEST_CASE("the plan shows what penalty rows take", "[pool]") {
  World world;
  MemoryPlan plan = *size_pools(world.config, world.caps, world.shapes(), world.before, world.loaded);
  CHECK(print(plan, 0, 0).find("penalty rows") == std::string::npos);
  plan.penalty_rows = 100;
  plan.sequences = 256;
  plan.penalty_row_bytes = 600'000;
  CHECK(print(plan, 0, 0).find(fmt::format("{:<28}{:>16}\n", "  penalty rows, 100 of 256", "57.2 MiB")) !=
        std::string::npos);
}

}  // namespace llmrt
