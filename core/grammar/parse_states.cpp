#include "core/grammar/parse_states.h"

#include <algorithm>
#include <utility>

#include "core/grammar/byte_partitions.h"

namespace llmrt {
namespace {

template <typename T>
void sort_unique(std::vector<T>* list) {
  std::ranges::sort(*list);
  list->erase(std::unique(list->begin(), list->end()), list->end());
}

}  // namespace

ParseStates::ParseStates(std::shared_ptr<const Network> network, RegexPool regexes)
    : network_(std::move(network)), regexes_(std::move(regexes)) {
  const uint32_t dead[] = {0};
  states_.intern(dead);
  next_.emplace_back();
  const uint32_t end[] = {UINT32_MAX, 0};
  returns_.intern(end);
  std::vector<Scan> none;
  std::vector<Item> first = {{network_->rules[0].start, 0}};
  start_ = make_state(&none, &first);
}

bool ParseStates::is_alive(RegexId regex) {
  // Where it cannot be told in time it counts as alive: a mask may then allow a token too many, whose text no answer
  // ends with.
  return regex != RegexPool::kNothing && regexes_.has_text(regex, kAliveFuel) != RegexPool::Answer::kNo;
}

uint32_t ParseStates::return_to(uint32_t row, uint32_t rule) {
  const uint32_t words[] = {row, rule};
  return returns_.intern(words);
}

bool ParseStates::add_item(std::vector<Item>* items, Item item) {
  if (std::ranges::find(*items, item) != items->end()) return true;
  if (items->size() == kItemsMax) {
    failed_ = true;
    return false;
  }
  items->push_back(item);
  return true;
}

// Items grow by what ends at this place: edges that read nothing, and callers of rules whose end is reached.
void ParseStates::complete(std::vector<Item>* items, bool is_duplicate, bool* accepts) {
  for (size_t i = 0; i < items->size(); ++i) {
    const Item item = (*items)[i];
    if (is_duplicate && is_distinct(item)) continue;
    for (const auto& edge : network_->edges_of(item.node)) {
      const bool reads_nothing = edge.kind == Network::EdgeKind::kEmpty ||
                                 (edge.kind == Network::EdgeKind::kRule && network_->rules[edge.label].accepts_empty);
      if (reads_nothing && !add_item(items, {edge.target, item.returns})) return;
    }
    if (!network_->nodes[item.node].is_end) continue;
    if (item.returns == 0) {
      *accepts = true;
      continue;
    }
    const uint32_t row = returns_[item.returns][0], rule = returns_[item.returns][1];
    for (const auto& [waits_for, caller] : rows_[row].waiting) {
      if (waits_for == rule && !add_item(items, caller)) return;
    }
  }
}

// Rules that begin in the row, and terminals that do.
void ParseStates::predict(uint32_t row_id, Row* row, const std::vector<Item>& kernel) {
  std::vector<Item> items = kernel;
  for (size_t i = 0; i < items.size(); ++i) {
    const Item item = items[i];
    for (const auto& edge : network_->edges_of(item.node)) {
      switch (edge.kind) {
        case Network::EdgeKind::kRegex:
          row->scans.push_back({edge.label, edge.target, item.returns});
          break;
        case Network::EdgeKind::kToken:
          row->scans.push_back({kTokenFlag | edge.label, edge.target, item.returns});
          break;
        case Network::EdgeKind::kEmpty:
          // The kernel has what its own items lead to so, unless the reading ended at a mark: it is not begun again.
          if (i >= kernel.size() && !add_item(&items, {edge.target, item.returns})) return;
          break;
        case Network::EdgeKind::kRule: {
          const auto& target = network_->nodes[edge.target];
          const auto& rule = network_->rules[edge.label];
          const bool is_tail_call = target.is_end && target.num_edges == 0;
          if (!is_tail_call) row->waiting.emplace_back(edge.label, Item{edge.target, item.returns});
          const uint32_t returns = is_tail_call ? item.returns : return_to(row_id, edge.label);
          if (!add_item(&items, {rule.start, returns})) return;
          if (rule.accepts_empty && !add_item(&items, {edge.target, item.returns})) return;
        }
      }
    }
  }
  sort_unique(&row->waiting);
  for (const Item& item : items) row->marks |= network_->nodes[item.node].marks;
}

uint32_t ParseStates::find_row(std::vector<Item>* items, bool is_duplicate) {
  bool accepts = false;
  complete(items, is_duplicate, &accepts);
  // An item with nothing behind it has done its work.
  std::erase_if(*items, [&](const Item& item) {
    return network_->nodes[item.node].num_edges == 0 || (is_duplicate && is_distinct(item));
  });
  sort_unique(items);
  std::vector<uint32_t> key = {accepts};
  for (const Item& item : *items) key.insert(key.end(), {item.node, item.returns});
  const uint32_t row_id = row_keys_.intern(key);
  if (row_id == rows_.size()) {
    Row row;
    row.accepts = accepts;
    predict(row_id, &row, *items);
    rows_bytes_ += sizeof(Row) + row.waiting.size() * sizeof(row.waiting[0]) + row.scans.size() * sizeof(Scan);
    rows_.push_back(std::move(row));
  }
  return row_id;
}

ParseStates::StateId ParseStates::make_state(std::vector<Scan>* scans, std::vector<Item>* items, bool is_duplicate) {
  bool accepts = false;
  uint32_t marks = 0;
  if (!items->empty()) {
    const uint32_t row = find_row(items, is_duplicate);
    accepts = rows_[row].accepts;
    marks = rows_[row].marks;
    scans->insert(scans->end(), rows_[row].scans.begin(), rows_[row].scans.end());
  }
  return failed_ ? kDead : intern_state(accepts, marks, scans);
}

ParseStates::StateId ParseStates::intern_state(bool accepts, uint32_t marks, std::vector<Scan>* scans) {
  std::ranges::sort(*scans, {}, [](const Scan& s) { return std::tuple(s.terminal, s.node, s.returns); });
  const auto same = [](const Scan& a, const Scan& b) {
    return a.terminal == b.terminal && a.node == b.node && a.returns == b.returns;
  };
  scans->erase(std::unique(scans->begin(), scans->end(), same), scans->end());
  if (scans->empty() && !accepts) return kDead;
  std::vector<uint32_t> key = {uint32_t{accepts} | marks << 1};
  for (const Scan& scan : *scans) key.insert(key.end(), {scan.terminal, scan.node, scan.returns});
  const StateId state = states_.intern(key);
  if (state == next_.size()) next_.emplace_back();
  return state;
}

ParseStates::StateId ParseStates::find_after(StateId state, uint8_t byte) {
  if (state == kDead) return kDead;
  if (next_[state].first == kUnknown) next_[state] = begin_next(state);
  const StateId next = read_byte(state, byte, false);
  nexts_[next_[state].first + classes_[next_[state].classes].of[byte]] = next;
  return next;
}

ParseStates::StateId ParseStates::after_duplicate(StateId state, uint8_t byte) {
  if (state == kDead) return kDead;
  const uint64_t key = uint64_t{state} << 8 | byte;
  if (const auto it = after_duplicates_.find(key); it != after_duplicates_.end()) return it->second;
  const StateId next = read_byte(state, byte, true);
  after_duplicates_.emplace(key, next);
  return next;
}

ParseStates::StateId ParseStates::read_byte(StateId state, uint8_t byte, bool is_duplicate) {
  scan_scratch_.clear();
  item_scratch_.clear();
  const size_t num_scans = scans(state).size();
  for (size_t i = 0; i < num_scans; ++i) {
    Scan scan = scans(state)[i];
    if (is_token(scan.terminal)) continue;
    scan.terminal = regexes_.after(scan.terminal, byte);
    if (!is_alive(scan.terminal)) continue;
    if (regexes_.accepts_empty(scan.terminal)) item_scratch_.push_back({scan.node, scan.returns});
    if (scan.terminal != RegexPool::kEmpty) scan_scratch_.push_back(scan);
  }
  sort_unique(&item_scratch_);
  return make_state(&scan_scratch_, &item_scratch_, is_duplicate);
}

// Bytes are alike in a state where they are in every expression that is being read.
ParseStates::Next ParseStates::begin_next(StateId state) {
  class_scratch_.clear();
  for (const Scan& scan : scans(state)) {
    if (!is_token(scan.terminal)) class_scratch_.push_back(regexes_.byte_classes_id(scan.terminal));
  }
  sort_unique(&class_scratch_);
  const uint32_t id = class_keys_.intern(class_scratch_);
  if (id == classes_.size()) {
    Classes made{{}, 1};
    for (const uint32_t part : class_scratch_) {
      made.count = static_cast<uint32_t>(BytePartitions::refine(&made.of, made.count, regexes_.byte_classes_of(part)));
    }
    classes_.push_back(made);
  }
  const Next next{static_cast<uint32_t>(nexts_.size()), id};
  nexts_.resize(nexts_.size() + classes_[id].count, kUnknown);
  return next;
}

ParseStates::StateId ParseStates::after_token(StateId state, int32_t token) {
  std::vector<Scan> none;
  std::vector<Item> items;
  for (const Scan& scan : scans(state)) {
    if (scan.terminal == (kTokenFlag | static_cast<uint32_t>(token))) items.push_back({scan.node, scan.returns});
  }
  if (items.empty()) return kDead;
  sort_unique(&items);
  return make_state(&none, &items);
}

ParseStates::StateId ParseStates::within(RegexReach* reach, StateId state) {
  bool is_other = false;
  scan_scratch_.assign(scans(state).begin(), scans(state).end());
  for (Scan& scan : scan_scratch_) {
    if (is_token(scan.terminal)) continue;
    const RegexId near = reach->within(&regexes_, scan.terminal);
    is_other = is_other || near != scan.terminal;
    scan.terminal = near;
  }
  if (!is_other) return state;
  return regexes_.failed() ? kDead : intern_state(accepts(state), 0, &scan_scratch_);
}

size_t ParseStates::held_bytes() const {
  return states_.held_bytes() + row_keys_.held_bytes() + returns_.held_bytes() + rows_bytes_ +
         next_.capacity() * sizeof(Next) + nexts_.capacity() * sizeof(StateId) + class_keys_.held_bytes() +
         classes_.capacity() * sizeof(Classes) + after_duplicates_.size() * kDuplicateBytes + regexes_.held_bytes();
}

}  // namespace llmrt
