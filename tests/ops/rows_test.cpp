// update_rows and prepare_rows: every kind of update, in order, seen through what prepare_rows makes of the row state;
// sample writes the last token, prepare_rows reads it. Each KV group has a table of its own.
#include <catch2/catch_test_macros.hpp>

#include "tests/ops/op_harness.h"

namespace llmrt::optest {
namespace {

constexpr KvGroup kGroup{1, 1, 64, 16, 64, KvDType::kF16};

// prepare_rows with all its outputs compared, padding included.
void add_prepare(Step* step, uint32_t bucket, std::initializer_list<uint32_t> groups = {0}) {
  step->set_bucket(bucket);
  const auto output = [&](const std::string& name) {
    const TensorId id = step->output(Rows::kTokens, name, 1, DType::kI32, Tolerance::kExact);
    step->last_output().with_padding = true;
    return id;
  };
  PrepareRows op{output("tokens"), output("positions"), output("row_slots"), {}};
  for (const uint32_t group : groups) op.kv_slots[group] = output(fmt::format("kv_slots of group {}", group));
  step->forward.ops.push_back(op);
}

// A step that makes slot s draw token `tokens[s]` (greedy) for s = 0, 1, ...
Step draw_step(const std::vector<uint32_t>& tokens) {
  constexpr uint32_t kVocab = 100;
  Step step;
  std::vector<double> logits(tokens.size() * kVocab);
  for (uint32_t slot = 0; slot < tokens.size(); ++slot) {
    RowSampling greedy;
    greedy.temperature = 0;
    step.set_sampling(slot, greedy);
    step.sample_inputs.records.push_back({slot, 0, 0});
    logits[slot * kVocab + tokens[slot]] = 5;
  }
  step.forward.ops = {UpdateRows{}};
  step.set_bucket(1, static_cast<uint32_t>(tokens.size()));
  const TensorId l = step.input(Rows::kSampled, "logits", kVocab, DType::kF32, logits);
  const TensorId processed = step.input(Rows::kSampled, "processed", kVocab, DType::kF32, {});
  const TensorId kept = step.output(Rows::kSampled, "kept", 8, DType::kI32, Tolerance::kAnything);
  step.sample.ops = {Filter{l, processed, kept}, Sample{l, processed, kept}};
  return step;
}

Suite rows_suite() {
  Suite suite;
  suite.slots_max = 24;
  suite.vocab_size = 100;
  return suite;
}

Case rows_case(std::string name, std::vector<Step> steps) {
  Case test_case;
  test_case.name = std::move(name);
  test_case.groups = {kGroup};
  test_case.steps = std::move(steps);
  return test_case;
}

}  // namespace

TEST_CASE("prepare_rows places the tokens of every row", "[prepare_rows]") {
  auto rng = test_rng("prepare_rows");
  Suite suite = rows_suite();
  for (auto [num_rows, bucket] : {std::pair{0u, 4u}, {1u, 1u}, {3u, 64u}, {20u, 256u}}) {
    Step step;
    step.forward.ops = {UpdateRows{}};
    for (uint32_t r = 0; r < num_rows; ++r) {
      const uint32_t slot = (r * 5 + 3) % 24, start = static_cast<uint32_t>(rng() % 90),
                     count = 1 + static_cast<uint32_t>(rng() % 9);
      step.set_sampling(slot, {});
      step.patch_table(slot, 0, random_blocks(kGroup.num_blocks, 8, rng));
      std::vector<int32_t> tokens(count);
      for (int32_t& token : tokens) token = static_cast<int32_t>(rng() % 100);
      step.add_row(slot, start, count, tokens);
    }
    add_prepare(&step, bucket);
    suite.cases.push_back(rows_case(fmt::format("{} rows", num_rows), {std::move(step)}));
  }
  run(suite);
}

TEST_CASE("prepare_rows reads the token that was sampled last", "[prepare_rows][sample]") {
  Suite suite = rows_suite();
  Step step;
  for (uint32_t slot : {2u, 0u, 1u, 5u}) {
    if (slot == 5) step.set_sampling(5, {});  // has sampled nothing: token 0
    step.patch_table(slot, 0, {slot + 10, slot + 20});
    step.add_row(slot, 17 + slot, slot == 1 ? 3 : 1,
                 slot == 1 ? std::vector<int32_t>{kLastSampled, 7, 8} : std::vector<int32_t>{kLastSampled});
  }
  step.forward.ops = {UpdateRows{}};
  add_prepare(&step, 8);
  suite.cases.push_back(rows_case("last sampled", {draw_step({41, 0, 99}), step}));
  run(suite);
}

TEST_CASE("update_rows applies every kind of update in order", "[update_rows]") {
  auto rng = test_rng("update_rows");
  Suite suite = rows_suite();
  const auto last = std::vector<int32_t>{kLastSampled};

  Step patches;  // later patches win; entries around a patch stay
  patches.patch_table(4, 0, {1, 2, 3, 4, 5});
  patches.patch_table(4, 1, {22, 33});
  patches.patch_table(4, 2, {34});
  patches.patch_table(23, 5, {60});
  patches.add_row(4, 0, 80);
  patches.add_row(23, 95, 1);
  patches.forward.ops = {UpdateRows{}};
  add_prepare(&patches, 128);

  Step sets;  // kSet forgets the last token and keeps the table
  sets.patch_table(0, 0, {7});
  sets.patch_table(1, 0, {8});
  sets.set_sampling(1, {});
  sets.add_row(0, 3, 1, last);
  sets.add_row(1, 4, 1, last);
  sets.forward.ops = {UpdateRows{}};
  add_prepare(&sets, 2);

  Step copies;  // table and last token go along; what happens to the source afterwards does not
  copies.patch_table(0, 0, {11, 12});
  copies.add_update(RowUpdateKind::kCopySlot, 9, 0, 0);
  copies.patch_table(0, 0, {13});
  copies.patch_table(9, 1, {14});
  copies.add_row(9, 10, 10, last);
  copies.add_row(0, 10, 1, last);
  copies.forward.ops = {UpdateRows{}};
  add_prepare(&copies, 16);

  Step clears;  // a cleared slot starts afresh
  clears.patch_table(0, 0, {30});
  clears.add_update(RowUpdateKind::kClear, 0, 0, 0);
  clears.patch_table(0, 0, {31});
  clears.add_row(0, 0, 1, last);
  clears.forward.ops = {UpdateRows{}};
  add_prepare(&clears, 1);

  Step many;  // more updates than any thread block
  for (uint32_t i = 0; i < 700; ++i) {
    const uint32_t slot = static_cast<uint32_t>(rng() % 24);
    if (i % 10 == 0) many.add_update(RowUpdateKind::kCopySlot, slot, static_cast<uint32_t>(rng() % 24), 0);
    many.patch_table(slot, static_cast<uint32_t>(rng() % 5), random_blocks(kGroup.num_blocks, 1 + rng() % 3, rng));
  }
  for (uint32_t slot = 0; slot < 24; ++slot) {
    many.patch_table(slot, 7, {slot});
    many.add_row(slot, 7 * 16 + slot % 16, 1);
  }
  many.forward.ops = {UpdateRows{}};
  add_prepare(&many, 24);

  suite.cases.push_back(rows_case("patches", {patches}));
  suite.cases.push_back(rows_case("set", {draw_step({50, 51}), sets}));
  suite.cases.push_back(rows_case("copy", {draw_step({61, 62}), copies}));
  suite.cases.push_back(rows_case("clear", {draw_step({71}), clears}));
  suite.cases.push_back(rows_case("many", {many}));
  run(suite);
}

// Block ids, block sizes and lengths differ, so whoever takes one group's table for another's gives other places.
TEST_CASE("each KV group has a table of its own", "[update_rows][prepare_rows]") {
  auto rng = test_rng("rows of groups");
  const std::vector<KvGroup> groups = {kGroup, {2, 2, 32, 64, 64, KvDType::kF16}, {1, 3, 96, 32, 64, KvDType::kF16}};
  const auto blocks = [&](uint32_t count) { return random_blocks(64, count, rng); };
  Suite suite = rows_suite();
  const auto add_case = [&](std::string name, Step step, uint32_t bucket, std::initializer_list<uint32_t> used) {
    step.forward.ops = {UpdateRows{}};
    add_prepare(&step, bucket, used);
    suite.cases.push_back(rows_case(std::move(name), {std::move(step)}));
    suite.cases.back().groups = groups;
  };

  Step patches;  // first group by group, then entries of one group alone
  for (const uint32_t slot : {3u, 0u, 23u})
    for (const uint32_t group : {0u, 1u, 2u})
      patches.patch_table(slot, 0, blocks(192 / groups[group].block_tokens), group);
  patches.patch_table(0, 1, blocks(2), 2);
  patches.patch_table(3, 2, blocks(1), 1);
  patches.add_row(3, 90, 80);
  patches.add_row(0, 0, 60);
  patches.add_row(23, 63, 2);
  add_case("patches of three groups", patches, 160, {0, 1, 2});
  add_case("places in two of three groups", patches, 256, {0, 2});
  add_case("places in the last group alone", patches, 142, {2});

  Step copies;  // all tables go along; what happens to the source afterwards does not
  for (const uint32_t group : {0u, 1u, 2u}) copies.patch_table(5, 0, blocks(6), group);
  copies.add_update(RowUpdateKind::kCopySlot, 11, 5, 0);
  for (const uint32_t group : {2u, 1u, 0u}) copies.patch_table(5, 0, blocks(6), group);
  copies.patch_table(11, 1, blocks(1), 1);
  copies.add_row(11, 0, 96);
  copies.add_row(5, 7, 30);
  add_case("copies of three groups", copies, 128, {0, 1, 2});

  Step clears;
  for (const uint32_t group : {0u, 1u, 2u}) clears.patch_table(2, 0, blocks(6), group);
  clears.add_update(RowUpdateKind::kClear, 2, 0, 0);
  for (const uint32_t group : {1u, 0u, 2u}) clears.patch_table(2, 1, blocks(2), group);
  clears.add_row(2, 64, 1);
  clears.patch_table(7, 0, blocks(5), 1);
  clears.patch_table(7, 0, blocks(5), 0);
  clears.patch_table(7, 0, blocks(5), 2);
  clears.patch_table(2, 4, blocks(2), 0);
  clears.add_row(7, 70, 8);
  add_case("clears of three groups", clears, 16, {0, 1, 2});
  run(suite);
}

}  // namespace llmrt::optest
