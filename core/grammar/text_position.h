// Where a text stands in a grammar with marks: the state of its readings, and the JSON that they are in, in which items
// or keys must differ. What they were is no part of the state (there would be a state for each set of them), so a mask
// of the state is too wide by the tokens that make an item equal to an earlier one; they are taken from it here.
//
// A byte that ends such an item leads to where the readings go on that do not ask for its being distinct
// (ParseStates::after_duplicate). A byte behind which an item can only become equal to an earlier one leads nowhere
// either; whether that is so is found by following the earlier items' texts until something else may stand. Where a
// container is not tight (PlaceMark::kTight) there is always something else.
//
// A value: copies are independent. One thread at a time, that of the states.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/grammar/json_tracker.h"
#include "core/grammar/parse_states.h"
#include "core/grammar/token_vocabulary.h"
#include "core/sample/token_mask.h"

namespace llmrt {

class TextPosition {
 public:
  using StateId = ParseStates::StateId;
  explicit TextPosition(const ParseStates& states);

  StateId state() const { return state_; }
  // Takes a byte, a text, a token by its id. False: no text of the grammar goes on so; the position is then void.
  bool step(ParseStates* states, uint8_t byte);
  bool step(ParseStates* states, std::string_view text);
  bool step_token(ParseStates* states, int32_t token);
  // Whether the text can be ended. Its states can, so it is a question of items that must differ. Where it cannot be
  // told in time the answer is yes.
  bool is_live(ParseStates* states) const {
    int64_t work = kWorkMax;
    return is_live(states, &work);
  }
  // More is kept than there is room for: it must not go on.
  bool failed() const;

  // The state's mask without the tokens that may not stand here; the same one where that takes away nothing. crossing:
  // the tokens of add_crossing.
  TokenMaskPtr narrow(ParseStates* states, const TokenVocabulary& vocabulary, const TokenMaskPtr& mask,
                      std::span<const int32_t> crossing) const;

 private:
  static constexpr size_t kTrackersMax = 4;
  static constexpr int64_t kWorkMax = 4 << 20;  // bytes compared and copied to tell what is live

  bool is_live(ParseStates* states, int64_t* work) const;
  void enter(uint8_t marks);
  bool is_tight(int64_t* work);
  void find_stuck(ParseStates* states, const TokenTrie& trie, int64_t* work, std::vector<int32_t>* denied) const;
  // Before a copy of it is made.
  void spend_copy(int64_t* work) const;

  StateId state_;
  bool has_failed_ = false;
  // One, while a value is being read. Where a grammar lets it be read as something else (as text), which goes on to
  // where a value begins again, there may be more for a while.
  std::vector<JsonTracker> trackers_;
};

// Adds the tokens of a trie that come to PlaceMark::kDistinct or kBegins, from a state. let_others: called now and
// then.
void add_crossing(const TokenTrie& trie, ParseStates* states, ParseStates::StateId state,
                  const std::function<void()>& let_others, std::vector<int32_t>* out);

}  // namespace llmrt
