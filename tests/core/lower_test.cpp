// What of a plan becomes the work lists of attention, and what identifies an engine's blocks. Method: plans by hand.
#include "core/engine/lower.h"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>
#include <ranges>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "core/attention/expanded_rows.h"
#include "core/attention/work_lists.h"
#include "core/base/checked_math.h"
#include "core/engine/cache_identity.h"
#include "core/engine/pool_sizing.h"
#include "core/engine/probe_plan.h"
#include "core/model/decoder.h"
#include "core/model/model_digest.h"
#include "core/model/synthetic.h"
#include "tests/fakes/fake_backend.h"
#include "tests/fakes/fake_model.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

Caps measured_caps() {
  Caps caps;
  caps.attention.costs = {.prompt_split = 256,
                          .prompt_runs = 256,
                          .prompt_turns = 100,
                          .prompt_merge = 256,
                          .decode_round = 20,
                          .decode_split_round = 125,
                          .decode_merge = 20,
                          .decode_partial = 3};
  return caps;
}
const FakeBackend kDevice{FakeBackendConfig()};  // where only other sizes than its arena's count

// Rows of one token each, all at the same depth.
IterationPlan decode_plan(uint32_t num_rows, uint32_t position) {
  IterationPlan plan;
  for (uint32_t row = 0; row < num_rows; ++row) {
    plan.tokens.push_back(5);
    plan.rows.push_back({row, row, position, 1, row, 0, 0, 0, 0, 0});
  }
  return plan;
}

struct Lowered {
  StateConfig state;
  ForwardInputs inputs;
};

Lowered lower(const IterationPlan& plan, uint64_t kv_tokens_max, Caps caps, uint32_t sequences_max = 64,
              uint32_t num_heads = 1) {
  EngineConfig config;
  config.context_max = kFakeContextMax;
  config.sequences_max = sequences_max;
  auto model = std::make_shared<Model>(*make_fake_model());
  model->config.layers.front().num_heads = num_heads;
  Lowering lowering(model, caps, config.step_tokens_max, config.sample_rows_max);
  Lowered out;
  out.state = lowering.state_config(config, PlanLimits(), kv_tokens_max, kDevice);
  LoweredStep step;
  lowering.lower(plan, &step);
  auto inputs = unpack_forward(step.forward_words);
  REQUIRE(inputs.ok());
  out.inputs = std::move(*inputs);
  return out;
}

Lowered lower(const IterationPlan& plan, uint64_t kv_tokens_max, uint32_t decode_works = 0) {
  Caps caps = measured_caps();
  caps.attention.prompt_tiles = 8;  // items, since the model has one head
  caps.attention.decode_works = decode_works;
  return lower(plan, kv_tokens_max, caps);
}

// Every key of every row once, in splits that are merged in order.
void check_keys(const ForwardInputs& inputs, uint32_t num_rows, uint32_t num_keys) {
  std::vector<uint32_t> next_key(num_rows);
  std::vector<std::vector<uint32_t>> partials(num_rows);
  for (const AttentionItem& item : inputs.attention[0].decode_items) {
    CHECK(item.key_begin == next_key[item.token_first]);
    next_key[item.token_first] = item.key_end;
    if (item.partial >= 0) partials[item.token_first].push_back(static_cast<uint32_t>(item.partial));
  }
  for (const uint32_t key : next_key) CHECK(key == num_keys);
  for (const MergeItem& merge : inputs.attention[0].merge_items) {
    REQUIRE(merge.num_partials == partials[merge.token].size());
    for (uint32_t i = 0; i < merge.num_partials; ++i) CHECK(partials[merge.token][i] == merge.partial_first + i);
  }
}

}  // namespace

TEST_CASE("rows that share more keys than the pool holds get longer splits, not more room") {
  const IterationPlan plan = decode_plan(64, 4000);
  const Lowered own = lower(plan, 64 * 4096);  // as if each row had blocks of its own
  CHECK(own.inputs.attention[0].num_partials == 64 * 16);
  check_keys(own.inputs, 64, 4001);

  const Lowered shared = lower(decode_plan(1, 4000), 8192);
  CHECK(shared.inputs.attention[0].num_partials == 16);  // a lone row is split as ever
  CHECK(shared.state.partials_max < own.state.partials_max);

  EngineConfig config;
  config.context_max = kFakeContextMax;
  config.sequences_max = 64;
  config.step_tokens_max = 64;  // so that the pool is what bounds the partial results
  Lowering lowering(make_fake_model(), measured_caps(), config.step_tokens_max, config.sample_rows_max);
  const StateConfig state = lowering.state_config(config, PlanLimits(), 8192, kDevice);
  REQUIRE(state.partials_max == 4 * 64 + 4 * 8192 / 256);
  LoweredStep step;
  lowering.lower(plan, &step);
  const auto inputs = unpack_forward(step.forward_words);
  REQUIRE(inputs.ok());
  CHECK(inputs->attention[0].num_partials == 64 * 4);  // 512 keys would be 8 splits of each: 512 of 384
  CHECK(inputs->attention[0].num_partials <= state.partials_max);
  check_keys(*inputs, 64, 4001);
}

TEST_CASE("each KV group has work lists of its own window") {
  EngineConfig config;
  config.context_max = kFakeContextMax;
  Caps caps = measured_caps();
  caps.attention.prompt_tiles = 8;
  Lowering lowering(make_fake_model(), caps, config.step_tokens_max, config.sample_rows_max,
                    {{4, 2, 0}, {8, 1, 100}, {4, 2, 0}});
  const StateConfig state = lowering.state_config(config, PlanLimits(), 1u << 20, kDevice);
  CHECK(state.num_kv_groups == 3);
  CHECK(state.heads_max == 8);
  IterationPlan plan = decode_plan(2, 1000);
  plan.rows.push_back({2, 2, 50, 130, 2, 0, 0, 0, 0, 0});
  plan.tokens.resize(132);
  LoweredStep step;
  lowering.lower(plan, &step);
  CHECK(step.forward_words.size() <= state.forward_words_max);
  CHECK_FALSE(step.forward->list.decode_only);
  const auto inputs = unpack_forward(step.forward_words);
  REQUIRE(inputs.ok());
  // The keys from the first to the last that each token's items hold.
  for (uint32_t g = 0; g < 3; ++g) {
    const AttentionWork& work = inputs->attention[g];
    std::vector<uint32_t> first(132, ~0u), last(132);
    for (const auto* items : {&work.decode_items, &work.prompt_items})
      for (const AttentionItem& item : *items)
        for (uint32_t t = item.token_first; t < item.token_first + item.num_tokens; ++t) {
          first[t] = std::min(first[t], item.key_begin);
          last[t] = std::max(last[t], item.key_end);
        }
    CHECK(first[0] == (g == 1 ? 901 : 0));
    CHECK(last[0] == 1001);
    CHECK(first[2] == 0);
    CHECK(first[2 + 128] == (g == 1 ? 79 : 0));  // of the item that begins at position 178
    CHECK(last[131] == 180);
  }
  CHECK(inputs->attention[3].decode_items.empty());
  const OpList& memory = lowering.memory_list();
  REQUIRE(memory.ops.size() == 9);
  CHECK(std::get<CopyBlocks>(memory.ops[8]).kv_group == 2);
}

