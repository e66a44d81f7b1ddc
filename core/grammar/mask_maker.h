// Which tokens may follow in a state of a grammar: a walk over the vocabulary's tree, step by step with the states.
// Where plain text may stand (in most strings) a slice of the vocabulary is allowed at once and only the rest is
// walked. One thread at a time, that of its ParseStates.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "core/base/status.h"
#include "core/grammar/parse_states.h"
#include "core/grammar/token_vocabulary.h"
#include "core/sample/token_mask.h"

namespace llmrt {

class MaskMaker {
 public:
  MaskMaker(const TokenVocabulary* vocabulary, ParseStates* states);

  // let_others: called every some thousand steps of the walk; may let other threads use the states meanwhile. Errors:
  // kGrammarTooComplex after cpu_ms_max of this thread's time or where the states have no room; kEmptySupport where no
  // token may follow.
  Result<TokenMaskPtr> make(ParseStates::StateId state, double cpu_ms_max, const std::function<void()>& let_others);

 private:
  // How much plain text a terminal takes: all text, a slice, or none.
  enum class Plain : int8_t { kAllText = -1, kSlice0 = 0, kNone = 127 };
  // That a walk may take, by this thread's clock.
  struct Time {
    double begin_ms, most_ms;
  };
  Plain plain_text_of(RegexId regex);
  bool takes(RegexId regex, RegexId texts);

  Status walk(const TokenTrie& trie, ParseStates::StateId state, const Time& time,
              const std::function<void()>& let_others, std::vector<uint32_t>* bits);
  void set_named_tokens(ParseStates::StateId state, std::vector<uint32_t>* bits) const;

  const TokenVocabulary& vocabulary_;
  ParseStates& states_;
  std::vector<RegexId> slice_regexes_;
  std::unordered_map<RegexId, Plain> plain_;
  std::vector<ParseStates::StateId> path_;
};

}  // namespace llmrt
