#include "core/speculate/ngram_drafter.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace llmrt {
namespace {

constexpr uint32_t kIndexMin = 256, kIndexMax = kIndexBytesMax / sizeof(uint32_t);  // places, powers of two
constexpr uint32_t kMatchTold = 32;  // a match that is found is not looked back upon further

}  // namespace

NgramDrafts::NgramDrafts(std::vector<int32_t> prediction)
    : prediction_(std::make_shared<const std::vector<int32_t>>(std::move(prediction))) {}

std::unique_ptr<Drafter> NgramDrafts::begin(uint32_t num_prompt) const {
  return std::make_unique<NgramDrafter>(prediction_, num_prompt);
}

NgramDrafter::NgramDrafter(std::shared_ptr<const std::vector<int32_t>> prediction, uint32_t num_prompt)
    : prediction_(std::move(prediction)), answer_first_(static_cast<uint32_t>(prediction_->size()) + num_prompt) {}

int32_t NgramDrafter::at(std::span<const int32_t> tokens, uint32_t position) const {
  const size_t predicted = prediction_->size();
  return position < predicted ? (*prediction_)[position] : tokens[position - predicted];
}

bool NgramDrafter::same_three(std::span<const int32_t> tokens, uint32_t end, uint32_t other_end) const {
  for (uint32_t i = 1; i <= kMatchMin; ++i)
    if (at(tokens, end - i) != at(tokens, other_end - i)) return false;
  return true;
}

uint32_t NgramDrafter::common_before(std::span<const int32_t> tokens, uint32_t end, uint32_t other_end) const {
  uint32_t count = 0;
  while (count < kMatchTold && count < other_end && at(tokens, end - count - 1) == at(tokens, other_end - count - 1))
    ++count;
  return count;
}

uint32_t NgramDrafter::place_of(std::span<const int32_t> tokens, uint32_t end) const {
  uint64_t hash = 0;
  for (uint32_t i = 1; i <= kMatchMin; ++i)
    hash = (hash + static_cast<uint32_t>(at(tokens, end - i)) + 1) * 0x9e3779b97f4a7c15ull;
  return static_cast<uint32_t>(hash >> 40) & (static_cast<uint32_t>(index_.size()) - 1);
}

// Twice as many places as tokens.
void NgramDrafter::grow(std::span<const int32_t> tokens, uint32_t num_known) {
  const uint32_t wanted = std::clamp(std::bit_ceil(2 * std::min(num_known, kIndexMax)), kIndexMin, kIndexMax);
  if (index_.size() >= wanted) return;
  const std::vector<uint32_t> before = std::exchange(index_, std::vector<uint32_t>(wanted));
  for (const uint32_t end : before)
    if (end != 0) index_[place_of(tokens, end)] = std::max(index_[place_of(tokens, end)], end);
}

// The next token.
void NgramDrafter::read(std::span<const int32_t> tokens) {
  if (num_read_ == answer_first_ && !prediction_->empty()) {  // the answer is expected to begin like this
    match_next_ = 0;
    match_tokens_ = kMatchMin;
  }
  const bool goes_on = match_tokens_ > 0 && at(tokens, match_next_) == at(tokens, num_read_);
  match_tokens_ = goes_on ? match_tokens_ + 1 : 0;
  ++match_next_;
  const uint32_t end = ++num_read_;
  if (end < kMatchMin) return;
  uint32_t& place = index_[place_of(tokens, end)];
  if (!goes_on && place != 0 && same_three(tokens, end, place)) {
    match_next_ = place;
    match_tokens_ = common_before(tokens, end, place);
  }
  place = end;
}

// Whether all tokens are read now.
bool NgramDrafter::catch_up(std::span<const int32_t> tokens) {
  const auto num_known = static_cast<uint32_t>(prediction_->size() + tokens.size());
  grow(tokens, num_known);
  for (uint32_t i = 0; i < kTokensPerCall && num_read_ < num_known; ++i) read(tokens);
  return num_read_ == num_known;
}

void NgramDrafter::propose(std::span<const int32_t> tokens, uint32_t most, std::vector<int32_t>* drafts) {
  if (!catch_up(tokens)) return;
  // A text that repeats itself is still being written where the match goes on: it goes round.
  const uint32_t first = static_cast<uint32_t>(drafts->size()), period = num_read_ - match_next_;
  for (uint32_t i = 0; i < std::min(most, match_tokens_); ++i)
    drafts->push_back(i < period ? at(tokens, match_next_ + i) : (*drafts)[first + i - period]);
}

}  // namespace llmrt
