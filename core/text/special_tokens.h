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
  // An empty text is ignored; of two tokens with the same text the first one stays. The text outlives build().
  void add(std::string_view text, TokenId id, bool is_control);
  // After the last add. Errors: tokens so long or so much alike that a search would take long.
  Status build();

  // The control token that `text` spells whole; -1: none.
  TokenId find_control(std::string_view text) const;

  struct Match {
    size_t begin;
    size_t end;
    TokenId id;  // -1: none; begin and end are the end of the text
  };
  // Walks over a text from left to right. A control token is found only where it lies inside one of `control_ranges`.
  class Search {
   public:
    Search(const SpecialTokens& tokens, std::string_view text,
           std::span<const std::pair<size_t, size_t>> control_ranges)
        : tokens_(tokens), text_(text), control_ranges_(control_ranges) {}
    // The first token that begins at `begin` or behind it; `begin` never falls.
    Match next(size_t begin);

   private:
    const SpecialTokens& tokens_;
    std::string_view text_;
    std::span<const std::pair<size_t, size_t>> control_ranges_;
    size_t range_idx_ = 0;
  };

 private:
  struct Node {
    int32_t first_child = 0;  // children lie side by side
    int32_t num_children = 0;
    TokenId control_id = -1;
    TokenId user_id = -1;
  };
  struct Added {
    std::string_view text;
    TokenId id;
    bool is_control;
  };
  int32_t child(int32_t node, uint8_t byte) const;
  int32_t add_child(int32_t node, uint8_t byte);
  void build_trie();
  Status check_overlaps() const;
  Match longest_at(std::string_view text, size_t begin, size_t control_end) const;

  std::vector<Added> added_;  // until build()
  std::vector<Node> nodes_;
  std::vector<uint8_t> bytes_;  // of each node, the last one of its text
  std::array<bool, 256> starts_{};
};

}  // namespace llmrt
