#include "core/request/sequence.h"

#include <algorithm>

namespace llmrt {

Sequence::Sequence(Request from, uint32_t branch_idx)
    : request(std::move(from)),
      branch(branch_idx),
      tokens(std::move(request.prompt)),
      num_prompt(static_cast<uint32_t>(tokens.size())),
      scored(wants_scores() ? 1 : num_prompt) {
  request.prompt.clear();
}

void Sequence::move_to(RequestState state) {
  LLMRT_CHECK(is_legal_move(state_, state),
              fmt::format("request {}: {} to {}", request.id, request_state_name(state_), request_state_name(state)));
  state_ = state;
}

uint32_t Sequence::reusable() const {
  const uint32_t known = static_cast<uint32_t>(tokens.size()) - 1;
  return scored < num_prompt ? std::min(known, scored - 1) : known;
}

uint32_t Sequence::samples_for(uint32_t count) const {
  // The hidden state of position p scores the prompt token at p + 1.
  const uint32_t end = std::min(computed + count + 1, num_prompt);
  const uint32_t begin = std::max(computed + 1, scored);
  const uint32_t forced = end > begin ? end - begin : 0;
  const bool draws = count > 0 && computed + count == wanted() && may_sample();
  return forced + (draws ? 1 : 0);
}

uint32_t Sequence::count_within(uint32_t count, uint32_t samples_max) const {
  if (scored < num_prompt) {
    const uint32_t unscored_first = scored - 1;  // positions from here need a sample each
    const uint32_t without = unscored_first > computed ? unscored_first - computed : 0;
    count = std::min(count, without + samples_max);
  }
  while (samples_for(count) > samples_max) --count;
  return count;
}

}  // namespace llmrt