namespace {

// The sizes of GLM-4.7-Flash.
ExpandedShape glm_shape(uint32_t num_blocks) {
  return {.num_heads = 20,
          .rank = 512,
          .rope_dim = 64,
          .nope_dim = 192,
          .value_dim = 256,
          .kv_group = 0,
          .expanded_group = 1,
          .num_blocks = num_blocks};
}

bool is_expanded(uint32_t start, uint32_t num_tokens) {
  ExpandedRows rows;
  const RowRecord row{0, start, num_tokens, 0};
  rows.choose({&row, 1}, glm_shape(1u << 20));
  return rows.heads() > 0;
}

// The keys that each token sees in its items, in the order of its partial results.
std::vector<std::vector<std::pair<uint32_t, uint32_t>>> cuts_of(std::span<const RowRecord> rows,
                                                                const AttentionGroup& group,
                                                                const AttentionWork& work) {
  const RowRecord& last = rows.back();
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> cuts(last.token_first + last.num_tokens);
  std::vector<std::map<uint32_t, std::pair<uint32_t, uint32_t>>> found(cuts.size());  // by partial result
  for (const AttentionItem& item : work.decode_items)
    for (uint32_t i = 0; i < item.num_tokens; ++i) {
      const uint32_t token = item.token_first + i, position = item.position_first + i;
      uint32_t partial = 0;
      if (item.partial >= 0) {
        const MergeItem& merge = work.merge_items.at(item.merge_idx + i);
        CHECK(merge.token == token);
        CHECK(merge.num_partials == work.merge_items[item.merge_idx].num_partials);
        partial = static_cast<uint32_t>(item.partial) + i * merge.num_partials;
        CHECK(partial - merge.partial_first < merge.num_partials);
      }
      const uint32_t begin = std::max(item.key_begin, group.first_key(position));
      CHECK(found[token].emplace(partial, std::pair(begin, std::min(item.key_end, position + 1))).second);
    }
  for (const RowRecord& row : rows)
    for (uint32_t i = 0; i < row.num_tokens; ++i) {
      const uint32_t token = row.token_first + i, position = row.start + i;
      uint32_t next = group.first_key(position);
      for (const auto& [partial, keys] : found[token]) {
        cuts[token].push_back(keys);
        if (keys.first >= keys.second) continue;  // this token sees nothing of the split
        CHECK(keys.first == next);
        next = keys.second;
      }
      CHECK(next == position + 1);
    }
  return cuts;
}

}  // namespace

TEST_CASE("latents are expanded for rows of so many tokens that it pays") {
  CHECK(is_expanded(0, 2048));
  CHECK(is_expanded(6144, 2048));
  CHECK(is_expanded(200000, 2048));
  CHECK(is_expanded(0, 30));  // whose own latents are all that there are
  CHECK_FALSE(is_expanded(8192, 8));
  CHECK_FALSE(is_expanded(8192, 256));
  // 576 multiplications less a pair for 448 * 512 a key that is expanded, which a token of the row costs too.
  CHECK_FALSE(is_expanded(100000, 397));
  CHECK(is_expanded(100000, 400));
  CHECK_FALSE(is_expanded(0, kDecodeRowTokens));

  const ExpandedShape shape = glm_shape(1);
  CHECK(shape.absorbed_cost(6144, 2048) == 20.0 * (2048.0 * 6144 + 2048.0 * 2049 / 2) * 1088 + 20.0 * 2048 * 512 * 448);
  CHECK(shape.expanded_cost(6144, 2048) == 20.0 * (2048.0 * 6144 + 2048.0 * 2049 / 2) * 512 + 20.0 * 8192 * 512 * 448);
}

TEST_CASE("rows are expanded as far as there is room, with fewer heads at a time for more keys") {
  const std::vector<RowRecord> rows = {
      {0, 500, 1, 0}, {1, 0, 640, 1}, {2, 9000, 8, 641}, {3, 64, 600, 649}, {4, 700, 2, 1249}};
  const auto chosen = [&](uint32_t num_blocks) {
    ExpandedRows out;
    out.choose(rows, glm_shape(num_blocks));
    return out;
  };
  const auto slots = [](std::span<const RowRecord> of) {
    std::vector<uint32_t> out;
    for (const RowRecord& row : of) out.push_back(row.slot);
    return out;
  };
  // 10 and 11 blocks of each head.
  CHECK(chosen(21 * 20).heads() == 20);
  CHECK(chosen(21 * 20 - 1).heads() == 10);
  CHECK(chosen(21 * 3).heads() == 3);  // 20 heads in 8 parts
  CHECK(chosen(21).heads() == 1);
  const ExpandedRows both = chosen(21), one = chosen(20), none = chosen(9);
  CHECK(slots(both.expanded()) == std::vector{1u, 3u});
  CHECK(slots(both.absorbed()) == std::vector{0u, 2u, 4u});
  CHECK(both.block_first(0) == 0);
  CHECK(both.block_first(1) == 10);
  CHECK(both.num_absorbed() == 1251);
  CHECK(slots(one.expanded()) == std::vector{1u});
  CHECK(one.num_absorbed() == 1251);
  CHECK(none.heads() == 0);
  CHECK(slots(none.absorbed()).size() == 5);
}

