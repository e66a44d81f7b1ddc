// What else may change a request's logits: a hook. Each processor says, for the next token alone, what is added to
// which token's logit; all of a request's changes reach the device as one list for the row, behind the penalties and
// before temperature and filters (core/request/logit_changes.h has the order). A worked example:
// tests/fakes/processors.h.
//
// One object serves all branches and requests that hold it: it has no state but what it was made with, and derives the
// rest from the tokens. So a branch that was preempted and resumed has nothing to restore.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

namespace llmrt {

inline constexpr float kBan = -std::numeric_limits<float>::infinity();  // no finite bias takes it back

// Added to the token's logit.
struct TokenBias {
  int32_t token;
  float bias;  // finite or kBan
};

inline constexpr size_t kProcessorEntriesMax = 4096;  // of all processors of a request, for one token

class LogitsProcessor {
 public:
  virtual ~LogitsProcessor() = default;
  // As it stands in sample traces; lower snake case.
  virtual std::string_view name() const = 0;
  // Whether process() can tell the changes for the token that follows `tokens` at once. False, while another thread
  // still works on them: the token is drawn in a later step, and other rows do not wait for it. Asked on the engine's
  // thread, several times a step; once true for these tokens, true from then on.
  virtual bool is_ready(std::span<const int32_t> tokens, uint32_t num_prompt) const {
    (void)tokens, (void)num_prompt;
    return true;
  }
  // Appends the changes for the token that follows `tokens` (the prompt's first, num_prompt of them). Called on the
  // engine's thread, once for each token, when all of the request's processors are ready: no blocking, and
  // microseconds. Must be a function of its arguments alone.
  // Tokens outside the vocabulary, other numbers than TokenBias allows and more than kProcessorEntriesMax entries are
  // the program's own fault and stop the process.
  virtual void process(std::span<const int32_t> tokens, uint32_t num_prompt, std::vector<TokenBias>* changes) const = 0;
};

}  // namespace llmrt
