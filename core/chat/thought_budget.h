// How many tokens the thoughts of an answer may have: a constraint that counts them as the parser of answers does,
// marks included. Where the budget is out and the thought still open, only the tokens of its end mark may be drawn;
// behind them everything goes on as without a budget. It stands alone or around another constraint, which decides
// first: what that one does not allow is not forced.
//
// A thought that the prompt has opened counts from the first token, one that the model opens from its start mark. A
// call that was begun inside a thought is let end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/chat/prompt_state.h"
#include "core/chat/resolved_format.h"
#include "core/request/token_constraint.h"

namespace llmrt {

class Tokenizer;

struct ThoughtBudget {
  uint32_t tokens_max = 0;  // of all thoughts of one answer
  AnswerStart start = AnswerStart::kText;
  bool reads_calls = true;              // calls may come, and may end a thought
  std::vector<std::string> tools = {};  // declared names
  bool must_call = false;               // the answer has no content
};

// inner: null = any token. kUnsupported: the format has no thoughts, or the vocabulary cannot spell their end mark.
Result<std::shared_ptr<const TokenConstraint>> limit_thoughts(const ThoughtBudget& budget,
                                                              std::shared_ptr<const TokenConstraint> inner,
                                                              std::shared_ptr<const ResolvedFormat> format,
                                                              std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace llmrt