TEST_CASE("a step whose rows are expanded has a list and inputs of both forms") {
  const auto model = make_synthetic("synthetic:glm-4.7-flash:q8_0");
  REQUIRE(model.ok());
  EngineConfig config;
  config.context_max = 16384;
  Caps caps = measured_caps();
  caps.kv_dtypes = {KvDType::kF16};
  const KvGroup pool = expanded_pool_of(config, caps, (*model)->config, kExpandedBytesMax);
  CHECK(pool.num_blocks == 16384 / 64 * 20);
  CHECK(pool.bytes_block() == 64 * 2 * 256 * 2);
  config.expands_latents = false;
  CHECK(expanded_pool_of(config, caps, (*model)->config, kExpandedBytesMax).num_blocks == 0);
  Lowering lowering(*model, caps, config.step_tokens_max, config.sample_rows_max);
  lowering.set_expanded_pool(pool);
  const StateConfig state = lowering.state_config(config, PlanLimits(), 1u << 20, kDevice);
  CHECK(state.num_kv_groups == 2);

  const auto count = [](const OpList& list, auto is_counted) { return std::ranges::count_if(list.ops, is_counted); };
  static constexpr auto expands = [](const Op& op) { return std::holds_alternative<ExpandLatent>(op); };
  struct Expanding final : FakeBackend {
    using FakeBackend::FakeBackend;
    uint64_t arena_bytes(const OpList& list) const override {
      return static_cast<uint64_t>(std::ranges::count_if(list.ops, expands));
    }
  };
  const Expanding device{FakeBackendConfig()};
  CHECK(lowering.state_config(config, PlanLimits(), 1u << 20, device).arena_bytes == 47);
  IterationPlan plan = decode_plan(1, 700);
  plan.rows.push_back({1, 1, 6000, 1000, 1, 0, 0, 0, 0, 0});
  plan.tokens.resize(1001);
  LoweredStep step;
  lowering.lower(plan, &step);
  CHECK(count(step.forward->list, expands) == 47);
  CHECK(step.forward_words.size() <= state.forward_words_max);
  const auto inputs = unpack_forward(step.forward_words);
  REQUIRE(inputs.ok());
  CHECK(inputs->num_absorbed == 1);
  CHECK(inputs->attention[0].prompt_items.empty());
  CHECK_FALSE(inputs->attention[0].decode_items.empty());
  CHECK(inputs->attention[1].prompt_items.size() >= 16);
  const std::vector<ExpandItem>& items = inputs->attention[1].expand_items;
  REQUIRE(items.size() == 110);
  CHECK(items.back().num_keys == 7000 - 109 * 64);
  const RowUpdate& patch = inputs->row_updates.back();
  CHECK(patch.slot == 1);
  CHECK(patch.arg1 == 1);
  REQUIRE(patch.payload_words == 110);
  for (uint32_t i = 0; i < 110; ++i) {
    CHECK(items[i].block == i);
    CHECK(inputs->row_payload[patch.payload_first + i] == i);
  }
  // A row that is batch-invariant keeps the step absorbed; so does one of few tokens.
  plan.rows[0].batch_invariant = true;
  lowering.lower(plan, &step);
  CHECK(count(step.forward->list, expands) == 0);
  plan.rows[0].batch_invariant = false;
  plan.rows[1].num_tokens = 8;
  plan.tokens.resize(9);
  lowering.lower(plan, &step);
  CHECK(count(step.forward->list, expands) == 0);
}

TEST_CASE("what ops of both forms cost is what the choice between them counts") {
  const auto model = make_synthetic("synthetic:glm-4.7-flash:q8_0");
  REQUIRE(model.ok());
  const uint32_t heads_at_a_time = GENERATE(20u, 3u);
  const ExpandedShape shape = glm_shape(heads_at_a_time * 128);  // of 8,192 keys
  Caps caps;
  const ProbeShape probe{1, 2048, 6144, 1, 16};
  const auto flops_of = [&](const OpList& list, const ExpandedShape& expanded) {
    const CostSizes sizes = probe_sizes(probe, (*model)->config, KvDType::kF16, expanded);
    double flops = 0;
    for (const Op& op : list.ops)
      if (std::holds_alternative<ExpandLatent>(op) || std::holds_alternative<PagedAttention>(op) ||
          std::holds_alternative<LatentAttention>(op) || std::holds_alternative<HeadMatmul>(op))
        flops += cost(list, op, (*model)->weights, sizes).flops;
    return flops;
  };
  const OpList absorbed = build_forward(**model, caps, 2048),
               expanded = build_forward(**model, caps, 2048, 0, {1, heads_at_a_time});
  CHECK(flops_of(absorbed, {}) == 47 * 2 * shape.absorbed_cost(6144, 2048));
  CHECK(flops_of(expanded, shape) == 47 * 2 * shape.expanded_cost(6144, 2048));
}

TEST_CASE("tokens of a row share items, and batch-invariant ones are cut as each is by itself") {
  // Beside borders of splits: 64 keys and 256, and where a split's length doubles.
  const std::vector<RowRecord> rows = {{0, 250, 4, 0},    {1, 0, 3, 4},     {2, 1022, 4, 7},  {3, 63, 1, 11},
                                       {4, 9000, 4, 12},  {5, 2047, 2, 16}, {6, 4090, 8, 18}, {7, 117, 4, 26},
                                       {8, 31000, 4, 30}, {9, 60, 8, 34}};
  for (const uint32_t window : {0u, 100u, 4096u})
    for (const uint32_t decode_works : {0u, 64u, 4000u})
      for (const bool batch_invariant : {false, true}) {
        INFO(window << " " << decode_works << " " << batch_invariant);
        const AttentionGroup group{8, 2, window};  // four heads: 16 rows are four tokens
        AttentionTuning tuning = measured_caps().attention;
        tuning.decode_works = decode_works;
        AttentionWork alone, shared;
        WorkLists(tuning).make(rows, group, batch_invariant, &alone);
        tuning.decode_item_rows = tuning.invariant_item_rows = 16;
        WorkLists(tuning).make(rows, group, batch_invariant, &shared);
        CHECK(std::ranges::all_of(alone.decode_items, [](const AttentionItem& i) { return i.num_tokens == 1; }));
        CHECK(std::ranges::any_of(shared.decode_items, [](const AttentionItem& i) { return i.num_tokens == 4; }));
        CHECK(std::ranges::all_of(shared.decode_items, [](const AttentionItem& i) { return i.num_tokens <= 4; }));
        std::vector<RowRecord> decoding;
        for (const RowRecord& row : rows)
          if (batch_invariant || row.num_tokens <= kDecodeRowTokens) decoding.push_back(row);
        if (!batch_invariant) {
          std::erase_if(decoding, [](const RowRecord& row) { return row.token_first > 30; });
          cuts_of(decoding, group, shared);
          continue;
        }
        CHECK(cuts_of(decoding, group, shared) == cuts_of(decoding, group, alone));
        for (const AttentionItem& item : shared.decode_items)
          CHECK(group.first_tile(item.position_first) == group.first_tile(item.position_first + item.num_tokens - 1));
      }
  // Many heads leave no room for a second token, and latents are read for one.
  CHECK(decode_item_tokens(16, {32, 2, 0}) == 1);
  CHECK(decode_item_tokens(16, {7, 1, 0}) == 2);
  CHECK(decode_item_tokens(64, {4, 4, 0}) == kDecodeItemTokens);
  CHECK(decode_item_tokens(0, {4, 4, 0}) == 1);
  CHECK(decode_item_tokens(64, {4, 1, 0, true}) == 1);
}

