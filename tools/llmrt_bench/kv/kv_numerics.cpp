#include "tools/llmrt_bench/kv/kv_numerics.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/base/check.h"

namespace llmrt::bench {

double log_sum_exp(std::span<const float> logits) {
  const double greatest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - greatest);
  return greatest + std::log(sum);
}

double kl_divergence(std::span<const float> reference, std::span<const float> other) {
  LLMRT_CHECK(reference.size() == other.size(), "one vocabulary");
  const double reference_sum = log_sum_exp(reference), other_sum = log_sum_exp(other);
  double kl = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double log_p = reference[i] - reference_sum;
    kl += std::exp(log_p) * (log_p - (other[i] - other_sum));
  }
  return kl;
}

uint32_t best_token(std::span<const float> logits) {
  return static_cast<uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TopPositions::TopPositions(uint32_t count) : heap_(count) {
  LLMRT_CHECK(count > 0, "positions to keep");
}

bool TopPositions::before(const Entry& a, const Entry& b) {
  return a.score > b.score || (a.score == b.score && a.position < b.position);
}

void TopPositions::insert(float score, uint32_t position) {
  if (size_ == heap_.size())
    std::pop_heap(heap_.begin(), heap_.end(), before);
  else
    ++size_;
  heap_[size_ - 1] = {score, position};
  std::push_heap(heap_.begin(), heap_.begin() + static_cast<std::ptrdiff_t>(size_), before);
}

std::vector<uint32_t> TopPositions::sorted() const {
  std::vector<uint32_t> positions;
  for (size_t i = 0; i < size_; ++i) positions.push_back(heap_[i].position);
  std::sort(positions.begin(), positions.end());
  return positions;
}

double overlap(std::span<const uint32_t> reference, std::span<const uint32_t> other) {
  LLMRT_CHECK(!reference.empty() && reference.size() == other.size(), "sets of one size");
  std::vector<uint32_t> both;
  std::set_intersection(reference.begin(), reference.end(), other.begin(), other.end(), std::back_inserter(both));
  return static_cast<double>(both.size()) / static_cast<double>(reference.size());
}

void RelativeError::add(std::span<const float> exact, std::span<const float> found) {
  LLMRT_CHECK(exact.size() == found.size(), "numbers in pairs");
  for (size_t i = 0; i < exact.size(); ++i) {
    const double off = static_cast<double>(found[i]) - exact[i];
    difference_ += off * off;
    size_ += static_cast<double>(exact[i]) * exact[i];
  }
}

double RelativeError::value() const {
  return difference_ == 0 ? 0 : std::sqrt(difference_ / size_);
}

void score_key(std::span<const float> key, std::span<const float> queries, std::span<float> scores) {
  LLMRT_CHECK(queries.size() == key.size() * scores.size(), "a column of numbers for each query");
  std::fill(scores.begin(), scores.end(), 0.0f);
  const size_t num_lanes = scores.size();
  float* sums = scores.data();
  for (size_t dim = 0; dim < key.size(); ++dim) {
    const float number = key[dim];
    const float* lanes = queries.data() + dim * num_lanes;
    for (size_t lane = 0; lane < num_lanes; ++lane) sums[lane] += number * lanes[lane];
  }
}

}  // namespace llmrt::bench
