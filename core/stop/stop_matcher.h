// Decides, token by token, whether a sequence ends and how much of its text may be shown. One object per request, on
// the engine's thread. It counts bytes and holds no text: a token costs its own bytes, however long the text is.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/request/request.h"
#include "core/stop/string_automaton.h"

namespace llmrt {

// The fields of the same names in TokenEvent.
struct StopVerdict {
  uint32_t hold_bytes = 0;  // at the text's end: may be the begin of a stop string
  uint32_t cut_bytes = 0;   // only with a finish: stop string (and what follows it), or the text of the ending token
  FinishReason finish = FinishReason::kNone;
};

class StopMatcher {
 public:
  // `end_of_generation` must outlive the matcher.
  StopMatcher(const StopParams& params, uint32_t min_tokens, uint32_t max_tokens,
              std::span<const int32_t> end_of_generation);

  // The next sampled token; `bytes` is what the receiver appends to its text for it. After a finish only for an
  // answer that has begun, whose tokens so far count, whatever each of them was.
  // In this order: end-of-generation and stop tokens (from min_tokens tokens on; their own text is cut), the stop
  // string that is complete first (the longest of those; one that was complete before min_tokens tokens does not
  // count), length.
  StopVerdict advance(int32_t token, std::string_view bytes);

 private:
  bool is_stop_token(int32_t token) const;
  bool is_end_of_generation(int32_t token) const;

  StringAutomaton automaton_;
  uint32_t state_ = StringAutomaton::kStart;
  std::vector<int32_t> stop_token_ids_;  // sorted
  std::span<const int32_t> end_of_generation_;
  uint32_t min_tokens_, max_tokens_;
  uint32_t num_tokens_ = 0;
  bool include_string_, ignore_eos_;
};

}  // namespace llmrt
