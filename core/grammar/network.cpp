#include "core/grammar/network.h"

#include <deque>
#include <unordered_map>
#include <utility>

namespace llmrt {
namespace {

using Kind = GrammarBuilder::Symbol::Kind;
constexpr uint32_t kEdgesMax = 2'000'000;
constexpr uint32_t kNestingMax = 200;       // of symbols in one rule; deeper ones are rules of their own
constexpr uint32_t kTerminalFuel = 20'000;  // states looked at to find a text of a terminal

struct RawEdge {
  uint32_t from;
  Network::Edge edge;
};

class NetworkMaker {
 public:
  explicit NetworkMaker(GrammarBuilder* builder) : builder_(*builder) {}

  Result<Network> make() {
    count_uses(builder_.start());
    rule_of(builder_.start());
    while (!to_make_.empty() && status_.ok()) {
      const auto [symbol, rule] = to_make_.front();
      to_make_.pop_front();
      const uint32_t end = add_node();
      ends_.push_back(end);
      const auto& what = builder_.symbol(symbol);
      if (what.kind != Kind::kRule) {
        connect(symbol, starts_[rule], end, 0, true);
      } else if (builder_.is_defined(symbol)) {
        connect(what.value, starts_[rule], end, 0, false);
      } else {
        return make_error(ErrorCode::kInvalidArgument, "a rule of the grammar is used but not defined");
      }
    }
    if (!status_.ok()) return status_.error();
    return trim();
  }

 private:
  // How often each symbol is used in others: what is used once becomes part of its user's graph.
  void count_uses(SymbolId start) {
    std::vector<SymbolId> open = {start};
    uses_[start] = 1;
    while (!open.empty()) {
      const SymbolId id = open.back();
      const auto& symbol = builder_.symbol(id);
      open.pop_back();
      const auto use = [&](SymbolId part, uint32_t times) {
        uint32_t& uses = uses_[part];
        if (uses == 0) open.push_back(part);
        uses += times;
      };
      // A repetition copies its part, unless it is a plain loop.
      const bool is_loop = symbol.min == 0 && symbol.max == GrammarBuilder::kUnbounded;
      for (SymbolId part : symbol.parts) use(part, symbol.kind == Kind::kRepeat && !is_loop ? 2 : 1);
      if (symbol.kind == Kind::kRule && builder_.is_defined(id)) use(symbol.value, 1);
    }
  }

  uint32_t rule_of(SymbolId symbol) {
    const auto [it, is_new] = rules_.try_emplace(symbol, static_cast<uint32_t>(starts_.size()));
    if (is_new) {
      starts_.push_back(add_node());
      to_make_.emplace_back(symbol, it->second);
    }
    return it->second;
  }

  uint32_t add_node() { return num_nodes_++; }
  void add_edge(uint32_t from, Network::EdgeKind kind, uint32_t label, uint32_t to) {
    if (edges_.size() == kEdgesMax) {
      if (status_.ok()) {
        status_ = make_error(ErrorCode::kGrammarTooComplex, "grammar too large: expected at most {} edges", kEdgesMax);
      }
      return;
    }
    edges_.push_back({from, {kind, label, to}});
  }
  void add_empty(uint32_t from, uint32_t to) { add_edge(from, Network::EdgeKind::kEmpty, 0, to); }

  bool is_small(SymbolId id) const {
    const Kind kind = builder_.symbol(id).kind;
    return kind == Kind::kNothing || kind == Kind::kEmpty || kind == Kind::kTerminal || kind == Kind::kToken ||
           kind == Kind::kMark;
  }

  // Paths from `from` to `to` that spell the symbol. is_body: of a rule that was made for it.
  void connect(SymbolId id, uint32_t from, uint32_t to, uint32_t depth, bool is_body) {
    if (!status_.ok()) return;
    const auto& symbol = builder_.symbol(id);
    const bool is_shared = !is_small(id) && uses_[id] > 1;
    if (symbol.kind == Kind::kRule || (!is_body && (is_shared || (depth > kNestingMax && !is_small(id))))) {
      add_edge(from, Network::EdgeKind::kRule, rule_of(id), to);
      return;
    }
    switch (symbol.kind) {
      case Kind::kNothing:
      case Kind::kRule:
        return;
      case Kind::kEmpty:
        return add_empty(from, to);
      case Kind::kTerminal:
        return connect_terminal(symbol.value, from, to);
      case Kind::kToken:
        return add_edge(from, Network::EdgeKind::kToken, symbol.value, to);
      case Kind::kMark: {
        const uint32_t place = add_node();
        marked_.emplace_back(place, static_cast<uint8_t>(symbol.value));
        add_empty(from, place);
        return add_empty(place, to);
      }
      case Kind::kSequence:
        for (size_t i = 0; i < symbol.parts.size(); ++i) {
          const uint32_t next = i + 1 == symbol.parts.size() ? to : add_node();
          connect(symbol.parts[i], from, next, depth + 1, false);
          from = next;
        }
        return;
      case Kind::kChoice:
        for (SymbolId part : symbol.parts) connect(part, from, to, depth + 1, false);
        return;
      case Kind::kRepeat:
        return connect_repeat(symbol, from, to, depth);
    }
  }

  void connect_terminal(RegexId regex, uint32_t from, uint32_t to) {
    const auto answer = builder_.regexes().has_text(regex, kTerminalFuel);
    if (answer == RegexPool::Answer::kUnknown && status_.ok()) {
      status_ = make_error(ErrorCode::kGrammarTooComplex,
                           "a terminal of the grammar: expected a text within {} states, found none", kTerminalFuel);
    }
    if (answer != RegexPool::Answer::kYes) return;
    if (builder_.regexes().accepts_empty(regex)) add_empty(from, to);
    add_edge(from, Network::EdgeKind::kRegex, regex, to);
  }

