// Aho-Corasick over the stop strings of one request: a byte costs amortised O(1), and the state tells both what has
// just been matched and how many bytes at the end may still become a match. Immutable after construction.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace llmrt {

class StringAutomaton {
 public:
  static constexpr uint32_t kStart = 0;

  explicit StringAutomaton(std::span<const std::string> strings);  // none of them empty

  uint32_t advance(uint32_t state, uint8_t byte) const;
  // Length of the longest string that ends here; 0 = none.
  uint32_t match_bytes(uint32_t state) const { return nodes_[state].match_bytes; }
  // Length of the longest suffix that is a proper prefix of a string.
  uint32_t hold_bytes(uint32_t state) const { return nodes_[state].hold_bytes; }
  // What an automaton over so many bytes of strings holds at most.
  static constexpr size_t held_bytes(size_t num_bytes) { return (num_bytes + 1) * sizeof(Node); }

 private:
  struct Node {
    uint32_t first_child = 0, next_sibling = 0;  // 0 = none (the start is nobody's child)
    uint32_t fallback = 0;                       // the longest proper suffix that is a prefix of a string
    uint32_t depth = 0;
    uint32_t match_bytes = 0;
    uint32_t hold_bytes = 0;
    uint8_t byte = 0;
  };
  uint32_t child(uint32_t node, uint8_t byte) const;

  std::vector<Node> nodes_;
};

}  // namespace llmrt
