// A grammar as a recursive transition network (Woods 1970): each rule is a graph from its start to its end, whose edges
// read a terminal or call a rule. Immutable; what cannot lead to an end is not in it, so no walk comes to a dead end.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "core/base/status.h"
#include "core/grammar/grammar_builder.h"

namespace llmrt {

struct Network {
  enum class EdgeKind : uint8_t { kEmpty, kRegex, kToken, kRule };
  struct Edge {
    EdgeKind kind;
    uint32_t label;   // regex, token or rule
    uint32_t target;  // node
  };
  struct Node {
    uint32_t edge_first = 0, num_edges = 0;
    bool is_end = false;  // of its rule
    uint8_t marks = 0;    // bits of PlaceMark
  };
  struct Rule {
    uint32_t start;  // node
    bool accepts_empty;
  };

  std::vector<Node> nodes;
  std::vector<Edge> edges;
  std::vector<Rule> rules;  // rule 0 is the whole grammar; empty: it has no text
  std::set<int32_t> named_tokens;
  bool has_marks = false;

  std::span<const Edge> edges_of(uint32_t node) const {
    return std::span(edges).subspan(nodes[node].edge_first, nodes[node].num_edges);
  }
  size_t held_bytes() const;
};

// The builder's start symbol as a network. Errors: the builder's own; kInvalidArgument where a rule is not defined or
// no text is in the grammar; kGrammarTooComplex beyond the limits, and where it cannot be told in time whether a
// terminal has a text.
Result<Network> make_network(GrammarBuilder* builder);

}  // namespace llmrt
