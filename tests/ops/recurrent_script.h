// Cases of an op with a state, and what must come of them. A script has texts; a step has rows, each of which goes on
// with a text from a record. What must come is worked out from each text as a whole, without steps, slots, tables or
// records, by a Rule that has no state either; the reference is held to that, and each device to the reference.
#pragma once

#include <functional>
#include <optional>

#include "tests/ops/op_harness.h"

namespace llmrt::optest {

// What a kernel might do wrong. The outcome that a script expects under it must be refused by compare().
// kTailLost: the token before the row's first. kNotTakenBack: tokens that were taken back are the text's, in place of
// those before them.
enum class RowFault { kNone, kOtherRowsState, kStateLost, kTailLost, kRingLost, kPlaceOneTokenLate, kNotTakenBack };
// What a rule might do wrong.
enum class RuleFault { kNone, kNoDecay, kDecayBehind, kNoGate, kNoNorm, kOtherHead };

struct RingEntry {
  std::vector<double> keys, values, decays;
};

// An op, by its inputs of one token: `inputs` are the columns of each, in order.
struct RecurrentRule {
  std::string name;
  std::vector<uint32_t> inputs;
  uint32_t out_columns = 0;
  DType out_dtype = DType::kF32;
  uint64_t state_numbers = 0;  // all that a record has
  std::optional<StateRing> ring = {};
  std::function<Op(const std::vector<Columns>& inputs, const StatePart& state, TensorId out)> make_op;
  // The numbers of one token's input.
  std::function<std::vector<double>(uint32_t input, std::mt19937_64& rng)> draw;
  // By token: all inputs of it, one behind the other. Of all tokens the outputs, one behind the other.
  using Tokens = std::vector<std::vector<double>>;
  std::function<std::vector<double>(const Tokens& tokens, RuleFault fault)> outputs;
  std::function<std::vector<double>(const Tokens& tokens, RuleFault fault)> state = {};  // behind the last: matrices
  // Of all tokens what each adds to the state: keys, values and decays of all heads.
  std::function<std::vector<RingEntry>(const Tokens& tokens, RuleFault fault)> entries = {};

  // Of a convolution its width, else 0, and what each token leaves in the state.
  uint32_t conv_width = 0;
  std::function<std::vector<double>(const Tokens& tokens, uint32_t position, RuleFault fault)> kept_input = {};

  uint32_t first_of(uint32_t input) const;  // its column among all inputs
  uint32_t ring_tokens() const { return ring ? kRingTokens : 0; }
  // What a row may leave in a record: all that counts behind the tokens; of a convolution what tokens from first_token
  // on give.
  using Put = std::function<void(uint64_t first, const std::vector<double>& numbers)>;
  void record(const Tokens& tokens, uint32_t first_token, RuleFault fault, const Put& put) const;
  // The first token whose input counts behind `end` of them.
  uint32_t first_kept(uint32_t end) const { return conv_width > end ? 0 : end + 1 - conv_width; }
};

RecurrentRule::Tokens first_of(const RecurrentRule::Tokens& tokens, uint32_t count);

struct Text {
  RecurrentRule::Tokens tokens = {}, taken_back = {};

  // The last `count` tokens are not the text's.
  void take_back(uint32_t count);
};

struct Save {
  uint32_t position, record;
};

// The next tokens of a text, in a step.
struct TextRow {
  Text* text;
  uint32_t slot, record, num_tokens;
  int32_t from = -1;  // the record from which it begins, if not its own
  std::vector<Save> saves = {};
};

class RecurrentScript {
 public:
  // packed: all inputs are columns of one tensor, behind some others.
  RecurrentScript(const std::string& what, RecurrentRule rule, bool packed, std::mt19937_64& rng,
                  uint32_t num_records = 9);

  // The caller may add moves of records.
  Step& add_step(const std::vector<TextRow>& rows, uint32_t bucket);

  const Case& test_case() const { return test_case_; }
  Outcome expected(RowFault row_fault = RowFault::kNone, RuleFault rule_fault = RuleFault::kNone) const;

 private:
  struct Run {  // a row of a step, its text's tokens up to its end, and those that were taken back before it
    TextRow row;
    uint32_t start;
    RecurrentRule::Tokens tokens, taken_back;
  };
  void add_op(const std::vector<Run>& runs, Step* step);

  RecurrentRule rule_;
  bool packed_;
  std::mt19937_64& rng_;
  StatePart part_;
  Case test_case_;
  std::vector<std::vector<Run>> steps_;
  std::vector<TensorId> outs_;  // by step
};

// Steps in which several texts begin, go on, branch and are saved. Long ones have a row of more than 128 tokens.
RecurrentScript mixed_script(const RecurrentRule& rule, bool packed, bool is_long, std::mt19937_64& rng);
// Records that go to the host's pool, come back elsewhere, and are copied.
RecurrentScript moves_script(const RecurrentRule& rule, std::mt19937_64& rng);
// Texts that go on from each residue of kRingTokens with so many tokens, and branches of them.
RecurrentScript ring_script(const RecurrentRule& rule, uint32_t num_tokens, std::mt19937_64& rng);
// Texts whose last tokens are taken back, as many as can be, and which go on from there with `num_tokens` others, or
// branch there.
RecurrentScript back_script(const RecurrentRule& rule, uint32_t num_tokens, std::mt19937_64& rng);
// How many of a row's `count` tokens from `start` on may be taken back.
uint32_t most_back(uint32_t start, uint32_t count);
// One text, cut anywhere.
RecurrentScript cut_script(const RecurrentRule& rule, uint32_t num_tokens, std::mt19937_64& rng);

// The reference against the scripts, then each device against the reference.
void check_scripts(Suite suite, const std::vector<RecurrentScript>& scripts);

}  // namespace llmrt::optest
