// The text of a Lark grammar as definitions. Pure; hostile until checked: nesting is bounded.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/grammar/grammar_names.h"

namespace llmrt {

struct LarkExpression {
  enum class Kind : uint8_t { kName, kLiteral, kRange, kPattern, kToken, kJson, kSequence, kChoice, kRepeat };
  Kind kind = Kind::kSequence;
  std::string text = {};         // of a name, a literal (decoded), a pattern
  bool ignores_case = false;     // of a literal
  char32_t first = 0, last = 0;  // of a range
  int32_t token = -1;
  boost::json::value schema = {};
  uint32_t min = 0, max = 0;  // of a repetition; max: UINT32_MAX = no bound
  std::vector<LarkExpression> parts = {};
};

struct LarkDocument {
  std::map<std::string, LarkExpression> definitions;  // of rules and terminals
  std::map<std::string, std::string> imports;         // name here, name in common
  std::vector<LarkExpression> ignored;
};

Result<LarkDocument> parse_lark(std::string_view text, const GrammarNames& names);

}  // namespace llmrt
