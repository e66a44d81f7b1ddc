// What two runs of a model differ by: distributions over the vocabulary, and which positions queries attend to most.
// All on the host; f64 where logits are involved.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace llmrt::bench {

// log of the sum of exp(logits).
double log_sum_exp(std::span<const float> logits);
// KL(reference || other) in nats over the whole vocabulary; exactly 0 for equal logits. Both finite, of one size.
double kl_divergence(std::span<const float> reference, std::span<const float> other);
// Index of the greatest logit, ties to the lower one.
uint32_t best_token(std::span<const float> logits);

// The `count` positions with the greatest scores of those added, ties to the lower position. Added in ascending order
// of position.
class TopPositions {
 public:
  explicit TopPositions(uint32_t count);
  void add(float score, uint32_t position) {
    if (size_ == heap_.size() && !(score > heap_.front().score)) return;
    insert(score, position);
  }
  std::vector<uint32_t> sorted() const;  // by position; fewer than `count` when fewer were added

 private:
  struct Entry {
    float score;
    uint32_t position;
  };
  static bool before(const Entry& a, const Entry& b);  // a ranks above b
  void insert(float score, uint32_t position);

  std::vector<Entry> heap_;  // the first `size_`; the one that ranks last in front
  size_t size_ = 0;
};

// Share of `reference` that is in `other` too; both sorted, of one size, not empty.
double overlap(std::span<const uint32_t> reference, std::span<const uint32_t> other);

// Root of the sum of squared differences by that of the squared numbers.
class RelativeError {
 public:
  void add(std::span<const float> exact, std::span<const float> found);
  double value() const;  // 0 where all was equal; NaN is passed on

 private:
  double difference_ = 0, size_ = 0;
};

// scores[lane] = sum over dims of key[dim] * queries[dim * scores.size() + lane].
void score_key(std::span<const float> key, std::span<const float> queries, std::span<float> scores);

}  // namespace llmrt::bench
