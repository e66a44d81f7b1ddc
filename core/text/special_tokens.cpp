#include "core/text/special_tokens.h"

#include <algorithm>
#include <cstring>

namespace llmrt {
namespace {

constexpr size_t kBytesMax = 8 << 20;  // of all tokens; the largest known vocabularies of audio tokens have 2 MiB
// A byte of the text is compared once for each token that may have begun before it and not ended yet: as many as a
// token's beginnings that are also what another beginning ends with. "aaa...a" has many, names in brackets have few.
constexpr int kOverlapsMax = 256;

}  // namespace

SpecialTokens::SpecialTokens() : nodes_(1), bytes_(1) {}

void SpecialTokens::add(std::string_view text, TokenId id, bool is_control) {
  if (!text.empty()) {
    added_.push_back({text, id, is_control});
  }
}

int32_t SpecialTokens::child(int32_t node, uint8_t byte) const {
  const Node& parent = nodes_[static_cast<size_t>(node)];
  if (parent.num_children == 0) {
    return -1;
  }
  const uint8_t* first = bytes_.data() + parent.first_child;
  const void* found = std::memchr(first, byte, static_cast<size_t>(parent.num_children));
  return found ? parent.first_child + static_cast<int32_t>(static_cast<const uint8_t*>(found) - first) : -1;
}

int32_t SpecialTokens::add_child(int32_t node, uint8_t byte) {
  const auto made = static_cast<int32_t>(nodes_.size());
  nodes_.emplace_back();
  bytes_.push_back(byte);
  Node& parent = nodes_[static_cast<size_t>(node)];
  if (parent.num_children++ == 0) {
    parent.first_child = made;
  }
  return made;
}

// Level by level over the sorted tokens, so that the children of a node lie side by side. Linear in the tokens' bytes.
void SpecialTokens::build_trie() {
  std::stable_sort(added_.begin(), added_.end(), [](const Added& a, const Added& b) { return a.text < b.text; });
  struct Range {  // of added_: the tokens that begin with the node's text
    size_t begin, end;
  };
  std::vector<Range> ranges = {{0, added_.size()}};
  size_t depth = 0;
  size_t level_end = 1;
  for (size_t node = 0; node < nodes_.size(); ++node) {
    if (node == level_end) {
      ++depth;
      level_end = nodes_.size();
    }
    auto [begin, end] = ranges[node];
    for (; begin < end && added_[begin].text.size() == depth; ++begin) {
      TokenId& slot = added_[begin].is_control ? nodes_[node].control_id : nodes_[node].user_id;
      if (slot < 0) {
        slot = added_[begin].id;
      }
    }
    while (begin < end) {
      const char byte = added_[begin].text[depth];
      const size_t first = begin;
      while (begin < end && added_[begin].text[depth] == byte) {
        ++begin;
      }
      add_child(static_cast<int32_t>(node), static_cast<uint8_t>(byte));
      ranges.push_back({first, begin});
    }
  }
}

// Walks as Aho and Corasick's automaton is built ("Efficient string matching", 1975): a node's failure link is the
// longest other beginning of a token that the node's text ends with.
Status SpecialTokens::check_overlaps() const {
  std::vector<int32_t> failure(nodes_.size(), 0);
  std::vector<int32_t> num_overlaps(nodes_.size(), 0);
  for (size_t node = 0; node < nodes_.size(); ++node) {
    for (int32_t i = 0; i < nodes_[node].num_children; ++i) {
      const auto made = static_cast<size_t>(nodes_[node].first_child + i);
      int32_t link = 0;
      if (node != 0) {
        int32_t at = failure[node];
        while (at != 0 && child(at, bytes_[made]) < 0) {
          at = failure[static_cast<size_t>(at)];
        }
        link = std::max(child(at, bytes_[made]), 0);
      }
      failure[made] = link;
      num_overlaps[made] = num_overlaps[static_cast<size_t>(link)] + 1;
      if (num_overlaps[made] > kOverlapsMax) {
        return make_error(ErrorCode::kCorruptFile,
                          "vocabulary: special and user-defined tokens: expected at most {} that may begin inside each "
                          "other, found more",
                          kOverlapsMax);
      }
    }
  }
  return {};
}

Status SpecialTokens::build() {
  size_t num_bytes = 0;
  for (const Added& added : added_) {
    starts_[static_cast<uint8_t>(added.text[0])] = true;
    num_bytes += added.text.size();
  }
  if (num_bytes > kBytesMax) {
    return make_error(ErrorCode::kCorruptFile,
                      "vocabulary: special and user-defined tokens: expected at most {} bytes in all, found {}",
                      kBytesMax, num_bytes);
  }
  build_trie();
  added_ = {};
  return check_overlaps();
}

TokenId SpecialTokens::find_control(std::string_view text) const {
  int32_t node = 0;
  for (size_t pos = 0; pos < text.size() && node >= 0; ++pos) {
    node = child(node, static_cast<uint8_t>(text[pos]));
  }
  return node < 0 ? -1 : nodes_[static_cast<size_t>(node)].control_id;
}

SpecialTokens::Match SpecialTokens::longest_at(std::string_view text, size_t begin, size_t control_end) const {
  Match best{begin, begin, -1};
  int32_t node = 0;
  for (size_t pos = begin; pos < text.size(); ++pos) {
    node = child(node, static_cast<uint8_t>(text[pos]));
    if (node < 0) {
      break;
    }
    const Node& here = nodes_[static_cast<size_t>(node)];
    if (here.user_id >= 0) {
      best = {begin, pos + 1, here.user_id};
    }
    if (here.control_id >= 0 && pos < control_end) {
      best = {begin, pos + 1, here.control_id};
    }
  }
  return best;
}

SpecialTokens::Match SpecialTokens::Search::next(size_t begin) {
  for (size_t pos = begin; pos < text_.size(); ++pos) {
    if (!tokens_.starts_[static_cast<uint8_t>(text_[pos])]) {
      continue;
    }
    while (range_idx_ < control_ranges_.size() && control_ranges_[range_idx_].second <= pos) {
      ++range_idx_;
    }
    const bool inside = range_idx_ < control_ranges_.size() && control_ranges_[range_idx_].first <= pos;
    const Match match = tokens_.longest_at(text_, pos, inside ? control_ranges_[range_idx_].second : 0);
    if (match.id >= 0) {
      return match;
    }
  }
  return {text_.size(), text_.size(), -1};
}

}  // namespace llmrt
