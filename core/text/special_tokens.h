// Finds special tokens in raw text: leftmost, and the longest of those that start there, as Hugging Face's added
// tokens are found. Control tokens may be confined to ranges of the text (those that a chat template wrote); user
// defined tokens are found anywhere. Built once, then read from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/tokenizer.h"

namespace llmrt {

// Half-open byte ranges, sorted and disjoint, none touching the next.
using TextRanges = std::vector<std::pair<size_t, size_t>>;

class SpecialTokens {
 public:
  SpecialTokens();
  // An empty text is ignored; of two tokens with the same text the first one stays.
  void add(std::string_view text, TokenId id, bool is_control);

  struct Segment {
    size_t begin;
    size_t end;
    TokenId id;  // -1: plain text
  };
  // The whole text as segments, none empty. A control token is found only where it lies inside one of `control_ranges`.
  std::vector<Segment> split(std::string_view text, std::span<const std::pair<size_t, size_t>> control_ranges) const;

 private:
  struct Node {
    uint8_t byte = 0;
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    TokenId control_id = -1;
    TokenId user_id = -1;
  };
  int32_t child(int32_t node, uint8_t byte) const;
  Segment longest_at(std::string_view text, size_t begin, size_t control_end) const;

  std::vector<Node> nodes_;
  std::array<bool, 256> starts_{};
};

}  // namespace llmrt
