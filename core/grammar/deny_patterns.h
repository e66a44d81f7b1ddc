// A policy that ends an answer before a denied text is shown: strings, and regular expressions wherever they match.
// What may be the begin of one waits until it is decided.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/request/policy.h"

namespace llmrt {

struct DenySource {
  std::vector<std::string> strings = {};      // as bytes; none of them empty
  std::vector<std::string> expressions = {};  // ECMA-262 as regex_syntax.h reads it; none matches the empty text
  bool ignore_case = false;  // what is denied with its ASCII letters in one case is denied in any, so [^b] takes b as B
};

// No more bytes of an expression's match wait than this: a longer match ends the answer where it is found, when its
// begin has been shown.
inline constexpr uint32_t kDeniedBytesHeldMax = 1024;
// A byte costs a step for each begin that is still open, at most one for each state.
inline constexpr uint32_t kDeniedStatesMax = 2048;

// Errors: invalid_argument for an empty source or string, an expression that is none, matches the empty text, or needs
// more states; unsupported ones with the parser's own words.
Result<std::shared_ptr<const Policy>> compile_deny_patterns(const DenySource& source);

}  // namespace llmrt
