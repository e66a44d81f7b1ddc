// A grammar while it is made: rules over terminals, which front-ends (JSON Schema, regular expressions, GBNF, Lark,
// chat formats) fill and CompiledGrammar reads. Terminals are regular expressions over bytes, or single special tokens.
// Every text that the rules derive is in the language: terminals are not tried longest first.
//
// One thread. Bounded by GrammarLimits: beyond them symbols stand for nothing and status() says why.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/grammar/regex_pool.h"
#include "core/request/token_constraint.h"

namespace llmrt {

struct GrammarLimits {
  uint32_t symbols_max = 500'000;
  uint32_t regex_nodes_max = RegexPool::kNodesMax;
  // Asked now and then while a grammar is made; an error (a deadline, a cancel) ends it. Null: never.
  std::function<Status()> stop = {};
};

// An expression of a grammar: equal ones have equal ids.
using SymbolId = uint32_t;

// What a place in a grammar of JSON says beyond its text, for rules that no grammar can write: that items, or keys, of
// one container differ. Bits, so that a place that several readings come to has all of theirs.
enum class PlaceMark : uint8_t {
  kValue = 1,     // a JSON value begins here: from here on bytes are read as JSON
  kTracked = 2,   // behind [ or {: some of its items, or keys, must differ
  kTight = 4,     // with kTracked: not every beginning of an item, or key, can go on in endlessly many ways
  kDistinct = 8,  // behind an item or a key: a reading in which it is equal to an earlier one ends here
  kBegins = 16,   // before an item or a key that must differ, in a container that is tight
};

class GrammarBuilder {
 public:
  explicit GrammarBuilder(const GrammarLimits& limits = {});

  RegexPool& regexes() { return regexes_; }

  static constexpr SymbolId kNothing = 0;  // derives no text
  static constexpr SymbolId kEmpty = 1;    // derives the empty text
  SymbolId terminal(RegexId regex);
  SymbolId literal(std::string_view text) { return terminal(regexes_.literal(text)); }
  // This token, by its id alone. A token that a grammar names so, or excludes, stands for no text in it; one that ends
  // answers may still end them.
  SymbolId token(int32_t special_token);
  void exclude_token(int32_t special_token) { named_tokens_.insert(special_token); }
  // The empty text at a place of these marks (bits of PlaceMark). kDistinct stands behind what is never empty.
  SymbolId mark(uint8_t marks);
  bool has_marks() const { return has_marks_; }
  SymbolId sequence(std::span<const SymbolId> parts);
  SymbolId sequence(std::initializer_list<SymbolId> parts) { return sequence(std::span(parts.begin(), parts.size())); }
  SymbolId choice(std::span<const SymbolId> parts);
  SymbolId choice(std::initializer_list<SymbolId> parts) { return choice(std::span(parts.begin(), parts.size())); }
  static constexpr uint32_t kUnbounded = RegexPool::kUnbounded;
  // Bounds on symbols are unrolled: max - min and min count against symbols_max.
  SymbolId repeat(SymbolId part, uint32_t min, uint32_t max);
  SymbolId optional(SymbolId part) { return repeat(part, 0, 1); }

  // A rule that may be used before it is defined, and in its own definition. Each is defined once.
  SymbolId declare_rule();
  void define_rule(SymbolId rule, SymbolId body);
  bool is_defined(SymbolId rule) const;

  void set_start(SymbolId start) { start_ = start; }
  SymbolId start() const { return start_; }

  // What the client should be told; equal ones once, and no more than so many.
  static constexpr size_t kNotesMax = 32;
  void note(ConstraintNote note);
  const std::vector<ConstraintNote>& notes() const { return notes_; }

  // What went wrong first (here or said by a front-end), or ok.
  const Status& status() const { return status_; }
  void fail(Error error);

  struct Symbol {
    enum class Kind : uint8_t { kNothing, kEmpty, kTerminal, kToken, kMark, kSequence, kChoice, kRepeat, kRule };
    Kind kind;
    uint32_t value = 0;         // regex, token, marks, or of a rule its body (UINT32_MAX: not defined)
    uint32_t min = 0, max = 0;  // of a repetition
    std::vector<SymbolId> parts = {};
    auto operator<=>(const Symbol&) const = default;
  };
  const Symbol& symbol(SymbolId id) const { return symbols_[id]; }
  uint32_t num_symbols() const { return static_cast<uint32_t>(symbols_.size()); }
  const std::set<int32_t>& named_tokens() const { return named_tokens_; }

 private:
  static constexpr uint32_t kUndefined = UINT32_MAX;
  static constexpr uint32_t kSymbolsPerCheck = 64;

  SymbolId add(Symbol symbol);
  SymbolId intern(Symbol symbol);

  GrammarLimits limits_;
  RegexPool regexes_;
  std::vector<Symbol> symbols_;
  std::map<Symbol, SymbolId> known_;  // all but rules
  uint64_t num_words_ = 0;            // symbols, their parts, and what repetitions unroll to
  std::set<int32_t> named_tokens_;
  std::vector<ConstraintNote> notes_;
  bool has_marks_ = false;
  SymbolId start_ = kNothing;
  Status status_;
};

}  // namespace llmrt
