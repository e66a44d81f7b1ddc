// Decides, token by token, whether a sequence ends and how much of its text may be shown. One matcher per branch, on
// the engine's thread. It counts bytes and holds no text: a token costs its own bytes, however long the text is.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/request/request.h"
#include "core/request/string_automaton.h"

namespace llmrt {

// The fields of the same names in TokenOutcome.
struct StopVerdict {
  uint32_t hold_bytes = 0;  // at the text's end: may be the begin of a stop string
  uint32_t cut_bytes = 0;   // only with a finish: stop string (and what follows it), or the text of the ending token
  FinishReason finish = FinishReason::kNone;
};

// When the answers of one request end: what all its branches share.
class StopRules {
 public:
  // `end_of_generation` must outlive the rules.
  StopRules(const StopParams& params, uint32_t min_tokens, uint32_t max_tokens,
            std::span<const int32_t> end_of_generation);

 private:
  friend class StopMatcher;
  bool is_stop_token(int32_t token) const;
  bool is_end_of_generation(int32_t token) const;

  std::shared_ptr<const StringAutomaton> automaton_;  // null without strings
  std::vector<int32_t> stop_token_ids_;               // sorted
  std::span<const int32_t> end_of_generation_;
  uint32_t min_tokens_, max_tokens_;
  bool include_string_, ignore_eos_;
};

class StopMatcher {
 public:
  explicit StopMatcher(std::shared_ptr<const StopRules> rules) : rules_(std::move(rules)) {}
  // With rules of its own.
  StopMatcher(const StopParams& params, uint32_t min_tokens, uint32_t max_tokens,
              std::span<const int32_t> end_of_generation)
      : StopMatcher(std::make_shared<const StopRules>(params, min_tokens, max_tokens, end_of_generation)) {}

  // The next sampled token; `bytes` is what the receiver appends to its text for it. After a finish only for an
  // answer that has begun, whose tokens so far count, whatever each of them was.
  // In this order: end-of-generation and stop tokens (from min_tokens tokens on; their own text is cut), the stop
  // string that is complete first (the longest of those; one that was complete before min_tokens tokens does not
  // count), length.
  StopVerdict advance(int32_t token, std::string_view bytes);

 private:
  std::shared_ptr<const StopRules> rules_;
  uint32_t state_ = StringAutomaton::kStart;
  uint32_t num_tokens_ = 0;
};

}  // namespace llmrt
