#include "tools/llmrt_bench/model/engine_run.h"

#include <algorithm>
#include <random>

#include "backends/backends.h"

namespace llmrt::bench {
namespace {

// Remembers when each token of one request came.
class TimesSink final : public EventSink {
 public:
  void on_events(std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events) {
      if (event.token >= 0) times_ns.push_back(event.time_ns);
      if (event.finish != FinishReason::kNone) finished = true;
      if (event.error) error = event.error;
    }
  }
  std::vector<TimeNs> times_ns;
  std::optional<Error> error;
  bool finished = false;
};

constexpr int32_t kRepeatedToken = 100;

class RepeatDrafts final : public DraftSource {
 public:
  explicit RepeatDrafts(BatchDrafts kind) : kind_(kind) {}
  std::unique_ptr<Drafter> begin(uint32_t) const override { return std::make_unique<Repeat>(kind_); }
  size_t held_bytes() const override { return 0; }

 private:
  class Repeat final : public Drafter {
   public:
    explicit Repeat(BatchDrafts kind) : kind_(kind) {}
    void propose(std::span<const int32_t> tokens, uint32_t most, std::vector<int32_t>* drafts) override {
      constexpr size_t kPause = 32, kRightSteps = 16;
      num_asked_ = tokens.size() > last_size_ + kPause ? 1 : num_asked_ + 1;
      last_size_ = tokens.size();
      const bool is_right = kind_ == BatchDrafts::kRight || num_asked_ <= kRightSteps;
      drafts->insert(drafts->end(), most, is_right ? kRepeatedToken : kRepeatedToken + 1);
    }
    bool expects_more(std::span<const int32_t>) override { return true; }

   private:
    BatchDrafts kind_;
    size_t last_size_ = 0;
    uint32_t num_asked_ = 0;
  };

  BatchDrafts kind_;
};

struct Sample {
  TimeNs at_ns;
  EngineStats stats;
};

}  // namespace

Result<EngineUnderTest> open_engine(const std::string& device, std::shared_ptr<const Model> model,
                                    const EngineConfig& config, const Clock* clock,
                                    std::shared_ptr<const Model> draft) {
  Result<std::unique_ptr<Backend>> backend = open_device(device);
  if (!backend) return backend.error();
  DraftParts parts;
  if (draft) {
    Result<std::unique_ptr<Backend>> own = open_device((*backend)->caps().device_id);
    if (!own) return own.error();
    parts = {std::move(draft), *std::move(own)};
  }
  EngineUnderTest under;
  under.device_id = (*backend)->caps().device_id;
  under.device_name = (*backend)->caps().device_name;
  under.tier = (*backend)->caps().tier;
  const TimeNs begin = clock->now_ns();
  Result<std::unique_ptr<Engine>> engine =
      Engine::create(config, model, nullptr, std::move(*backend), clock, {}, std::move(parts));
  if (!engine) return engine.error();
  under.load_s = ms_between(begin, clock->now_ns()) * 1e-3;
  if (const std::string remark = (*engine)->backend().remark(); !remark.empty())
    fmt::print(stderr, "{}: {}\n", under.device_id, remark);
  under.engine = std::move(*engine);
  return under;
}

Result<BatchResult> run_batch(Engine* engine, const Clock& clock, const Batch& batch, uint64_t seed) {
  const uint32_t num_requests = batch.num_requests, output_tokens = batch.output_tokens;
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int32_t> token(0, static_cast<int32_t>(engine->model().config.vocab_size) - 1);
  std::vector<std::shared_ptr<TimesSink>> sinks;
  std::vector<RequestId> ids;
  const TimeNs begin_ns = clock.now_ns();
  for (uint32_t i = 0; i < num_requests; ++i) {
    Request request;
    request.prompt.resize(batch.prompt_tokens);
    for (int32_t& id : request.prompt) id = token(random);
    request.sampling.seed = random();
    request.stop.ignore_eos = true;
    request.max_tokens = output_tokens;
    if (batch.drafts != BatchDrafts::kNone) {
      request.sampling.logit_bias = std::vector<std::pair<int32_t, float>>{{kRepeatedToken, 100.0f}};
      request.speculation = Speculation{std::make_shared<const RepeatDrafts>(batch.drafts), batch.draft_tokens};
    }
    request.sink = sinks.emplace_back(std::make_shared<TimesSink>());
    Result<RequestId> id = engine->submit(std::move(request));
    if (!id) return id.error();
    ids.push_back(*id);
  }
  std::vector<Sample> samples;  // after each tick
  const auto all_finished = [&] {
    return std::all_of(sinks.begin(), sinks.end(), [](const auto& sink) { return sink->finished; });
  };
  while (!all_finished()) {
    Result<bool> worked = engine->tick();
    if (!worked) return worked.error();
    samples.push_back({clock.now_ns(), engine->stats()});
  }
  const TimeNs end_ns = clock.now_ns();
  for (RequestId id : ids) engine->drained(id);
  if (Result<bool> worked = engine->tick(); !worked) return worked.error();

  BatchResult result;
  TimeNs all_decode_ns = 0, first_end_ns = end_ns;
  for (const auto& sink : sinks) {
    if (sink->error) return *sink->error;
    all_decode_ns = std::max(all_decode_ns, sink->times_ns.front());
    first_end_ns = std::min(first_end_ns, sink->times_ns.back());
  }
  result.prefill_s = ms_between(begin_ns, all_decode_ns) * 1e-3;
  result.end_to_end_tok_s = 1e3 * num_requests * output_tokens / ms_between(begin_ns, end_ns);
  uint64_t tokens = 0;
  for (const auto& sink : sinks)
    for (TimeNs t : sink->times_ns) tokens += t > all_decode_ns && t <= first_end_ns;
  const double window_ms = ms_between(all_decode_ns, first_end_ns);
  if (tokens == 0 || window_ms <= 0) return result;
  result.decode_tok_s = 1e3 * static_cast<double>(tokens) / window_ms;
  result.decode_steps = static_cast<uint32_t>(tokens / num_requests);
  result.step_ms = window_ms / result.decode_steps;
  const Sample *from = nullptr, *to = nullptr;
  for (const Sample& sample : samples) {
    if (sample.at_ns >= all_decode_ns && !from) from = &sample;
    if (sample.at_ns <= first_end_ns) to = &sample;
  }
  if (from && to && to->stats.wall_ms > from->stats.wall_ms)
    result.idle_share = 1 - (to->stats.device_ms - from->stats.device_ms) / (to->stats.wall_ms - from->stats.wall_ms);
  return result;
}

}  // namespace llmrt::bench
