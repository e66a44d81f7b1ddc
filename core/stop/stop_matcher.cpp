#include "core/stop/stop_matcher.h"

#include <algorithm>

namespace llmrt {

StopRules::StopRules(const StopParams& params, uint32_t min_tokens, uint32_t max_tokens,
                     std::span<const int32_t> end_of_generation)
    : automaton_(params.strings.automaton()),
      stop_token_ids_(params.token_ids.begin(), params.token_ids.end()),
      end_of_generation_(end_of_generation),
      min_tokens_(min_tokens),
      max_tokens_(max_tokens),
      include_string_(params.include_string),
      ignore_eos_(params.ignore_eos) {
  std::sort(stop_token_ids_.begin(), stop_token_ids_.end());
}

bool StopRules::is_stop_token(int32_t token) const {
  return std::binary_search(stop_token_ids_.begin(), stop_token_ids_.end(), token);
}

bool StopRules::is_end_of_generation(int32_t token) const {
  return !ignore_eos_ &&
         std::find(end_of_generation_.begin(), end_of_generation_.end(), token) != end_of_generation_.end();
}

StopVerdict StopMatcher::advance(int32_t token, std::string_view bytes) {
  const StopRules& rules = *rules_;
  ++num_tokens_;
  const uint32_t num_bytes = static_cast<uint32_t>(bytes.size());
  // Token k ends the sequence only when k - 1 >= min_tokens came before it: that many are then in the answer.
  if (num_tokens_ > rules.min_tokens_) {
    if (rules.is_end_of_generation(token)) return {.cut_bytes = num_bytes, .finish = FinishReason::kEos};
    if (rules.is_stop_token(token)) {
      return {.cut_bytes = rules.include_string_ ? 0 : num_bytes, .finish = FinishReason::kStopToken};
    }
  }
  const StringAutomaton* automaton = rules.automaton_.get();
  for (uint32_t i = 0; automaton != nullptr && i < num_bytes; ++i) {
    state_ = automaton->advance(state_, static_cast<uint8_t>(bytes[i]));
    const uint32_t match_bytes = automaton->match_bytes(state_);
    if (match_bytes == 0 || num_tokens_ < rules.min_tokens_) continue;
    const uint32_t after_bytes = num_bytes - i - 1;
    return {.cut_bytes = after_bytes + (rules.include_string_ ? 0 : match_bytes), .finish = FinishReason::kStopString};
  }
  if (num_tokens_ >= rules.max_tokens_) return {.finish = FinishReason::kLength};
  return {.hold_bytes = automaton != nullptr ? automaton->hold_bytes(state_) : 0};
}

}  // namespace llmrt
