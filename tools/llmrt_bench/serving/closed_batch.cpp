#include "tools/llmrt_bench/serving/closed_batch.h"

#include <boost/json.hpp>

#include <algorithm>

#include "tools/llmrt_bench/serving/schemas.h"

namespace llmrt::bench {

ClosedBatch::ClosedBatch(Engine* engine, const Clock& clock, std::function<void(TimeNs)> wait_until,
                         const BatchSpec& spec)
    : engine_(engine),
      wait_until_(std::move(wait_until)),
      spec_(spec),
      num_ahead_(std::max(2u, spec.num_rows / 2)),
      drive_(engine, &clock),
      content_(spec.seed) {}

Result<Turn> ClosedBatch::run_grammars(GrammarSupply* supply, size_t num_requests, uint32_t output_max,
                                       Draws* schemas) {
  supply_ = supply;
  lengths_.assign(num_requests, output_max);
  for (size_t i = 0; i < num_requests; ++i) schemas_.push_back(make_schema(schemas));
  const GrammarFigures before = supply->figures();
  if (Status status = run(); !status) return status.error();
  const GrammarFigures after = supply->figures();
  turn_.masks_made = after.num_masks_made - before.num_masks_made;
  turn_.masks_found = after.num_masks_found - before.num_masks_found;
  turn_.mask_cpu_us = after.mask_cpu_us - before.mask_cpu_us;
  for (size_t i = 0; i < answers_.size(); ++i) count_whole(*answers_[i], schemas_[i]);
  return std::move(turn_);
}

Result<Turn> ClosedBatch::run_plain(std::vector<uint32_t> lengths) {
  lengths_ = std::move(lengths);
  if (Status status = run(); !status) return status.error();
  return std::move(turn_);
}

Status ClosedBatch::run() {
  const EngineStats before = engine_->stats();
  const auto is_over = [this] {
    drop_ended();
    return answers_.size() == lengths_.size() && open_.empty();
  };
  Result<bool> ended = drive_.until(
      is_over, kNever, [this](TimeNs now) { return submit_due(now); }, wait_until_);
  if (!ended) return ended.error();
  if (Status status = drive_.finish(); !status) return status;
  const EngineStats after = engine_->stats();
  turn_.num_parked = after.num_parked - before.num_parked;
  turn_.mask_wait_ms = after.mask_wait_ms - before.mask_wait_ms;
  measure();
  return {};
}

void ClosedBatch::drop_ended() {
  std::erase_if(open_, [](const std::shared_ptr<const Answer>& answer) { return answer->finished; });
}

Result<TimeNs> ClosedBatch::submit_due(TimeNs now) {
  drop_ended();
  if (supply_) {
    if (Status status = take_grammars(); !status) return status.error();
  }
  while (open_.size() < spec_.num_rows + num_ahead_ && answers_.size() < lengths_.size()) {
    if (supply_ && answers_.size() == constraints_.size()) break;
    if (Status status = submit(); !status) return status.error();
  }
  const bool waits = open_.empty() && supply_ && supply_->num_pending() > 0;
  if (!waits) return kNever;
  supply_->wait();
  return now;
}

Status ClosedBatch::take_grammars() {
  const size_t wanted = answers_.size() + spec_.num_rows + 2 * num_ahead_ - open_.size();
  for (; num_asked_ < std::min(schemas_.size(), wanted); ++num_asked_) supply_->ask(num_asked_, schemas_[num_asked_]);
  for (GrammarSupply::Ready& ready : supply_->take()) {
    if (!ready.constraint.ok()) return ready.constraint.error();
    constraints_.push_back(*std::move(ready.constraint));
    turn_.compile_ms.push_back(ready.cpu_ms);
    turn_.compile_waited_ms = std::max(turn_.compile_waited_ms, ready.waited_ms);
  }
  return {};
}

Status ClosedBatch::submit() {
  const size_t i = answers_.size();
  Request request;
  request.prompt = content_.tokens(spec_.prompt_tokens, engine_->model().config.vocab_size);
  request.sampling.seed = i;
  request.max_tokens = lengths_[i];
  if (supply_)
    request.constraint = std::exchange(constraints_[i], nullptr);
  else
    request.stop.ignore_eos = true;
  Result<std::shared_ptr<const Answer>> answer = drive_.submit(std::move(request));
  if (!answer) return answer.error();
  answers_.push_back(*answer);
  open_.push_back(*std::move(answer));
  return {};
}

void ClosedBatch::measure() {
  std::vector<TimeNs> begins_ns, ends_ns;
  for (const auto& answer : answers_) {
    turn_.lengths.push_back(static_cast<uint32_t>(answer->times_ns.size()));
    if (answer->times_ns.size() > 1)
      turn_.tpots_ms.push_back(ms_between(answer->times_ns.front(), answer->times_ns.back()) /
                               static_cast<double>(answer->times_ns.size() - 1));
    begins_ns.push_back(answer->times_ns.front());
    ends_ns.push_back(answer->times_ns.back());
  }
  std::ranges::sort(begins_ns);
  std::ranges::sort(ends_ns);
  const TimeNs from_ns = begins_ns[spec_.num_rows - 1], to_ns = ends_ns[ends_ns.size() - spec_.num_rows];
  if (to_ns <= from_ns) return;
  size_t num_tokens = 0;
  double busy_ms = 0;
  for (const auto& answer : answers_) {
    num_tokens += static_cast<size_t>(
        std::ranges::count_if(answer->times_ns, [&](TimeNs time_ns) { return time_ns > from_ns && time_ns <= to_ns; }));
    const TimeNs begin_ns = std::max(from_ns, answer->times_ns.front());
    const TimeNs end_ns = std::min(to_ns, answer->times_ns.back());
    if (end_ns > begin_ns) busy_ms += ms_between(begin_ns, end_ns);
  }
  turn_.tok_s = 1e3 * static_cast<double>(num_tokens) / ms_between(from_ns, to_ns);
  turn_.rows_in_use = busy_ms / ms_between(from_ns, to_ns);
}

void ClosedBatch::count_whole(const Answer& answer, const boost::json::object& schema) {
  if (answer.finish != FinishReason::kGrammarEnd) return;
  ++turn_.num_whole;
  std::string text;
  for (const int32_t token : answer.tokens) text += supply_->vocabulary().bytes(token);
  boost::system::error_code error;
  const boost::json::value value = boost::json::parse(text, error);
  turn_.num_parsed += !error && fits_roughly(value, schema);
}

}  // namespace llmrt::bench
