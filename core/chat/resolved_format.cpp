#include "core/chat/resolved_format.h"

#include <algorithm>

#include "core/text/tokenizer.h"

namespace llmrt {

FindToken marker_tokens(const Tokenizer& tokenizer) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  std::unordered_map<std::string_view, int32_t> user_defined;
  for (size_t id = 0; id < vocabulary.types.size(); ++id) {
    if (vocabulary.types[id] == TokenType::kUserDefined) {
      user_defined.emplace(vocabulary.tokens[id], static_cast<int32_t>(id));
    }
  }
  return [&tokenizer, user_defined = std::move(user_defined)](std::string_view text) {
    if (const TokenId id = tokenizer.find_special(text); id >= 0) return id;
    const auto it = user_defined.find(text);
    return it == user_defined.end() ? -1 : it->second;
  };
}

ResolvedFormat resolve_format(const ChatFormat& format, const FindToken& find_token) {
  ResolvedFormat resolved{.format = &format, .tokens = {}, .unit_of = {}};
  for (const std::string& text : format.tokens) {
    const int32_t id = find_token(text);
    if (id < 0 || resolved.unit_of.contains(id)) continue;
    resolved.unit_of[id] = kFirstToken + static_cast<Unit>(resolved.tokens.size());
    const bool is_thought =
        format.thought.open.find(text) != std::string::npos || format.thought.close.find(text) != std::string::npos;
    resolved.tokens.push_back({text, id, std::ranges::count(format.turn.stop, text) > 0, is_thought});
  }
  return resolved;
}

Units ResolvedFormat::units(std::string_view mark) const {
  Units result;
  for (size_t pos = 0; pos < mark.size();) {
    size_t longest = 0;
    Unit unit = static_cast<uint8_t>(mark[pos]);
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i].text.size() > longest && mark.substr(pos).starts_with(tokens[i].text)) {
        longest = tokens[i].text.size();
        unit = kFirstToken + static_cast<Unit>(i);
      }
    }
    result += unit;
    pos += std::max<size_t>(longest, 1);
  }
  return result;
}

bool ResolvedFormat::has_token(std::string_view mark) const {
  return std::ranges::any_of(units(mark), [](Unit unit) { return !is_byte(unit); });
}

std::string ResolvedFormat::text(const Units& units) const {
  std::string result;
  for (Unit unit : units) result += text(unit);
  return result;
}

}  // namespace llmrt
