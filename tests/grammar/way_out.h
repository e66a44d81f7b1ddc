// A short text that ends an answer: best first search (Hart, Nilsson, Raphael 1968; the estimate counts twice) over the
// states of a grammar, guided by the least bytes to the ends of all rules that are open. For walks that must end. One
// thread.
#pragma once

#include <limits>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/grammar/parse_states.h"

namespace llmrt::fakes {

class WayOut {
 public:
  explicit WayOut(ParseStates* states) : states_(*states) {
    const Network& network = states_.network();
    to_end_.assign(network.nodes.size(), kFar);
    for (bool changes = true; changes;) {
      changes = false;
      for (uint32_t node = 0; node < network.nodes.size(); ++node) {
        const uint32_t bytes = bytes_to_end(node);
        changes = changes || bytes < to_end_[node];
        to_end_[node] = std::min(to_end_[node], bytes);
      }
    }
  }

  // Nothing: not found within kFuel states.
  std::optional<std::string> find(ParseStates::StateId from) {
    struct Step {
      uint32_t before;
      ParseStates::StateId state;
      uint32_t length;
      char byte;
    };
    std::vector<Step> steps = {{0, from, 0, 0}};
    using Open = std::pair<uint32_t, uint32_t>;  // estimate, step
    std::priority_queue<Open, std::vector<Open>, std::greater<>> open;
    std::unordered_set<ParseStates::StateId> seen = {from};
    open.emplace(0, 0);
    for (uint32_t fuel = kFuel; !open.empty() && fuel > 0; --fuel) {
      const uint32_t at = open.top().second;
      open.pop();
      if (states_.accepts(steps[at].state)) {
        std::string text;
        for (uint32_t i = at; i != 0; i = steps[i].before) text.insert(text.begin(), steps[i].byte);
        return text;
      }
      for (const uint8_t byte : bytes_of(steps[at].state)) {
        const ParseStates::StateId next = states_.after(steps[at].state, byte);
        if (next == ParseStates::kDead || !seen.insert(next).second) continue;
        const uint32_t length = steps[at].length + 1;
        open.emplace(length + 2 * bytes_left(next), static_cast<uint32_t>(steps.size()));
        steps.push_back({at, next, length, static_cast<char>(byte)});
      }
    }
    return std::nullopt;
  }

 private:
  static constexpr uint32_t kFar = 1'000'000, kFuel = 20'000, kRegexFuel = 2000;

  uint32_t bytes_to_end(uint32_t node) {
    const Network& network = states_.network();
    uint32_t best = network.nodes[node].is_end ? 0 : kFar;
    for (const auto& edge : network.edges_of(node)) {
      uint32_t bytes = 0;
      if (edge.kind == Network::EdgeKind::kRegex) bytes = shortest(edge.label);
      if (edge.kind == Network::EdgeKind::kToken) bytes = kFar;
      if (edge.kind == Network::EdgeKind::kRule) bytes = to_end_[network.rules[edge.label].start];
      best = std::min(best, bytes + to_end_[edge.target]);
    }
    return std::min(best, kFar);
  }
  uint32_t behind(uint32_t returns) {
    if (returns == 0) return 0;
    const auto [it, is_new] = behind_.try_emplace(returns, kFar);  // for a rule that begins with itself
    if (!is_new) return it->second;
    uint32_t best = kFar;
    states_.visit_callers(returns,
                          [&](uint32_t node, uint32_t outer) { best = std::min(best, to_end_[node] + behind(outer)); });
    return behind_[returns] = best;
  }
  uint32_t bytes_left(ParseStates::StateId state) {
    if (states_.accepts(state)) return 0;
    uint32_t best = kFar;
    for (const auto& scan : states_.scans(state)) {
      if (ParseStates::is_token(scan.terminal)) continue;
      best = std::min(best, shortest(scan.terminal) + to_end_[scan.node] + behind(scan.returns));
    }
    return best;
  }
  std::vector<uint8_t> bytes_of(ParseStates::StateId state) {
    std::unordered_set<uint8_t> bytes;
    for (const auto& scan : states_.scans(state)) {
      if (ParseStates::is_token(scan.terminal)) continue;
      const auto& classes = states_.regexes().byte_classes(scan.terminal).representatives;
      bytes.insert(classes.begin(), classes.end());
    }
    return {bytes.begin(), bytes.end()};
  }
  // The least bytes of a text of the expression; as far as looked at where that is far.
  uint32_t shortest(RegexId regex) {
    const auto [it, is_new] = shortest_.try_emplace(regex, 0);
    if (!is_new) return it->second;
    RegexPool& pool = states_.regexes();
    std::vector<RegexId> now = {regex}, next;
    std::unordered_set<RegexId> seen = {regex};
    uint32_t bytes = 0;
    for (; !now.empty() && seen.size() < kRegexFuel; ++bytes, now.swap(next), next.clear()) {
      for (const RegexId id : now) {
        if (pool.accepts_empty(id)) return shortest_[regex] = bytes;
        const std::vector<uint8_t> classes = pool.byte_classes(id).representatives;
        for (const uint8_t byte : classes) {
          const RegexId after = pool.after(id, byte);
          if (after != RegexPool::kNothing && seen.insert(after).second) next.push_back(after);
        }
      }
    }
    return shortest_[regex] = bytes;
  }

  ParseStates& states_;
  std::vector<uint32_t> to_end_;  // by node
  std::unordered_map<RegexId, uint32_t> shortest_;
  std::unordered_map<uint32_t, uint32_t> behind_;  // by returns
};

}  // namespace llmrt::fakes
