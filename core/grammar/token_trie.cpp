#include "core/grammar/token_trie.h"

#include <algorithm>

namespace llmrt {

TokenTrie::TokenTrie(std::vector<std::pair<std::string_view, int32_t>> tokens) {
  std::ranges::sort(tokens);
  std::vector<uint32_t> path;  // nodes of the token before
  std::string_view before;
  for (const auto& [bytes, token] : tokens) {
    if (bytes == before && !path.empty()) {
      doubles_.emplace_back(nodes_[path.back()].token, token);
      continue;
    }
    size_t common = 0;
    while (common < before.size() && common < bytes.size() && before[common] == bytes[common]) ++common;
    for (; path.size() > common; path.pop_back()) nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
    for (size_t i = common; i < bytes.size(); ++i) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({0, -1, static_cast<uint16_t>(i), static_cast<uint8_t>(bytes[i])});
    }
    nodes_.back().token = token;
    depth_max_ = std::max(depth_max_, static_cast<uint32_t>(bytes.size()));
    before = bytes;
  }
  for (const uint32_t node : path) nodes_[node].end = static_cast<uint32_t>(nodes_.size());
  std::ranges::sort(doubles_);
}

}  // namespace llmrt
