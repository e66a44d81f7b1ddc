// Items and keys that must differ: texts cut at every byte, and masks, forks and dead ends against lists of all texts
// that a small schema has.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/grammar/gbnf.h"
#include "core/grammar/grammar_compiler.h"
#include "core/grammar/json_schema.h"
#include "tests/grammar/text_acceptor.h"

namespace llmrt {
namespace {

constexpr int32_t kEnd = 0;

Status build_schema(GrammarBuilder* builder, const std::string& schema, const SchemaOptions& options) {
  SchemaNotes notes;
  Result<SymbolId> symbol = add_json_schema(builder, boost::json::parse(schema), options, &notes);
  if (!symbol) return symbol.error();
  builder->set_start(*symbol);
  return builder->status();
}

fakes::TextAcceptor acceptor_of(const std::string& schema) {
  GrammarBuilder builder;
  const Status status = build_schema(&builder, schema, {});
  INFO(schema << ": " << (status.ok() ? "" : status.error().message));
  REQUIRE(status.ok());
  return fakes::TextAcceptor(&builder, builder.start());
}

struct Row {
  std::string schema;
  std::vector<std::string> accepted, rejected;
};

TEST_CASE("equal items and equal keys are told by their values") {
  const std::vector<Row> rows = {
      {R"({"type":"array","uniqueItems":true,"items":{"type":"string"}})",
       {"[]", R"(["a","b"])", R"(["a", "ab", ""])", R"(["\"","\\"])"},
       {R"(["a","a"])", R"(["a","b", "a"])", R"(["",""])", R"(["\"","\""])"}},
      {R"({"type":"array","uniqueItems":true,"items":{"type":"number"}})",
       {"[1,10,1.5,-1,0]", "[1, 2 ,3]"},
       {"[1,1]", "[1,10,1 ]", "[0.5,0.5]", "[1.0]", "[1,1.0]"}},
      {R"({"type":"array","uniqueItems":true})",
       {R"([1,"1",true,null,[],{},[[]],{"a":1},{"b":1}])", R"([{"a":1,"b":2},{"a":2,"b":1}])", R"([[1,1],[1]])"},
       {R"([{"a":1,"b":2},{"b":2 , "a":1}])", "[[], [ ]]", "[[1, 2],[1,2]]", "[null,null]",
        R"([{"x":{"a":1,"b":[{}]}},1,{"x":{"b":[{}],"a":1}}])"}},
      {R"({"type":"array","items":{"type":"array","uniqueItems":true,"items":{"type":"integer"}}})",
       {"[[1,2],[1,2]]", "[[1],[2]]"},
       {"[[1,1]]", "[[1],[2,2]]"}},
      {R"({"type":"array","uniqueItems":true,"items":{"type":"array","uniqueItems":true,"items":{"type":"integer"}}})",
       {"[[1,2],[2,1]]", "[[],[1]]"},
       {"[[1,2],[1,2]]", "[[1],[2,2]]"}},
      {R"({"type":"array","uniqueItems":true,"prefixItems":[{"type":"integer"},{"type":"string"}]})",
       {R"([1,"1",2])"},
       {R"([1,"a","a"])", "[1,1]"}},
      {R"({"type":"array","uniqueItems":true,"contains":{"type":"string"},"items":{"type":["string","number"]}})",
       {R"(["a"])", R"([1,"a",2])"},
       {"[1]", R"([1,"a",1])", R"(["a","a"])"}},
      {R"({"type":"object"})",
       {R"({"a":1,"b":{"a":1}})", R"({"a":{"a":{"a":1}}})", R"({"a":[{"a":1},{"a":1}]})"},
       {R"({"a":1,"a":2})", R"({"a":1, "b":1 ,"a":1})", R"({"x":{"a":1,"a":1}})", R"({"\n":1,"\n":1})"}},
      {R"({"type":"object","properties":{"a":{}},"additionalProperties":{"type":"integer"}})",
       {R"({"a":"x","b":1,"c":1})"},
       {R"({"a":"x","a":1})", R"({"b":1,"b":1})"}},
      {R"({"type":"object","minProperties":2,"maxProperties":3})",
       {R"({"a":1,"b":1})", R"({"a":1,"b":1,"c":1})"},
       {R"({"a":1})", R"({"a":1,"a":1})", R"({"a":1,"b":1,"c":1,"d":1})"}},
      // What is left of an object of open names.
      {R"({"type":"object","not":{"additionalProperties":{"type":"integer"}}})",
       {R"({"a":1,"b":"x"})", R"({"a":null})"},
       {"{}", R"({"a":1})", R"({"a":"x","a":1})"}},
      {R"({"oneOf":[{"type":"object","properties":{"a":{}},"additionalProperties":false},
                    {"type":"object","properties":{"b":{}},"additionalProperties":false}]})",
       {R"({"a":1})", R"({"b":1})"},
       {"{}", R"({"a":1,"b":1})"}},
      {R"({"type":"object","not":{"patternProperties":{"^x":false}},"maxProperties":2})",
       {R"({"x":1})", R"({"a":1,"xy":1})", R"({"xy":1,"a":1})"},
       {"{}", R"({"a":1})", R"({"a":1,"b":1,"x":1})"}},
  };
  for (const Row& row : rows) {
    INFO(row.schema);
    fakes::TextAcceptor acceptor = acceptor_of(row.schema);
    for (const auto& text : row.accepted) {
      INFO(text);
      CHECK(acceptor.accepts(text));
    }
    for (const auto& text : row.rejected) {
      INFO(text);
      CHECK_FALSE(acceptor.accepts(text));
    }
  }
}

