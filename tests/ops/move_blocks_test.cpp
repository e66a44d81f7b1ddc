// copy_blocks: whole blocks and the first tokens of one; store_blocks and load_blocks: whole blocks to the host's pool
// and back. All layers, with scales; nothing else moves. Each command moves in the pool of its group.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "tests/ops/op_harness.h"

namespace llmrt::optest {
namespace {

std::vector<KvGroup> groups_of(KvDType dtype, uint32_t num_host_blocks) {
  return {{3, 3, 64, 16, 12, dtype, num_host_blocks},
          {1, 1, 96, 64, 8, dtype, num_host_blocks},
          {2, 8, 128, 32, 9, dtype, num_host_blocks}};
}

Case case_of(const char* what, const KvGroup& group, size_t num_moves, std::mt19937_64& rng) {
  Case test_case;
  test_case.variant = kv_dtype_name(group.dtype);
  test_case.name = fmt::format("{} {} block {} moves {}", what, test_case.variant, group.block_tokens, num_moves);
  test_case.groups = {group};
  test_case.kv = {random_kv(group, rng)};
  test_case.kv_exact = true;
  return test_case;
}

}  // namespace

TEST_CASE("copy_blocks copies whole and partial blocks of all layers", "[copy_blocks]") {
  auto rng = test_rng("copy_blocks");
  Suite suite;
  for (KvDType dtype : {KvDType::kF16, KvDType::kI8, KvDType::kF8Block, KvDType::kF8Tensor}) {
    for (const KvGroup& group : groups_of(dtype, 0)) {
      for (uint32_t num_copies : {0u, 1u, 4u}) {
        Case test_case = case_of("copy_blocks", group, num_copies, rng);
        Step step;
        const auto blocks = random_blocks(group.num_blocks, 2 * num_copies, rng);
        const uint32_t lengths[] = {group.block_tokens, 1, group.block_tokens - 1, 7};
        for (uint32_t i = 0; i < num_copies; ++i)
          step.forward_inputs.block_copies.push_back({blocks[2 * i], blocks[2 * i + 1], lengths[i]});
        step.memory.ops = {CopyBlocks{0}};
        test_case.steps = {std::move(step)};
        suite.cases.push_back(std::move(test_case));
      }
    }
  }
  run(suite);
}

TEST_CASE("blocks go to the host's pool and come back elsewhere", "[store_blocks][load_blocks]") {
  auto rng = test_rng("store_blocks");
  Suite suite;
  for (KvDType dtype : {KvDType::kF16, KvDType::kI8, KvDType::kF8Block, KvDType::kF8Tensor}) {
    for (const KvGroup& group : groups_of(dtype, 5)) {
      for (uint32_t num_moves : {0u, 1u, 3u}) {
        Case test_case = case_of("store and load", group, num_moves, rng);
        // In one step a block is stored, overwritten by a load of another, and that is copied from.
        const auto blocks = random_blocks(group.num_blocks, 2 * num_moves, rng);
        const auto host = random_blocks(group.num_host_blocks, num_moves + 1, rng);
        Step step;
        for (uint32_t i = 0; i < num_moves; ++i) {
          step.forward_inputs.block_stores.push_back({blocks[i], host[i], group.block_tokens});
          step.forward_inputs.block_loads.push_back({host[i + 1], blocks[i], group.block_tokens});
          step.forward_inputs.block_copies.push_back({blocks[i], blocks[num_moves + i], group.block_tokens / 2});
        }
        step.memory.ops = {StoreBlocks{0}, LoadBlocks{0}, CopyBlocks{0}};
        test_case.steps = {step, step};
        suite.cases.push_back(std::move(test_case));
      }
    }
  }
  run(suite);
}

TEST_CASE("blocks move in the pools of their groups", "[copy_blocks][store_blocks][load_blocks]") {
  auto rng = test_rng("moves of groups");
  Suite suite;
  for (KvDType dtype : {KvDType::kF16, KvDType::kI8}) {
    Case test_case;
    test_case.variant = kv_dtype_name(dtype);
    test_case.name = fmt::format("moves of three groups {}", test_case.variant);
    test_case.groups = groups_of(dtype, 5);
    test_case.kv_exact = true;
    Step step;
    ForwardInputs& in = step.forward_inputs;
    for (uint32_t g = 0; g < 3; ++g) {
      const KvGroup& group = test_case.groups[g];
      test_case.kv.push_back(random_kv(group, rng));
      const auto blocks = random_blocks(group.num_blocks, 6, rng), host = random_blocks(group.num_host_blocks, 5, rng);
      for (uint32_t i = 0; i <= g; ++i) {  // a group more, a move more
        in.block_stores.push_back({blocks[i], host[i], group.block_tokens, g});
        in.block_loads.push_back({host[i + 1], blocks[i], group.block_tokens, g});
        in.block_copies.push_back({blocks[i], blocks[3 + i], group.block_tokens - 1 - i, g});
      }
    }
    // Commands of the groups in any order.
    std::shuffle(in.block_stores.begin(), in.block_stores.end(), rng);
    std::shuffle(in.block_copies.begin(), in.block_copies.end(), rng);
    for (uint32_t g = 0; g < 3; ++g)
      step.memory.ops.insert(step.memory.ops.end(), {StoreBlocks{g}, LoadBlocks{g}, CopyBlocks{g}});
    test_case.steps = {step, step};
    suite.cases.push_back(std::move(test_case));
  }
  run(suite);
}

}  // namespace llmrt::optest
