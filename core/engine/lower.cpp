#include "core/engine/lower.h"

#include "core/engine/expert_counts.h"

#include <algorithm>
#include <ranges>

#include "core/base/check.h"
#include "core/base/checked_math.h"
#include "core/model/decoder.h"
#include "core/schedule/step_sizes.h"

namespace llmrt {
namespace {

template <class Build>
const SealedList& find_or_build(std::map<ListKey, SealedList>* lists, ListKey key, Build build) {
  const auto it = lists->find(key);
  if (it != lists->end()) return it->second;
  OpList list = build();
  list.batch_invariant = key.batch_invariant;
  list.decode_only = key.decode_only;
  list.has_runs = key.has_runs;
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
  record.bias_first = sample.changes.bias_first;
  record.num_bias = sample.changes.num_bias;
  record.mask = sample.changes.mask;
  if (sample.verifies()) {
    record.forced_token = sample.draft;
    record.flags |= kSampleVerify | sample.run_idx << kSampleRunShift;
  }
  return record;
}

Adapted adapted_by(const std::vector<AdaptedRow>& rows) {
  if (rows.empty()) return Adapted::kNothing;
  return std::ranges::any_of(rows, &AdaptedRow::on_experts) ? Adapted::kExperts : Adapted::kMatrices;
}

// Rows of one slot together, in items of at most kAdapterItemRows.
template <class Inputs>
void append_adapters(std::vector<AdaptedRow>* rows, Inputs* inputs) {
  std::ranges::stable_sort(*rows, {}, &AdaptedRow::slot);
  for (const AdaptedRow& row : *rows) {
    const uint32_t index = static_cast<uint32_t>(inputs->adapter_rows.size());
    inputs->adapter_rows.push_back({row.row, row.scale});
    if (inputs->adapter_items.empty() || inputs->adapter_items.back().slot != row.slot ||
        inputs->adapter_items.back().num_rows == kAdapterItemRows)
      inputs->adapter_items.push_back({row.slot, index, 0});
    ++inputs->adapter_items.back().num_rows;
  }
  rows->clear();
}

// Words of the items and rows of adapters, of so many rows.
uint64_t adapter_words_max(uint64_t rows) {
  return 4 * std::min<uint64_t>(rows, kAdapterSlotsMax + rows / kAdapterItemRows) + 2 * rows;
}

// As a list where that is shorter.
void append_mask(const TokenMask& mask, SampleInputs* inputs) {
  const std::span<const uint32_t> words = mask.list().empty() ? mask.bits() : mask.list();
  inputs->mask_records.push_back({.kind = mask.list().empty() ? MaskKind::kBits : MaskKind::kList,
                                  .first = static_cast<uint32_t>(inputs->mask_words.size()),
                                  .count = static_cast<uint32_t>(words.size())});
  inputs->mask_words.insert(inputs->mask_words.end(), words.begin(), words.end());
}

}  // namespace

std::vector<AttentionGroup> attention_groups(const ModelConfig& config) {
  std::vector<AttentionGroup> groups;
  for (const CacheGroup& group : cache_groups(config.layers)) groups.push_back({0, group.num_kv_heads, group.window});
  for (const LayerSpec& layer : config.layers) {
    AttentionGroup& group = groups[layer.cache_group];
    group.num_heads = std::max(group.num_heads, layer.num_heads);
    group.is_latent |= layer.attention == AttentionKind::kLatent;
  }
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
      work_lists_(caps.attention),
      memory_list_(build_memory(static_cast<uint32_t>(groups_.size()))) {
  LLMRT_CHECK(!groups_.empty() && groups_.size() <= kKvGroupsMax, "one to kKvGroupsMax groups of layers");
}

void Lowering::set_expanded_pool(const KvGroup& pool) {
  expanded_shape_ = {};
  const auto layer = std::ranges::find(model_->config.layers, AttentionKind::kLatent, &LayerSpec::attention);
  if (pool.num_blocks == 0 || layer == model_->config.layers.end()) return;
  LLMRT_CHECK(groups_.size() < kKvGroupsMax, "a group is left for expanded latents");
  expanded_shape_ = {layer->num_heads,
                     layer->latent.rank,
                     layer->latent.rope_dim,
                     layer->latent.nope_dim,
                     layer->latent.value_dim,
                     layer->cache_group,
                     static_cast<uint32_t>(groups_.size()),
                     pool.num_blocks};
}

const SealedList& Lowering::forward_list(uint32_t num_tokens, bool batch_invariant, bool decode_only, Adapted adapted,
                                         bool has_runs, uint32_t expanded_heads) {
  const uint32_t bucket = std::min(step_size_from(num_tokens), step_tokens_max_);
  return find_or_build(&forward_lists_, {bucket, batch_invariant, decode_only, adapted, has_runs, expanded_heads}, [&] {
    return build_forward(*model_, caps_, bucket, adapted == Adapted::kNothing ? 0 : adapter_rank_,
                         {expanded_shape_.expanded_group, expanded_heads}, adapted == Adapted::kExperts);
  });
}

const SealedList& Lowering::sample_list(uint32_t num_sampled, bool batch_invariant, Adapted adapted) {
  const uint32_t bucket = std::min(step_size_from(num_sampled), sample_rows_max_);
  return find_or_build(&sample_lists_, {bucket, batch_invariant, false, adapted, false, 0}, [&] {
    return build_sample(*model_, caps_, bucket, adapted == Adapted::kNothing ? 0 : adapter_rank_, keeps_final_,
                        adapted == Adapted::kExperts);
  });
}

std::span<const Adapted> Lowering::adapted_kinds() const {
  static constexpr Adapted kKinds[] = {Adapted::kNothing, Adapted::kMatrices, Adapted::kExperts};
  const bool has_experts = std::ranges::any_of(model_->weights.groups, takes_expert_adapters);
  return std::span(kKinds).first(adapter_rank_ == 0 ? 1 : has_experts ? 3 : 2);
}

Lowering::ItemTokens Lowering::decode_item_tokens(bool batch_invariant) const {
  const AttentionTuning& tuning = caps_.attention;
  const uint32_t rows = batch_invariant ? tuning.invariant_item_rows : tuning.decode_item_rows;
  ItemTokens tokens{.least = kDecodeItemTokens};
  for (const AttentionGroup& group : groups_) {
    if (group.num_heads == 0) continue;
    const uint32_t found = llmrt::decode_item_tokens(rows, group);
    tokens = {std::min(tokens.least, found), std::max(tokens.most, found)};
  }
  return tokens;
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
      if (sample.token_offset >= row.adapter_first())
        adapted_.push_back({row.adapter_slot - 1, static_cast<uint32_t>(sample_.records.size()), row.adapter_scale,
                            row.adapter_on_experts});
      sample_.records.push_back(record_of(row, sample));
      step->want_logprobs |= sample.logprobs;
    }
  }
  const Adapted adapted = adapted_by(adapted_);
  append_adapters(&adapted_, &sample_);
  sample_.bias_entries = plan.bias;
  for (const TokenMaskPtr& mask : plan.masks) append_mask(*mask, &sample_);
  step->num_sampled = static_cast<uint32_t>(sample_.records.size());
  step->sample = step->num_sampled ? &sample_list(step->num_sampled, is_batch_invariant(plan), adapted) : nullptr;
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
  forward_.state_places = plan.state_places;
  forward_.tokens = plan.tokens;
  forward_.token_rows.resize(plan.tokens.size());
  for (const PlanRow& row : plan.rows) {
    std::fill_n(forward_.token_rows.begin() + row.token_first, row.num_tokens,
                static_cast<uint32_t>(forward_.rows.size()));
    forward_.rows.push_back({row.slot, row.start, row.num_tokens, row.token_first, row.adapter_slot, row.places_first,
                             row.num_places, row.adapter_first()});
    for (uint32_t i = row.adapter_first(); i < row.num_tokens; ++i)
      adapted_.push_back({row.adapter_slot - 1, row.token_first + i, row.adapter_scale, row.adapter_on_experts});
  }
  const Adapted adapted = adapted_by(adapted_);
  append_adapters(&adapted_, &forward_);
  static_assert(kDecodeRowTokens <= kRingRowTokens, "rows of decode-only lists write all entries of a ring at once");
  const bool batch_invariant = is_batch_invariant(plan);
  bool decode_only = batch_invariant || std::ranges::all_of(plan.rows, [](const PlanRow& row) {
                       return row.num_tokens <= kDecodeRowTokens;
                     });
  bool has_runs = false;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].num_heads == 0) continue;
    work_lists_.make(forward_.rows, groups_[g], batch_invariant, &forward_.attention[g]);
    decode_only &= forward_.attention[g].prompt_items.empty();
    has_runs |= std::ranges::any_of(forward_.attention[g].decode_items,
                                    [](const AttentionItem& item) { return item.num_tokens > 1; });
  }
  const bool expands = !decode_only && lower_expanded();
  step->memory = plan.moves_blocks() ? &memory_list_ : nullptr;
  step->forward = &forward_list(static_cast<uint32_t>(plan.tokens.size()), batch_invariant, decode_only, adapted,
                                has_runs, expands ? expanded_rows_.heads() : 0);
  pack(forward_, &step->forward_words);
}

