// Which tokens may follow in a state of a grammar: a walk over the vocabulary's tree, step by step with the states.
// Where plain text may stand (in most strings) the tokens of so many plain characters are allowed at once and only the
// others are walked. One thread at a time, that of its ParseStates.
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

  // let_others: called every some thousand steps of the walk; may let other threads use the states and the maker
  // meanwhile. Errors: kGrammarTooComplex after cpu_ms_max of this thread's time or where the states have no room;
  // kEmptySupport where no token may follow.
  Result<TokenMaskPtr> make(ParseStates::StateId state, double cpu_ms_max, const std::function<void()>& let_others);
  // The tokens that make() tries in a state one by one: others may stand there, if they may, whatever they are.
  std::vector<const TokenTrie*> tried_tokens(ParseStates::StateId state) { return tried_in(plain_text_in(state)); }

 private:
  // How many plain characters a terminal takes, whichever they are.
  struct Plain {
    uint32_t chars = 0;
    bool is_exact = false;  // no plain text of more characters begins so
    bool is_any = false;    // it takes any bytes
  };
  // One character of plain text, as a part of a terminal takes it.
  enum class Character : uint8_t { kNot, kTaken, kAllOfIt };
  // That a walk may take, by this thread's clock.
  struct Time {
    double begin_ms, most_ms;
  };
  Plain plain_text_in(ParseStates::StateId state);
  std::vector<const TokenTrie*> tried_in(const Plain& plain) const;
  Plain plain_text_of(RegexId regex);
  Plain find_plain_text(RegexId regex);
  bool begins_plain(RegexId regex);
  Character character_of(RegexId part);
  bool takes(RegexId regex, RegexId texts);

  Status walk(const TokenTrie& trie, ParseStates::StateId state, const Time& time,
              const std::function<void()>& let_others, std::vector<uint32_t>* bits);
  void set_named_tokens(ParseStates::StateId state, std::vector<uint32_t>* bits) const;

  const TokenVocabulary& vocabulary_;
  ParseStates& states_;
  RegexId character_;                   // a plain one
  std::vector<RegexId> slice_regexes_;  // as many as kSliceChars
  std::unordered_map<RegexId, Plain> plain_;
  std::unordered_map<RegexId, Character> characters_;
};

}  // namespace llmrt