  void connect_repeat(const GrammarBuilder::Symbol& symbol, uint32_t from, uint32_t to, uint32_t depth) {
    const SymbolId part = symbol.parts[0];
    const uint32_t max = symbol.max, min = symbol.min;
    for (uint32_t i = 0; i < min; ++i) {
      const uint32_t next = add_node();
      connect(part, from, next, depth + 1, false);
      from = next;
    }
    if (max == GrammarBuilder::kUnbounded) {
      const uint32_t loop = add_node();
      add_empty(from, loop);
      connect(part, loop, loop, depth + 1, false);
      return add_empty(loop, to);
    }
    add_empty(from, to);
    for (uint32_t i = min; i < max; ++i) {
      const uint32_t next = add_node();
      connect(part, from, next, depth + 1, false);
      add_empty(next, to);
      from = next;
    }
  }

  // Keeps what is on a path to the end of its rule, through rules that have a text.
  Network trim() {
    std::vector<std::vector<uint32_t>> into(num_nodes_);         // edges by target
    std::vector<std::vector<uint32_t>> callers(starts_.size());  // edges by the rule they call
    for (uint32_t e = 0; e < edges_.size(); ++e) {
      into[edges_[e].edge.target].push_back(e);
      if (edges_[e].edge.kind == Network::EdgeKind::kRule) callers[edges_[e].edge.label].push_back(e);
    }
    const auto spread = [&](bool empty_only) {
      std::vector<bool> reaches(num_nodes_, false);
      std::vector<uint32_t> rule_of_start(num_nodes_, UINT32_MAX);
      std::vector<bool> rule_done(starts_.size(), false);
      for (uint32_t r = 0; r < starts_.size(); ++r) rule_of_start[starts_[r]] = r;
      std::vector<uint32_t> open;
      const auto reach = [&](uint32_t node) {
        if (reaches[node]) return;
        reaches[node] = true;
        open.push_back(node);
      };
      const auto try_edge = [&](const RawEdge& raw) {
        if (!reaches[raw.edge.target] || reaches[raw.from]) return;
        const bool passes = raw.edge.kind == Network::EdgeKind::kEmpty ||
                            (raw.edge.kind == Network::EdgeKind::kRule ? bool(rule_done[raw.edge.label]) : !empty_only);
        if (passes) reach(raw.from);
      };
      for (uint32_t end : ends_) reach(end);
      while (!open.empty()) {
        const uint32_t node = open.back();
        open.pop_back();
        for (uint32_t e : into[node]) try_edge(edges_[e]);
        const uint32_t rule = rule_of_start[node];
        if (rule == UINT32_MAX || rule_done[rule]) continue;
        rule_done[rule] = true;
        for (uint32_t e : callers[rule]) try_edge(edges_[e]);
      }
      return std::pair(std::move(reaches), std::move(rule_done));
    };
    const auto [lives, rule_lives] = spread(false);
    const auto [unused, accepts_empty] = spread(true);

    Network network;
    network.nodes.resize(num_nodes_);
    std::vector<uint32_t> kept;
    for (uint32_t e = 0; e < edges_.size(); ++e) {
      const RawEdge& raw = edges_[e];
      const bool calls_dead = raw.edge.kind == Network::EdgeKind::kRule && !rule_lives[raw.edge.label];
      const bool is_loop_of_nothing = raw.edge.kind == Network::EdgeKind::kEmpty && raw.from == raw.edge.target;
      if (!lives[raw.edge.target] || calls_dead || is_loop_of_nothing) continue;
      kept.push_back(e);
      ++network.nodes[raw.from].num_edges;
    }
    uint32_t first = 0;
    for (auto& node : network.nodes) {
      node.edge_first = first;
      first += std::exchange(node.num_edges, 0);
    }
    network.edges.resize(kept.size());
    for (uint32_t e : kept) {
      auto& node = network.nodes[edges_[e].from];
      network.edges[node.edge_first + node.num_edges++] = edges_[e].edge;
    }
    for (uint32_t end : ends_) network.nodes[end].is_end = true;
    for (const auto& [node, marks] : marked_) network.nodes[node].marks = marks;
    network.has_marks = !marked_.empty();
    if (!rule_lives[0]) return network;
    for (uint32_t r = 0; r < starts_.size(); ++r) network.rules.push_back({starts_[r], bool(accepts_empty[r])});
    return network;
  }

  GrammarBuilder& builder_;
  Status status_;
  std::unordered_map<SymbolId, uint32_t> uses_, rules_;
  std::deque<std::pair<SymbolId, uint32_t>> to_make_;
  std::vector<uint32_t> starts_;  // by rule
  std::vector<uint32_t> ends_;    // by rule
  std::vector<RawEdge> edges_;
  std::vector<std::pair<uint32_t, uint8_t>> marked_;  // nodes and their marks
  uint32_t num_nodes_ = 0;
};

}  // namespace

size_t Network::held_bytes() const {
  return nodes.capacity() * sizeof(Node) + edges.capacity() * sizeof(Edge) + rules.capacity() * sizeof(Rule);
}

Result<Network> make_network(GrammarBuilder* builder) {
  if (!builder->status().ok()) return builder->status().error();
  if (builder->regexes().failed()) {
    return make_error(ErrorCode::kGrammarTooComplex,
                      "grammar too large: expected at most {} nodes of regular expressions",
                      builder->regexes().num_nodes());
  }
  Result<Network> network = NetworkMaker(builder).make();
  if (!network.ok()) return network;
  if (network->rules.empty()) return make_error(ErrorCode::kInvalidArgument, "no text is in the grammar");
  network->named_tokens = builder->named_tokens();
  return network;
}

}  // namespace llmrt
