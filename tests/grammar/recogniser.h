// Whether a grammar derives a text, by trying every way: the slow and plain twin of the matcher, for tests of
// front-ends.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "core/grammar/grammar_builder.h"

namespace llmrt::fakes {

class Recogniser {
 public:
  Recogniser(GrammarBuilder* builder, std::string_view text) : builder_(*builder), text_(text) {}

  bool accepts(SymbolId symbol) { return ends(symbol, 0).contains(text_.size()); }

 private:
  using Ends = std::set<size_t>;

  const Ends& ends(SymbolId symbol, size_t begin) {
    const auto [it, is_new] = known_.try_emplace({symbol, begin});
    if (is_new) {
      Ends found = find(symbol, begin);
      known_[{symbol, begin}] = std::move(found);
    }
    return known_[{symbol, begin}];
  }

  Ends after(SymbolId symbol, const Ends& begins) {
    Ends out;
    for (size_t begin : begins) {
      const Ends& found = ends(symbol, begin);
      out.insert(found.begin(), found.end());
    }
    return out;
  }

  Ends find(SymbolId id, size_t begin) {
    using Kind = GrammarBuilder::Symbol::Kind;
    const GrammarBuilder::Symbol symbol = builder_.symbol(id);
    switch (symbol.kind) {
      case Kind::kNothing:
      case Kind::kToken:
        return {};
      case Kind::kEmpty:
      case Kind::kMark:
        return {begin};
      case Kind::kTerminal:
        return terminal_ends(symbol.value, begin);
      case Kind::kSequence: {
        Ends out = {begin};
        for (SymbolId part : symbol.parts) out = after(part, out);
        return out;
      }
      case Kind::kChoice: {
        Ends out;
        for (SymbolId part : symbol.parts) out.merge(after(part, {begin}));
        return out;
      }
      case Kind::kRepeat: {
        Ends reached = {begin}, out = symbol.min == 0 ? reached : Ends();
        for (uint32_t i = 1; i <= symbol.max && !reached.empty() && i <= symbol.min + text_.size() + 1; ++i) {
          reached = after(symbol.parts[0], reached);
          if (i >= symbol.min) out.insert(reached.begin(), reached.end());
        }
        return out;
      }
      case Kind::kRule:
        return after(symbol.value, {begin});
    }
    return {};
  }

  Ends terminal_ends(RegexId regex, size_t begin) {
    RegexPool& pool = builder_.regexes();
    Ends out;
    for (size_t end = begin; regex != RegexPool::kNothing; ++end) {
      if (pool.accepts_empty(regex)) out.insert(end);
      if (end == text_.size()) break;
      regex = pool.after(regex, static_cast<uint8_t>(text_[end]));
    }
    return out;
  }

  GrammarBuilder& builder_;
  std::string_view text_;
  std::map<std::pair<SymbolId, size_t>, Ends> known_;
};

}  // namespace llmrt::fakes
