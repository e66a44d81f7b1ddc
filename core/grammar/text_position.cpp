#include "core/grammar/text_position.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace llmrt {
namespace {

constexpr uint8_t bit(PlaceMark mark) {
  return static_cast<uint8_t>(mark);
}
bool is_space(uint32_t byte) {
  return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

}  // namespace

TextPosition::TextPosition(const ParseStates& states) : state_(states.start()) {
  enter(states.marks(state_));
}

void TextPosition::enter(uint8_t marks) {
  if ((marks & bit(PlaceMark::kTracked)) != 0) {
    for (JsonTracker& tracker : trackers_) tracker.track((marks & bit(PlaceMark::kTight)) != 0);
  }
  if ((marks & bit(PlaceMark::kValue)) == 0) return;
  std::erase_if(trackers_, [](const JsonTracker& tracker) { return tracker.depth() == 0; });
  if (trackers_.size() == kTrackersMax) {
    has_failed_ = true;
    return;
  }
  trackers_.emplace_back();
}

bool TextPosition::step(ParseStates* states, uint8_t byte) {
  StateId next = states->after(state_, byte);
  if (next == ParseStates::kDead) return false;
  bool is_duplicate = false;
  for (JsonTracker& tracker : trackers_) {
    tracker.feed(byte);
    has_failed_ |= tracker.failed();
    is_duplicate |= tracker.is_duplicate();
  }
  std::erase_if(trackers_, [](const JsonTracker& tracker) { return tracker.is_over(); });
  if (is_duplicate && (states->marks(next) & bit(PlaceMark::kDistinct)) != 0) {
    next = states->after_duplicate(state_, byte);
    if (next == ParseStates::kDead) return false;
  }
  state_ = next;
  if (const uint8_t marks = states->marks(next); marks != 0) enter(marks);
  return true;
}

bool TextPosition::step(ParseStates* states, std::string_view text) {
  return std::ranges::all_of(text, [&](char c) { return step(states, static_cast<uint8_t>(c)); });
}

bool TextPosition::step_token(ParseStates* states, int32_t token) {
  state_ = states->after_token(state_, token);
  if (state_ == ParseStates::kDead) return false;
  trackers_.clear();
  enter(states->marks(state_));
  return true;
}

bool TextPosition::failed() const {
  return has_failed_;
}

bool TextPosition::is_tight(int64_t* work) {
  return std::ranges::any_of(trackers_, [&](JsonTracker& tracker) { return tracker.is_tight(work); });
}

void TextPosition::spend_copy(int64_t* work) const {
  constexpr int64_t kOverhead = 100;
  *work -= kOverhead;
  for (const JsonTracker& tracker : trackers_) *work -= static_cast<int64_t>(tracker.copy_bytes());
}

bool TextPosition::is_live(ParseStates* states, int64_t* work) const {
  if (trackers_.empty()) return true;
  std::deque<TextPosition> open = {*this};
  if (!open.front().is_tight(work)) return true;
  while (!open.empty()) {
    const TextPosition from = std::move(open.front());
    open.pop_front();
    // White space is never needed.
    const bool skips_spaces = std::ranges::all_of(from.trackers_, &JsonTracker::is_between);
    for (uint32_t byte = 0; byte < 256; ++byte) {
      if (skips_spaces && is_space(byte)) continue;
      if (states->after(from.state_, static_cast<uint8_t>(byte)) == ParseStates::kDead) continue;
      from.spend_copy(work);
      TextPosition next = from;
      if (!next.step(states, static_cast<uint8_t>(byte))) continue;
      if (!next.is_tight(work)) return true;
      open.push_back(std::move(next));
    }
  }
  return false;
}

// Tokens that stay inside what is being read, and behind which it can only become what was there.
void TextPosition::find_stuck(ParseStates* states, const TokenTrie& trie, int64_t* work,
                              std::vector<int32_t>* denied) const {
  const auto& nodes = trie.nodes();
  std::vector<TextPosition> path = {*this};
  if (!path[0].is_tight(work)) return;
  for (uint32_t i = 0; i < nodes.size() && *work > 0;) {
    const TokenTrie::Node& node = nodes[i];
    path.erase(path.begin() + node.depth + 1, path.end());
    if (states->after(path.back().state_, node.byte) == ParseStates::kDead) {
      i = node.end;
      continue;
    }
    path.back().spend_copy(work);
    TextPosition next = path.back();
    if (!next.step(states, node.byte)) {  // its tokens end an item or a key
      i = node.end;
      continue;
    }
    const bool is_tight = next.is_tight(work);
    if (node.token >= 0 && is_tight && !next.is_live(states, work)) denied->push_back(node.token);
    path.push_back(std::move(next));
    i = is_tight ? i + 1 : node.end;
  }
}

TokenMaskPtr TextPosition::narrow(ParseStates* states, const TokenVocabulary& vocabulary, const TokenMaskPtr& mask,
                                  std::span<const int32_t> crossing) const {
  if (trackers_.empty()) return mask;
  std::vector<int32_t> denied;
  int64_t work = kWorkMax;
  for (const int32_t token : crossing) {
    TextPosition next = *this;
    if (!next.step(states, vocabulary.bytes(token)) || !next.is_live(states, &work)) denied.push_back(token);
  }
  find_stuck(states, vocabulary.trie(), &work, &denied);
  // Tokens of the same bytes; then those that stand here for something else than their bytes.
  std::ranges::sort(denied);
  const auto num_found = static_cast<ptrdiff_t>(denied.size());
  for (const auto& [token, twin] : vocabulary.trie().doubles()) {
    if (std::binary_search(denied.begin(), denied.begin() + num_found, token)) denied.push_back(twin);
  }
  const auto& named = states->network().named_tokens;
  std::erase_if(denied, [&](int32_t token) {
    return named.contains(token) || (vocabulary.is_end(token) && states->accepts(state_));
  });
  if (denied.empty()) return mask;
  std::vector<uint32_t> bits(mask->bits().begin(), mask->bits().end());
  bits.resize(vocabulary.num_words(), 0);
  for (const uint32_t token : mask->list()) allow_token(&bits, static_cast<int32_t>(token));
  for (const int32_t token : denied) bits[static_cast<size_t>(token) / 32] &= ~(1u << (token % 32));
  return std::make_shared<TokenMask>(std::move(bits));
}

void add_crossing(const TokenTrie& trie, ParseStates* states, ParseStates::StateId state,
                  const std::function<void()>& let_others, std::vector<int32_t>* out) {
  constexpr uint32_t kStepsPerLook = 2048;
  constexpr uint8_t kCrossed = bit(PlaceMark::kDistinct) | bit(PlaceMark::kBegins);
  struct Place {
    ParseStates::StateId state;
    bool has_crossed;
  };
  std::vector<Place> path(trie.depth_max() + 1);
  path[0] = {state, false};
  const auto& nodes = trie.nodes();
  uint32_t num_steps = 0;
  for (uint32_t i = 0; i < nodes.size();) {
    if (++num_steps % kStepsPerLook == 0) let_others();
    const TokenTrie::Node& node = nodes[i];
    const Place& from = path[node.depth];
    const ParseStates::StateId next = states->after(from.state, node.byte);
    if (next == ParseStates::kDead) {
      i = node.end;
      continue;
    }
    const bool has_crossed = from.has_crossed || (states->marks(next) & kCrossed) != 0;
    path[node.depth + 1] = {next, has_crossed};
    if (node.token >= 0 && has_crossed) out->push_back(node.token);
    ++i;
  }
}

}  // namespace llmrt