TEST_CASE("a step whose rows have runs has a list of its own") {
  Caps caps = measured_caps();
  caps.attention.decode_item_rows = 16;
  Lowering lowering(make_fake_model(), caps, 64, 64, {{8, 2, 0}});
  LoweredStep runs, alone;
  IterationPlan plan = decode_plan(2, 100);
  lowering.lower_forward(plan, &alone);
  CHECK_FALSE(alone.forward->list.has_runs);
  plan.rows.back().num_tokens = 3;
  plan.tokens.resize(4);
  lowering.lower_forward(plan, &runs);
  CHECK(runs.forward->list.has_runs);
  CHECK(runs.forward->list.decode_only);
  CHECK(runs.forward->key != lowering.forward_list(4, false, true).key);
  CHECK(lowering.decode_item_tokens(false).least == 4);
  CHECK(lowering.decode_item_tokens(true).most == 1);
}

TEST_CASE("rows that decode are split evenly, as fills the device") {
  // So many works at a time; the model has one KV head.
  const auto splits_of = [](uint32_t num_rows, uint32_t num_keys, uint32_t decode_works) {
    const Lowered lowered = lower(decode_plan(num_rows, num_keys - 1), 64 * 4096, decode_works);
    check_keys(lowered.inputs, num_rows, num_keys);
    CHECK(lowered.inputs.attention[0].num_partials <= lowered.state.partials_max);
    const uint32_t splits = static_cast<uint32_t>(lowered.inputs.attention[0].decode_items.size()) / num_rows;
    for (const AttentionItem& item : lowered.inputs.attention[0].decode_items) {
      if (item.partial >= 0)
        CHECK(lowered.inputs.attention[0].merge_items.at(item.merge_idx).token == item.token_first);
      if (decode_works == 0) continue;
      CHECK(item.key_begin % 16 == 0);
      CHECK(item.key_end - item.key_begin <= round_up(ceil_div(num_keys, splits), 16u));
    }
    return splits;
  };
  CHECK(splits_of(32, 544, 33) == 1);
  CHECK(splits_of(16, 544, 33) == 2);
  CHECK(splits_of(34, 544, 33) == 1);  // another round of splits would take longer than a few whole rows do
  CHECK(splits_of(50, 544, 33) == 1);
  CHECK(splits_of(1, 544, 33) == 7);
  CHECK(splits_of(1, 40, 33) == 1);
  CHECK(splits_of(2, 4000, 33) == 16);
  CHECK(splits_of(1, 544, 0) == 3);  // by length alone
}

TEST_CASE("of rows that decode, few more than fill the device are split alone") {
  // The last row's keys and where they are cut, of so many works at a time.
  const auto last_items = [](uint32_t num_rows, uint32_t decode_works) {
    constexpr uint32_t kKeys = 544;
    const Lowered lowered = lower(decode_plan(num_rows, kKeys - 1), 64 * 4096, decode_works);
    check_keys(lowered.inputs, num_rows, kKeys);
    uint32_t whole = 0, last = 0;
    for (const AttentionItem& item : lowered.inputs.attention[0].decode_items) {
      whole += item.partial < 0;
      last += item.token_first == num_rows - 1;
    }
    return std::pair{whole, last};
  };
  CHECK(last_items(33, 33) == std::pair{33u, 1u});
  CHECK(last_items(34, 33) == std::pair{33u, 9u});  // of 64 keys, the fewest
  CHECK(last_items(40, 33) == std::pair{33u, 4u});
  CHECK(last_items(67, 33) == std::pair{66u, 9u});
  CHECK(last_items(60, 33) == std::pair{60u, 1u});  // as they fill most of a round
}

TEST_CASE("a step without prompt items has a list of its own") {
  EngineConfig config;
  Lowering lowering(make_fake_model(), measured_caps(), config.step_tokens_max, config.sample_rows_max);
  lowering.state_config(config, {}, 64 * 4096, kDevice);
  const auto list_of = [&](const IterationPlan& plan) {
    LoweredStep step;
    lowering.lower(plan, &step);
    return step.forward;
  };
  const SealedList* alone = list_of(decode_plan(7, 100));
  IterationPlan plan = decode_plan(2, 100);
  plan.rows.push_back(plan.rows.back());
  plan.rows.back().token_first = 2;
  plan.rows.back().num_tokens = kDecodeRowTokens + 1;
  plan.tokens.resize(2 + kDecodeRowTokens + 1);
  const SealedList* mixed = list_of(plan);
  CHECK(alone->list.decode_only);
  CHECK_FALSE(mixed->list.decode_only);
  CHECK(alone->list.num_tokens == mixed->list.num_tokens);
  CHECK(alone->key != mixed->key);
}

// Three rows that decode, then a prompt's chunk.
IterationPlan chunk_plan(uint32_t start, uint32_t num_tokens) {
  IterationPlan plan = decode_plan(3, 900);
  plan.rows.push_back({});
  PlanRow& prompt = plan.rows.back();
  prompt.slot = 3;
  prompt.start = start;
  prompt.num_tokens = num_tokens;
  prompt.token_first = 3;
  plan.tokens.resize(3 + num_tokens, {});
  return plan;
}

