// What a step takes, learnt from the steps that ran: linear in what the step does,
//   ms = fixed + a * tokens + b * keys that decoding rows read + c * pairs of a chunk's tokens and their keys,
// and for the moves of KV blocks  ms = fixed + d * stores + e * loads.
// A device has sizes (step_sizes.h) that it likes: to tell what one step will take, a second line is learnt together
// with how much longer than it the steps of each size take. Sizes grow with what else a step holds, and would bend a
// line alone. A GPU's clock falls in the first tenth of a second or so of chunks: those that are over sooner than
// foretold there say little about the ones that follow, and count less. What takes many times as long as foretold is
// believed bit by bit: a hiccup, or a clock that jumped, says nothing, and a device that stays slow says it again.
// Least squares without negative coefficients over the last few hundred steps (older ones fade). Directions that the
// last steps say nothing about keep the value that was learnt before, at first the prior. Milliseconds throughout.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace llmrt {

// sum of coefficients[i] * x[i], the coefficients never negative.
template <size_t N>
class FadingLine {
 public:
  using Vector = std::array<double, N>;
  // `typical`: sizes of the features that make them comparable.
  FadingLine(const Vector& prior, const Vector& typical) : coefficients_(prior), typical_(typical) {}

  void observe(const Vector& x, double y, double weight = 1);
  uint32_t num_observed() const { return num_observed_; }
  double predict(const Vector& x) const {
    double sum = 0;
    for (size_t i = 0; i < N; ++i) sum += coefficients_[i] * x[i];
    return sum;
  }
  double coefficient(size_t i) const { return coefficients_[i]; }

 private:
  void solve();

  Vector coefficients_, typical_;
  std::array<Vector, N> products_ = {};  // sums of x x' and of x y, in typical sizes, fading
  Vector targets_ = {};
  uint32_t num_observed_ = 0;
};

// What is known before the first step; 0 = nothing. Measured when the engine starts.
struct CostPrior {
  double step_ms = 0;                // a step of one token
  double token_ms = 0;               // one token more in a long chunk
  double store_ms = 0, load_ms = 0;  // one KV block of group 0 to the host's pool, and back
};

struct StepWork {
  uint64_t tokens = 0;
  uint64_t decode_keys = 0;      // that rows of one token read, with their drafts
  uint64_t chunk_pairs = 0;      // of all other rows
  double stores = 0, loads = 0;  // KV blocks to the host's pool and back, those of other groups by their bytes
};

// Of `count` tokens that begin behind `start` others: the keys that all of them read.
inline uint64_t keys_of(uint64_t start, uint64_t count) {
  return (2 * start + 1 + count) * count / 2;
}
// The same where `item_tokens` of them read the keys once for all (SchedulerConfig::decode_item_tokens).
inline uint64_t decode_keys_of(uint64_t start, uint64_t count, uint64_t item_tokens) {
  uint64_t keys = 0;
  for (uint64_t i = 0; i < count; i += item_tokens) keys += start + std::min(i + item_tokens, count);
  return keys;
}
// A row of the step.
inline void add_chunk(StepWork* work, uint64_t start, uint64_t count) {
  work->tokens += count;
  work->chunk_pairs += keys_of(start, count);
}
inline void add_decoding(StepWork* work, uint64_t start, uint64_t count, uint64_t item_tokens) {
  work->tokens += count;
  work->decode_keys += decode_keys_of(start, count, item_tokens);
}

// The same step with a chunk of `tokens` more, which begins at position `depth`.
inline StepWork with_chunk(StepWork work, uint64_t depth, uint64_t tokens) {
  work.tokens += tokens;
  work.chunk_pairs += tokens * depth + tokens * (tokens + 1) / 2;
  return work;
}

struct StepTimes {
  double memory_ms = 0;  // of the moves
  double step_ms = 0;    // of the rest; 0 = not known
};

class CostModel {
 public:
  explicit CostModel(const CostPrior& prior);

  void observe(const StepWork& work, const StepTimes& times);
  // The time of the rows, without moves.
  double step_ms(const StepWork& work) const;
  // Enough steps have been seen for a guess.
  bool knows_steps() const { return step_.num_observed() >= 8; }
  // The most tokens of a chunk that begins at position `depth`, up to `most`, with which a step that does `work` beside
  // it takes no more than `ms`; with those they make a whole size where one is near.
  uint32_t chunk_within(double ms, const StepWork& work, uint64_t depth, uint32_t most) const;
  // Tokens a millisecond of a prompt that is computed in steps of so many, at its beginning.
  double prefill_rate(uint32_t step_tokens) const;
  // What a chunk's token costs for each key before it.
  double pair_ms() const { return step_.coefficient(3); }
  // What computing the first `num_tokens` positions of a sequence again adds to the steps that do it.
  double recompute_ms(uint64_t num_tokens) const;
  // Storing that many blocks of group 0 and loading them again.
  double swap_ms(double num_blocks) const;

 private:
  double weight_of(const StepWork& work, double ms);
  uint32_t chunk_by_line(double ms, const StepWork& work, uint64_t depth, uint32_t most) const;

  FadingLine<4> step_, beside_sizes_;
  std::unordered_map<uint32_t, double> size_errors_;  // ms that steps of a size take longer than beside_sizes_ says
  FadingLine<3> moves_;
  double chunks_ms_ = 0, rest_ms_ = 0;  // of steps with chunks in a row, and of those without since
};

}  // namespace llmrt
