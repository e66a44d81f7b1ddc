#include "core/schedule/beam_round.h"

#include <algorithm>

namespace llmrt {

bool advance_search(std::span<Sequence* const> beams) {
  std::vector<std::vector<TopLogprob>> candidates(beams.size());
  for (const Sequence* beam : beams) {
    if (beam->beam.candidates.empty()) return false;
    candidates[beam->beam.rank] = beam->beam.candidates;
  }
  beams[0]->beam.search->advance(candidates);
  return true;
}

BeamRound divide_beams(std::span<Sequence* const> beams) {
  const std::span<const BeamSearch::Step> steps = beams[0]->beam.search->steps();
  std::vector<Sequence*> before(beams.size()), dropped;
  BeamRound round;
  round.by_rank.resize(beams.size());
  for (Sequence* beam : beams) {
    before[beam->beam.rank] = beam;
    beam->beam.is_asked = false;
    beam->beam.candidates.clear();
    const auto first = std::ranges::find(steps, beam->beam.rank, &BeamSearch::Step::parent);
    const auto rank = static_cast<size_t>(first - steps.begin());
    (first == steps.end() ? dropped.emplace_back() : round.by_rank[rank]) = beam;
  }
  for (size_t rank = 0; rank < steps.size(); ++rank) {
    if (round.by_rank[rank] != nullptr) continue;
    round.by_rank[rank] = dropped.back();
    dropped.pop_back();
    round.restarts.push_back({round.by_rank[rank], before[steps[rank].parent]});
  }
  return round;
}

void extend_beams(const BeamRound& round) {
  const std::span<const BeamSearch::Step> steps = round.by_rank[0]->beam.search->steps();
  for (size_t rank = 0; rank < steps.size(); ++rank) {
    round.by_rank[rank]->beam.rank = static_cast<uint32_t>(rank);
    round.by_rank[rank]->tokens.push_back(steps[rank].token);
  }
}

}  // namespace llmrt
