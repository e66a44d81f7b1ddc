#include "core/engine/lower.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <ranges>
#include <tuple>

#include "core/base/check.h"
#include "core/base/checked_math.h"
#include "core/model/decoder.h"
#include "core/schedule/step_sizes.h"

namespace llmrt {
namespace {

constexpr uint32_t kPromptSplitKeysMin = 512;
constexpr double kPromptSplitCostKeys = 256;  // what a split costs beside its keys, merging included
constexpr uint32_t kPromptRunKeysMultiple = 64, kPromptRunKeysMin = 128;  // of a run's part of an item
constexpr double kPromptRunMost = 1.3;  // of the shortest runs that workgroups have room for
// What runs take beside what time_of_runs counts, in keys: as workgroups begin one by one, in turns, and where without
// them there would be nothing to merge.
constexpr double kPromptRunsCostKeys = 256, kPromptTurnsCostKeys = 100, kPromptMergeCostKeys = 256;
constexpr uint32_t kDecodeSplitKeysMin = 64, kDecodeSplitKeysMultiple = 16;
// In keys that a work reads while the device is full of them. A lone work takes a third of the time.
constexpr double kDecodeRoundKeys = 20, kDecodeSplitRoundKeys = 125;  // what a full round costs beside its keys
constexpr double kDecodeMergeKeys = 20, kDecodePartialKeys = 3;
constexpr double kFewWorks = 1.0 / 3;

// Where a split that begins at key `from` of an item ends, by runs that lie end to end, the one at work with `left`
// keys. An item of few tokens does not fill a run: what it leaves is not counted on.
uint32_t end_of_split(uint32_t from, uint32_t end, bool fills, uint32_t run_keys, uint32_t* left) {
  const uint32_t run = fills ? *left : run_keys;
  const bool is_last = end - from < run + kPromptRunKeysMin;
  if (fills) {
    *left = is_last && end - from < run ? run - (end - from) : 0;
    *left -= *left % kPromptRunKeysMultiple;
    if (*left < kPromptRunKeysMin) *left = run_keys;
  }
  return is_last ? end : from + run;
}

// Of works that stand in order, the longest first, every other round backwards, but not the last: those who have one
// of it have the shortest of the round before, and the longest of the last goes with the shortest.
template <class Works>
void turn_rounds(Works&& works, size_t round) {
  const size_t num_rounds = ceil_div(works.size(), round);
  for (size_t r = num_rounds % 2; r + 1 < num_rounds; r += 2)
    std::reverse(works.begin() + r * round, works.begin() + (r + 1) * round);
}

template <class Build>
const SealedList& find_or_build(std::map<ListKey, SealedList>* lists, ListKey key, Build build) {
  const auto it = lists->find(key);
  if (it != lists->end()) return it->second;
  OpList list = build();
  list.batch_invariant = key.batch_invariant;
  list.decode_only = key.decode_only;
  return lists->try_emplace(key, std::move(list)).first->second;
}

bool is_batch_invariant(const IterationPlan& plan) {
  return std::ranges::any_of(plan.rows, &PlanRow::batch_invariant);
}

SampleRecord record_of(const PlanRow& row, const PlanSample& sample) {
  SampleRecord record{row.slot, row.token_first + sample.token_offset, sample.output_position};
  const bool is_score = sample.kind == TailKind::kScore;
  record.forced_token = sample.forced_token;
  record.flags = (is_score ? kSampleForced : 0u) | (sample.logprobs ? kSampleLogprobs : 0u) |
                 (sample.processed ? kSampleProcessed : 0u);
  record.bias_first = row.bias_first;
  record.num_bias = is_score ? 0 : row.num_bias;
  return record;
}

}  // namespace

uint32_t split_keys(uint32_t num_keys) {
  if (num_keys <= 256) return 64;
  if (num_keys <= 8192) return 256;
  return 1024;
}

uint32_t invariant_split_keys(uint32_t num_keys) {
  return std::max(64u, std::bit_ceil(ceil_div(num_keys, kInvariantSplits)));
}

uint32_t splits_max(uint32_t context_tokens) {
  // The number of splits grows inside each regime and falls at its end.
  uint32_t most = 0;
  for (uint32_t keys : {256u, 8192u, context_tokens}) {
    keys = std::min(keys, context_tokens);
    most = std::max(most, ceil_div(keys, split_keys(keys)));
  }
  return most;
}

std::vector<AttentionGroup> attention_groups(const ModelConfig& config) {
  std::vector<AttentionGroup> groups;
  for (const CacheGroup& group : cache_groups(config.layers)) groups.push_back({0, group.num_kv_heads, group.window});
  for (const LayerSpec& layer : config.layers)
    groups[layer.cache_group].num_heads = std::max(groups[layer.cache_group].num_heads, layer.num_heads);
  return groups;
}

Lowering::Lowering(std::shared_ptr<const Model> model, const Caps& caps, uint32_t step_tokens_max,
                   uint32_t sample_rows_max)
    : Lowering(model, caps, step_tokens_max, sample_rows_max, attention_groups(model->config)) {}

Lowering::Lowering(std::shared_ptr<const Model> model, const Caps& caps, uint32_t step_tokens_max,
                   uint32_t sample_rows_max, std::vector<AttentionGroup> groups)
    : model_(std::move(model)),
      caps_(caps),
      groups_(std::move(groups)),
      step_tokens_max_(step_tokens_max),
      sample_rows_max_(sample_rows_max),
      memory_list_(build_memory(static_cast<uint32_t>(groups_.size()))) {
  LLMRT_CHECK(!groups_.empty() && groups_.size() <= kKvGroupsMax, "one to kKvGroupsMax groups of layers");
}

const SealedList& Lowering::forward_list(uint32_t num_tokens, bool batch_invariant, bool decode_only) {
  const uint32_t bucket = std::min(step_size_from(num_tokens), step_tokens_max_);
  return find_or_build(&forward_lists_, {bucket, batch_invariant, decode_only},
                       [&] { return build_forward(*model_, caps_, bucket); });
}

const SealedList& Lowering::sample_list(uint32_t num_sampled, bool batch_invariant) {
  const uint32_t bucket = std::min(step_size_from(num_sampled), sample_rows_max_);
  return find_or_build(&sample_lists_, {bucket, batch_invariant, false},
                       [&] { return build_sample(*model_, caps_, bucket); });
}

uint32_t Lowering::round_items() const {
  return std::max(caps_.prompt_tiles / group_->num_heads, 1u);
}

// An item's time grows with its keys, and few items leave a part of a large device idle. Those that fill rounds of it
// stay whole; the rest, which would leave a part of the last round idle, is cut into as many splits as are best.
Lowering::PromptSplits Lowering::prompt_splits(const IterationPlan& plan) {
  uint32_t items = 0, keys = 0;
  for (const PlanRow& row : plan.rows) {
    if (row.num_tokens <= kDecodeRowTokens) continue;
    items += ceil_div(row.num_tokens, kPromptItemTokens);
    keys = std::max(keys, row.start + row.num_tokens - first_key(row.start));
  }
  if (caps_.is_cpu) return {};
  PromptSplits best{items % round_items()};
  double least = 0;
  for (uint32_t splits = 1;
       splits == 1 || (best.items * splits <= kSplitPromptItemsMax && splits * kPromptSplitKeysMin <= keys); ++splits) {
    const uint32_t rounds = ceil_div(best.items * splits * group_->num_heads, caps_.prompt_tiles);
    const double cost = rounds * (static_cast<double>(keys) / splits + kPromptSplitCostKeys);
    if (splits > 1 && cost >= least) continue;
    best.splits = splits;
    least = cost;
  }
  if (caps_.prompt_tile_rows > 0 && best.items > 0) {
    const double cost = caps_.prompt_turns ? kPromptTurnsCostKeys : kPromptRunsCostKeys;
    try_prompt_runs(plan, least - cost - (best.splits == 1 ? kPromptMergeCostKeys : 0), &best);
  }
  return best;
}

// Runs of equal length where that takes less than `least`. Most have parts of two items. Of those of not much more keys
// than the device has room for, the runs that leave least of it idle.
void Lowering::try_prompt_runs(const IterationPlan& plan, double least, PromptSplits* best) {
  const uint32_t item_rows = kPromptItemTokens * (group_->num_heads / group_->num_kv_heads);
  const uint32_t tile_tokens = std::max(kPromptItemTokens * caps_.prompt_tile_rows / item_rows, 1u);
  double work = 0;  // in keys of whole items
  uint32_t left = best->items;
  run_items_.clear();
  for (const PlanRow& row : plan.rows) {
    for (uint32_t done = 0; row.num_tokens > kDecodeRowTokens && done < row.num_tokens && left > 0; --left) {
      const uint32_t count = std::min(kPromptItemTokens, row.num_tokens - done);
      const double share = std::min(1.0, static_cast<double>(round_up(count, tile_tokens)) / kPromptItemTokens);
      run_items_.push_back({first_key(row.start + done), row.start + done + count, count == kPromptItemTokens, share});
      work += (run_items_.back().end - run_items_.back().begin) * share;
      done += count;
    }
  }
  const double room = static_cast<double>(caps_.prompt_tiles) / group_->num_heads;
  const uint32_t first =
      std::max(round_up(static_cast<uint32_t>(work / room) + 1, kPromptRunKeysMultiple), kPromptSplitKeysMin);
  const uint32_t step = round_up(first / 32, kPromptRunKeysMultiple);
  for (uint32_t keys = first; keys <= first * kPromptRunMost && keys < least; keys += step) {
    const double time = time_of_runs(keys);
    if (time >= least) continue;
    best->run_keys = best->run_left = keys;
    least = time;
  }
}

// What run_items_ take, in keys, where workgroups have their splits as they become free, the longest first, or in
// turns. Heads do the same, so a few stand for all.
double Lowering::time_of_runs(uint32_t run_keys) {
  constexpr uint32_t kHeadsMax = 4;
  const uint32_t divisor = std::gcd(caps_.prompt_tiles, group_->num_heads);
  uint32_t heads = group_->num_heads / divisor, places = caps_.prompt_tiles / divisor;
  if (heads > kHeadsMax) {
    places = std::max(places * kHeadsMax / heads, 1u);
    heads = kHeadsMax;
  }
  run_splits_.clear();
  uint32_t left = run_keys;
  for (const RunItem& item : run_items_)
    for (uint32_t from = item.begin, end; from < item.end; from = end) {
      end = end_of_split(from, item.end, item.fills, run_keys, &left);
      run_splits_.emplace_back(end - from, (end - from) * item.share + kPromptSplitCostKeys);
    }
  if (run_splits_.size() > kSplitPromptItemsMax) return std::numeric_limits<double>::infinity();
  std::ranges::sort(run_splits_, std::greater());
  run_ends_.assign(places, 0);
  if (caps_.prompt_turns) {
    turn_rounds(run_splits_, round_items());
    size_t place = 0;
    for (const auto& [keys, time] : run_splits_)
      for (uint32_t i = 0; i < heads; ++i) run_ends_[place++ % places] += time;
    return std::ranges::max(run_ends_);
  }
  double last = 0;
  for (const auto& [keys, time] : run_splits_)
    for (uint32_t i = 0; i < heads; ++i) {
      std::ranges::pop_heap(run_ends_, std::greater());
      run_ends_.back() += time;
      last = std::max(last, run_ends_.back());
      std::ranges::push_heap(run_ends_, std::greater());
    }
  return last;
}

// All rows' keys are cut to much the same length: whole rows where they fill the device, shorter ones until the works
// fill rounds of it. Few whole rows more than fill rounds are cut alone, so that the others do not wait long for them.
Lowering::DecodeSplits Lowering::decode_splits(const IterationPlan& plan) const {
  const double room = caps_.decode_works;
  const auto each_query = [&](auto fn) {
    for (const PlanRow& row : plan.rows)
      for (uint32_t i = 0; row.num_tokens <= kDecodeRowTokens && i < row.num_tokens; ++i)
        fn(first_tile(row.start + i), row.start + i + 1);
  };
  uint32_t longest = 0, num_queries = 0;
  each_query([&](uint32_t begin, uint32_t end) {
    longest = std::max(longest, end - begin);
    ++num_queries;
  });
  if (caps_.decode_works == 0 || longest == 0) return {};
  const uint32_t num_kv_heads = group_->num_kv_heads;
  const auto last_round = [](double length, double filled) {
    return filled > 0 ? length * (kFewWorks + (1 - kFewWorks) * filled) : 0;
  };
  const auto merging = [](uint32_t splits) { return splits > 1 ? kDecodeMergeKeys + kDecodePartialKeys * splits : 0; };
  DecodeSplits best;
  double least = 0;
  for (uint32_t splits = 1;; ++splits) {
    const uint32_t length = round_up(ceil_div(longest, splits), kDecodeSplitKeysMultiple);
    double works = 0;
    each_query([&](uint32_t begin, uint32_t end) { works += ceil_div(end - begin, length) * num_kv_heads; });
    if (splits > 1 && (length < kDecodeSplitKeysMin || works > 4 * room)) break;
    const double full = std::floor(works / room), rest = works / room - full;
    const double cost = full * (length + (splits > 1 ? kDecodeSplitRoundKeys : kDecodeRoundKeys)) +
                        last_round(length, rest) + merging(splits);
    if (splits > 1 && cost >= least) continue;
    best = {length, num_queries, length};
    least = cost;
  }
  const uint32_t whole = num_queries * num_kv_heads / caps_.decode_works * caps_.decode_works / num_kv_heads;
  if (best.keys < longest || whole == 0 || whole == num_queries) return best;
  const uint32_t few_works = (num_queries - whole) * num_kv_heads;
  const uint32_t wanted =
      std::max(ceil_div(longest, std::max(caps_.decode_works / few_works, 1u)), kDecodeSplitKeysMin);
  const uint32_t length = round_up(wanted, kDecodeSplitKeysMultiple), splits = ceil_div(longest, length);
  const bool pays =
      last_round(length, few_works * splits / room) + merging(splits) < last_round(longest, few_works / room);
  if (pays) best = {best.keys, whole, length};
  return best;
}

// `stretch`: how many of the usual splits one split holds; 0 = batch-invariant. `prompt`, `decode`: of what is still to
// come.
void Lowering::add_attention_items(const PlanRow& row, uint32_t stretch, PromptSplits* prompt, DecodeSplits* decode) {
  if (row.num_tokens > kDecodeRowTokens && stretch > 0) {
    for (uint32_t done = 0; done < row.num_tokens; done += kPromptItemTokens) {
      add_prompt_item(row, done, stretch, prompt);
      if (prompt->items > 0) --prompt->items;
    }
    return;
  }
  for (uint32_t i = 0; i < row.num_tokens; ++i) {
    const uint32_t num_keys = row.start + i + 1;
    if (stretch > 0 && decode->keys > 0) {
      const uint32_t begin = first_tile(row.start + i),
                     decode_keys = decode->queries > 0 ? decode->keys : decode->last_keys;
      if (decode->queries > 0) --decode->queries;
      const uint32_t num_splits = ceil_div(num_keys - begin, decode_keys * stretch);
      add_decode_items(row, i, begin, round_up(ceil_div(num_keys - begin, num_splits), kDecodeSplitKeysMultiple));
      continue;
    }
    const uint32_t length = stretch > 0 ? split_keys(num_keys) * stretch : invariant_split_keys(num_keys);
    add_decode_items(row, i, first_key(row.start + i) / length * length, length);
  }
}

// The row's tokens from the `first`th on.
void Lowering::add_prompt_item(const PlanRow& row, uint32_t first, uint32_t stretch, PromptSplits* prompt) {
  const uint32_t count = std::min(kPromptItemTokens, row.num_tokens - first), position = row.start + first;
  const uint32_t begin = first_key(position), end = position + count;
  split_ends_.clear();
  if (prompt->items > 0 && prompt->run_keys > 0) {
    for (uint32_t from = begin; from < end; from = split_ends_.back())
      split_ends_.push_back(end_of_split(from, end, count == kPromptItemTokens, prompt->run_keys, &prompt->run_left));
  } else {
    const uint32_t wanted = std::max(prompt->items > 0 ? prompt->splits / stretch : 1, 1u);
    const uint32_t most = std::clamp((end - begin) / kPromptSplitKeysMin, 1u, wanted);
    const uint32_t length = round_up(ceil_div(end - begin, most), 64u);
    for (uint32_t from = begin; from < end; from += length) split_ends_.push_back(std::min(from + length, end));
  }
  const uint32_t partial = work_->num_partials, splits = static_cast<uint32_t>(split_ends_.size());
  for (uint32_t split = 0; split < splits; ++split) {
    const uint32_t from = split == 0 ? begin : split_ends_[split - 1];
    work_->prompt_items.push_back({row.slot, row.token_first + first, count, position, from, split_ends_[split],
                                   splits > 1 ? static_cast<int32_t>(partial + split) : -1, splits});
  }
  if (splits == 1) return;
  for (uint32_t i = 0; i < count; ++i)
    work_->merge_items.push_back({row.token_first + first + i, partial + i * splits, splits, 1});
  work_->num_partials += count * splits;
}

// The row's `i`th token in splits of `length` keys from `begin` on, which is at or before the window's first key.
void Lowering::add_decode_items(const PlanRow& row, uint32_t i, uint32_t begin, uint32_t length) {
  const uint32_t position = row.start + i, num_keys = position + 1, num_splits = ceil_div(num_keys - begin, length);
  const bool merge = num_splits > 1;
  const uint32_t merge_idx = static_cast<uint32_t>(work_->merge_items.size());
  if (merge) work_->merge_items.push_back({row.token_first + i, work_->num_partials, num_splits});
  for (uint32_t from = begin; from < num_keys; from += length) {
    work_->decode_items.push_back({row.slot, row.token_first + i, 1, position, std::max(from, first_key(position)),
                                   std::min(from + length, num_keys),
                                   merge ? static_cast<int32_t>(work_->num_partials++) : -1, merge_idx});
  }
}

uint32_t Lowering::first_key(uint32_t position) const {
  const uint32_t window = group_->window;
  return window && position >= window ? position - window + 1 : 0;
}

uint32_t Lowering::first_tile(uint32_t position) const {
  return first_key(position) / kDecodeSplitKeysMultiple * kDecodeSplitKeysMultiple;
}

// The work lists of the group at work.
void Lowering::add_attention_work(const IterationPlan& plan, bool batch_invariant) {
  const PromptSplits prompt = prompt_splits(plan);
  const DecodeSplits decode = decode_splits(plan);
  uint32_t stretch = batch_invariant ? 0 : 1;
  do {
    work_->clear();
    PromptSplits prompt_left = prompt;
    if (stretch > 1) prompt_left.run_keys = 0;  // borders of runs cut items however long runs are
    DecodeSplits decode_left = decode;
    for (const PlanRow& row : plan.rows) add_attention_items(row, stretch, &prompt_left, &decode_left);
    stretch *= 2;
  } while (work_->num_partials > partials_max_ && !batch_invariant);
  if (caps_.prompt_tile_rows > 0) {
    std::ranges::sort(work_->prompt_items, {}, [](const AttentionItem& item) {
      return std::tuple(item.key_end - item.key_begin, item.token_first, item.key_begin);
    });
    if (caps_.prompt_turns) turn_rounds(work_->prompt_items | std::views::reverse, round_items());
  }
  LLMRT_CHECK(work_->num_partials <= partials_max_, "state_config has room for invariant splits");
}

void Lowering::lower(const IterationPlan& plan, LoweredStep* step) {
  lower_forward(plan, step);
  const Status status = lower_tail(plan, step);
  LLMRT_CHECK(status.ok(), "a plan whose tail has ops");
}

Status Lowering::lower_tail(const IterationPlan& plan, LoweredStep* step) {
  LLMRT_CHECK(plan.is_complete(), "a tail is lowered when it is complete");
  LLMRT_CHECK(plan.samples.size() <= sample_rows_max_, "more sampled rows than a step may have");
  sample_.clear();
  step->want_logprobs = false;
  for (const PlanRow& row : plan.rows) {
    for (uint32_t i = row.sample_first; i < row.sample_first + row.num_samples; ++i) {
      const PlanSample& sample = plan.samples[i];
      if (sample.kind == TailKind::kEmbed)
        return make_error(ErrorCode::kUnsupported, "tail: expected sample or score, found {}, which no op computes",
                          tail_kind_name(sample.kind));
      sample_.records.push_back(record_of(row, sample));
      step->want_logprobs |= sample.logprobs;
    }
  }
  sample_.bias_entries = plan.bias;
  step->num_sampled = static_cast<uint32_t>(sample_.records.size());
  step->sample = step->num_sampled ? &sample_list(step->num_sampled, is_batch_invariant(plan)) : nullptr;
  pack(sample_, &step->sample_words);
  return {};
}

void Lowering::lower_forward(const IterationPlan& plan, LoweredStep* step) {
  LLMRT_CHECK(!plan.rows.empty() && plan.tokens.size() <= step_tokens_max_, "a plan outside the step's limits");
  forward_.clear();
  forward_.row_updates = plan.row_updates;
  forward_.row_payload = plan.row_payload;
  forward_.block_stores = plan.block_stores;
  forward_.block_loads = plan.block_loads;
  forward_.block_copies = plan.block_copies;
  forward_.tokens = plan.tokens;
  forward_.token_rows.resize(plan.tokens.size());
  for (const PlanRow& row : plan.rows) {
    std::fill_n(forward_.token_rows.begin() + row.token_first, row.num_tokens,
                static_cast<uint32_t>(forward_.rows.size()));
    forward_.rows.push_back({row.slot, row.start, row.num_tokens, row.token_first, row.adapter_id});
  }
  const bool batch_invariant = is_batch_invariant(plan);
  bool decode_only = true;
  for (size_t g = 0; g < groups_.size(); ++g) {
    group_ = &groups_[g];
    if (group_->num_heads == 0) continue;
    work_ = &forward_.attention[g];
    add_attention_work(plan, batch_invariant);
    decode_only &= work_->prompt_items.empty();
  }
  step->memory = plan.moves_blocks() ? &memory_list_ : nullptr;
  step->forward = &forward_list(static_cast<uint32_t>(plan.tokens.size()), batch_invariant, decode_only);
  pack(forward_, &step->forward_words);
}

StateConfig Lowering::state_config(const EngineConfig& config, const PlanLimits& limits, uint64_t kv_tokens_max,
                                   const Backend& backend) {
  const ModelConfig& c = model_->config;
  StateConfig out;
  out.step_tokens_max = step_tokens_max_;
  out.sample_rows_max = sample_rows_max_;
  out.slots_max = config.sequences_max;
  out.penalty_rows_max = config.penalty_rows_max;
  out.blocks_row_max = ceil_div(config.context_max, config.block_tokens);
  // Of rows of few tokens a token has at most 4 + keys / 256 splits by split_keys, and the rows' keys are all in the
  // pool. Where rows share prefixes only the first of the two bounds holds; it would take gigabytes for a case in which
  // there are rows enough without splits, so lower() keeps to the second one, as it does for splits chosen by cost.
  const uint64_t decode_tokens_max =
      std::min<uint64_t>(step_tokens_max_, uint64_t{config.sequences_max} * kDecodeRowTokens);
  out.partials_max =
      static_cast<uint32_t>(std::min<uint64_t>(decode_tokens_max * splits_max(config.context_max),
                                               4 * decode_tokens_max + kDecodeRowTokens * kv_tokens_max / 256));
  // Prompts are split as far as there is room.
  if (caps_.batch_invariant) out.partials_max = std::max(out.partials_max, kInvariantSplits * step_tokens_max_);
  partials_max_ = out.partials_max;
  out.num_kv_groups = static_cast<uint32_t>(groups_.size());
  for (const AttentionGroup& group : groups_) out.heads_max = std::max(out.heads_max, group.num_heads);
  for (const LayerSpec& layer : c.layers) out.head_dim_max = std::max(out.head_dim_max, layer.head_dim);
  out.hidden_columns = c.width;
  out.vocab_size = c.vocab_size;
  constexpr uint64_t kArrays = 8 + 3 * kKvGroupsMax, kArrayPadding = 4;  // each array starts on a 4-word boundary
  const uint64_t prompt_items_max = step_tokens_max_ / kPromptItemTokens + limits.rows_max + kSplitPromptItemsMax;
  out.forward_words_max =
      kForwardHeadersWords + kArrays * kArrayPadding + 8 * limits.row_updates_max + limits.payload_words_max +
      4 * (limits.block_copies_max + limits.block_stores_max + limits.block_loads_max) + 8ull * limits.rows_max +
      2ull * limits.tokens_max +
      groups_.size() *
          (8 * (uint64_t{out.partials_max} + step_tokens_max_ + prompt_items_max) + 4ull * step_tokens_max_);
  out.sample_words_max =
      kSampleHeaderWords + kArrays * kArrayPadding + 8ull * limits.samples_max + 2 * limits.bias_entries_max;
  out.arena_bytes =
      std::max(backend.arena_bytes(forward_list(step_tokens_max_)), backend.arena_bytes(sample_list(sample_rows_max_)));
  return out;
}

Result<StepOutput> run_probe(const IterationPlan& plan, Lowering* lowering, Backend* backend) {
  LoweredStep step;
  lowering->lower(plan, &step);
  Result<Ticket> ticket = backend->submit(step.submission());
  if (!ticket) return ticket.error();
  return backend->wait(*ticket);
}

}  // namespace llmrt
