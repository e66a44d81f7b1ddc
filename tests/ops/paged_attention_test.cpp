// paged_attention: head ratios and sizes, block sizes, KV dtypes, one to many splits, runs of tokens, prompt tiles with
// tails, mixed batches, windows, soft caps and sinks. The blocks of a row lie scattered in the pool.
#include <algorithm>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>

#include "core/base/checked_math.h"
#include "core/base/half.h"
#include "tests/ops/op_harness.h"
#include "tests/reference/backend.h"

namespace llmrt::optest {
namespace {

struct Shape {
  uint32_t heads, kv_heads, dim, block_tokens;
};
struct RowSpec {
  uint32_t start, num_tokens;
  bool prompt;
};
// Every query is near one vector, and this key of each row is `factor` times it.
struct Peak {
  uint32_t key;
  float factor;
};
struct Extras {
  uint32_t bucket = 0, split_keys = 64, window = 0;
  float soft_cap = 0;
  DType out = DType::kF32;
  uint32_t prompt_splits = 1;
  std::vector<Peak> peaks = {};
  int32_t sinks = -1;
  bool batch_invariant = false;
  bool queries_only = false;
  uint32_t item_tokens = 1;  // of a decode item, at most
};

float direction(uint32_t dim) {
  return dim * 2654435761u >> 31 ? 1.0f : -1.0f;
}
// Of an f16 pool.
void write_peak(const KvGroup& group, uint32_t key, float factor, std::vector<std::byte>& block) {
  for (uint32_t head = 0; head < group.num_kv_heads; ++head)
    for (uint32_t dim = 0; dim < group.head_dim; ++dim) {
      const uint16_t bits = f16_bits(factor * direction(dim));
      const size_t at = (size_t{head} * group.block_tokens + key % group.block_tokens) * group.head_dim + dim;
      std::memcpy(block.data() + at * 2, &bits, 2);
    }
}

Case attention_case(const Shape& shape, KvDType dtype, const std::vector<RowSpec>& rows, Extras extras,
                    std::mt19937_64& rng) {
  uint32_t num_blocks = 3;
  for (const RowSpec& row : rows) num_blocks += ceil_div(row.start + row.num_tokens, shape.block_tokens);
  const KvGroup group{2, shape.kv_heads, shape.dim, shape.block_tokens, num_blocks, dtype};
  Case test_case;
  test_case.variant = kv_dtype_name(dtype);
  test_case.name =
      fmt::format("paged_attention {} heads {}/{} dim {} block {} window {} cap {} rows", test_case.variant,
                  shape.heads, shape.kv_heads, shape.dim, shape.block_tokens, extras.window, extras.soft_cap);
  test_case.groups = {group};
  test_case.kv = {random_kv(group, rng)};
  test_case.kv_exact = true;

  Step step;
  step.forward.batch_invariant = extras.batch_invariant;
  const std::vector<uint32_t> blocks = random_blocks(num_blocks, num_blocks, rng);
  uint32_t next_block = 0;
  for (uint32_t r = 0; r < rows.size(); ++r) {
    const RowSpec& row = rows[r];
    const uint32_t count = ceil_div(row.start + row.num_tokens, shape.block_tokens), slot = r * 7 % 31;
    step.patch_table(slot, 0, {blocks.begin() + next_block, blocks.begin() + next_block + count});
    for (const Peak& peak : extras.peaks)
      if (peak.key < row.start + row.num_tokens)
        write_peak(group, peak.key, peak.factor,
                   test_case.kv[0][1][blocks[next_block + peak.key / shape.block_tokens]]);
    next_block += count;
    const uint32_t row_idx = step.add_row(slot, row.start, row.num_tokens);
    if (row.prompt)
      step.add_prompt_items(row_idx, extras.window, extras.prompt_splits);
    else
      step.add_decode_items(row_idx, extras.split_keys, extras.window, 0, extras.item_tokens);
    test_case.name += fmt::format(" {}{}+{}", row.prompt ? "p" : "d", row.start, row.num_tokens);
  }
  step.set_bucket(std::max(extras.bucket, 1u));
  step.forward.decode_only = std::ranges::none_of(rows, &RowSpec::prompt);
  const uint32_t live = static_cast<uint32_t>(step.forward_inputs.tokens.size());
  const uint32_t columns = (shape.heads + (extras.queries_only ? 0 : 2 * shape.kv_heads)) * shape.dim;
  std::vector<double> numbers = random_normal(rng, size_t{live} * columns);
  if (!extras.peaks.empty())
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = numbers[i] / 16 + direction(i % columns % shape.dim);
  const TensorId qkv = step.input(Rows::kTokens, "qkv", columns, DType::kF32, std::move(numbers));
  const TensorId out = step.output(Rows::kTokens, "out", shape.heads * shape.dim, extras.out, Tolerance::kAttention);
  step.forward.ops = {UpdateRows{},
                      PagedAttention{qkv, out, 0, 1, shape.heads, shape.kv_heads, shape.dim,
                                     1 / std::sqrt(static_cast<float>(shape.dim)), extras.window, extras.soft_cap,
                                     dtype == KvDType::kF8Tensor ? KvTensorScales{0.003f, 0.02f} : KvTensorScales{},
                                     extras.sinks, extras.queries_only}};
  if (extras.queries_only) test_case.name += " queries only";
  if (extras.item_tokens > 1) test_case.name += fmt::format(" runs of {}", extras.item_tokens);
  if (extras.sinks >= 0) test_case.name += extras.batch_invariant ? " sinks invariant" : " sinks";
  test_case.steps = {std::move(step)};
  return test_case;
}

// Ratios 1, 3, 4, 7, 8, 20 over every head size and block size.
constexpr Shape kAllShapes[] = {{9, 3, 64, 16},  {14, 2, 64, 32}, {8, 1, 64, 64},   {4, 4, 80, 16},
                                {8, 2, 96, 32},  {8, 1, 128, 16}, {12, 4, 128, 64}, {32, 8, 128, 16},
                                {7, 1, 256, 16}, {4, 1, 256, 32}, {2, 2, 128, 32},  {20, 1, 64, 32}};
// f16 over all of them; the other dtypes share its code and so have a test of their own for the rest.
template <KvDType D>
std::vector<Shape> shapes(bool rest = false) {
  std::vector<Shape> result;
  for (const Shape& shape : kAllShapes) {
    const bool is_common = shape.block_tokens == 16 && (shape.dim == 64 || shape.heads == 32);
    if (D == KvDType::kF16 || (is_common != rest && (!kv_has_block_scales(D) || shape.dim % kKvScaleBlock == 0)))
      result.push_back(shape);
  }
  return result;
}
Suite make_suite() {
  Suite suite;
  suite.slots_max = 31;
  return suite;
}

}  // namespace

// A test of its own for each dtype D: lavapipe compiles kernels on one core, and so the dtypes can run side by side.
#define ATTENTION_TEST(name)                                                                                       \
  TEMPLATE_TEST_CASE_SIG(name, "[paged_attention]", ((KvDType D), D), KvDType::kF16, KvDType::kBF16, KvDType::kI8, \
                         KvDType::kF8, KvDType::kI8Block, KvDType::kF8Block, KvDType::kF8Tensor)

ATTENTION_TEST("paged_attention decodes rows at any position") {
  auto rng = test_rng("attention decode");
  Suite suite = make_suite();
  for (const Shape& shape : shapes<D>()) {
    suite.cases.push_back(attention_case(shape, D, {{0, 1, false}}, {}, rng));
    suite.cases.push_back(attention_case(
        shape, D, {{15, 1, false}, {16, 1, false}, {0, 1, false}, {63, 1, false}, {64, 1, false}, {300, 1, false}},
        {.bucket = 8}, rng));
  }
  run(suite);
}

ATTENTION_TEST("paged_attention merges one to many splits") {
  auto rng = test_rng("attention splits");
  Suite suite = make_suite();
  for (const Shape& shape : {kAllShapes[0], kAllShapes[1], kAllShapes[7]})
    for (uint32_t split_keys : {48u, 64u, 256u, 1024u})
      suite.cases.push_back(attention_case(
          shape, D, {{1100, 1, false}, {split_keys - 1, 1, false}, {split_keys, 1, false}, {700, 3, false}},
          {.bucket = 8, .split_keys = split_keys}, rng));
  run(suite);
}

ATTENTION_TEST("paged_attention computes prompt tiles with tails") {
  auto rng = test_rng("attention prompt");
  Suite suite = make_suite();
  for (const Shape& shape : shapes<D>()) {
    suite.cases.push_back(attention_case(shape, D, {{0, 1, true}}, {}, rng));
    suite.cases.push_back(attention_case(shape, D, {{0, 65, true}, {37, 20, true}}, {.bucket = 128}, rng));
  }
  for (uint32_t tokens : {2u, 15u, 17u, 63u, 64u, 130u})
    suite.cases.push_back(attention_case(kAllShapes[0], D, {{tokens * 3 % 50, tokens, true}}, {.bucket = 192}, rng));
  run(suite);
}

ATTENTION_TEST("paged_attention serves decode and prompt rows in one step") {
  auto rng = test_rng("attention mixed");
  Suite suite = make_suite();
  const std::vector<RowSpec> rows = {{200, 1, false}, {0, 70, true}, {5, 1, false}, {129, 33, true}, {64, 2, false}};
  for (const Shape& shape : shapes<D>()) suite.cases.push_back(attention_case(shape, D, rows, {.bucket = 128}, rng));
  suite.cases.push_back(attention_case(kAllShapes[0], D, {}, {.bucket = 16}, rng));
  run(suite);
}

ATTENTION_TEST("paged_attention merges the splits of prompts") {
  auto rng = test_rng("attention prompt splits");
  Suite suite = make_suite();
  for (const Shape& shape : {kAllShapes[0], kAllShapes[7]})
    for (uint32_t splits : {2u, 5u})
      suite.cases.push_back(attention_case(shape, D, {{200, 1, false}, {300, 70, true}, {0, 33, true}, {64, 2, false}},
                                           {.bucket = 128, .prompt_splits = splits}, rng));
  suite.cases.push_back(
      attention_case(kAllShapes[0], D, {{500, 80, true}}, {.bucket = 80, .window = 100, .prompt_splits = 3}, rng));
  run(suite);
}

ATTENTION_TEST("paged_attention computes long prompts beside short ones and rows that decode") {
  auto rng = test_rng("attention long prompts");
  Suite suite = make_suite();
  const std::vector<RowSpec> rows = {
      {200, 1, false}, {1450, 130, true}, {0, 33, true}, {64, 2, false}, {2900, 20, true}};
  for (const Shape& shape : {kAllShapes[0], kAllShapes[7]}) {
    suite.cases.push_back(attention_case(shape, D, rows, {.bucket = 192, .out = DType::kF16}, rng));
    suite.cases.push_back(attention_case(shape, D, {{777, 64, true}}, {.bucket = 64}, rng));
  }
  suite.cases.push_back(attention_case(kAllShapes[7], D, rows, {.bucket = 192, .window = 1000}, rng));
  run(suite);
}

// Scores that lie far from those of the first keys, above and below: a kernel that scales by the first must mend it.
TEST_CASE("paged_attention follows scores that rise and fall by far", "[paged_attention]") {
  auto rng = test_rng("attention peaks");
  Suite suite = make_suite();
  const std::vector<Peak> sinks = {{0, 4}, {70, 1}}, early_lows = {{0, -6}, {1, -6}, {2, -6}};
  const std::vector<Peak> rises = {{40, 1}, {41, 2}, {90, 4}, {300, 8}}, jumps = {{33, 40}, {34, 40}};
  for (const Shape& shape : {kAllShapes[0], kAllShapes[5], kAllShapes[7]})
    for (const std::vector<Peak>& peaks : {sinks, early_lows, rises, jumps})
      for (uint32_t window : {0u, 50u})
        suite.cases.push_back(attention_case(shape, KvDType::kF16,
                                             {{350, 1, false}, {0, 70, true}, {290, 80, true}, {5, 1, true}},
                                             {.bucket = 192, .window = window, .peaks = peaks}, rng));
  run(suite);
}

// Scores are about 1. Heads have sinks about as large, far above and below them, and none.
std::vector<float> sinks_of(uint32_t num_heads) {
  constexpr float kSinks[] = {0.5f, 3, -2, 1e4f, -INFINITY, 40, 6, -1e30f, 5};
  std::vector<float> sinks(num_heads);
  for (uint32_t head = 0; head < num_heads; ++head) sinks[head] = kSinks[head % std::size(kSinks)];
  return sinks;
}

ATTENTION_TEST("paged_attention lets sinks take part once") {
  auto rng = test_rng("attention sinks");
  Suite suite = make_suite();
  const std::vector<RowSpec> decode = {{0, 1, false}, {300, 1, false}, {64, 2, false}};
  const std::vector<RowSpec> mixed = {{200, 1, false}, {0, 70, true}, {5, 1, false}, {129, 33, true}};
  for (const Shape& shape : {kAllShapes[0], kAllShapes[7]}) {
    const int32_t sinks = suite.add_f32(sinks_of(shape.heads));
    suite.cases.push_back(attention_case(shape, D, decode, {.bucket = 8, .split_keys = 512, .sinks = sinks}, rng));
    suite.cases.push_back(attention_case(shape, D, decode, {.bucket = 8, .sinks = sinks}, rng));
    suite.cases.push_back(attention_case(shape, D, mixed, {.bucket = 128, .sinks = sinks}, rng));
    suite.cases.push_back(
        attention_case(shape, D, mixed, {.bucket = 128, .window = 40, .prompt_splits = 3, .sinks = sinks}, rng));
  }
  run(suite);
}

// The same step twice: in runs, and with an item for each token.
Case twice(const Shape& shape, KvDType dtype, const std::vector<RowSpec>& rows, Extras extras, std::mt19937_64& rng) {
  extras.batch_invariant = true;
  extras.item_tokens = 8;
  std::mt19937_64 again = rng;
  Case both = attention_case(shape, dtype, rows, extras, rng);
  extras.item_tokens = 1;
  both.steps.push_back(std::move(attention_case(shape, dtype, rows, extras, again).steps[0]));
  both.check_tensors = [](const Outcome&, const Outcome& actual) {
    std::vector<std::string> wrong;
    if (actual.tensors[0].empty()) wrong.push_back("no tensors");
    for (const auto& [id, bytes] : actual.tensors[0])
      if (bytes != actual.tensors[1].at(id)) wrong.push_back(fmt::format("tensor {} has other bits in runs", id));
    return wrong;
  };
  return both;
}

// Runs beside rows of one token and prompts: over borders of splits and blocks, with the last split hidden from the
// first tokens. Batch-invariant ones have the bits of tokens by themselves.
ATTENTION_TEST("paged_attention computes runs of tokens") {
  auto rng = test_rng("attention runs");
  Suite suite = make_suite();
  const std::vector<RowSpec> decode = {{700, 3, false}, {0, 5, false},   {61, 8, false},
                                       {300, 1, false}, {123, 2, false}, {254, 4, false}};
  const std::vector<RowSpec> mixed = {{200, 2, false}, {0, 20, true}, {5, 1, false}, {129, 9, true}, {64, 4, false}};
  for (const Shape& shape : {kAllShapes[0], kAllShapes[7]}) {
    if (D != KvDType::kF16 && shape.dim != 64) continue;
    suite.cases.push_back(attention_case(shape, D, decode, {.bucket = 24, .item_tokens = 8}, rng));
    suite.cases.push_back(attention_case(shape, D, mixed, {.bucket = 40, .split_keys = 128, .item_tokens = 4}, rng));
    for (const uint32_t window : {0u, 50u})
      suite.cases.push_back(twice(shape, D, decode, {.bucket = 24, .split_keys = 128, .window = window}, rng));
  }
  run(suite);
}

TEST_CASE("paged_attention computes runs beside windows, soft caps, sinks and heads of any size", "[paged_attention]") {
  auto rng = test_rng("attention runs beside");
  Suite suite = make_suite();
  const std::vector<RowSpec> rows = {{350, 4, false}, {5, 1, false}, {14, 3, false}, {38, 8, false}, {95, 2, false}};
  const auto add = [&](const Shape& shape, Extras extras) {
    extras.bucket = 24;
    extras.item_tokens = 8;
    suite.cases.push_back(attention_case(shape, KvDType::kF16, rows, extras, rng));
  };
  const Shape& common = kAllShapes[0];
  const int32_t sinks = suite.add_f32(sinks_of(common.heads));
  const std::vector<Peak> rises = {{40, 1}, {41, 2}, {90, 4}, {252, 8}, {352, 9}};
  for (const uint32_t window : {1u, 50u, 100u}) add(common, {.split_keys = 128, .window = window, .sinks = sinks});
  add(common, {.soft_cap = 2, .out = DType::kF16, .sinks = sinks});
  add(common, {.peaks = rises});
  add(common, {.queries_only = true});
  suite.cases.push_back(twice(common, KvDType::kF16, rows, {.bucket = 24, .peaks = rises}, rng));
  // Heads of 80 and 256 numbers, 7 and 20 of them a KV head.
  for (const Shape& shape : {kAllShapes[3], kAllShapes[8], kAllShapes[11]}) {
    add(shape, {.window = 50});
    suite.cases.push_back(twice(shape, KvDType::kF16, rows, {.bucket = 24, .window = 40}, rng));
  }
  run(suite);
}

// With all that a layer may have beside them, and in lists that do not depend on their batch.
TEST_CASE("paged_attention has sinks beside windows, soft caps, any head and high scores", "[paged_attention]") {
  auto rng = test_rng("attention sinks beside");
  Suite suite = make_suite();
  const std::vector<RowSpec> decode = {{350, 1, false}, {5, 1, false}, {16, 1, false}};
  const std::vector<RowSpec> mixed = {{350, 1, false}, {0, 70, true}, {290, 80, true}, {5, 1, true}};
  for (const Shape& shape : {kAllShapes[0], kAllShapes[3], kAllShapes[5], kAllShapes[8]}) {
    const int32_t sinks = suite.add_f32(sinks_of(shape.heads));
    for (const Extras& extras :
         {Extras{.window = 50, .sinks = sinks}, Extras{.soft_cap = 2, .out = DType::kF16, .sinks = sinks},
          Extras{.prompt_splits = 2, .peaks = {{40, 1}, {90, 4}, {300, 8}}, .sinks = sinks},
          Extras{.window = 100, .prompt_splits = 2, .sinks = sinks, .batch_invariant = true}})
      for (const std::vector<RowSpec>& rows : {decode, mixed}) {
        Extras sized = extras;
        sized.bucket = rows.size() == decode.size() ? 4 : 192;
        suite.cases.push_back(attention_case(shape, KvDType::kF16, rows, sized, rng));
      }
  }
  run(suite);
}

TEST_CASE("paged_attention reads rows of queries alone", "[paged_attention]") {
  auto rng = test_rng("attention queries");
  Suite suite = make_suite();
  for (const Shape& shape : {kAllShapes[0], kAllShapes[5]})
    for (const std::vector<RowSpec>& rows :
         {std::vector<RowSpec>{{200, 1, false}, {5, 1, false}}, {{200, 1, false}, {0, 70, true}, {129, 33, true}}})
      suite.cases.push_back(attention_case(shape, KvDType::kF16, rows, {.bucket = 128, .queries_only = true}, rng));
  run(suite);
}

// What the comparison above must find: an op with other sinks than those of the case.
TEST_CASE("sinks that are left out, scaled or counted once a split are told", "[paged_attention]") {
  auto rng = test_rng("attention sink faults");
  const Shape& shape = kAllShapes[0];
  const std::vector<float> sinks(shape.heads, 3.0f);
  std::vector<float> scaled = sinks, per_split = sinks;
  for (float& sink : scaled) sink /= std::sqrt(static_cast<float>(shape.dim));
  for (float& sink : per_split) sink += std::log(5.0f);  // five splits of 320 keys
  Suite suite = make_suite();
  const int32_t right = suite.add_f32(sinks);
  suite.cases.push_back(attention_case(shape, KvDType::kF16, {{319, 1, false}}, {.sinks = right}, rng));
  const int32_t wrongs[] = {-1, suite.add_f32(scaled), suite.add_f32(per_split)};
  const auto outcome_with = [&](int32_t id) {
    Case changed = suite.cases.front();
    std::get<PagedAttention>(changed.steps.front().forward.ops.back()).sinks = id;
    return reference_outcome(suite, changed);
  };
  Caps caps;
  caps.activation_dtype = DType::kBF16;  // the widest bound
  const Outcome expected = outcome_with(right);
  CHECK(compare(suite.cases.front(), expected, outcome_with(right), caps).empty());
  for (const int32_t wrong : wrongs) {
    INFO("sinks " << wrong);
    CHECK_FALSE(compare(suite.cases.front(), expected, outcome_with(wrong), caps).empty());
  }
}

// Hidden: a processor compiles each of these kernels for seconds.
TEMPLATE_TEST_CASE_SIG("paged_attention over heads of any size", "[.wide]", ((KvDType D), D), KvDType::kBF16,
                       KvDType::kI8, KvDType::kF8, KvDType::kI8Block, KvDType::kF8Block, KvDType::kF8Tensor) {
  auto rng = test_rng("attention wide");
  Suite suite = make_suite();
  const std::vector<RowSpec> rows = {{200, 1, false}, {0, 70, true}, {5, 1, false}, {129, 33, true}, {64, 2, false}};
  for (const Shape& shape : shapes<D>(true)) {
    suite.cases.push_back(attention_case(shape, D, rows, {.bucket = 128}, rng));
    suite.cases.push_back(attention_case(shape, D, {{1100, 1, false}, {64, 1, false}}, {.bucket = 8}, rng));
  }
  run(suite);
}

TEST_CASE("paged_attention honours window, soft cap and output dtype", "[paged_attention]") {
  auto rng = test_rng("attention extras");
  Suite suite = make_suite();
  const std::vector<RowSpec> rows = {{200, 1, false}, {0, 70, true}, {5, 1, false}, {129, 33, true}};
  for (const Shape& shape : {kAllShapes[0], kAllShapes[5]}) {
    for (uint32_t window : {1u, 16u, 40u, 100u, 5000u})
      suite.cases.push_back(attention_case(shape, KvDType::kF16, rows, {.bucket = 128, .window = window}, rng));
    for (float soft_cap : {0.5f, 30.0f})
      suite.cases.push_back(attention_case(shape, KvDType::kF16, rows, {.bucket = 128, .soft_cap = soft_cap}, rng));
    for (DType out : {DType::kF16, DType::kBF16})
      suite.cases.push_back(attention_case(shape, KvDType::kF16, rows, {.bucket = 128, .out = out}, rng));
  }
  // Tails of prompts where a KV head has four query heads.
  for (const Extras& extras : {Extras{.bucket = 128, .window = 40}, Extras{.bucket = 128, .soft_cap = 30},
                               Extras{.bucket = 128, .out = DType::kF16, .prompt_splits = 2}})
    suite.cases.push_back(
        attention_case(kAllShapes[7], KvDType::kF16, {{0, 2, true}, {200, 81, true}, {129, 32, true}}, extras, rng));
  // Decode items of 8-bit pools may have a kernel of their own.
  const std::vector<RowSpec> decode_rows = {{200, 1, false}, {5, 1, false}, {64, 2, false}};
  for (const Extras& extras : {Extras{.bucket = 8, .window = 40}, Extras{.bucket = 8, .soft_cap = 30},
                               Extras{.bucket = 8, .out = DType::kF16}})
    suite.cases.push_back(attention_case(kAllShapes[0], KvDType::kI8, decode_rows, extras, rng));
  run(suite);
}

// A window in one group, other heads, sizes and blocks in each, and work lists that are cut differently.
TEST_CASE("paged_attention reads the table and the work lists of its group", "[paged_attention]") {
  auto rng = test_rng("attention groups");
  struct Layers {
    Shape shape;
    uint32_t window, split_keys, prompt_splits;
  };
  const std::vector<Layers> all = {{kAllShapes[0], 0, 64, 1}, {kAllShapes[10], 40, 48, 1}, {kAllShapes[4], 100, 80, 2}};
  const std::vector<RowSpec> mixed = {{200, 1, false}, {0, 70, true}, {5, 1, false}, {129, 33, true}, {64, 2, false}};
  const std::vector<RowSpec> decode = {{200, 1, false}, {5, 1, false}, {64, 2, false}};
  Suite suite = make_suite();
  for (const std::vector<RowSpec>& rows : {mixed, decode}) {
    Case test_case;
    test_case.variant = kv_dtype_name(KvDType::kF16);
    test_case.name = fmt::format("paged_attention of three groups, {} rows", rows.size());
    test_case.kv_exact = true;
    Step step;
    step.forward.ops = {UpdateRows{}};
    step.forward.decode_only = rows.size() == decode.size();
    for (const RowSpec& row : rows)
      step.add_row(static_cast<uint32_t>(step.forward_inputs.rows.size()) * 7, row.start, row.num_tokens);
    step.set_bucket(128);
    const uint32_t live = static_cast<uint32_t>(step.forward_inputs.tokens.size());
    for (uint32_t g = 0; g < all.size(); ++g) {
      const auto& [shape, window, split_keys, prompt_splits] = all[g];
      test_case.groups.push_back({2, shape.kv_heads, shape.dim, shape.block_tokens, 40, KvDType::kF16});
      test_case.kv.push_back(random_kv(test_case.groups[g], rng));
      const std::vector<uint32_t> blocks = random_blocks(40, 40, rng);
      auto next = blocks.begin();
      for (uint32_t r = 0; r < rows.size(); ++r) {
        const uint32_t count = ceil_div(rows[r].start + rows[r].num_tokens, shape.block_tokens);
        step.patch_table(r * 7, 0, {next, next + count}, g);
        next += count;
        if (rows[r].prompt)
          step.add_prompt_items(r, window, prompt_splits, g);
        else
          step.add_decode_items(r, split_keys, window, g);
      }
      const uint32_t columns = (shape.heads + 2 * shape.kv_heads) * shape.dim;
      const TensorId qkv = step.input(Rows::kTokens, fmt::format("qkv{}", g), columns, DType::kF32,
                                      random_normal(rng, size_t{live} * columns));
      const TensorId out = step.output(Rows::kTokens, fmt::format("out{}", g), shape.heads * shape.dim, DType::kF32,
                                       Tolerance::kAttention);
      step.forward.ops.push_back(PagedAttention{qkv, out, g, 1, shape.heads, shape.kv_heads, shape.dim,
                                                1 / std::sqrt(static_cast<float>(shape.dim)), window, 0});
    }
    test_case.steps = {std::move(step)};
    suite.cases.push_back(std::move(test_case));
  }
  run(suite);
}

}  // namespace llmrt::optest