// Of that chunk: every key that a token sees once, in splits that are merged.
void check_chunk(const Lowered& lowered, uint32_t start, uint32_t num_tokens) {
  const ForwardInputs& inputs = lowered.inputs;
  CHECK(inputs.attention[0].num_partials <= lowered.state.partials_max);
  std::vector<AttentionItem> items = inputs.attention[0].prompt_items;
  std::ranges::stable_sort(items, {}, &AttentionItem::key_begin);
  std::vector<uint32_t> next_key(3 + num_tokens);
  std::map<uint32_t, uint32_t> tokens_of;  // by partial
  for (const AttentionItem& item : items)
    for (uint32_t i = 0; i < item.num_tokens; ++i) {
      const uint32_t token = item.token_first + i;
      CHECK(item.position_first + i == start + token - 3);
      CHECK(item.key_begin == next_key[token]);
      CHECK(item.key_begin < item.key_end);
      next_key[token] = item.key_end;
      if (item.partial >= 0) CHECK(tokens_of.emplace(item.partial + i * item.partial_stride, token).second);
    }
  for (uint32_t token = 3; token < 3 + num_tokens; ++token) CHECK(next_key[token] > start + token - 3);
  for (const MergeItem& merge : inputs.attention[0].merge_items) {
    if (merge.token < 3) continue;
    for (uint32_t i = 0; i < merge.num_partials; ++i) {
      REQUIRE(tokens_of.contains(merge.partial_first + i));
      CHECK(tokens_of[merge.partial_first + i] == merge.token);
      tokens_of.erase(merge.partial_first + i);
    }
  }
  CHECK(tokens_of.empty());
}

TEST_CASE("a chunk of few tokens behind many keys is split, and every key is read once") {
  for (const uint32_t num_tokens : {33u, 64u, 190u, 512u, 640u, 1024u, 1500u}) {
    const Lowered lowered = lower(chunk_plan(2500, num_tokens), 64 * 4096);
    check_chunk(lowered, 2500, num_tokens);
    // Eight items run at a time, and a split has at least 512 keys: 8, 16 and 24 fill the device as they are, 3 in five
    // splits each; of 10 the first two, of four splits each, fill another half.
    const std::map<uint32_t, size_t> expected = {{33, 4},   {64, 5},    {190, 15}, {512, 8},
                                                 {640, 16}, {1024, 16}, {1500, 24}};
    CHECK(lowered.inputs.attention[0].prompt_items.size() == expected.at(num_tokens));
  }
}

// Until the last of so many workgroups has ended, which take the longest splits first, in keys of 64 tokens; those of a
// split compute so many tokens at a time, a head after the other.
uint32_t end_of_prompts(const Lowered& lowered, uint32_t num_workgroups, uint32_t num_heads, uint32_t tile_tokens) {
  std::vector<uint32_t> ends(num_workgroups);
  for (const AttentionItem& item : lowered.inputs.attention[0].prompt_items | std::views::reverse)
    for (uint32_t head = 0; head < num_heads; ++head)
      *std::ranges::min_element(ends) +=
          (item.key_end - item.key_begin) * round_up(item.num_tokens, tile_tokens) / kPromptItemTokens + 256;
  return std::ranges::max(ends);
}

TEST_CASE("where workgroups begin one by one a chunk is cut in runs of equal length, the longest splits first") {
  Caps caps = measured_caps();
  caps.attention.prompt_tiles = 16;
  caps.attention.prompt_tile_rows = 32;
  constexpr uint32_t kStart = 3500;
  const auto most_keys = [](const Lowered& lowered) {
    const AttentionItem& last = lowered.inputs.attention[0].prompt_items.back();
    return last.key_end - last.key_begin;
  };
  Caps alike = caps;
  alike.attention.prompt_tile_rows = 0;
  for (const uint32_t num_tokens : {40u, 160u, 288u, 352u, 415u, 480u, 512u, 1000u}) {
    const Lowered lowered = lower(chunk_plan(kStart, num_tokens), 64 * 4096, caps);
    check_chunk(lowered, kStart, num_tokens);
    CAPTURE(num_tokens);
    const Lowered split_alike = lower(chunk_plan(kStart, num_tokens), 64 * 4096, alike);
    CHECK(end_of_prompts(lowered, 16, 1, 32) <= end_of_prompts(split_alike, 16, 1, 32));
    CHECK(std::ranges::is_sorted(lowered.inputs.attention[0].prompt_items, {},
                                 [](const AttentionItem& item) { return item.key_end - item.key_begin; }));
  }
  // Five items and a half fill 16 places with runs of some 1,276 keys; alike, six of them have splits for several
  // rounds.
  const Lowered lowered = lower(chunk_plan(kStart, 352), 64 * 4096, caps);
  CHECK(most_keys(lowered) >= 1276);
  CHECK(most_keys(lowered) < 1276 + 64 + 128);
  // With room for no more than a few partial results there are no runs, and splits get fewer until nothing is split.
  IterationPlan lone;
  lone.rows.push_back({});
  lone.rows[0].start = kStart;
  lone.rows[0].num_tokens = 352;
  lone.tokens.resize(352, {});
  const Lowered few = lower(lone, 4096, caps, 1);
  CHECK(few.state.partials_max < 2 * kPromptItemTokens);
  CHECK(few.inputs.attention[0].num_partials == 0);
  CHECK(few.inputs.attention[0].prompt_items.size() == 6);
  caps.attention.prompt_tile_rows = 0;
  CHECK(most_keys(lower(chunk_plan(kStart, 352), 64 * 4096, caps)) < 700);
}

TEST_CASE("runs are as long as leaves least of a device idle") {
  Caps caps = measured_caps();
  caps.attention.prompt_tiles = 33;  // 16 items and a half, of two heads
  caps.attention.prompt_tile_rows = 128;
  constexpr uint32_t kStart = 8000;
  const Lowered lowered = lower(chunk_plan(kStart, 352), 64 * 4096, caps, 64, 2);
  check_chunk(lowered, kStart, 352);
  // Runs of the 3,008 keys that there is room for would end in splits that take turns, after the time of 3,968 keys.
  CHECK(end_of_prompts(lowered, 33, 2, 64) < 3700);
  // Of 160 tokens runs would take 96 keys less than five splits of each item, which is less than they cost.
  const Lowered alike = lower(chunk_plan(kStart, 160), 64 * 4096, caps, 64, 2);
  CHECK(alike.inputs.attention[0].prompt_items.size() == 15);
}

