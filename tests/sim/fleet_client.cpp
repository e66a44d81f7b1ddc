#include "tests/sim/fleet_client.h"

#include <fmt/format.h>

#include <algorithm>

namespace llmrt::test::fleet {
namespace {

constexpr size_t kTokensWhilePausedMax = 2;  // of steps that are under way

double ms_of(TimeNs ns) {
  return static_cast<double>(ns) / kMs;
}

}  // namespace

void Client::on_events(std::span<const TokenEvent> events) {
  for (const TokenEvent& event : events)
    if (wrong.empty()) take(event);
}

void Client::take(const TokenEvent& event) {
  if (event.branch >= branches.size() || event.request_id != first_id + event.branch) {
    wrong = fmt::format("an event of request {} for its branch {}", event.request_id, event.branch);
    return;
  }
  Branch& branch = branches[event.branch];
  const std::vector<int32_t>& alone = plan->alone[event.branch].tokens;
  if (branch.finish != FinishReason::kNone) {
    wrong = fmt::format("branch {}: an event after its end", event.branch);
  } else if (event.is_prompt) {
    const std::vector<int32_t>& prompt = plan->request.prompt;
    if (branch.num_prompt_events >= prompt.size() || event.token != prompt[branch.num_prompt_events])
      wrong = fmt::format("prompt token {} is not its own", branch.num_prompt_events);
    ++branch.num_prompt_events;
  } else if (event.token >= 0) {
    const size_t at = branch.tokens.size();
    if (at >= alone.size() || event.token != alone[at])
      wrong = fmt::format("branch {}: token {} is {}, alone it is {}", event.branch, at, event.token,
                          at < alone.size() ? alone[at] : -1);
    branch.tokens.push_back(event.token);
    if (is_paused && branch.tokens.size() > branch.tokens_at_pause + kTokensWhilePausedMax)
      wrong = fmt::format("branch {}: it is paused, and tokens still come", event.branch);
    if (at == 0) branch.first_ns = event.time_ns;
  }
  if (event.finish == FinishReason::kNone) return;
  branch.finish = event.finish;
  branch.error = event.error;
  branch.end_ns = event.time_ns;
}

void Client::pause(bool paused) {
  is_paused = paused;
  for (Branch& branch : branches) branch.tokens_at_pause = branch.tokens.size();
}

std::string Client::check_end() const {
  if (!wrong.empty() || refusal) return wrong;
  const bool is_scored = plan->request.sampling.prompt_logprobs;
  for (size_t i = 0; i < branches.size(); ++i) {
    const Branch& branch = branches[i];
    if (branch.finish == FinishReason::kNone) return fmt::format("branch {} has not ended", i);
    if (branch.finish == FinishReason::kCancelled) {
      if (!is_cancelled) return fmt::format("branch {} ended as cancelled, and nobody had", i);
      continue;
    }
    if (branch.finish == FinishReason::kError) {
      if (!branch.error) return fmt::format("branch {} ended with an error that is not there", i);
      continue;
    }
    if (branch.finish != plan->alone[i].finish)
      return fmt::format("branch {} ended by {}, alone by {}", i, finish_reason_name(branch.finish),
                         finish_reason_name(plan->alone[i].finish));
    if (branch.tokens != plan->alone[i].tokens) return fmt::format("branch {} has fewer tokens than alone", i);
    if (is_scored && branch.num_prompt_events != plan->request.prompt.size())
      return fmt::format("branch {}: {} of {} prompt tokens", i, branch.num_prompt_events, plan->request.prompt.size());
  }
  return "";
}

bool Client::is_over() const {
  return refusal ||
         std::ranges::all_of(branches, [](const Branch& branch) { return branch.finish != FinishReason::kNone; });
}

bool Client::is_good(double ttft_target_ms, double tpot_target_ms) const {
  const auto is_answered = [](const Branch& branch) {
    return branch.finish != FinishReason::kError && branch.finish != FinishReason::kCancelled;
  };
  return !refusal && std::ranges::all_of(branches, is_answered) && ttft_ms() <= ttft_target_ms &&
         tpot_ms() <= tpot_target_ms;
}

double Client::ttft_ms() const {
  TimeNs last = 0;
  for (const Branch& branch : branches) last = std::max(last, branch.first_ns);
  return ms_of(last - plan->arrival_ns);
}

double Client::tpot_ms() const {
  double most = 0;
  for (const Branch& branch : branches)
    if (branch.tokens.size() > 1)
      most = std::max(most, ms_of(branch.end_ns - branch.first_ns) / static_cast<double>(branch.tokens.size() - 1));
  return most;
}

}  // namespace llmrt::test::fleet