TEST_CASE("a text is cut where an item can only become one that was there") {
  fakes::TextAcceptor names = acceptor_of(R"({"type":"array","uniqueItems":true,"items":{"type":"string"}})");
  CHECK(names.begins(R"(["ab","ab)"));  // goes on to another one
  CHECK_FALSE(names.begins(R"(["ab","ab")"));
  CHECK(names.begins(R"(["ab","abc")"));
  fakes::TextAcceptor pairs = acceptor_of(
      R"({"type":"array","uniqueItems":true,"items":{"type":"string","pattern":"^[ab]{1,2}$"},"minItems":6})");
  CHECK(pairs.begins(R"(["ab","a)"));
  CHECK_FALSE(pairs.begins(R"(["ab","ab)"));  // only the quote could follow
  CHECK(pairs.begins(R"(["a","b","aa","ab","ba","b)"));
  CHECK_FALSE(pairs.begins(R"(["a","b","aa","ab","ba","a)"));
  CHECK(pairs.accepts(R"(["a","b","aa","ab","ba","bb"])"));
  CHECK_FALSE(pairs.begins(R"(["a","b","aa","ab","ba","bb",)"));  // there is no other
  fakes::TextAcceptor numbers =
      acceptor_of(R"({"type":"array","uniqueItems":true,"items":{"type":"integer","minimum":1,"maximum":12}})");
  CHECK(numbers.begins("[1,1"));
  CHECK_FALSE(numbers.begins("[1,10,11,12,1"));
  CHECK_FALSE(numbers.begins("[12,12"));
  CHECK_FALSE(numbers.begins("[1,2,3,4,5,6,7,8,9,10,11,12,"));
  fakes::TextAcceptor secrets = acceptor_of(
      R"({"type":"array","uniqueItems":true,"items":{"type":"object","properties":{"s":{"maxLength":1,"type":"string"}},
          "required":["s"],"additionalProperties":false}})");
  CHECK(secrets.begins(R"([{"s":"a"},{"s":")"));
  CHECK_FALSE(secrets.begins(R"([{"s":"a"},{"s":"a)"));
  CHECK(secrets.begins(R"([{"s":"a"},{"s":"")"));
  CHECK_FALSE(secrets.begins(R"([{"s":""},{"s":"")"));
  fakes::TextAcceptor keys = acceptor_of(R"({"type":"object","propertyNames":{"pattern":"^(a|ab)$"}})");
  CHECK(keys.begins(R"({"a":1,"a)"));
  CHECK_FALSE(keys.begins(R"({"a":1,"a")"));
  CHECK_FALSE(keys.begins(R"({"ab":1,"ab)"));
  CHECK(keys.accepts(R"({"ab":1,"a":1})"));
  CHECK_FALSE(keys.begins(R"({"ab":1,"a":1,)"));
}

TEST_CASE("a reading that asks for different items ends alone") {
  fakes::TextAcceptor acceptor = acceptor_of(R"({"anyOf":[
      {"type":"array","uniqueItems":true,"items":{"type":"string"}},
      {"type":"array","items":{"type":"string"},"minItems":3}]})");
  CHECK(acceptor.accepts(R"(["a","b"])"));
  CHECK_FALSE(acceptor.accepts(R"(["a","a"])"));
  CHECK(acceptor.begins(R"(["a","a",)"));
  CHECK(acceptor.accepts(R"(["a","a","a"])"));
}

TEST_CASE("values inside a text, one after the other and beside plain text") {
  GrammarBuilder builder;
  SchemaNotes notes;
  const boost::json::value schema = {{"type", "array"}, {"uniqueItems", true}, {"items", {{"type", "integer"}}}};
  const Result<SymbolId> list = add_json_schema(&builder, schema, {}, &notes);
  const SymbolId any = add_any_json(&builder, {});
  REQUIRE(list.ok());
  RegexPool& pool = builder.regexes();
  const CodePointRange plain[] = {{0, '<' - 1}, {'<' + 1, 0x7f}};
  const SymbolId text = builder.terminal(pool.star(pool.code_points(plain)));
  const SymbolId one =
      builder.sequence({builder.literal("<v>"), builder.choice({*list, text}), builder.literal("</v>")});
  const SymbolId open = builder.sequence({builder.literal("<j>"), any, builder.literal("</j>")});
  fakes::TextAcceptor acceptor(&builder, builder.repeat(builder.choice({one, open}), 0, GrammarBuilder::kUnbounded));
  CHECK(acceptor.accepts("<v>[1,1]</v>"));  // as text
  CHECK(acceptor.accepts("<v>[\"a</v><j>{\"a\":1}</j>"));
  CHECK_FALSE(acceptor.accepts("<v>[\"a</v><j>{\"a\":1,\"a\":1}</j>"));
  CHECK(acceptor.accepts("<j>{\"a\":1}</j><j>{\"a\":1}</j>"));
  CHECK_FALSE(acceptor.accepts("<v>x</v><j>[{\"a\":1,\"a\":1}]</j>"));
  std::string often;
  for (int i = 0; i < 20; ++i) often += "<v>[[[\"a</v>";
  CHECK(acceptor.accepts(often));
}

TEST_CASE("what is kept is bounded") {
  GrammarBuilder builder;
  fakes::TextAcceptor acceptor(&builder, add_any_json(&builder, {}));
  ParseStates& states = *acceptor.states();
  TextPosition key(states);
  CHECK(key.step(&states, "{\"" + std::string(1000, 'a')));
  CHECK_FALSE(key.failed());
  CHECK(key.step(&states, std::string(JsonTracker::kOpenBytesMax, 'a')));
  CHECK(key.failed());
  TextPosition deep(states);
  CHECK(deep.step(&states, std::string(JsonTracker::kDepthMax, '[')));
  CHECK_FALSE(deep.failed());
  CHECK(deep.step(&states, "["));
  CHECK(deep.failed());
  TextPosition plain(states);  // values that nobody asks about
  CHECK(plain.step(&states, "[\"" + std::string(2 * JsonTracker::kOpenBytesMax, 'a') + "\"]"));
  CHECK_FALSE(plain.failed());
}

// All arrays of different items, up to a number; all objects of different keys.
std::vector<std::string> all_texts(const std::vector<std::string>& parts, size_t least, size_t most,
                                   const char* brackets) {
  std::vector<std::string> out;
  std::vector<size_t> chosen;
  const std::function<void()> extend = [&] {
    if (chosen.size() >= least) {
      std::string text(1, brackets[0]);
      for (size_t i = 0; i < chosen.size(); ++i) text += (i > 0 ? "," : "") + parts[chosen[i]];
      out.push_back(text + brackets[1]);
    }
    if (chosen.size() == most) return;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (std::ranges::find(chosen, i) != chosen.end()) continue;
      chosen.push_back(i);
      extend();
      chosen.pop_back();
    }
  };
  extend();
  return out;
}

struct Listed {
  std::string schema;
  std::vector<std::string> texts;
};

std::vector<Listed> listed_schemas() {
  const std::vector<std::string> items = {"\"a\"", "\"ab\"", "\"abc\"", "1", "12", "1.5", "[]", "[1]", "null", "true"};
  std::string values;
  for (const auto& item : items) values += (values.empty() ? "" : ",") + item;
  const std::vector<std::string> words = {"\"\"", "\"a\"", "\"b\"", "\"aa\"", "\"ab\"", "\"ba\"", "\"bb\""};
  std::vector<std::string> objects, pairs;
  for (const char* value : {"", "x", "y", "xx", "xy", "yx", "yy"})
    objects.push_back("{\"k\":\"" + std::string(value) + "\"}");
  for (const char* flag : {"true", "false"}) objects.push_back("{\"f\":" + std::string(flag) + "}");
  for (const char* key : {"a", "ab", "b", "bb"}) pairs.push_back("\"" + std::string(key) + "\":null");
  return {
      {R"({"type":"array","uniqueItems":true,"maxItems":3,"items":{"enum":[)" + values + "]}}",
       all_texts(items, 0, 3, "[]")},
      {R"({"type":"array","uniqueItems":true,"minItems":2,"maxItems":4,"items":{"type":"string","pattern":"^[ab]{0,2}$"}})",
       all_texts(words, 2, 4, "[]")},
      {R"({"type":"array","uniqueItems":true,"maxItems":3,"items":{"anyOf":[
          {"type":"object","properties":{"k":{"type":"string","pattern":"^[xy]{0,2}$"}},"required":["k"],"additionalProperties":false},
          {"type":"object","properties":{"f":{"type":"boolean"}},"required":["f"],"additionalProperties":false}]}})",
       all_texts(objects, 0, 3, "[]")},
      {R"({"type":"object","patternProperties":{"^(a|ab|b|bb)$":{"type":"null"}},"additionalProperties":false})",
       all_texts(pairs, 0, 4, "{}")},
  };
}