TEST_CASE("where workgroups have items in turns, who has a long split has a short one next") {
  Caps alike = measured_caps();
  alike.attention.prompt_tiles = 33;  // 8 items and a quarter, of four heads
  Caps turns = alike;
  turns.attention.prompt_tile_rows = ~0u / kPromptItemTokens;
  turns.attention.prompt_turns = true;
  constexpr uint32_t kStart = 8000;
  const auto time_of = [](uint32_t num_tokens, const Caps& caps) {
    const Lowered lowered = lower(chunk_plan(kStart, num_tokens), 64 * 4096, caps, 64, 4);
    check_chunk(lowered, kStart, num_tokens);
    std::vector<uint32_t> ends(33);
    size_t place = 0;
    for (const AttentionItem& item : lowered.inputs.attention[0].prompt_items | std::views::reverse)
      for (int head = 0; head < 4; ++head) ends[place++ % 33] += item.key_end - item.key_begin + 256;
    return std::ranges::max(ends);
  };
  for (const uint32_t num_tokens : {40u, 160u, 192u, 256u, 282u, 320u, 352u, 448u, 512u, 640u, 1000u}) {
    const uint32_t time = time_of(num_tokens, turns), time_alike = time_of(num_tokens, alike);
    CAPTURE(num_tokens);
    CHECK(time <= time_alike);
    if (num_tokens == 192 || num_tokens == 320 || num_tokens == 448) CHECK(time < 0.95 * time_alike);
  }
}

TEST_CASE("a probe of prompts beside rows that decode gives each its own blocks") {
  const auto model = make_fake_model();
  const ProbeShape shape{2, 40, 100, 1, 16, 3, 50};
  std::set<uint32_t> blocks;
  for (uint32_t i = 0; i < shape.num_rows(); ++i) {
    const IterationPlan setup = probe_setup_plan(shape, i);
    const RowUpdate& patch = setup.row_updates.back();
    REQUIRE(patch.kind == RowUpdateKind::kPatchTable);
    CHECK(patch.payload_words == (i < 2 ? 9 : 4));
    for (uint32_t word = 0; word < patch.payload_words; ++word)
      CHECK(blocks.insert(setup.row_payload[patch.payload_first + word]).second);
    CHECK(setup.rows[0].start == (i < 2 ? 100 : 50));
  }
  CHECK(blocks.size() == probe_blocks(shape));
  CHECK(*blocks.rbegin() == probe_blocks(shape) - 1);

  const IterationPlan plan = probe_plan(shape, model->config.vocab_size);
  CHECK(plan.tokens.size() == 2 * 40 + 3);
  CHECK(plan.samples.size() == 5);
  const CostSizes sizes = probe_sizes(shape, model->config, KvDType::kF16);
  CHECK(sizes.num_tokens == 83);
  CHECK(sizes.num_sampled == 5);
  REQUIRE(sizes.kv.size() == 1);
  CHECK(sizes.kv[0].tokens == 2 * 140 + 3 * 51);
  CHECK(sizes.kv[0].attention_pairs == 2 * (40 * 100 + 40 * 41 / 2) + 3 * 51);

  // Layers with a window read the keys that the first of a prompt's tokens sees, and those of the tokens behind it.
  ModelConfig windowed = model->config;
  LayerSpec& added = windowed.layers.emplace_back(windowed.layers.front());
  added.attention = AttentionKind::kWindow;
  added.window = 60;
  added.num_kv_heads *= 2;
  assign_cache_groups(windowed.layers);
  const CostSizes groups = probe_sizes(shape, windowed, KvDType::kF16);
  REQUIRE(groups.kv.size() == 2);
  CHECK(groups.kv[0].tokens == sizes.kv[0].tokens);
  CHECK(groups.kv[1].tokens == 2 * (60 + 39) + 3 * 51);
  CHECK(groups.kv[1].attention_pairs == 2 * 40 * 60 + 3 * 51);
  CHECK(groups.kv[1].bytes_token == 2 * sizes.kv[0].bytes_token);
}

TEST_CASE("the arena is what the backend needs for the largest lists") {
  struct Needing final : FakeBackend {
    using FakeBackend::FakeBackend;
    uint64_t arena_bytes(const OpList& list) const override {
      return list.num_tokens * forward_bytes + list.num_sampled * sample_bytes;
    }
    uint64_t forward_bytes = 1000, sample_bytes = 10;
  };
  Needing device{FakeBackendConfig()};
  Lowering lowering(make_fake_model(), Caps(), 300, 40);
  const auto arena_bytes = [&] { return lowering.state_config({}, PlanLimits(), 1 << 16, device).arena_bytes; };
  CHECK(arena_bytes() == 300 * 1000);
  device.sample_bytes = 10000;
  CHECK(arena_bytes() == 40 * 10000);
}

TEST_CASE("a step that is lowered part by part is the step that is lowered whole") {
  const auto model = make_fake_model();
  IterationPlan plan = probe_plan({2, 40, 100, 1, 16, 3, 50}, model->config.vocab_size);
  plan.samples[0].logprobs = true;
  plan.samples[1].kind = TailKind::kScore;
  plan.samples[1].forced_token = 7;
  plan.bias = {{3, 1.0f}};
  plan.samples[2].changes.num_bias = 1;
  Lowering lowering(model, {}, 2048, 256);
  lowering.state_config({}, PlanLimits(), 1 << 16, kDevice);
  LoweredStep whole, parts;
  lowering.lower(plan, &whole);
  lowering.lower_forward(plan, &parts);
  const StepSubmission forward = parts.forward_submission();
  CHECK(forward.forward == whole.forward);
  CHECK(forward.sample == nullptr);
  REQUIRE(lowering.lower_tail(plan, &parts).ok());
  const StepSubmission tail = parts.tail_submission();
  CHECK(tail.forward == nullptr);
  CHECK(tail.memory == nullptr);
  CHECK(tail.forward_inputs.empty());
  CHECK(tail.sample == whole.sample);
  CHECK(tail.num_sampled == 5);
  CHECK(tail.want_logprobs);
  CHECK(parts.forward_words == whole.forward_words);
  CHECK(parts.sample_words == whole.sample_words);
  const auto inputs = unpack_sample(parts.sample_words);
  REQUIRE(inputs.ok());
  CHECK(inputs->records[1].flags == kSampleForced);
  CHECK(inputs->records[1].forced_token == 7);
}

