// Beam search as arithmetic: of all continuations of a request's live beams, which go on and which have ended. Knows
// neither blocks nor plans.
//
// A step looks at the continuations of all beams together, best first. An end token among the best `width` of them
// makes a finished answer, those behind are dropped; the best `width` others go on. Finished answers are ranked by sum
// of log-probabilities / tokens^length_penalty (end token counted), and the best `width` are kept. The search is over
// when there are that many and early_stopping is set, or no live beam's score, at its present length, is better than
// the worst of them; or at max_tokens, where live beams count as finished.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/request/request.h"

namespace llmrt {

class BeamSearch {
 public:
  // `ends`: tokens that end an answer.
  BeamSearch(uint32_t width, const BeamParams& params, uint32_t max_tokens, std::vector<int32_t> ends);

  // candidates[i]: the best continuations of beam i, best first, at least width of them no ends. Before the first step
  // all beams are equal, and only those of beam 0 count.
  void advance(std::span<const std::vector<TopLogprob>> candidates);
  bool is_done() const { return is_done_; }

  // One for each beam: it goes on as beam `parent` of before, with `token`. Nothing when done.
  struct Step {
    uint32_t parent;
    int32_t token;
  };
  std::span<const Step> steps() const { return steps_; }

  // `width` of them, best first, when done.
  struct Answer {
    std::vector<int32_t> tokens;
    double score;
    FinishReason finish;  // kEos or kLength
  };
  std::span<const Answer> answers() const { return answers_; }

 private:
  struct Beam {
    std::vector<int32_t> tokens;
    double logprob_sum;
  };
  double score_of(double logprob_sum, size_t num_tokens) const;
  void finish(std::vector<int32_t> tokens, double logprob_sum, FinishReason reason);
  bool is_over() const;

  const uint32_t width_;
  const BeamParams params_;
  const uint32_t max_tokens_;
  const std::vector<int32_t> ends_;
  std::vector<Beam> beams_;
  std::vector<Step> steps_;
  std::vector<Answer> answers_;
  bool is_done_ = false;
};

}  // namespace llmrt
