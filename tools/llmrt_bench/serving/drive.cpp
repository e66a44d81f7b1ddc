#include "tools/llmrt_bench/serving/drive.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace llmrt::bench {

class Drive::Sink final : public EventSink {
 public:
  void on_events(std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events) {
      if (event.token >= 0 && !event.is_prompt) {
        answer->times_ns.push_back(event.time_ns);
        answer->tokens.push_back(event.token);
      }
      if (event.finish == FinishReason::kNone) continue;
      answer->finished = true;
      answer->finish = event.finish;
      answer->cached_tokens = event.cached_tokens;
      answer->error = event.error;
    }
  }
  std::shared_ptr<Answer> answer = std::make_shared<Answer>();
  bool has_grammar = false;
};

std::vector<double> Answer::gaps_ms(TimeNs from, TimeNs to) const {
  std::vector<double> gaps;
  for (size_t i = 1; i < times_ns.size(); ++i)
    if (times_ns[i] > from && times_ns[i] <= to) gaps.push_back(ms_between(times_ns[i - 1], times_ns[i]));
  return gaps;
}

Result<std::shared_ptr<const Answer>> Drive::submit(std::vector<int32_t> prompt, uint32_t output_tokens,
                                                    RequestClass request_class, TimeNs arrival_ns) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.seed = ++num_submitted_;
  request.stop.ignore_eos = true;
  request.max_tokens = output_tokens;
  request.request_class = request_class;
  request.arrival_ns = arrival_ns;
  return submit(std::move(request));
}

Result<std::shared_ptr<const Answer>> Drive::submit(Request request) {
  auto sink = std::make_shared<Sink>();
  request.sink = sink;
  sink->has_grammar = request.constraint != nullptr;
  if (request.arrival_ns == 0) request.arrival_ns = clock_->now_ns();
  sink->answer->arrival_ns = request.arrival_ns;
  Result<RequestId> id = engine_->submit(std::move(request));
  if (!id) return id.error();
  sink->answer->id = *id;
  live_.push_back(sink);
  return std::shared_ptr<const Answer>(sink->answer);
}

Result<bool> Drive::tick(TimeNs until) {
  Result<bool> worked = engine_->tick(until);
  if (!worked) return worked.error();
  std::optional<Error> error;
  std::erase_if(live_, [&](const std::shared_ptr<Sink>& sink) {
    if (!sink->answer->finished) return false;
    if (sink->answer->error && errors_ == RequestErrors::kEnd) error = sink->answer->error;
    engine_->drained(sink->answer->id);
    return true;
  });
  if (error) return *error;
  return worked;
}

Result<bool> Drive::until(const std::function<bool()>& done, TimeNs deadline_ns) {
  return until(done, deadline_ns, [](TimeNs) { return kNever; }, {});
}

Result<bool> Drive::until(const std::function<bool()>& done, TimeNs deadline_ns, const Arrivals& arrivals,
                          const std::function<void(TimeNs)>& wait_until) {
  while (!done()) {
    const TimeNs now = clock_->now_ns();
    if (now >= deadline_ns) return false;
    Result<TimeNs> next_ns = arrivals(now);
    if (!next_ns) return next_ns.error();
    Result<bool> worked = tick(std::min(*next_ns, deadline_ns));
    if (!worked) return worked.error();
    if (*worked) {
      num_waits_ = 0;
      continue;
    }
    Result<bool> has_waited = wait_for_masks();
    if (!has_waited) return has_waited.error();
    if (*has_waited) continue;
    if (*next_ns == kNever)
      return make_error(ErrorCode::kInternal, "the engine has nothing to do, but requests wait for it");
    wait_until(std::min(*next_ns, deadline_ns));
  }
  return true;
}

Result<bool> Drive::wait_for_masks() {
  constexpr std::chrono::milliseconds kSleep{1};
  constexpr uint32_t kWaitsMax = 10000;
  if (std::ranges::none_of(live_, [](const std::shared_ptr<Sink>& sink) { return sink->has_grammar; })) return false;
  if (++num_waits_ > kWaitsMax)
    return make_error(ErrorCode::kTimeout, "masks of grammars: expected one within {} ms", kWaitsMax * kSleep.count());
  std::this_thread::sleep_for(kSleep);
  return true;
}

Result<bool> Drive::until_finished(TimeNs deadline_ns) {
  return until([this] { return live_.empty(); }, deadline_ns);
}

Result<Run> Drive::run(std::span<const WorkItem> items, TimeNs deadline_ns,
                       std::vector<std::shared_ptr<const Answer>>* answers) {
  std::vector<std::shared_ptr<const Answer>> own;
  if (!answers) answers = &own;
  const EngineStats before = engine_->stats();
  const TimeNs begin_ns = clock_->now_ns();
  for (const WorkItem& item : items) {
    auto answer = submit(item.prompt, item.output_tokens);
    if (!answer) return answer.error();
    answers->push_back(*answer);
  }
  Result<bool> ended = until_finished(deadline_ns);
  if (!ended) return ended.error();
  Run run;
  run.seconds = ms_between(begin_ns, clock_->now_ns()) * 1e-3;
  run.is_cut = !*ended;
  for (const auto& answer : *answers) {
    run.tokens += answer->times_ns.size();
    run.num_finished += answer->finished;
  }
  if (Status status = finish(); !status) return status.error();
  run.steps = steps_between(before, engine_->stats());
  return run;
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
                    after.padded_tokens - before.padded_tokens, after.num_preemptions - before.num_preemptions,
                    after.prefix_hits - before.prefix_hits};
  if (counts.num_steps > 0)
    counts.mean_ms = (after.device_ms - before.device_ms) / static_cast<double>(counts.num_steps);
  const uint64_t plans = after.step_rows.count() - before.step_rows.count();
  if (plans > 0) counts.mean_rows = (after.step_rows.sum() - before.step_rows.sum()) / static_cast<double>(plans);
  return counts;
}

}  // namespace llmrt::bench