TEST_CASE("of a row whose adapter counts from a position on, the tokens and samples from there have it") {
  const auto model = make_fake_model();
  Lowering lowering(model, measured_caps(), 64, 16);
  lowering.state_config({}, PlanLimits(), 1 << 16, kDevice);
  // Prompts of 6 tokens that are scored, in chunks: before the invocation, over it, behind it; and an adapter for all.
  IterationPlan plan;
  const std::pair<uint32_t, uint32_t> rows[] = {{0, 10}, {4, 7}, {8, 3}, {2, 0}};  // start, adapter_start
  for (uint32_t r = 0; r < std::size(rows); ++r) {
    const auto first = static_cast<uint32_t>(plan.tokens.size());
    plan.rows.push_back({r, r, rows[r].first, 6, first, first, 6, /*adapter_slot=*/r + 1, false});
    plan.rows.back().adapter_start = rows[r].second;
    for (uint32_t i = 0; i < 6; ++i) {
      plan.tokens.push_back(5);
      plan.samples.push_back({i, i, TailKind::kScore, 3});
    }
  }
  plan.samples.resize(16);  // as many as fit: the last row has none
  plan.rows[2].num_samples = 4;
  plan.rows[3].num_samples = 0;
  LoweredStep step;
  lowering.lower(plan, &step);
  const auto forward = unpack_forward(step.forward_words);
  const auto sample = unpack_sample(step.sample_words);
  REQUIRE(forward.ok());
  REQUIRE(sample.ok());
  std::map<uint32_t, uint32_t> slots, sample_slots;  // by token, by record
  for (const auto& [items, adapted, out] : {std::tuple{&forward->adapter_items, &forward->adapter_rows, &slots},
                                            {&sample->adapter_items, &sample->adapter_rows, &sample_slots}})
    for (const AdapterItem& item : *items)
      for (uint32_t i = 0; i < item.num_rows; ++i) (*out)[(*adapted)[item.first + i].row] = item.slot;
  std::map<uint32_t, uint32_t> expected, expected_samples;
  for (uint32_t token = 6 + 3; token < 12; ++token) expected[token] = expected_samples[token] = 1;
  for (uint32_t token = 12; token < 18; ++token) expected[token] = 2;
  for (uint32_t record = 12; record < 16; ++record) expected_samples[record] = 2;
  for (uint32_t token = 18; token < 24; ++token) expected[token] = 3;
  CHECK(slots == expected);
  CHECK(sample_slots == expected_samples);
  const uint32_t firsts[] = {6, 3, 0, 0};
  for (uint32_t r = 0; r < 4; ++r) CHECK(forward->rows[r].adapter_first == firsts[r]);
}

TEST_CASE("rows before their adapters' starts run the lists of steps without adapters") {
  const auto model = make_fake_model();
  Lowering lowering(model, measured_caps(), 64, 16);
  lowering.state_config({}, PlanLimits(), 1 << 16, kDevice);
  IterationPlan plan = decode_plan(2, 3);
  for (PlanRow& row : plan.rows) {
    row.adapter_slot = 1;
    row.adapter_start = 4;
  }
  LoweredStep step;
  lowering.lower(plan, &step);
  CHECK(step.forward == &lowering.forward_list(2, false, true));
  plan.rows[1].adapter_start = 3;
  lowering.lower(plan, &step);
  CHECK(step.forward == &lowering.forward_list(2, false, true, Adapted::kMatrices));
}

TEST_CASE("only steps with an adapter on experts run lists that have the ops for it") {
  const auto made = make_synthetic("synthetic:qwen3-30b-a3b:q8_0");
  REQUIRE(made.ok());
  const auto& model = *made;
  const size_t num_layers = model->config.num_layers();
  Lowering lowering(model, measured_caps(), 64, 16);
  CHECK(lowering.adapted_kinds().size() == 1);
  lowering.set_adapter_rank(16);
  CHECK(lowering.adapted_kinds().size() == 3);
  Lowering dense(make_fake_model(), measured_caps(), 64, 16);
  dense.set_adapter_rank(16);
  CHECK(dense.adapted_kinds().size() == 2);
  lowering.state_config({}, PlanLimits(), 1 << 16, kDevice);
  // How many ops add to experts, and how many experts' first products take what is added.
  const auto counts = [](const OpList& list) {
    std::array<size_t, 3> found = {};
    for (const Op& op : list.ops) {
      found[0] += std::holds_alternative<ExpertShrink>(op);
      found[1] += std::holds_alternative<ExpertExpand>(op);
      if (const auto* gate_up = std::get_if<ExpertGateUp>(&op)) found[2] += gate_up->term != kNoTensor;
    }
    return found;
  };
  using Counts = std::array<size_t, 3>;
  IterationPlan plan = decode_plan(2, 3);
  for (PlanRow& row : plan.rows) row.adapter_slot = row.slot + 1;
  LoweredStep step;
  lowering.lower(plan, &step);
  CHECK(step.forward == &lowering.forward_list(2, false, true, Adapted::kMatrices));
  CHECK(counts(step.forward->list) == Counts{});
  plan.rows[1].adapter_on_experts = true;
  lowering.lower(plan, &step);
  CHECK(step.forward == &lowering.forward_list(2, false, true, Adapted::kExperts));
  // The last layer's experts are in the sample list.
  CHECK(counts(step.forward->list) == Counts{2 * (num_layers - 1), num_layers - 1, num_layers - 1});
  CHECK(counts(lowering.sample_list(2, false, Adapted::kExperts).list) == Counts{2, 1, 1});
  CHECK(counts(lowering.sample_list(2, false, Adapted::kMatrices).list) == Counts{});
  plan.rows[1].adapter_start = 4;  // not yet
  lowering.lower(plan, &step);
  CHECK(step.forward == &lowering.forward_list(2, false, true, Adapted::kMatrices));
}

TEST_CASE("a kind of tail that no op computes is refused by name") {
  const auto model = make_fake_model();
  IterationPlan plan = probe_plan({1, 1, 10, 1, 16}, model->config.vocab_size);
  plan.samples[0].kind = TailKind::kEmbed;
  Lowering lowering(model, {}, 2048, 256);
  LoweredStep step;
  const Status status = lowering.lower_tail(plan, &step);
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().code == ErrorCode::kUnsupported);
  CHECK(status.error().message == "tail: expected sample or score, found embed, which no op computes");
}