bool Lowering::lower_expanded() {
  if (expanded_shape_.num_blocks == 0) return false;
  expanded_rows_.choose(forward_.rows, expanded_shape_);
  const uint32_t heads = expanded_rows_.heads(), group = expanded_shape_.expanded_group;
  if (heads == 0) return false;
  work_lists_.make(expanded_rows_.absorbed(), groups_[expanded_shape_.kv_group], false,
                   &forward_.attention[expanded_shape_.kv_group]);
  work_lists_.make(expanded_rows_.expanded(), {heads, heads}, false, &forward_.attention[group]);
  forward_.num_absorbed = expanded_rows_.num_absorbed();
  for (size_t i = 0; i < expanded_rows_.expanded().size(); ++i)
    add_expanded_row(expanded_rows_.expanded()[i], expanded_rows_.block_first(i));
  return true;
}

// The blocks of its keys, and the row's table of them, which is written anew in each step.
void Lowering::add_expanded_row(const RowRecord& row, uint32_t block_first) {
  const uint32_t num_keys = row.start + row.num_tokens, num_blocks = expanded_blocks(row);
  forward_.row_updates.push_back({RowUpdateKind::kPatchTable, row.slot, 0, expanded_shape_.expanded_group,
                                  static_cast<uint32_t>(forward_.row_payload.size()), num_blocks});
  for (uint32_t i = 0; i < num_blocks; ++i) {
    const uint32_t first = i * kExpandItemKeys;
    forward_.row_payload.push_back(block_first + i);
    forward_.attention[expanded_shape_.expanded_group].expand_items.push_back(
        {row.slot, first, std::min(kExpandItemKeys, num_keys - first), block_first + i});
  }
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
  out.partials_max = decode_partials_max(step_tokens_max_, config.sequences_max, config.context_max, kv_tokens_max);
  // Prompts are split as far as there is room.
  if (caps_.batch_invariant) out.partials_max = std::max(out.partials_max, kInvariantSplits * step_tokens_max_);
  work_lists_.set_partials_max(out.partials_max);
  const bool expands = expanded_shape_.num_blocks > 0;
  out.num_kv_groups = static_cast<uint32_t>(groups_.size()) + expands;
  for (const AttentionGroup& group : groups_) out.heads_max = std::max(out.heads_max, group.num_heads);
  for (const LayerSpec& layer : c.layers) out.head_dim_max = std::max(out.head_dim_max, layer.output_dim());
  if (expands) out.head_dim_max = std::max(out.head_dim_max, expanded_shape_.key_dim());
  out.hidden_columns = c.width;
  out.vocab_size = c.vocab_size;
  constexpr uint64_t kArrays = 8 + 4 * kKvGroupsMax, kArrayPadding = 4;  // each array starts on a 4-word boundary
  out.forward_words_max =
      kForwardHeadersWords + kArrays * kArrayPadding + 8 * limits.row_updates_max + limits.payload_words_max +
      4 * (limits.block_copies_max + limits.block_stores_max + limits.block_loads_max + limits.state_places_max) +
      8ull * limits.rows_max + 2ull * limits.tokens_max + adapter_words_max(limits.tokens_max) +
      out.num_kv_groups * work_words_max(step_tokens_max_, limits.rows_max, out.partials_max);
  // An update of each row that is expanded, and a table entry and an item of each block.
  if (expands) out.forward_words_max += 8ull * limits.rows_max + 5ull * expanded_shape_.num_blocks;
  out.sample_words_max = kSampleHeaderWords + kArrays * kArrayPadding + (8ull + 4) * limits.samples_max +
                         adapter_words_max(limits.samples_max) + 2 * limits.bias_entries_max +
                         uint64_t{limits.samples_max} * ceil_div(c.vocab_size, 32u);  // a mask for each row
  // With room for tools that read which experts were chosen.
  for (const Adapted adapted : adapted_kinds()) {
    const SealedList& forward = forward_list(step_tokens_max_, false, false, adapted);
    const SealedList& sample = sample_list(sample_rows_max_, false, adapted);
    out.arena_bytes = std::max(
        {out.arena_bytes, backend.arena_bytes(keep_expert_ids(forward)), backend.arena_bytes(keep_expert_ids(sample))});
    if (!expands) continue;
    const SealedList& expanded =
        forward_list(step_tokens_max_, false, false, adapted, /*has_runs=*/false, expanded_shape_.num_heads);
    out.arena_bytes = std::max(out.arena_bytes, backend.arena_bytes(keep_expert_ids(expanded)));
  }
  return out;
}

Result<StepOutput> run_moves(const ForwardInputs& moves, const SealedList& memory, Backend* backend) {
  std::vector<uint32_t> words;
  pack(moves, &words);
  Result<Ticket> ticket = backend->submit({.memory = &memory, .forward_inputs = words});
  if (!ticket) return ticket.error();
  return backend->wait(*ticket);
}

Result<StepOutput> run_probe(const IterationPlan& plan, Lowering* lowering, Backend* backend) {
  LoweredStep step;
  lowering->lower(plan, &step);
  Result<Ticket> ticket = backend->submit(step.submission());
  if (!ticket) return ticket.error();
  return backend->wait(*ticket);
}

}  // namespace llmrt
