// Tokens of a vocabulary by their bytes, as a tree laid out depth first: a walk that leaves a branch jumps over it.
// Immutable.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace llmrt {

class TokenTrie {
 public:
  struct Node {
    uint32_t end;    // index behind the branch
    int32_t token;   // that ends here, or -1
    uint16_t depth;  // counts from 0
    uint8_t byte;
  };

  // Tokens with their bytes, in any order; none is empty or longer than kTokenBytesMax.
  static constexpr size_t kTokenBytesMax = 4096;
  explicit TokenTrie(std::vector<std::pair<std::string_view, int32_t>> tokens);

  const std::vector<Node>& nodes() const { return nodes_; }
  // Tokens whose bytes are those of another one, which stands in the tree: (that one, the token), in order.
  const std::vector<std::pair<int32_t, int32_t>>& doubles() const { return doubles_; }
  uint32_t depth_max() const { return depth_max_; }
  size_t held_bytes() const { return nodes_.capacity() * sizeof(Node) + doubles_.capacity() * sizeof(doubles_[0]); }

 private:
  std::vector<Node> nodes_;
  std::vector<std::pair<int32_t, int32_t>> doubles_;
  uint32_t depth_max_ = 0;
};

}  // namespace llmrt
