#include "core/request/beam_search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace llmrt {

BeamSearch::BeamSearch(uint32_t width, const BeamParams& params, uint32_t max_tokens, std::vector<int32_t> ends)
    : width_(width), params_(params), max_tokens_(max_tokens), ends_(std::move(ends)) {
  beams_.assign(width, {{}, -std::numeric_limits<double>::infinity()});
  beams_[0].logprob_sum = 0;
}

void BeamSearch::advance(std::span<const std::vector<TopLogprob>> candidates) {
  struct Continuation {
    Step step;
    double logprob_sum;
  };
  std::vector<Continuation> all;
  for (uint32_t i = 0; i < width_; ++i) {
    for (const TopLogprob& candidate : candidates[i])
      all.push_back({{i, candidate.token}, beams_[i].logprob_sum + static_cast<double>(candidate.logprob)});
  }
  std::ranges::stable_sort(all, std::greater(), &Continuation::logprob_sum);

  std::vector<Beam> next;
  steps_.clear();
  for (size_t rank = 0; rank < all.size() && next.size() < width_; ++rank) {
    const auto& [step, logprob_sum] = all[rank];
    std::vector<int32_t> tokens = beams_[step.parent].tokens;
    tokens.push_back(step.token);
    if (std::ranges::find(ends_, step.token) != ends_.end()) {
      if (rank < width_) finish(std::move(tokens), logprob_sum, FinishReason::kEos);
      continue;
    }
    next.push_back({std::move(tokens), logprob_sum});
    steps_.push_back(step);
  }
  LLMRT_CHECK(next.size() == width_, "each beam has width candidates that are no ends");
  beams_ = std::move(next);
  if (beams_[0].tokens.size() == max_tokens_) {
    for (Beam& beam : beams_) finish(std::move(beam.tokens), beam.logprob_sum, FinishReason::kLength);
  } else if (!is_over()) {
    return;
  }
  is_done_ = true;
  steps_.clear();
}

double BeamSearch::score_of(double logprob_sum, size_t num_tokens) const {
  return logprob_sum / std::pow(static_cast<double>(num_tokens), static_cast<double>(params_.length_penalty));
}

// Of equal ones the first stays.
void BeamSearch::finish(std::vector<int32_t> tokens, double logprob_sum, FinishReason reason) {
  const double score = score_of(logprob_sum, tokens.size());
  const auto place = std::ranges::upper_bound(answers_, score, std::greater(), &Answer::score);
  answers_.insert(place, {std::move(tokens), score, reason});
  if (answers_.size() > width_) answers_.pop_back();
}

bool BeamSearch::is_over() const {
  if (answers_.size() < width_) return false;
  return params_.early_stopping || answers_.back().score >= score_of(beams_[0].logprob_sum, beams_[0].tokens.size());
}

}  // namespace llmrt