TEST_CASE("an engine's blocks are told apart by all that makes their numbers") {
  const auto model = make_fake_model();
  const EngineConfig config;
  const Digest identity = cache_identity(*model, config);
  CHECK(identity == cache_identity(*make_fake_model(), config));

  EngineConfig other_dtype = config;
  other_dtype.kv_dtype = KvDType::kI8;
  CHECK(cache_identity(*model, other_dtype) != identity);

  const auto changed = [&](auto change) {
    Model other = *model;
    change(other);
    return cache_identity(other, config) != identity;
  };
  CHECK(changed([](Model& m) { m.config.rope_freqs = {{0.5f}}; }));
  CHECK(changed([](Model& m) { m.config.embedding_scale = 2; }));
  CHECK(changed([](Model& m) { m.config.residual_scale = 2; }));
  CHECK(changed([](Model& m) { m.config.logit_scale = 2; }));
  CHECK(changed([](Model& m) { m.config.logit_soft_cap = 30; }));
  CHECK(changed([](Model& m) { m.config.layers.push_back(m.config.layers.front()); }));
  const auto changed_layer = [&](auto change) { return changed([&](Model& m) { change(m.config.layers.front()); }); };
  CHECK(changed_layer([](LayerSpec& layer) { layer.attention = AttentionKind::kWindow; }));
  CHECK(changed_layer([](LayerSpec& layer) { layer.window = 64; }));
  CHECK(changed_layer([](LayerSpec& layer) { layer.num_heads = 2; }));
  CHECK(changed_layer([](LayerSpec& layer) { layer.num_kv_heads = 2; }));
  CHECK(changed_layer([](LayerSpec& layer) { layer.head_dim = 16; }));
  CHECK(changed_layer([](LayerSpec& layer) { layer.attention_scale = 0.25f; }));
  CHECK(changed_layer([](LayerSpec& layer) { layer.soft_cap = 50; }));
  CHECK(changed_layer([](LayerSpec& layer) { layer.sinks = true; }));
  CHECK(changed_layer([](LayerSpec& layer) { layer.joined_qk_norm = true; }));
  CHECK(changed_layer([](LayerSpec& layer) { layer.v_norm = true; }));
  CHECK(changed_layer([](LayerSpec& layer) { layer.output_gate = true; }));
  CHECK(changed_layer([](LayerSpec& layer) { layer.values_are_keys = true; }));
  CHECK(changed_layer([](LayerSpec& layer) { layer.cache_of = 0; }));
  CHECK(changed_layer([](LayerSpec& layer) { layer.qk_norm = true; }));
  CHECK(changed_layer([](LayerSpec& layer) { layer.attention = AttentionKind::kLatent; }));
  CHECK(changed_layer([](LayerSpec& layer) { layer.rope.freqs_idx = 1; }));
  CHECK(changed_layer([](LayerSpec& layer) { layer.rope.dim = 4; }));
  CHECK(changed_layer([](LayerSpec& layer) { layer.rope.pairing = RopePairing::kHalves; }));
  CHECK(changed_layer([](LayerSpec& layer) { layer.rope.magnitude = 2; }));
  CHECK(changed_layer([](LayerSpec& layer) { layer.feed_forward = FeedForwardKind::kExperts; }));
  CHECK(changed_layer([](LayerSpec& layer) { layer.ffn_width = 16; }));
  const auto changed_experts = [&](auto change) {
    Model other = *model, base = *model;
    for (Model* m : {&base, &other}) m->config.layers.front().feed_forward = FeedForwardKind::kExperts;
    change(other.config.layers.front().experts);
    return cache_identity(other, config) != cache_identity(base, config);
  };
  CHECK_FALSE(changed_experts([](ExpertSpec&) {}));
  CHECK(changed_experts([](ExpertSpec& experts) { experts.used = 2; }));
  CHECK(changed_experts([](ExpertSpec& experts) { experts.rule.num_shared = 1; }));
  CHECK(changed_experts([](ExpertSpec& experts) { experts.shared_width = 16; }));
  CHECK(changed_experts([](ExpertSpec& experts) { experts.latent_width = 16; }));
  CHECK(changed_layer([](LayerSpec& layer) { layer.activation = Activation::kGelu; }));
  CHECK(changed_layer([](LayerSpec& layer) { layer.attention_post_norm = true; }));
  CHECK(changed_layer([](LayerSpec& layer) { layer.ffn_post_norm = true; }));
  const auto changed_latent = [&](auto change) {
    Model other = *model, base = *model;
    for (Model* m : {&base, &other}) m->config.layers.front().attention = AttentionKind::kLatent;
    change(other.config.layers.front().latent);
    return cache_identity(other, config) != cache_identity(base, config);
  };
  CHECK(changed_latent([](LatentSpec& latent) { latent.rank = 16; }));
  CHECK(changed_latent([](LatentSpec& latent) { latent.rope_dim = 16; }));
  CHECK(changed_latent([](LatentSpec& latent) { latent.nope_dim = 16; }));
  CHECK(changed_latent([](LatentSpec& latent) { latent.value_dim = 16; }));
  CHECK(changed_latent([](LatentSpec& latent) { latent.query_rank = 16; }));
  const auto changed_state = [&](auto change) {
    Model other = *model, base = *model;
    for (Model* m : {&base, &other}) m->config.layers.front().attention = AttentionKind::kGatedDelta;
    change(other.config.layers.front().recurrent);
    return cache_identity(other, config) != cache_identity(base, config);
  };
  CHECK_FALSE(changed_state([](RecurrentSpec&) {}));
  CHECK(changed_state([](RecurrentSpec& spec) { spec.conv_width = 4; }));
  CHECK(changed_state([](RecurrentSpec& spec) { spec.conv_columns = 64; }));
  CHECK(changed_state([](RecurrentSpec& spec) { spec.key_heads = 2; }));
  CHECK(changed_state([](RecurrentSpec& spec) { spec.value_heads = 2; }));
  CHECK(changed_state([](RecurrentSpec& spec) { spec.key_dim = 8; }));
  CHECK(changed_state([](RecurrentSpec& spec) { spec.value_dim = 8; }));
  CHECK(changed_state([](RecurrentSpec& spec) { spec.order = KeyHeadOrder::kModulo; }));
  CHECK(changed_state([](RecurrentSpec& spec) { spec.gates_in_turn = true; }));
  std::vector<std::byte> bytes(3 * 4096 * 4);
  const auto add_tensor = [&](Model& m) {
    m.weights.tensors.push_back({"w", Encoding::kF32, 3, 4096, bytes.data(), {}});
  };
  CHECK(changed(add_tensor));
  Model with_tensor = *model;
  add_tensor(with_tensor);
  const Digest before = model_digest(with_tensor);
  for (const size_t at : {size_t{0}, bytes.size() / 2, bytes.size() - 1}) {
    bytes[at] = std::byte{1};
    CHECK(model_digest(with_tensor) != before);
    bytes[at] = std::byte{0};
  }
}
