// Sets of JSON values, named before it is known what is in them: a conjunction of nodes, where a node is a schema, a
// literal, a union or a complement. Equal sets of nodes have equal ids, so a recursive schema comes back to an id that
// is there already.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/grammar/schema/document.h"

namespace llmrt {

using NodeId = uint32_t;
using ValueId = uint32_t;

class ValueTable {
 public:
  static constexpr ValueId kAny = 0;   // every JSON value
  static constexpr ValueId kNone = 1;  // no value

  struct Node {
    enum class Kind : uint8_t { kNone, kSchema, kLiteral, kEither, kNot };
    Kind kind;
    SchemaPlace place;                 // of kSchema and kLiteral; of the others where they come from
    std::vector<ValueId> values = {};  // of kEither; of kNot one
  };

  ValueTable();

  ValueId schema(const SchemaPlace& place);  // the place holds a boolean or an object
  ValueId literal(const SchemaPlace& place);
  ValueId both(ValueId a, ValueId b);
  ValueId either(std::span<const ValueId> values, const SchemaPlace& from);
  ValueId complement(ValueId value, const SchemaPlace& from);

  // Whether the nodes of `b` are among those of `a`: then every value of `a` is one of `b`.
  bool has_nodes_of(ValueId a, ValueId b) const;

  std::span<const NodeId> nodes_of(ValueId value) const { return *values_[value]; }
  const Node& node(NodeId id) const { return nodes_[id]; }
  size_t num_values() const { return values_.size(); }

 private:
  ValueId of_node(NodeId node) { return intern({node}); }
  ValueId intern(std::vector<NodeId> nodes);
  NodeId add(Node node);

  std::vector<Node> nodes_;
  std::map<std::pair<const boost::json::value*, uint32_t>, NodeId> schemas_;
  std::map<const boost::json::value*, NodeId> literals_;
  std::map<std::vector<ValueId>, NodeId> unions_;
  std::map<ValueId, NodeId> complements_;
  std::map<std::vector<NodeId>, ValueId> known_;
  std::vector<const std::vector<NodeId>*> values_;  // keys of known_
};

}  // namespace llmrt
