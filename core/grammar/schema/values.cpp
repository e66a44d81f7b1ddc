#include "core/grammar/schema/values.h"

#include <algorithm>
#include <iterator>

namespace llmrt {

ValueTable::ValueTable() {
  intern({});
  of_node(add({.kind = Node::Kind::kNone, .place = {}}));
}

NodeId ValueTable::add(Node node) {
  nodes_.push_back(std::move(node));
  return static_cast<NodeId>(nodes_.size() - 1);
}

ValueId ValueTable::intern(std::vector<NodeId> nodes) {
  const auto [it, is_new] = known_.try_emplace(std::move(nodes), static_cast<ValueId>(values_.size()));
  if (is_new) values_.push_back(&it->first);
  return it->second;
}

ValueId ValueTable::schema(const SchemaPlace& place) {
  if (const bool* is_true = place.value->if_bool()) return *is_true ? kAny : kNone;
  if (place.value->get_object().empty()) return kAny;
  const auto [it, is_new] = schemas_.try_emplace({place.value, place.resource}, 0);
  if (is_new) it->second = add({.kind = Node::Kind::kSchema, .place = place});
  return of_node(it->second);
}

ValueId ValueTable::literal(const SchemaPlace& place) {
  const auto [it, is_new] = literals_.try_emplace(place.value, 0);
  if (is_new) it->second = add({.kind = Node::Kind::kLiteral, .place = place});
  return of_node(it->second);
}

ValueId ValueTable::both(ValueId a, ValueId b) {
  if (a == b || b == kAny) return a;
  if (a == kAny) return b;
  if (a == kNone || b == kNone) return kNone;
  std::vector<NodeId> nodes;
  std::ranges::set_union(*values_[a], *values_[b], std::back_inserter(nodes));
  // A set and its complement.
  for (const NodeId id : nodes) {
    const Node& node = nodes_[id];
    if (node.kind == Node::Kind::kNot && std::ranges::includes(nodes, *values_[node.values[0]])) return kNone;
  }
  return intern(std::move(nodes));
}

ValueId ValueTable::either(std::span<const ValueId> values, const SchemaPlace& from) {
  std::vector<ValueId> parts(values.begin(), values.end());
  std::ranges::sort(parts);
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  std::erase(parts, kNone);
  if (std::ranges::find(parts, kAny) != parts.end()) return kAny;
  if (parts.empty()) return kNone;
  if (parts.size() == 1) return parts[0];
  const auto [it, is_new] = unions_.try_emplace(parts, 0);
  if (is_new) it->second = add({.kind = Node::Kind::kEither, .place = from, .values = parts});
  return of_node(it->second);
}

ValueId ValueTable::complement(ValueId value, const SchemaPlace& from) {
  if (value == kAny) return kNone;
  if (value == kNone) return kAny;
  const auto [it, is_new] = complements_.try_emplace(value, 0);
  if (is_new) it->second = add({.kind = Node::Kind::kNot, .place = from, .values = {value}});
  return of_node(it->second);
}

bool ValueTable::has_nodes_of(ValueId a, ValueId b) const {
  return a == kNone || (b != kNone && std::ranges::includes(*values_[a], *values_[b]));
}

}  // namespace llmrt
