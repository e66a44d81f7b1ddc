#include "tools/llmrt_bench/kv/kv_run.h"

#include <algorithm>
#include <cstring>

#include "core/base/checked_math.h"
#include "core/engine/pool_sizing.h"
#include "core/engine/warm_up.h"
#include "tools/llmrt_bench/kv/kv_keys.h"
#include "tools/llmrt_bench/model/one_pool.h"

namespace llmrt::bench {
namespace {

constexpr uint32_t kSlot = 0;
constexpr uint32_t kStepTokens = 512, kCpuStepTokens = 256;
constexpr uint32_t kScoredTokens = 64;  // of a step whose logits are read
// No dtype is that coarse: beyond it keys were read from a wrong place or decoded wrongly.
constexpr double kKeyErrorMax = 0.5;

EngineConfig config_for(const Model& model, const Caps& caps, uint32_t context_max) {
  EngineConfig config;
  config.context_max = context_max;
  config.sequences_max = 1;
  config.step_tokens_max = std::min({caps.step_tokens_max, caps.is_cpu ? kCpuStepTokens : kStepTokens, context_max});
  config.sample_rows_max = static_cast<uint32_t>(std::min<uint64_t>(
      {kScoredTokens, config.step_tokens_max, caps.range_bytes_max / (uint64_t{model.config.vocab_size} * 4)}));
  config.penalty_rows_max = 1;
  config.block_tokens = 64;  // the largest: keys are read a block at a time
  config.kv_tokens = context_max;
  config.prefix_cache = PrefixCacheKind::kOff;
  return config;
}

// The tensors that are read after a step: q of every layer, and the logits.
OpList with_queries(OpList list) {
  for (const Op& op : list.ops)
    if (const auto* attention = std::get_if<PagedAttention>(&op))
      list.tensors[attention->qkv].storage = Storage::kPinned;
  return list;
}
TensorId logits_of(const OpList& list) {
  for (const Op& op : list.ops)
    if (const auto* filter = std::get_if<Filter>(&op)) return filter->logits;
  LLMRT_CHECK(false, "a sample list filters");
  return kNoTensor;
}
OpList with_logits(OpList list) {
  list.tensors[logits_of(list)].storage = Storage::kPinned;
  return list;
}

// Parameters and block table of the one sequence, for the first step of a text.
void start_sequence(uint32_t num_blocks, IterationPlan* plan) {
  constexpr uint32_t kSamplingWords = sizeof(RowSampling) / 4;
  const RowSampling sampling;
  plan->row_payload.resize(kSamplingWords);
  std::memcpy(plan->row_payload.data(), &sampling, sizeof sampling);
  plan->row_updates.push_back({RowUpdateKind::kSet, kSlot, 0, 0, 0, kSamplingWords});
  plan->row_updates.push_back({RowUpdateKind::kPatchTable, kSlot, 0, 0, kSamplingWords, num_blocks});
  for (uint32_t block = 0; block < num_blocks; ++block) plan->row_payload.push_back(block);
}

}  // namespace

KvRun::KvRun(std::unique_ptr<Backend> backend, std::shared_ptr<const Model> model, uint32_t context_max)
    : backend_(std::move(backend)),
      model_(std::move(model)),
      config_(config_for(*model_, backend_->caps(), context_max)),
      lowering_(model_, backend_->caps(), config_.step_tokens_max, config_.sample_rows_max) {}

Result<std::unique_ptr<KvRun>> KvRun::create(std::unique_ptr<Backend> backend, std::shared_ptr<const Model> model,
                                             uint32_t context_max) {
  std::unique_ptr<KvRun> run(new KvRun(std::move(backend), std::move(model), context_max));
  if (Status status = run->load(); !status) return status.error();
  return run;
}

Status KvRun::load() {
  const Caps& caps = backend_->caps();
  if (config_.sample_rows_max < kAttentionQueries)
    return make_error(ErrorCode::kMissingFeature, "{}: expected room for {} rows of {} logits, found room for {}",
                      caps.device_id, kAttentionQueries, model_->config.vocab_size, config_.sample_rows_max);
  if (Status status = check_layers(model_->config.layers); !status) return status;
  if (Status status = check_heads(*model_, caps); !status) return status;
  if (Result<KvGroup> pool = only_pool(*model_, config_); !pool) return pool.error();
  scored_forward_.emplace(with_queries(lowering_.forward_list(config_.sample_rows_max)));
  scored_sample_.emplace(with_logits(lowering_.sample_list(config_.sample_rows_max)));
  if (Status status = backend_->load_weights(model_->weights, {}); !status) return status.error();
  MemoryPlan pool;
  pool.block_tokens = config_.block_tokens;
  pool.num_blocks = ceil_div(config_.context_max, config_.block_tokens);
  const PlanLimits limits = plan_limits(scheduler_config(config_, pool, {}));
  StateConfig state = lowering_.state_config(config_, limits, config_.context_max, *backend_);
  for (const SealedList* list : {&*scored_forward_, &*scored_sample_})
    state.arena_bytes = std::max(state.arena_bytes, backend_->arena_bytes(*list));
  return backend_->create_state(state);
}

Status KvRun::set_cache(KvDType dtype, uint32_t num_tokens) {
  if (Status status = check_kv_dtype(dtype, *model_, backend_->caps()); !status) return status;
  config_.kv_dtype = dtype;
  Result<KvGroup> pool = only_pool(*model_, config_);
  if (!pool) return pool.error();
  group_ = *pool;
  group_.num_blocks = ceil_div(num_tokens, group_.block_tokens);
  return backend_->create_kv_pools({&group_, 1});
}

Status KvRun::run(std::span<const int32_t> tokens, uint32_t num_scored, const LogitsSink& sink,
                  const Progress& progress) {
  num_tokens_ = static_cast<uint32_t>(tokens.size());
  LLMRT_CHECK(num_scored > 0 && num_scored <= num_tokens_, "scored positions of the text");
  const uint32_t unscored = num_tokens_ - num_scored, rows_max = config_.sample_rows_max;
  for (uint32_t start = 0; start < num_tokens_;) {
    const bool is_scored = start >= unscored;
    // The short step comes first, so that the last one holds all queries that attended() asks about.
    const uint32_t remaining = num_tokens_ - start, short_step = remaining % rows_max;
    const uint32_t num_tokens =
        is_scored ? (short_step ? short_step : rows_max) : std::min(config_.step_tokens_max, unscored - start);
    IterationPlan plan;
    if (start == 0) start_sequence(ceil_div(num_tokens_, group_.block_tokens), &plan);
    plan.tokens.assign(tokens.begin() + start, tokens.begin() + start + num_tokens);
    plan.rows.push_back({0, kSlot, start, num_tokens, 0, 0, is_scored ? num_tokens : 0, 0, false, 0, 0});
    // Forced to some token: logits are wanted, nothing is drawn.
    for (uint32_t i = 0; is_scored && i < num_tokens; ++i) plan.samples.push_back({i, i, TailKind::kScore, 0});
    if (Status status = step(plan, is_scored, start + num_tokens == num_tokens_); !status) return status;
    if (is_scored) sink(start - unscored, std::span(logits_).first(uint64_t{num_tokens} * model_->config.vocab_size));
    start += num_tokens;
    progress(start);
  }
  return {};
}

Status KvRun::step(const IterationPlan& plan, bool is_scored, bool is_last) {
  lowering_.lower(plan, &lowered_);
  StepSubmission forward{.forward = is_scored ? &*scored_forward_ : lowered_.forward,
                         .forward_inputs = lowered_.forward_words};
  if (Result<StepOutput> output = submit(forward); !output) return output.error();
  if (!is_scored) return {};
  // The sample list may use the memory of the forward list's tensors, pinned or not: it comes in a step of its own.
  if (is_last)
    if (Status status = read_last_rows(static_cast<uint32_t>(plan.tokens.size())); !status) return status;
  StepSubmission sample{
      .sample = &*scored_sample_, .sample_inputs = lowered_.sample_words, .num_sampled = lowered_.num_sampled};
  Result<StepOutput> output = submit(sample);
  if (!output) return output.error();
  for (size_t i = 0; i < output->results.size(); ++i)
    if (output->results[i].flags & kResultNotFinite)
      return make_error(ErrorCode::kNotFinite, "logits: position {}: expected finite numbers, found inf or NaN",
                        plan.rows[0].start + i);
  const TensorId logits = logits_of(*scored_sample_);
  logits_.resize(scored_sample_->list.bytes_of(logits) / sizeof(float));
  return backend_->read_tensor(*scored_sample_, logits, std::as_writable_bytes(std::span(logits_)));
}

Result<StepOutput> KvRun::submit(const StepSubmission& submission) {
  Result<Ticket> ticket = backend_->submit(submission);
  if (!ticket) return ticket.error();
  return backend_->wait(*ticket);
}

Status KvRun::read_last_rows(uint32_t num_tokens) {
  last_rows_.assign(model_->config.num_layers(), {});
  if (num_tokens < kAttentionQueries) return {};
  const OpList& list = *scored_forward_;
  for (const Op& op : list.ops) {
    const auto* attention = std::get_if<PagedAttention>(&op);
    if (!attention) continue;
    std::vector<float> rows(list.bytes_of(attention->qkv) / sizeof(float));
    if (Status status =
            backend_->read_tensor(*scored_forward_, attention->qkv, std::as_writable_bytes(std::span(rows)));
        !status)
      return status;
    const uint64_t columns = list.tensors[attention->qkv].columns;
    const auto end = rows.begin() + static_cast<std::ptrdiff_t>(num_tokens * columns);
    last_rows_[attention->layer].assign(end - static_cast<std::ptrdiff_t>(kAttentionQueries * columns), end);
  }
  return {};
}

Result<AttendedPositions> KvRun::attended(uint32_t count) {
  AttendedPositions positions(model_->config.num_layers());
  for (uint32_t layer = 0; layer < model_->config.num_layers(); ++layer)
    if (Status status = attended_layer(layer, count, &positions[layer]); !status) return status.error();
  return positions;
}

Status KvRun::attended_layer(uint32_t layer, uint32_t count, std::vector<std::vector<uint32_t>>* sets) {
  AttentionRanking ranking(model_->config.layers[layer], last_rows_[layer], num_tokens_, count);
  std::vector<std::byte> bytes(group_.data_bytes_block_layer() + group_.scale_bytes_block_layer());
  std::vector<float> keys(uint64_t{group_.block_tokens} * group_.head_dim);
  for (uint32_t first = 0; first < num_tokens_; first += group_.block_tokens) {
    const uint32_t num_keys = std::min(group_.block_tokens, num_tokens_ - first);
    const auto live_keys = std::span(keys).first(uint64_t{num_keys} * group_.head_dim);
    if (Status status = backend_->read_kv(0, layer, first / group_.block_tokens, bytes); !status) return status;
    for (uint32_t kv_head = 0; kv_head < group_.num_kv_heads; ++kv_head) {
      decode_keys(group_, bytes, kv_head, model_->layers[layer].kv_scales.k, live_keys);
      ranking.add_keys(kv_head, first, live_keys);
    }
  }
  if (!(ranking.key_error() < kKeyErrorMax))
    return make_error(ErrorCode::kInternal,
                      "layer {}: keys: expected those that were computed, found a relative error "
                      "of {:.2f} in the {} cache",
                      layer, ranking.key_error(), kv_dtype_name(group_.dtype));
  *sets = ranking.positions();
  return {};
}

}  // namespace llmrt::bench
