#include "tools/llmrt_bench/kv_run.h"

#include <algorithm>
#include <cstring>

#include "core/base/checked_math.h"
#include "core/engine/pool_sizing.h"
#include "core/engine/warm_up.h"
#include "tools/llmrt_bench/kv_keys.h"
#include "tools/llmrt_bench/kv_numerics.h"

namespace llmrt::bench {
namespace {

constexpr uint32_t kSlot = 0;
constexpr uint32_t kStepTokens = 512, kCpuStepTokens = 256;
constexpr uint32_t kScoredTokens = 64;  // of a step whose logits are read
constexpr uint64_t kArenaAlignment = 256;

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
  if (model_->config.head_dim > caps.head_dim_max)
    return make_error(ErrorCode::kUnsupported, "heads of {} numbers: {} has at most {}", model_->config.head_dim,
                      caps.device_id, caps.head_dim_max);
  scored_forward_ = with_queries(lowering_.forward_list(config_.sample_rows_max));
  scored_sample_ = with_logits(lowering_.sample_list(config_.sample_rows_max));
  if (Status status = backend_->load_weights(model_->weights, {}); !status) return status.error();
  MemoryPlan pool;
  pool.block_tokens = config_.block_tokens;
  pool.num_blocks = ceil_div(config_.context_max, config_.block_tokens);
  const PlanLimits limits = plan_limits(scheduler_config(config_, pool, {}));
  StateConfig state = lowering_.state_config(config_, limits, config_.context_max);
  for (const OpList* list : {&scored_forward_, &scored_sample_})
    state.arena_bytes = std::max(state.arena_bytes, plan_arena(*list, kArenaAlignment).bytes);
  return backend_->create_state(state);
}

Status KvRun::set_cache(KvDType dtype, uint32_t num_tokens) {
  if (std::ranges::find(caps().kv_dtypes, dtype) == caps().kv_dtypes.end())
    return make_error(ErrorCode::kUnsupported, "KV cache in {}: {} does not have it", kv_dtype_name(dtype),
                      caps().device_id);
  config_.kv_dtype = dtype;
  group_ = kv_group_of(model_->config, config_);
  group_.num_blocks = ceil_div(num_tokens, group_.block_tokens);
  return backend_->create_kv_pools({&group_, 1});
}

Status KvRun::run(std::span<const int32_t> tokens, uint32_t num_scored, const LogitsSink& sink,
                  const Progress& progress) {
  num_tokens_ = static_cast<uint32_t>(tokens.size());
  LLMRT_CHECK(num_scored >= kAttentionQueries && num_scored <= num_tokens_, "scored positions of the text");
  const uint32_t unscored = num_tokens_ - num_scored, rows_max = config_.sample_rows_max;
  for (uint32_t start = 0; start < num_tokens_; start += last_step_tokens_) {
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
    for (uint32_t i = 0; is_scored && i < num_tokens; ++i) plan.samples.push_back({i, i, 0});
    if (Status status = step(plan, is_scored); !status) return status;
    if (is_scored) sink(start - unscored, std::span(logits_).first(uint64_t{num_tokens} * model_->config.vocab_size));
    last_step_tokens_ = num_tokens;
    progress(start + num_tokens);
  }
  return {};
}

Status KvRun::step(const IterationPlan& plan, bool is_scored) {
  lowering_.lower(plan, &lowered_);
  StepSubmission submission = lowered_.submission();
  if (is_scored) {
    submission.forward = &scored_forward_;
    submission.sample = &scored_sample_;
  }
  Result<Ticket> ticket = backend_->submit(submission);
  if (!ticket) return ticket.error();
  Result<StepOutput> output = backend_->wait(*ticket);
  if (!output) return output.error();
  for (size_t i = 0; i < output->results.size(); ++i)
    if (output->results[i].flags & kResultNotFinite)
      return make_error(ErrorCode::kNotFinite, "logits: position {}: expected finite numbers, found inf or NaN",
                        plan.rows[0].start + i);
  if (!is_scored) return {};
  const TensorId logits = logits_of(scored_sample_);
  logits_.resize(scored_sample_.bytes_of(logits) / sizeof(float));
  return backend_->read_tensor(scored_sample_, logits, std::as_writable_bytes(std::span(logits_)));
}

Result<AttendedPositions> KvRun::attended(uint32_t count) {
  AttendedPositions positions(model_->config.num_layers);
  for (uint32_t layer = 0; layer < model_->config.num_layers; ++layer)
    if (Status status = attended_layer(layer, count, &positions[layer]); !status) return status.error();
  return positions;
}

// The rows of q, k and v of the last queries.
Result<std::vector<float>> KvRun::last_queries(uint32_t layer) {
  for (const Op& op : scored_forward_.ops) {
    const auto* attention = std::get_if<PagedAttention>(&op);
    if (!attention || attention->layer != layer) continue;
    std::vector<float> rows(scored_forward_.bytes_of(attention->qkv) / sizeof(float));
    if (Status status = backend_->read_tensor(scored_forward_, attention->qkv, std::as_writable_bytes(std::span(rows)));
        !status)
      return status.error();
    const uint64_t columns = scored_forward_.tensors[attention->qkv].columns;
    const auto end = rows.begin() + static_cast<std::ptrdiff_t>(last_step_tokens_ * columns);
    return std::vector<float>(end - static_cast<std::ptrdiff_t>(kAttentionQueries * columns), end);
  }
  LLMRT_CHECK(false, "every layer attends");
  return std::vector<float>();
}

// A lane is one query of one head of those that share a kv head.
Status KvRun::attended_layer(uint32_t layer, uint32_t count, std::vector<std::vector<uint32_t>>* sets) {
  const ModelConfig& c = model_->config;
  const uint32_t heads_each = c.num_heads / c.num_kv_heads, num_lanes = kAttentionQueries * heads_each;
  const uint64_t columns = (c.num_heads + 2ull * c.num_kv_heads) * c.head_dim;
  Result<std::vector<float>> rows = last_queries(layer);
  if (!rows) return rows.error();
  std::vector<float> queries(uint64_t{c.num_kv_heads} * c.head_dim * num_lanes);  // [kv head][dim][lane]
  for (uint32_t query = 0; query < kAttentionQueries; ++query)
    for (uint32_t head = 0; head < c.num_heads; ++head)
      for (uint32_t dim = 0; dim < c.head_dim; ++dim)
        queries[(uint64_t{head / heads_each} * c.head_dim + dim) * num_lanes + query * heads_each + head % heads_each] =
            (*rows)[query * columns + uint64_t{head} * c.head_dim + dim];

  std::vector<TopPositions> top(uint64_t{c.num_kv_heads} * num_lanes, TopPositions(count));
  std::vector<std::byte> bytes(group_.data_bytes_block_layer() + group_.scale_bytes_block_layer());
  std::vector<float> keys(uint64_t{group_.block_tokens} * c.head_dim), scores(num_lanes);
  for (uint32_t first = 0; first < num_tokens_; first += group_.block_tokens) {
    const uint32_t num_keys = std::min(group_.block_tokens, num_tokens_ - first);
    if (Status status = backend_->read_kv(0, layer, first / group_.block_tokens, bytes); !status) return status;
    for (uint32_t kv_head = 0; kv_head < c.num_kv_heads; ++kv_head) {
      decode_keys(group_, bytes, kv_head, std::span(keys).first(uint64_t{num_keys} * c.head_dim));
      for (uint32_t key = 0; key < num_keys; ++key) {
        score_key(std::span(keys).subspan(uint64_t{key} * c.head_dim, c.head_dim),
                  std::span(queries).subspan(uint64_t{kv_head} * c.head_dim * num_lanes, c.head_dim * num_lanes),
                  scores);
        for (uint32_t lane = 0; lane < num_lanes; ++lane) {
          const uint32_t query_position = num_tokens_ - kAttentionQueries + lane / heads_each;
          const bool is_seen = first + key <= query_position && (!c.window || first + key + c.window > query_position);
          if (is_seen) top[uint64_t{kv_head} * num_lanes + lane].add(scores[lane], first + key);
        }
      }
    }
  }
  for (uint32_t query = 0; query < kAttentionQueries; ++query)
    for (uint32_t head = 0; head < c.num_heads; ++head)
      sets->push_back(top[uint64_t{head / heads_each} * num_lanes + query * heads_each + head % heads_each].sorted());
  return {};
}

}  // namespace llmrt::bench
