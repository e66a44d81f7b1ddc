#include "core/grammar/grammar_builder.h"

#include <algorithm>
#include <utility>

namespace llmrt {

GrammarBuilder::GrammarBuilder(const GrammarLimits& limits) : limits_(limits), regexes_(limits.regex_nodes_max) {
  intern({.kind = Symbol::Kind::kNothing});
  intern({.kind = Symbol::Kind::kEmpty});
}

void GrammarBuilder::fail(Error error) {
  if (status_.ok()) status_ = std::move(error);
}

SymbolId GrammarBuilder::add(Symbol symbol) {
  num_words_ += 1 + symbol.parts.size();
  if (num_words_ > limits_.symbols_max) {
    fail(make_error(ErrorCode::kGrammarTooComplex, "grammar too large: expected at most {} symbols",
                    limits_.symbols_max));
    return kNothing;
  }
  if (symbols_.size() % kSymbolsPerCheck == 0 && limits_.stop) {
    if (Status stopped = limits_.stop(); !stopped) {
      fail(stopped.error());
      regexes_.fail();
      return kNothing;
    }
  }
  symbols_.push_back(std::move(symbol));
  return static_cast<SymbolId>(symbols_.size() - 1);
}

SymbolId GrammarBuilder::intern(Symbol symbol) {
  if (!status_.ok()) return kNothing;
  if (auto it = known_.find(symbol); it != known_.end()) return it->second;
  const SymbolId id = add(symbol);
  if (status_.ok()) known_.emplace(std::move(symbol), id);
  return id;
}

SymbolId GrammarBuilder::terminal(RegexId regex) {
  if (regex == RegexPool::kNothing) return kNothing;
  if (regex == RegexPool::kEmpty) return kEmpty;
  return intern({.kind = Symbol::Kind::kTerminal, .value = regex});
}

SymbolId GrammarBuilder::token(int32_t special_token) {
  named_tokens_.insert(special_token);
  return intern({.kind = Symbol::Kind::kToken, .value = static_cast<uint32_t>(special_token)});
}

SymbolId GrammarBuilder::mark(uint8_t marks) {
  has_marks_ = true;
  return intern({.kind = Symbol::Kind::kMark, .value = marks});
}

SymbolId GrammarBuilder::sequence(std::span<const SymbolId> parts) {
  Symbol symbol{.kind = Symbol::Kind::kSequence};
  for (SymbolId part : parts) {
    if (part == kNothing) return kNothing;
    if (part == kEmpty) continue;
    if (symbols_[part].kind == Symbol::Kind::kSequence) {
      symbol.parts.insert(symbol.parts.end(), symbols_[part].parts.begin(), symbols_[part].parts.end());
    } else {
      symbol.parts.push_back(part);
    }
  }
  if (symbol.parts.empty()) return kEmpty;
  return symbol.parts.size() == 1 ? symbol.parts[0] : intern(std::move(symbol));
}

SymbolId GrammarBuilder::choice(std::span<const SymbolId> parts) {
  Symbol symbol{.kind = Symbol::Kind::kChoice};
  for (SymbolId part : parts) {
    if (part == kNothing) continue;
    if (symbols_[part].kind == Symbol::Kind::kChoice) {
      symbol.parts.insert(symbol.parts.end(), symbols_[part].parts.begin(), symbols_[part].parts.end());
    } else {
      symbol.parts.push_back(part);
    }
  }
  std::ranges::sort(symbol.parts);
  symbol.parts.erase(std::unique(symbol.parts.begin(), symbol.parts.end()), symbol.parts.end());
  if (symbol.parts.empty()) return kNothing;
  return symbol.parts.size() == 1 ? symbol.parts[0] : intern(std::move(symbol));
}

SymbolId GrammarBuilder::repeat(SymbolId part, uint32_t min, uint32_t max) {
  if (max == 0 || part == kEmpty) return kEmpty;
  if (min > max) return kNothing;
  if (part == kNothing) return min == 0 ? kEmpty : kNothing;
  if (min == 1 && max == 1) return part;
  const uint64_t unrolled = max == kUnbounded ? min : max;
  num_words_ += unrolled;
  return intern({.kind = Symbol::Kind::kRepeat, .min = min, .max = max, .parts = {part}});
}

void GrammarBuilder::note(ConstraintNote note) {
  if (notes_.size() < kNotesMax && std::ranges::find(notes_, note) == notes_.end()) notes_.push_back(std::move(note));
}

SymbolId GrammarBuilder::declare_rule() {
  return status_.ok() ? add({.kind = Symbol::Kind::kRule, .value = kUndefined}) : kNothing;
}

void GrammarBuilder::define_rule(SymbolId rule, SymbolId body) {
  if (rule == kNothing) return;  // after a failure
  LLMRT_CHECK(symbols_[rule].kind == Symbol::Kind::kRule && !is_defined(rule), "a rule is defined once");
  symbols_[rule].value = body;
}

bool GrammarBuilder::is_defined(SymbolId rule) const {
  return symbols_[rule].value != kUndefined;
}

}  // namespace llmrt
