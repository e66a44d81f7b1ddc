#include "core/grammar/spelled_rules.h"

#include <unordered_map>
#include <vector>

#include "core/grammar/json_spelling.h"
#include "core/grammar/regex_replace.h"

namespace llmrt {
namespace {

using Symbol = GrammarBuilder::Symbol;

class RuleSpeller {
 public:
  explicit RuleSpeller(GrammarBuilder* builder) : builder_(*builder), bytes_(&builder->regexes(), json_spellings()) {}

  Result<SymbolId> spell(SymbolId symbol) {
    if (Status copied = copy(symbol); !copied) return copied.error();
    for (size_t i = 0; i < rules_.size() && builder_.status(); ++i) {
      const SymbolId rule = rules_[i];
      if (!builder_.is_defined(rule)) continue;  // told when the network is made
      const SymbolId body = builder_.symbol(rule).value;
      if (Status copied = copy(body); !copied) return copied.error();
      builder_.define_rule(done_.at(rule), done_.at(body));
    }
    if (!builder_.status()) return builder_.status().error();
    return done_.at(symbol);
  }

 private:
  // Parts before what they are parts of, without recursion; a rule's body comes later.
  Status copy(SymbolId root) {
    std::vector<SymbolId> open = {root};
    while (!open.empty()) {
      const SymbolId id = open.back();
      if (done_.contains(id)) {
        open.pop_back();
        continue;
      }
      const Symbol symbol = builder_.symbol(id);
      if (symbol.kind == Symbol::Kind::kToken) {
        return make_error(ErrorCode::kUnsupportedSchema,
                          "a special token cannot stand where a call's input is written as text");
      }
      const size_t num_open = open.size();
      for (const SymbolId part : symbol.parts) {
        if (!done_.contains(part)) open.push_back(part);
      }
      if (open.size() == num_open) done_[id] = copied(id, symbol);
    }
    return {};
  }

  SymbolId copied(SymbolId id, const Symbol& symbol) {
    std::vector<SymbolId> parts;
    for (const SymbolId part : symbol.parts) parts.push_back(done_.at(part));
    switch (symbol.kind) {
      case Symbol::Kind::kTerminal:
        return builder_.terminal(bytes_.replace(symbol.value));
      case Symbol::Kind::kSequence:
        return builder_.sequence(parts);
      case Symbol::Kind::kChoice:
        return builder_.choice(parts);
      case Symbol::Kind::kRepeat:
        return builder_.repeat(parts[0], symbol.min, symbol.max);
      case Symbol::Kind::kRule:
        rules_.push_back(id);
        return builder_.declare_rule();
      case Symbol::Kind::kNothing:
      case Symbol::Kind::kEmpty:
      case Symbol::Kind::kToken:
      case Symbol::Kind::kMark:
        break;
    }
    return id;
  }

  GrammarBuilder& builder_;
  ByteReplacer bytes_;
  std::unordered_map<SymbolId, SymbolId> done_;
  std::vector<SymbolId> rules_;  // declared, whose bodies follow
};

}  // namespace

Result<SymbolId> json_spelled(GrammarBuilder* builder, SymbolId symbol) {
  return RuleSpeller(builder).spell(symbol);
}

}  // namespace llmrt