// Every byte that may be needed, and random pieces of the texts.
std::shared_ptr<const TokenVocabulary> make_vocabulary(const std::vector<std::string>& texts, std::mt19937* random) {
  std::vector<std::string> bytes = {""};
  for (int b = 0x20; b < 0x7f; ++b) bytes.push_back(std::string(1, static_cast<char>(b)));
  for (int i = 0; i < 400; ++i) {
    const std::string& text = texts[(*random)() % texts.size()];
    const size_t begin = (*random)() % text.size();
    bytes.push_back(text.substr(begin, 1 + (*random)() % 8));
  }
  return std::make_shared<TokenVocabulary>(std::move(bytes), std::vector<int32_t>{kEnd});
}

NextTokens ready(ConstraintMatcher* matcher) {
  NextTokens next = matcher->next();
  while (next.state == NextTokens::State::kLate) {
    matcher->wait(std::chrono::milliseconds(100));
    next = matcher->next();
  }
  return next;
}

TEST_CASE("masks are what the list of all texts says, whichever forks were made before") {
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (const Listed& listed : listed_schemas()) {
    CAPTURE(listed.schema);
    const std::set<std::string> texts(listed.texts.begin(), listed.texts.end());
    const auto begins = [&](const std::string& text) {
      const auto it = texts.lower_bound(text);
      return it != texts.end() && it->starts_with(text);
    };
    const auto vocabulary = make_vocabulary(listed.texts, &random);
    GrammarCompiler compiler(vocabulary);
    const auto grammar = compiler.compile({listed.schema, "", [&](GrammarBuilder* builder) {
                                             SchemaOptions compact;
                                             compact.spaces = SchemaOptions::Spaces::kCompact;
                                             return build_schema(builder, listed.schema, compact);
                                           }});
    INFO((grammar.ok() ? "" : grammar.error().message));
    REQUIRE(grammar.ok());
    for (int answer = 0; answer < 30; ++answer) {
      auto matcher = (*grammar)->start();
      std::string text;
      while (!matcher->ended()) {
        const NextTokens next = ready(matcher.get());
        REQUIRE(next.state == NextTokens::State::kReady);
        std::vector<int32_t> allowed;
        for (int32_t v = 0; v < static_cast<int32_t>(vocabulary->num_tokens()); ++v) {
          const bool may = v == kEnd ? texts.contains(text) : begins(text + std::string(vocabulary->bytes(v)));
          if (next.mask->allows(v) != may) FAIL(text << " then " << vocabulary->bytes(v) << ": expected " << may);
          if (may) allowed.push_back(v);
          if (random() % 64 != 0) continue;
          const auto fork = matcher->fork();
          CHECK(fork->advance(v) == may);
          if (may && v != kEnd && !fork->ended()) CHECK(ready(fork.get()).state == NextTokens::State::kReady);
        }
        REQUIRE_FALSE(allowed.empty());
        CHECK(ready(matcher.get()).mask->digest() == next.mask->digest());  // forks changed nothing
        const int32_t token = allowed[random() % allowed.size()];
        REQUIRE(matcher->advance(token));
        text += vocabulary->bytes(token);
      }
      CHECK(texts.contains(text));
    }
  }
}

