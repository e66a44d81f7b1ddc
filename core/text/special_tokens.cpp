#include "core/text/special_tokens.h"

namespace llmrt {

SpecialTokens::SpecialTokens() : nodes_(1) {}

int32_t SpecialTokens::child(int32_t node, uint8_t byte) const {
  int32_t next = nodes_[node].first_child;
  while (next >= 0 && nodes_[next].byte != byte) {
    next = nodes_[next].next_sibling;
  }
  return next;
}

void SpecialTokens::add(std::string_view text, TokenId id, bool is_control) {
  if (text.empty()) {
    return;
  }
  starts_[static_cast<uint8_t>(text[0])] = true;
  int32_t node = 0;
  for (const char c : text) {
    int32_t next = child(node, static_cast<uint8_t>(c));
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_.push_back({.byte = static_cast<uint8_t>(c), .next_sibling = nodes_[node].first_child});
      nodes_[node].first_child = next;
    }
    node = next;
  }
  TokenId& slot = is_control ? nodes_[node].control_id : nodes_[node].user_id;
  if (slot < 0) {
    slot = id;
  }
}

SpecialTokens::Segment SpecialTokens::longest_at(std::string_view text, size_t begin, size_t control_end) const {
  Segment best{begin, begin, -1};
  int32_t node = 0;
  for (size_t pos = begin; pos < text.size(); ++pos) {
    node = child(node, static_cast<uint8_t>(text[pos]));
    if (node < 0) {
      break;
    }
    if (nodes_[node].user_id >= 0) {
      best = {begin, pos + 1, nodes_[node].user_id};
    }
    if (nodes_[node].control_id >= 0 && pos < control_end) {
      best = {begin, pos + 1, nodes_[node].control_id};
    }
  }
  return best;
}

std::vector<SpecialTokens::Segment> SpecialTokens::split(
    std::string_view text, std::span<const std::pair<size_t, size_t>> control_ranges) const {
  std::vector<Segment> segments;
  size_t plain_begin = 0;
  size_t range = 0;
  for (size_t pos = 0; pos < text.size();) {
    if (!starts_[static_cast<uint8_t>(text[pos])]) {
      ++pos;
      continue;
    }
    while (range < control_ranges.size() && control_ranges[range].second <= pos) {
      ++range;
    }
    const bool inside = range < control_ranges.size() && control_ranges[range].first <= pos;
    const Segment match = longest_at(text, pos, inside ? control_ranges[range].second : 0);
    if (match.id < 0) {
      ++pos;
      continue;
    }
    if (plain_begin < pos) {
      segments.push_back({plain_begin, pos, -1});
    }
    segments.push_back(match);
    pos = match.end;
    plain_begin = pos;
  }
  if (plain_begin < text.size()) {
    segments.push_back({plain_begin, text.size(), -1});
  }
  return segments;
}

}  // namespace llmrt
