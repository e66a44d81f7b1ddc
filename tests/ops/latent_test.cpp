// latent_rows, head_matmul, latent_attention, and expand_latent with attention over what it makes: numbers of heads,
// sizes of latents, KV dtypes, one to many splits, prompt tiles with tails, mixed batches, long prefixes. The blocks of
// a row lie scattered in the pool.
#include <algorithm>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "core/base/checked_math.h"
#include "tests/ops/op_harness.h"

namespace llmrt::optest {
namespace {

// Of heads, and of a latent and what turns beside it.
struct Latent {
  uint32_t heads, rank, rope_dim, block_tokens = 16;
  uint32_t row_dim() const { return rank + rope_dim; }
  KvGroup group(uint32_t num_layers, uint32_t num_blocks, KvDType dtype) const {
    return {.num_layers = num_layers,
            .num_kv_heads = 1,
            .head_dim = row_dim(),
            .block_tokens = block_tokens,
            .num_blocks = num_blocks,
            .dtype = dtype,
            .keys_only = true};
  }
  bool fits(KvDType dtype) const { return !kv_has_block_scales(dtype) || row_dim() % kKvScaleBlock == 0; }
};

struct LatentRow {
  uint32_t start, num_tokens;
  bool prompt;
};
struct LatentExtras {
  uint32_t bucket = 1, split_keys = 64, prompt_splits = 1;
  DType out = DType::kF32;
};

Case latent_case(const Latent& shape, KvDType dtype, const std::vector<LatentRow>& rows, const LatentExtras& extras,
                 std::mt19937_64& rng) {
  uint32_t num_blocks = 3;
  for (const LatentRow& row : rows) num_blocks += ceil_div(row.start + row.num_tokens, shape.block_tokens);
  const KvGroup group = shape.group(2, num_blocks, dtype);
  Case test_case;
  test_case.variant = kv_dtype_name(dtype);
  test_case.name = fmt::format("latent_attention {} heads {} rows of {} + {} block {}", test_case.variant, shape.heads,
                               shape.rank, shape.rope_dim, shape.block_tokens);
  test_case.groups = {group};
  test_case.kv = {random_kv(group, rng)};
  test_case.kv_exact = true;
  Step step;
  const std::vector<uint32_t> blocks = random_blocks(num_blocks, num_blocks, rng);
  uint32_t next_block = 0;
  for (uint32_t r = 0; r < rows.size(); ++r) {
    const LatentRow& row = rows[r];
    const uint32_t count = ceil_div(row.start + row.num_tokens, shape.block_tokens), slot = r * 7 % 31;
    step.patch_table(slot, 0, {blocks.begin() + next_block, blocks.begin() + next_block + count});
    next_block += count;
    const uint32_t row_idx = step.add_row(slot, row.start, row.num_tokens);
    if (row.prompt)
      step.add_prompt_items(row_idx, 0, extras.prompt_splits);
    else
      step.add_decode_items(row_idx, extras.split_keys);
    test_case.name += fmt::format(" {}{}+{}", row.prompt ? "p" : "d", row.start, row.num_tokens);
  }
  step.set_bucket(extras.bucket);
  step.forward.decode_only = std::ranges::none_of(rows, &LatentRow::prompt);
  const uint32_t live = static_cast<uint32_t>(step.forward_inputs.tokens.size());
  const uint32_t columns = shape.heads * shape.row_dim();
  const TensorId query =
      step.input(Rows::kTokens, "query", columns, DType::kF32, random_normal(rng, size_t{live} * columns));
  const TensorId out = step.output(Rows::kTokens, "out", shape.heads * shape.rank, extras.out, Tolerance::kAttention);
  step.forward.ops = {UpdateRows{},
                      LatentAttention{query, out, 0, 1, shape.heads, shape.rank, shape.rope_dim,
                                      1 / std::sqrt(static_cast<float>(shape.row_dim())),
                                      dtype == KvDType::kF8Tensor ? KvTensorScales{0.01f, 1} : KvTensorScales{}}};
  test_case.steps = {std::move(step)};
  return test_case;
}

// GLM-4.7-Flash's and DeepSeek's heads over their rows, and sizes with tails.
constexpr Latent kReal[] = {{20, 512, 64, 16}, {16, 512, 64, 64}, {128, 512, 64, 32}};
constexpr Latent kOdd[] = {{5, 80, 32, 16}, {16, 128, 64, 32}, {20, 16, 16, 16}, {3, 208, 16, 64}, {33, 64, 32, 16}};

// The expanded form of rows behind prefixes of any length: some heads after the other, a step's other rows untouched.
struct Expanded {
  uint32_t heads, nope, value_dim, rank, rope_dim, heads_each, block_tokens = 16;
  uint32_t key_dim() const { return nope + rope_dim; }
  Latent latent() const { return {heads, rank, rope_dim, block_tokens}; }
};
struct ExpandedExtras {
  uint32_t bucket = 1, prompt_splits = 1;
  DType out = DType::kF32;
  Encoding keys = Encoding::kF16, values = Encoding::kF16;
};

// Rows that decode (prompt = false) have no expanded keys.
Case expanded_case(Suite& suite, const Expanded& shape, KvDType dtype, const std::vector<LatentRow>& rows,
                   const ExpandedExtras& extras, std::mt19937_64& rng) {
  const double deviation = 1 / std::sqrt(static_cast<double>(shape.rank));
  const auto add_heads = [&](Encoding encoding, uint32_t dim) {
    const WeightId weight = suite.add_weight(encoding, uint64_t{shape.heads} * dim, shape.rank, rng, deviation);
    const WeightGroupId group = suite.add_group({weight}, false, rng);
    suite.weights.groups.back().by_head = true;
    return group;
  };
  const WeightGroupId keys = add_heads(extras.keys, shape.nope), values = add_heads(extras.values, shape.value_dim);
  uint32_t num_blocks = 3, num_expanded = 2;
  for (const LatentRow& row : rows) {
    num_blocks += ceil_div(row.start + row.num_tokens, shape.block_tokens);
    if (row.prompt) num_expanded += ceil_div(row.start + row.num_tokens, kExpandItemKeys);
  }
  const KvGroup latents = shape.latent().group(2, num_blocks, dtype);
  const KvGroup expanded{.num_layers = 1,
                         .num_kv_heads = 1,
                         .head_dim = shape.key_dim(),
                         .block_tokens = kExpandItemKeys,
                         .num_blocks = num_expanded * shape.heads_each,
                         .is_expanded = true};
  Case test_case;
  test_case.variant = kv_dtype_name(dtype);
  test_case.name =
      fmt::format("expand_latent {} {} heads of {} + {} and {} from {}, {} at a time, {} {} block {}",
                  test_case.variant, shape.heads, shape.nope, shape.rope_dim, shape.value_dim, shape.rank,
                  shape.heads_each, encoding_name(extras.keys), encoding_name(extras.values), shape.block_tokens);
  test_case.groups = {latents, expanded};
  test_case.kv = {random_kv(latents, rng), random_kv(expanded, rng)};
  test_case.kv_tolerance = 2e-3;
  test_case.kv_slack = 1e-2;  // numbers are around 1, and sums of products of f16
  Step step;
  const std::vector<uint32_t> blocks = random_blocks(num_blocks, num_blocks, rng);
  const std::vector<uint32_t> expanded_blocks = random_blocks(num_expanded, num_expanded, rng);
  uint32_t next_block = 0, next_expanded = 0;
  for (uint32_t r = 0; r < rows.size(); ++r) {
    const LatentRow& row = rows[r];
    const uint32_t num_keys = row.start + row.num_tokens, slot = r * 7 % 31;
    const uint32_t count = ceil_div(num_keys, shape.block_tokens);
    step.patch_table(slot, 0, {blocks.begin() + next_block, blocks.begin() + next_block + count});
    next_block += count;
    const uint32_t row_idx = step.add_row(slot, row.start, row.num_tokens);
    test_case.name += fmt::format(" {}{}+{}", row.prompt ? "p" : "d", row.start, row.num_tokens);
    if (!row.prompt) continue;
    step.add_prompt_items(row_idx, 0, extras.prompt_splits, 1);
    std::vector<uint32_t> table;
    for (uint32_t key = 0; key < num_keys; key += kExpandItemKeys) {
      table.push_back(expanded_blocks[next_expanded++]);
      step.forward_inputs.attention[1].expand_items.push_back(
          {slot, key, std::min(kExpandItemKeys, num_keys - key), table.back()});
    }
    step.patch_table(slot, 0, table, 1);
  }
  step.set_bucket(extras.bucket);
  const uint32_t live = static_cast<uint32_t>(step.forward_inputs.tokens.size());
  const uint32_t q_columns = shape.heads * shape.key_dim(), out_columns = shape.heads * shape.value_dim;
  const TensorId q =
      step.input(Rows::kTokens, "q", q_columns, DType::kF32, random_normal(rng, size_t{live} * q_columns));
  const TensorId out = step.inout(Rows::kTokens, "out", out_columns, extras.out,
                                  random_normal(rng, size_t{live} * out_columns, 1, extras.out), Tolerance::kAttention);
  step.last_output().math = DType::kF16;
  step.last_output().slack = 4e-3;  // keys and values are rounded once more than those of a cache
  step.forward.ops = {UpdateRows{}};
  const KvTensorScales scales = dtype == KvDType::kF8Tensor ? KvTensorScales{0.01f, 1} : KvTensorScales{};
  for (uint32_t first = 0; first < shape.heads; first += shape.heads_each) {
    const uint32_t heads = std::min(shape.heads_each, shape.heads - first);
    step.forward.ops.push_back(ExpandLatent{keys, values, 0, 1, 1, first, heads, shape.nope, shape.rank, shape.rope_dim,
                                            shape.value_dim, scales});
    PagedAttention attention{
        q, out, 1, 0, heads, heads, shape.key_dim(), 1 / std::sqrt(static_cast<float>(shape.key_dim())), 0, 0};
    attention.queries_only = true;
    attention.value_dim = shape.value_dim;
    attention.head_first = first;
    step.forward.ops.push_back(attention);
  }
  test_case.steps = {std::move(step)};
  return test_case;
}

// Those of GLM-4.7-Flash and DeepSeek-V2-Lite, and sizes with tails.
constexpr Expanded kRealExpanded[] = {{20, 192, 256, 512, 64, 20}, {16, 128, 128, 512, 64, 3, 64}};
constexpr Expanded kOddExpanded[] = {{5, 48, 96, 128, 64, 5}, {3, 48, 56, 80, 32, 2, 32}, {4, 16, 32, 16, 16, 1, 64}};

Suite make_latent_suite() {
  Suite suite;
  suite.slots_max = 31;
  return suite;
}

struct RowsCase {
  Latent shape;
  uint32_t nope;
  RopePairing pairing;
  float magnitude;
  uint32_t rows, bucket, position_max;
  double deviation;
  bool turns_q = false;
};

Case rows_case(Suite& suite, const RowsCase& wanted, KvDType dtype, std::mt19937_64& rng) {
  const Latent& shape = wanted.shape;
  const uint32_t rows = wanted.rows, row_dim = shape.row_dim();
  const KvGroup group = shape.group(2, 7, dtype);
  std::vector<float> weight(shape.rank);
  for (float& w : weight) w = 1 + static_cast<float>(rng() % 1000) / 2000;
  const WeightId norm = suite.add_f32(weight), freqs = suite.add_f32(rope_frequencies(shape.rope_dim));
  Case test_case;
  test_case.variant = kv_dtype_name(dtype);
  test_case.name =
      fmt::format("latent_rows {} heads {} nope {} rows of {} + {} {} of {} positions to {}", test_case.variant,
                  shape.heads, wanted.nope, shape.rank, shape.rope_dim, rows, wanted.bucket, wanted.position_max);
  test_case.groups = {group};
  test_case.kv = {random_kv(group, rng)};
  // A number may be rounded the other way; an angle's error grows with the position.
  test_case.kv_tolerance = dtype == KvDType::kBF16 ? 8e-3 : 1e-3;
  test_case.kv_slack = wanted.deviation * (1e-6 + wanted.position_max * 1.2e-7);
  Step step;
  if (rows > 0) step.add_row(0, 0, rows);
  step.set_bucket(wanted.bucket);
  const auto places = random_blocks(group.num_blocks * group.block_tokens, rows, rng);
  std::vector<double> kv_slots(places.begin(), places.end()), positions(rows);
  if (rows > 2) kv_slots[2] = -1;
  for (double& position : positions) position = static_cast<double>(rng() % (wanted.position_max + 1));
  std::vector<double> kv = random_normal(rng, size_t{rows} * row_dim, wanted.deviation);
  if (rows > 3) std::fill_n(kv.begin() + 3 * row_dim, row_dim, 0.0);
  const uint32_t q_columns = shape.heads * (wanted.nope + shape.rope_dim);
  const std::vector<double> q_numbers = random_normal(rng, size_t{rows} * q_columns);
  TensorId q;
  if (wanted.turns_q) {
    q = step.inout(Rows::kTokens, "q", q_columns, DType::kF32, q_numbers, Tolerance::kRotation);
    step.last_output().slack = wanted.position_max * 1.2e-7;
  } else {
    q = step.input(Rows::kTokens, "q", q_columns, DType::kF32, q_numbers);
  }
  const TensorId latents = step.input(Rows::kTokens, "kv", row_dim, DType::kF32, kv);
  const TensorId positions_id = step.input(Rows::kTokens, "positions", 1, DType::kI32, positions);
  const TensorId slots = step.input(Rows::kTokens, "kv_slots", 1, DType::kI32, kv_slots);
  // What is not turned is HeadMatmul's: it stays as it was.
  std::vector<double> before = random_normal(rng, size_t{rows} * shape.heads * row_dim);
  const TensorId query =
      step.inout(Rows::kTokens, "query", shape.heads * row_dim, DType::kF32, before, Tolerance::kRotation);
  step.last_output().slack = wanted.position_max * 1.2e-7;
  step.forward.ops = {LatentRows{q, latents, positions_id, slots, norm, freqs, 0, 1, shape.heads, wanted.nope,
                                 shape.rank, shape.rope_dim, wanted.pairing, wanted.magnitude, 1e-5f,
                                 dtype == KvDType::kF8Tensor ? KvTensorScales{0.02f, 1} : KvTensorScales{}, query,
                                 wanted.turns_q}};
  test_case.steps = {std::move(step)};
  return test_case;
}

struct HeadsCase {
  uint32_t heads, rows, columns, x_stride, out_stride;
  uint32_t num_absorbed = ~0u;  // tokens that are asked for
};

Case heads_case(Suite& suite, const HeadsCase& shape, Encoding encoding, DType x_dtype, DType out_dtype, uint32_t rows,
                uint32_t bucket, std::mt19937_64& rng) {
  const WeightId weight = suite.add_weight(encoding, uint64_t{shape.heads} * shape.rows, shape.columns, rng,
                                           1 / std::sqrt(static_cast<double>(shape.columns)));
  const WeightGroupId group = suite.add_group({weight}, false, rng);
  suite.weights.groups.back().by_head = true;
  Case test_case;
  test_case.variant = encoding_name(encoding);
  test_case.name =
      fmt::format("head_matmul {} heads {} of {} x {} in {} to {} rows {} of {}", test_case.variant, shape.heads,
                  shape.rows, shape.columns, dtype_name(x_dtype), dtype_name(out_dtype), rows, bucket);
  Step step;
  if (rows > 0) step.add_row(0, 0, rows);
  step.set_bucket(bucket);
  const uint32_t x_columns = shape.heads * shape.x_stride, out_columns = shape.heads * shape.out_stride;
  const TensorId x =
      step.input(Rows::kTokens, "x", x_columns, x_dtype, random_normal(rng, size_t{rows} * x_columns, 1, x_dtype));
  const bool fills = shape.out_stride == shape.rows;
  TensorId out;
  if (fills) {
    out = step.output(Rows::kTokens, "out", out_columns, out_dtype, Tolerance::kMatmul, DType::kF16, 1);
  } else {
    out = step.inout(Rows::kTokens, "out", out_columns, out_dtype,
                     random_normal(rng, size_t{rows} * out_columns, 1, out_dtype), Tolerance::kMatmul);
    step.last_output().math = DType::kF16;
    step.last_output().scale = 1;
  }
  step.last_output().of_quantized = is_quantized(encoding);
  step.forward_inputs.num_absorbed = shape.num_absorbed;
  step.forward.ops = {HeadMatmul{x, group, shape.heads, out, fills, shape.num_absorbed != ~0u}};
  test_case.steps = {std::move(step)};
  return test_case;
}

}  // namespace

#define LATENT_TEST(name)                                                                                           \
  TEMPLATE_TEST_CASE_SIG(name, "[latent_attention]", ((KvDType D), D), KvDType::kF16, KvDType::kBF16, KvDType::kI8, \
                         KvDType::kF8, KvDType::kI8Block, KvDType::kF8Block, KvDType::kF8Tensor)

LATENT_TEST("latent_attention decodes rows at any position, in splits") {
  auto rng = test_rng("latent decode");
  Suite suite = make_latent_suite();
  const std::vector<LatentRow> rows = {{15, 1, false}, {0, 1, false}, {31, 1, false}, {300, 1, false}, {130, 2, false}};
  for (const Latent& shape : {kReal[0], kReal[1], kOdd[0], kOdd[1], kOdd[4]})
    if (shape.fits(D)) suite.cases.push_back(latent_case(shape, D, rows, {.bucket = 8}, rng));
  if (D == KvDType::kF16) {
    suite.cases.push_back(latent_case(kReal[2], D, rows, {.bucket = 8, .split_keys = 256}, rng));
    suite.cases.push_back(latent_case(kReal[0], D, {{0, 1, false}}, {}, rng));
    suite.cases.push_back(latent_case(kReal[0], D, {{1500, 1, false}}, {.split_keys = 1024, .out = DType::kF16}, rng));
    for (const Latent& shape : kOdd)
      suite.cases.push_back(latent_case(shape, D, rows, {.bucket = 8, .split_keys = 48}, rng));
  }
  run(suite);
}

LATENT_TEST("latent_attention computes prompts beside rows that decode") {
  auto rng = test_rng("latent prompts");
  Suite suite = make_latent_suite();
  const std::vector<LatentRow> rows = {{90, 1, false}, {0, 70, true}, {129, 5, true}, {64, 2, false}};
  for (const Latent& shape : {kOdd[0], kOdd[1], kOdd[3]})
    if (shape.fits(D)) suite.cases.push_back(latent_case(shape, D, rows, {.bucket = 96, .prompt_splits = 2}, rng));
  suite.cases.push_back(latent_case(kReal[0], D, {{40, 9, true}}, {.bucket = 16}, rng));
  if (D == KvDType::kF16) {
    suite.cases.push_back(latent_case(kReal[1], D, {{0, 17, true}}, {.bucket = 32, .out = DType::kF16}, rng));
    suite.cases.push_back(latent_case(kReal[2], D, {{1100, 3, true}}, {.bucket = 4, .prompt_splits = 3}, rng));
    suite.cases.push_back(latent_case(kOdd[2], D, {}, {.bucket = 16}, rng));
  }
  run(suite);
}

LATENT_TEST("expand_latent makes keys and values of heads for prompts behind any prefix") {
  auto rng = test_rng("expand latent");
  Suite suite = make_latent_suite();
  const std::vector<LatentRow> rows = {{90, 1, false}, {0, 70, true}, {129, 5, true}, {64, 2, false}};
  for (const Expanded& shape : kOddExpanded)
    if (shape.latent().fits(D))
      suite.cases.push_back(expanded_case(suite, shape, D, rows, {.bucket = 96, .prompt_splits = 2}, rng));
  suite.cases.push_back(expanded_case(suite, kRealExpanded[0], D, {{40, 9, true}}, {.bucket = 16}, rng));
  if (D == KvDType::kF16) {
    suite.cases.push_back(expanded_case(suite, kRealExpanded[1], D, {{3, 17, true}},
                                        {.bucket = 32, .out = DType::kF16, .values = Encoding::kQ8_0}, rng));
    suite.cases.push_back(expanded_case(suite, kOddExpanded[0], D, {{200, 64, true}, {0, 6, true}},
                                        {.bucket = 70, .prompt_splits = 3, .out = DType::kBF16}, rng));
    suite.cases.push_back(expanded_case(suite, kOddExpanded[0], D, {{5, 1, false}}, {.bucket = 16}, rng));
    for (const Encoding encoding : all_encodings())
      if (128 % geometry(encoding).elements_block == 0)
        suite.cases.push_back(expanded_case(suite, kOddExpanded[0], D, {{0, 33, true}},
                                            {.bucket = 64, .keys = encoding, .values = encoding}, rng));
  }
  run(suite);
}

TEST_CASE("latent_rows norms, turns and stores a row a token", "[latent_rows]") {
  auto rng = test_rng("latent rows");
  Suite suite;
  for (const KvDType dtype : kKvDTypes) {
    const RowsCase wanted[] = {{kReal[0], 192, RopePairing::kInterleaved, 1, 9, 16, 300, 1},
                               {kReal[1], 128, RopePairing::kInterleaved, 1.2f, 1, 1, 4095, 30},
                               {kOdd[0], 48, RopePairing::kHalves, 1, 5, 8, 300, 0.01},
                               {kOdd[2], 8, RopePairing::kInterleaved, 1, 35, 64, 300, 1},
                               {kOdd[1], 32, RopePairing::kInterleaved, 1, 0, 4, 300, 1},
                               {kOdd[0], 48, RopePairing::kHalves, 1.2f, 9, 16, 300, 1, true},
                               {kOdd[1], 32, RopePairing::kInterleaved, 1, 5, 8, 300, 1, true}};
    for (const RowsCase& one : wanted)
      if (one.shape.fits(dtype)) suite.cases.push_back(rows_case(suite, one, dtype, rng));
  }
  run(suite);
}

TEST_CASE("head_matmul multiplies each head by its own matrix", "[head_matmul]") {
  auto rng = test_rng("head matmul");
  Suite suite;
  constexpr HeadsCase kKeys = {3, 96, 64, 96, 128}, kValues = {2, 40, 256, 256, 40}, kTails = {5, 33, 48, 56, 49};
  for (const Encoding encoding : all_encodings()) {
    const uint32_t block = geometry(encoding).elements_block;
    for (const auto& [rows, bucket] : {std::pair{1u, 1u}, {5u, 8u}, {19u, 32u}, {70u, 96u}, {0u, 4u}}) {
      if (kKeys.columns % block == 0)
        suite.cases.push_back(heads_case(suite, kKeys, encoding, DType::kF32, DType::kF32, rows, bucket, rng));
      if (rows != 19)
        suite.cases.push_back(heads_case(suite, kValues, encoding, DType::kF16, DType::kF16, rows, bucket, rng));
    }
    if (kTails.columns % block == 0)
      suite.cases.push_back(heads_case(suite, kTails, encoding, DType::kBF16, DType::kF32, 9, 16, rng));
  }
  // The tokens behind stay.
  for (const uint32_t absorbed : {0u, 7u, 20u})
    suite.cases.push_back(
        heads_case(suite, {3, 96, 64, 96, 128, absorbed}, Encoding::kF16, DType::kF32, DType::kF32, 19, 32, rng));
  // Those of GLM-4.7-Flash.
  suite.cases.push_back(
      heads_case(suite, {20, 512, 192, 256, 576}, Encoding::kQ5_0, DType::kF32, DType::kF32, 3, 4, rng));
  suite.cases.push_back(
      heads_case(suite, {20, 256, 512, 512, 256}, Encoding::kQ4_K, DType::kF16, DType::kF16, 9, 16, rng));
  run(suite);
}

}  // namespace llmrt::optest
