// copy_blocks: whole blocks and the first tokens of one, all layers, with scales; nothing else moves.
#include <catch2/catch_test_macros.hpp>

#include "tests/ops/op_harness.h"

namespace llmrt::optest {

TEST_CASE("copy_blocks copies whole and partial blocks of all layers", "[copy_blocks]") {
  auto rng = test_rng("copy_blocks");
  Suite suite;
  for (KvDType dtype : {KvDType::kF16, KvDType::kBF16, KvDType::kI8}) {
    for (const KvGroup& group :
         {KvGroup{3, 3, 64, 16, 12, dtype}, KvGroup{1, 1, 80, 64, 8, dtype}, KvGroup{2, 8, 128, 32, 9, dtype}}) {
      for (uint32_t num_copies : {0u, 1u, 4u}) {
        Case test_case;
        test_case.variant = kv_dtype_name(dtype);
        test_case.name =
            fmt::format("copy_blocks {} block {} copies {}", test_case.variant, group.block_tokens, num_copies);
        test_case.groups = {group};
        test_case.kv = {random_kv(group, rng)};
        test_case.kv_exact = true;
        Step step;
        const auto blocks = random_blocks(group.num_blocks, 2 * num_copies, rng);
        const uint32_t lengths[] = {group.block_tokens, 1, group.block_tokens - 1, 7};
        for (uint32_t i = 0; i < num_copies; ++i)
          step.forward_inputs.block_copies.push_back({blocks[2 * i], blocks[2 * i + 1], lengths[i]});
        step.set_bucket(1);
        step.forward.ops = {CopyBlocks{0}};
        test_case.steps = {std::move(step)};
        suite.cases.push_back(std::move(test_case));
      }
    }
  }
  run(suite);
}

}  // namespace llmrt::optest
