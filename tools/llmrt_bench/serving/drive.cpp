#include "tools/llmrt_bench/serving/drive.h"

#include <algorithm>

namespace llmrt::bench {

class Drive::Sink final : public EventSink {
 public:
  void on_events(std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events) {
      if (event.token >= 0 && !event.is_prompt) answer->times_ns.push_back(event.time_ns);
      if (event.finish == FinishReason::kNone) continue;
      answer->finished = true;
      answer->cached_tokens = event.cached_tokens;
      answer->error = event.error;
    }
  }
  std::shared_ptr<Answer> answer = std::make_shared<Answer>();
};

std::vector<double> Answer::gaps_ms(TimeNs from, TimeNs to) const {
  std::vector<double> gaps;
  for (size_t i = 1; i < times_ns.size(); ++i)
    if (times_ns[i] > from && times_ns[i] <= to) gaps.push_back(ms_between(times_ns[i - 1], times_ns[i]));
  return gaps;
}

Result<std::shared_ptr<const Answer>> Drive::submit(std::vector<int32_t> prompt, uint32_t output_tokens) {
  auto sink = std::make_shared<Sink>();
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.seed = ++num_submitted_;
  request.stop.ignore_eos = true;
  request.max_tokens = output_tokens;
  request.sink = sink;
  request.arrival_ns = sink->answer->arrival_ns = clock_->now_ns();
  Result<RequestId> id = engine_->submit(std::move(request));
  if (!id) return id.error();
  sink->answer->id = *id;
  live_.push_back(sink);
  return std::shared_ptr<const Answer>(sink->answer);
}

Result<bool> Drive::until(const std::function<bool()>& done, TimeNs deadline_ns) {
  while (!done()) {
    if (clock_->now_ns() >= deadline_ns) return false;
    Result<bool> worked = engine_->tick();
    if (!worked) return worked.error();
    if (!*worked) return make_error(ErrorCode::kInternal, "the engine has nothing to do, but requests wait for it");
    std::optional<Error> error;
    std::erase_if(live_, [&](const std::shared_ptr<Sink>& sink) {
      if (!sink->answer->finished) return false;
      if (sink->answer->error) error = sink->answer->error;
      engine_->drained(sink->answer->id);
      return true;
    });
    if (error) return *error;
  }
  return true;
}

Result<bool> Drive::until_finished(TimeNs deadline_ns) {
  return until([this] { return live_.empty(); }, deadline_ns);
}

Status Drive::finish() {
  for (const auto& sink : live_) engine_->cancel(sink->answer->id);
  live_.clear();
  for (;;) {
    Result<bool> worked = engine_->tick();
    if (!worked) return worked.error();
    if (!*worked) return {};
  }
}

Status Drive::warm_up(uint32_t num_rows) {
  constexpr uint32_t kPromptTokens = 16;
  Draws draws(~num_submitted_);
  for (uint32_t row = 0; row < num_rows; ++row) {
    auto answer = submit(draws.tokens(kPromptTokens, engine_->model().config.vocab_size), row + 2);
    if (!answer) return answer.error();
  }
  if (Result<bool> ended = until_finished(); !ended) return ended.error();
  return finish();
}

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const size_t i = std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(i), values.end());
  return values[i];
}

StepCounts steps_between(const EngineStats& before, const EngineStats& after) {
  StepCounts counts{after.num_steps - before.num_steps, after.useful_tokens - before.useful_tokens,
                    after.padded_tokens - before.padded_tokens, after.num_preemptions - before.num_preemptions, 0};
  const uint64_t plans = after.step_rows.count() - before.step_rows.count();
  if (plans > 0) counts.mean_rows = (after.step_rows.sum() - before.step_rows.sum()) / static_cast<double>(plans);
  return counts;
}

}  // namespace llmrt::bench
