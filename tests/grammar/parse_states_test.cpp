// States of a grammar against sets of texts: random grammars, left and right recursive, over two letters; all texts up
// to six letters. A state that is not dead leads to an end.
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <random>
#include <set>
#include <string>

#include "core/grammar/grammar_builder.h"
#include "core/grammar/parse_states.h"
#include "tests/grammar/text_sets.h"

namespace llmrt {
namespace {

using namespace test;
using Kind = GrammarBuilder::Symbol::Kind;
constexpr size_t kLength = 6;
constexpr const char* kLetters = "ab";

// Texts of every symbol, by rounds until nothing is new.
std::map<SymbolId, Texts> texts_of(GrammarBuilder* builder) {
  std::map<SymbolId, Texts> texts;
  for (bool is_new = true; is_new;) {
    is_new = false;
    for (SymbolId id = 0; id < builder->num_symbols(); ++id) {
      const auto& symbol = builder->symbol(id);
      Texts found;
      switch (symbol.kind) {
        case Kind::kNothing:
        case Kind::kToken:
          break;
        case Kind::kEmpty:
        case Kind::kMark:
          found = {""};
          break;
        case Kind::kTerminal:
          for (const auto& text : all_texts(kLetters, kLength)) {
            if (builder->regexes().matches(symbol.value, text)) found.insert(text);
          }
          break;
        case Kind::kSequence:
          found = {""};
          for (SymbolId part : symbol.parts) found = concat(found, texts[part], kLength);
          break;
        case Kind::kChoice:
          for (SymbolId part : symbol.parts) found.insert(texts[part].begin(), texts[part].end());
          break;
        case Kind::kRepeat:
          found = repeat(texts[symbol.parts[0]], symbol.min, symbol.max, kLength);
          break;
        case Kind::kRule:
          if (builder->is_defined(id)) found = texts[symbol.value];
          break;
      }
      is_new = is_new || found.size() != texts[id].size();
      texts[id] = std::move(found);
    }
  }
  return texts;
}

SymbolId make(GrammarBuilder* builder, const std::vector<SymbolId>& rules, std::mt19937* random, int depth) {
  const auto roll = [&](size_t n) { return (*random)() % n; };
  if (depth == 0 || roll(5) == 0) {
    if (roll(2) == 0) return rules[roll(rules.size())];
    RegexPool& regexes = builder->regexes();
    const RegexId a = regexes.literal("a"), b = regexes.literal("b");
    const RegexId choices[] = {a,
                               b,
                               regexes.concat(a, b),
                               regexes.star(a),
                               regexes.star(regexes.either(a, b)),
                               regexes.except(regexes.star(regexes.either(a, b)), regexes.literal("ab"))};
    return builder->terminal(choices[roll(6)]);
  }
  std::vector<SymbolId> parts;
  for (size_t n = 1 + roll(3); n > 0; --n) parts.push_back(make(builder, rules, random, depth - 1));
  switch (roll(4)) {
    case 0:
      return builder->choice(parts);
    case 1:
      return builder->repeat(parts[0], static_cast<uint32_t>(roll(3)), roll(2) == 0 ? GrammarBuilder::kUnbounded : 3);
    default:
      return builder->sequence(parts);
  }
}

// Nested rules may have their end beyond what is looked at: that is no dead end.
bool is_dead_end(ParseStates* states, ParseStates::StateId from) {
  std::set<ParseStates::StateId> seen = {from};
  std::vector<ParseStates::StateId> open = {from};
  for (size_t i = 0; i < open.size(); ++i) {
    if (states->accepts(open[i]) || i == 1000) return false;
    for (const char c : {'a', 'b'}) {
      const auto next = states->after(open[i], static_cast<uint8_t>(c));
      if (next != ParseStates::kDead && seen.insert(next).second) open.push_back(next);
    }
  }
  return true;
}

TEST_CASE("random grammars allow what sets of texts say") {
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto everything = all_texts(kLetters, kLength);
  int num_grammars = 0;
  size_t num_accepted = 0;
  for (int round = 0; round < 600; ++round) {
    CAPTURE(round);
    GrammarBuilder builder;
    std::vector<SymbolId> rules;
    for (int i = 0; i < 3; ++i) rules.push_back(builder.declare_rule());
    for (const SymbolId rule : rules) builder.define_rule(rule, make(&builder, rules, &random, 3));
    builder.set_start(rules[0]);
    const Texts texts = texts_of(&builder)[rules[0]];
    Result<Network> network = make_network(&builder);
    if (!network.ok()) {
      CHECK(network.error().code == ErrorCode::kInvalidArgument);  // no text at all
      CHECK(texts.empty());
      continue;
    }
    ++num_grammars;
    ParseStates states(std::make_shared<const Network>(std::move(*network)), std::move(builder.regexes()));
    for (const auto& text : everything) {
      const auto state = states.after(states.start(), text);
      REQUIRE_FALSE(states.failed());
      if (states.accepts(state) != texts.contains(text)) FAIL("\"" << text << "\": " << states.accepts(state));
      num_accepted += states.accepts(state);
      if (state != ParseStates::kDead) CHECK_FALSE(is_dead_end(&states, state));
      if (state != ParseStates::kDead && states.is_last(state)) {
        CHECK(states.accepts(state));
        CHECK(states.after(state, 'a') == ParseStates::kDead);
      }
    }
  }
  CHECK(num_grammars > 300);
  CHECK(num_accepted > 1000);
}

TEST_CASE("long lists need no more states, nesting does") {
  GrammarBuilder builder;
  const SymbolId list = builder.declare_rule(), rest = builder.declare_rule(), item = builder.declare_rule();
  builder.define_rule(rest,
                      builder.choice({GrammarBuilder::kEmpty, builder.sequence({builder.literal(","), item, rest})}));
  builder.define_rule(list, builder.sequence({builder.literal("["), item, rest, builder.literal("]")}));
  builder.define_rule(item, builder.choice({builder.literal("1"), list}));
  builder.set_start(list);
  Result<Network> network = make_network(&builder);
  REQUIRE(network.ok());
  ParseStates states(std::make_shared<const Network>(std::move(*network)), std::move(builder.regexes()));
  const auto few = states.after(states.start(), "[1,1,1");
  const uint32_t num_states = states.num_states();
  std::string text = "[1,1,1";
  for (int i = 0; i < 10'000; ++i) text += ",1";
  CHECK(states.after(states.start(), text) == few);
  CHECK(states.num_states() == num_states);
  std::string deep(1000, '[');
  deep += "1" + std::string(1000, ']');
  CHECK(states.accepts(states.after(states.start(), deep)));
  CHECK_FALSE(states.accepts(states.after(states.start(), deep + "]")));
  CHECK(states.num_states() < 10'000);
}

TEST_CASE("tokens by their id stand for no text") {
  GrammarBuilder builder;
  builder.set_start(builder.sequence({builder.literal("a"), builder.token(7), builder.optional(builder.token(8))}));
  Result<Network> network = make_network(&builder);
  REQUIRE(network.ok());
  ParseStates states(std::make_shared<const Network>(std::move(*network)), std::move(builder.regexes()));
  const auto behind_a = states.after(states.start(), 'a');
  CHECK(states.after_token(states.start(), 7) == ParseStates::kDead);
  CHECK(states.after_token(behind_a, 8) == ParseStates::kDead);
  const auto behind_token = states.after_token(behind_a, 7);
  CHECK(states.accepts(behind_token));
  CHECK_FALSE(states.is_last(behind_token));
  CHECK(states.is_last(states.after_token(behind_token, 8)));
}

TEST_CASE("grammars without a text, and rules that are not defined, are errors") {
  GrammarBuilder builder;
  const SymbolId endless = builder.declare_rule();
  builder.define_rule(endless, builder.sequence({builder.literal("a"), endless}));
  builder.set_start(endless);
  CHECK(make_network(&builder).error().message == "no text is in the grammar");
  builder.set_start(builder.declare_rule());
  CHECK(make_network(&builder).error().message == "a rule of the grammar is used but not defined");
  GrammarBuilder small({.symbols_max = 10});
  for (int i = 0; i < 20; ++i) small.literal(std::to_string(i));
  CHECK(make_network(&small).error().code == ErrorCode::kGrammarTooComplex);
}

}  // namespace
}  // namespace llmrt