TEST_CASE("a grammar without marks gives the masks of its states") {
  std::mt19937 random(3);
  const auto vocabulary = make_vocabulary({"[1,1]"}, &random);
  GrammarCompiler compiler(vocabulary);
  const auto grammar = compiler.compile({"plain", "", [&](GrammarBuilder* builder) {
                                           const Status built =
                                               build_schema(builder, R"({"type":"array","items":{"enum":[1,2]}})", {});
                                           CHECK_FALSE(builder->has_marks());
                                           return built;
                                         }});
  REQUIRE(grammar.ok());
  const auto first = (*grammar)->start(), second = (*grammar)->start();
  CHECK(ready(first.get()).mask == ready(second.get()).mask);
}

TEST_CASE("sets of texts share what they have, and grow apart") {
  SeenTexts texts;
  std::set<std::string> all;
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    const std::string text = std::to_string(random() % 1000);
    const SeenTexts before = texts;
    CHECK(before.contains(text) == all.contains(text));
    texts.add(text);
    CHECK(before.contains(text) == all.contains(text));
    all.insert(text);
    CHECK(texts.contains(text));
    CHECK(texts.has_beginning(text.substr(0, 1)));
  }
  CHECK_FALSE(texts.has_beginning("x"));
}

}  // namespace
}  // namespace llmrt
