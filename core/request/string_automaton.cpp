#include "core/request/string_automaton.h"

#include "core/base/check.h"

namespace llmrt {

StringAutomaton::StringAutomaton(std::span<const std::string> strings) : nodes_(1) {
  size_t num_bytes = 0;
  for (const std::string& string : strings) num_bytes += string.size();
  nodes_.reserve(num_bytes + 1);
  for (const std::string& string : strings) {
    LLMRT_CHECK(!string.empty(), "an empty stop string would match everywhere");
    uint32_t node = kStart;
    for (const char c : string) {
      const uint8_t byte = static_cast<uint8_t>(c);
      uint32_t next = child(node, byte);
      if (next == 0) {
        next = static_cast<uint32_t>(nodes_.size());
        nodes_.push_back({.next_sibling = nodes_[node].first_child, .depth = nodes_[node].depth + 1, .byte = byte});
        nodes_[node].first_child = next;
      }
      node = next;
    }
    nodes_[node].match_bytes = nodes_[node].depth;
  }
  // Breadth first: a node's fallback is shallower, so it is complete when the node is reached.
  std::vector<uint32_t> order = {kStart};
  for (size_t i = 0; i < order.size(); ++i) {
    const uint32_t parent = order[i];
    for (uint32_t n = nodes_[parent].first_child; n != 0; n = nodes_[n].next_sibling) {
      Node& node = nodes_[n];
      node.fallback = parent == kStart ? kStart : advance(nodes_[parent].fallback, node.byte);
      const Node& fallback = nodes_[node.fallback];
      if (node.match_bytes == 0) node.match_bytes = fallback.match_bytes;
      node.hold_bytes = node.first_child != 0 ? node.depth : fallback.hold_bytes;
      order.push_back(n);
    }
  }
}

uint32_t StringAutomaton::advance(uint32_t state, uint8_t byte) const {
  for (;;) {
    if (const uint32_t next = child(state, byte); next != 0) return next;
    if (state == kStart) return kStart;
    state = nodes_[state].fallback;
  }
}

uint32_t StringAutomaton::child(uint32_t node, uint8_t byte) const {
  uint32_t n = nodes_[node].first_child;
  while (n != 0 && nodes_[n].byte != byte) n = nodes_[n].next_sibling;
  return n;
}

}  // namespace llmrt
