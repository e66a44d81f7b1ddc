// Which texts a grammar allows, byte by byte: Earley's algorithm (Earley 1970) over a network, made a lazily built
// automaton. A state is everything that decides what may follow: the terminals that are being read, each with what is
// left of it (a derivative) and with where its rule returns to. Equal states have equal ids, so masks are kept by
// state, a fork copies a number, and an answer of any length costs no more states than its nesting.
//
// Terminals are not tried longest first: every way to read a text is followed at once. A call at the end of its rule
// returns to where that rule returns (a tail call), so lists that are written with right recursion do not nest.
//
// One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/grammar/network.h"
#include "core/grammar/regex_pool.h"
#include "core/grammar/regex_reach.h"
#include "core/grammar/word_interner.h"

namespace llmrt {

class ParseStates {
 public:
  using StateId = uint32_t;
  static constexpr StateId kDead = 0;  // no text of the grammar begins so

  ParseStates(std::shared_ptr<const Network> network, RegexPool regexes);

  StateId start() const { return start_; }
  StateId after(StateId state, uint8_t byte) {
    const Next& next = next_[state];
    if (next.first == kUnknown) return find_after(state, byte);
    const StateId known = nexts_[next.first + classes_[next.classes].of[byte]];
    return known != kUnknown ? known : find_after(state, byte);
  }
  StateId after(StateId state, std::string_view text) {
    for (const char c : text) state = after(state, static_cast<uint8_t>(c));
    return state;
  }
  // The same where an item or a key that ends with the byte is equal to an earlier one: readings that come to
  // PlaceMark::kDistinct with it are left out.
  StateId after_duplicate(StateId state, uint8_t byte);
  // Behind a token that the grammar names by its id.
  StateId after_token(StateId state, int32_t token);
  // A state with the same answers to texts of at most so many bytes, and to tokens by id; the same one for many states,
  // where bounds of lengths are farther off. kDead where there is no room for it.
  StateId within(RegexReach* reach, StateId state);
  // The text so far is in the language.
  bool accepts(StateId state) const { return (words_of(state)[0] & 1) != 0; }
  // Marks that a reading came to with the last byte.
  uint8_t marks(StateId state) const { return static_cast<uint8_t>(words_of(state)[0] >> 1); }
  // Nothing may follow.
  bool is_last(StateId state) const { return words_of(state).size() == 1; }

  // What is being read in a state.
  struct Scan {
    uint32_t terminal;  // what is left of a regular expression, or kTokenFlag | a token
    uint32_t node;      // behind it
    uint32_t returns;
  };
  static constexpr uint32_t kTokenFlag = 1u << 31;
  static bool is_token(uint32_t terminal) { return (terminal & kTokenFlag) != 0; }
  std::span<const Scan> scans(StateId state) const {
    const auto words = words_of(state).subspan(1);
    return {reinterpret_cast<const Scan*>(words.data()), words.size() / 3};
  }

  // What a scan's rule returns to: visit(node, returns) for each of its callers; for none at the end of the grammar.
  template <typename Visit>
  void visit_callers(uint32_t returns, Visit&& visit) const {
    if (returns == 0) return;
    for (const auto& [rule, caller] : rows_[returns_[returns][0]].waiting) {
      if (rule == returns_[returns][1]) visit(caller.node, caller.returns);
    }
  }

  RegexPool& regexes() { return regexes_; }
  // Whether some text is in it, as far as that can be told in time.
  bool is_alive(RegexId regex);
  const Network& network() const { return *network_; }
  // A row had too many items, or the expressions too many nodes: states that would need more are kDead. What was made
  // of them must not be used.
  bool failed() const { return failed_ || regexes_.failed(); }
  uint32_t num_states() const { return states_.size(); }
  size_t held_bytes() const;

 private:
  static constexpr uint32_t kUnknown = UINT32_MAX;
  static constexpr uint32_t kItemsMax = 4096;    // of a row
  static constexpr size_t kDuplicateBytes = 48;  // of the map, about
  static constexpr uint32_t kAliveFuel = 2000;   // states looked at to tell whether a derivative has a text

  struct Item {
    uint32_t node, returns;
    auto operator<=>(const Item&) const = default;
  };
  // Where a rule that began in a row returns to: all callers that wait there for it.
  struct Return {
    uint32_t row, rule;
    auto operator<=>(const Return&) const = default;
  };
  // A place between terminals.
  struct Row {
    std::vector<std::pair<uint32_t, Item>> waiting;  // by rule: whoever called it goes on with the item
    std::vector<Scan> scans;                         // terminals that begin here
    bool accepts = false;
    uint8_t marks = 0;
  };

  // Where the bytes lead that are alike in a state, in nexts_.
  struct Next {
    uint32_t first = kUnknown;  // unknown until one is asked for
    uint32_t classes = 0;
  };
  struct Classes {
    std::array<uint8_t, 256> of;  // a byte
    uint32_t count;
  };

  std::span<const uint32_t> words_of(StateId state) const { return states_[state]; }
  StateId find_after(StateId state, uint8_t byte);
  Next begin_next(StateId state);
  // is_duplicate: items do not go on at PlaceMark::kDistinct.
  StateId read_byte(StateId state, uint8_t byte, bool is_duplicate);
  // The state of these scans, and of what begins behind the items.
  StateId make_state(std::vector<Scan>* scans, std::vector<Item>* items, bool is_duplicate = false);
  StateId intern_state(bool accepts, uint32_t marks, std::vector<Scan>* scans);
  uint32_t find_row(std::vector<Item>* items, bool is_duplicate);
  void complete(std::vector<Item>* items, bool is_duplicate, bool* accepts);
  void predict(uint32_t row_id, Row* row, const std::vector<Item>& kernel);
  uint32_t return_to(uint32_t row, uint32_t rule);
  bool add_item(std::vector<Item>* items, Item item);
  bool is_distinct(const Item& item) const {
    return (network_->nodes[item.node].marks & static_cast<uint8_t>(PlaceMark::kDistinct)) != 0;
  }

  std::shared_ptr<const Network> network_;
  RegexPool regexes_;
  WordInterner states_;     // accepts and marks, then the scans in order
  std::vector<Next> next_;  // by state
  std::vector<uint32_t> nexts_;
  WordInterner class_keys_;  // which classes of the pool's meet
  std::vector<Classes> classes_;
  std::unordered_map<uint64_t, StateId> after_duplicates_;  // by state and byte
  WordInterner row_keys_;                                   // accepts, then the items
  std::vector<Row> rows_;
  WordInterner returns_;  // row, rule; 0 = the end of the grammar
  StateId start_ = kDead;
  bool failed_ = false;
  size_t rows_bytes_ = 0;
  std::vector<Scan> scan_scratch_;
  std::vector<Item> item_scratch_;
  std::vector<uint32_t> class_scratch_;
};

}  // namespace llmrt
