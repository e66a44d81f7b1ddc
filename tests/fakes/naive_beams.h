// Beam search in its plainest form: all continuations of all beams over the whole vocabulary, sorted.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "core/request/request.h"

namespace llmrt::test {

struct NaiveAnswer {
  std::vector<int32_t> tokens;
  double score = 0;
  FinishReason finish = FinishReason::kNone;
};

// next(tokens): the log-probability of each token of the vocabulary behind these; empty where there is an error, and
// then there are no answers.
template <typename Next>
std::optional<std::vector<NaiveAnswer>> naive_beam_search(const Request& request, const std::vector<int32_t>& ends,
                                                          Next next) {
  struct Beam {
    std::vector<int32_t> tokens;
    double sum;
  };
  struct Continuation {
    size_t beam;
    int32_t token;
    double sum;
  };
  const auto score = [&](const Beam& beam) {
    return beam.sum / std::pow(static_cast<double>(beam.tokens.size()), double{request.beam->length_penalty});
  };
  const auto better = [](const NaiveAnswer& a, const NaiveAnswer& b) { return a.score > b.score; };
  std::vector<Beam> live = {{{}, 0}};
  std::vector<NaiveAnswer> done;
  while (true) {
    std::vector<Continuation> all;
    for (size_t i = 0; i < live.size(); ++i) {
      const std::vector<float> logprobs = next(live[i].tokens);
      if (logprobs.empty()) return std::nullopt;
      for (size_t token = 0; token < logprobs.size(); ++token)
        all.push_back({i, static_cast<int32_t>(token), live[i].sum + double{logprobs[token]}});
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Continuation& a, const Continuation& b) { return a.sum > b.sum; });
    std::vector<Beam> after;
    for (size_t i = 0; i < all.size() && after.size() < request.n; ++i) {
      Beam beam = {live[all[i].beam].tokens, all[i].sum};
      beam.tokens.push_back(all[i].token);
      if (std::count(ends.begin(), ends.end(), all[i].token) == 0) {
        after.push_back(beam);
      } else if (i < request.n) {
        done.push_back({beam.tokens, score(beam), FinishReason::kEos});
      }
    }
    live = after;
    const bool is_full = live[0].tokens.size() == request.max_tokens;
    if (is_full) {
      for (const Beam& beam : live) done.push_back({beam.tokens, score(beam), FinishReason::kLength});
    }
    std::stable_sort(done.begin(), done.end(), better);
    if (done.size() > request.n) done.resize(request.n);
    const bool is_over =
        done.size() == request.n && (request.beam->early_stopping || done.back().score >= score(live[0]));
    if (is_full || is_over) return done;
  }
}

}  // namespace llmrt::test
