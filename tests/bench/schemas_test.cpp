// The schemas and words that grammars are measured with: each schema another one, all compiled by the engine's own
// compiler; a vocabulary in which JSON can be written whatever its size.
#include <boost/json.hpp>

#include <catch2/catch_test_macros.hpp>

#include <set>

#include "tests/fakes/fake_model.h"
#include "tools/llmrt_bench/serving/grammar_supply.h"
#include "tools/llmrt_bench/serving/schemas.h"
#include "tools/llmrt_bench/serving/vocabulary.h"

using namespace llmrt;
using namespace llmrt::bench;
namespace json = boost::json;

namespace {

size_t num_fields(const json::value& schema) {
  size_t count = 0;
  const json::object& rules = schema.as_object();
  if (const json::value* items = rules.if_contains("items")) count += num_fields(*items);
  if (const json::value* properties = rules.if_contains("properties"))
    for (const auto& property : properties->as_object()) count += 1 + num_fields(property.value());
  return count;
}

std::vector<GrammarSupply::Ready> take_all(GrammarSupply* supply, size_t count) {
  std::vector<GrammarSupply::Ready> all;
  while (all.size() < count) {
    supply->wait();
    for (GrammarSupply::Ready& ready : supply->take()) all.push_back(std::move(ready));
  }
  return all;
}

}  // namespace

TEST_CASE("schemas have 20 fields or more, none is like another, and all compile") {
  GrammarSupply supply(made_up_vocabulary(2000));
  Draws draws(7);
  std::set<std::string> texts;
  constexpr size_t kCount = 60;
  for (size_t i = 0; i < kCount; ++i) {
    const json::object schema = make_schema(&draws);
    CHECK(num_fields(schema) >= 20);
    texts.insert(json::serialize(schema));
    supply.ask(i, schema);
  }
  CHECK(texts.size() == kCount);
  const auto ready = take_all(&supply, kCount);
  for (size_t i = 0; i < kCount; ++i) {
    INFO(i << ": " << (ready[i].constraint.ok() ? "" : ready[i].constraint.error().message));
    CHECK(ready[i].id == i);
    CHECK(ready[i].constraint.ok());
  }
  CHECK(supply.num_pending() == 0);
  CHECK(supply.figures().num_compiled == kCount);
}

TEST_CASE("what cannot be compiled comes back as an error, and a supply ends while it compiles") {
  GrammarSupply supply(made_up_vocabulary(400));
  supply.ask(3, {{"type", "nothing that is known"}});
  const auto ready = take_all(&supply, 1);
  CHECK(ready[0].id == 3);
  CHECK_FALSE(ready[0].constraint.ok());
  Draws draws(1);
  for (size_t i = 0; i < 20; ++i) supply.ask(i, make_schema(&draws));
}

TEST_CASE("a tool is a function with parameters") {
  Draws draws(2);
  const json::object tool = make_tool("find", &draws);
  CHECK(tool.at("type") == "function");
  CHECK(tool.at("function").at("name") == "find");
  CHECK(num_fields(tool.at("function").at("parameters")) >= 4);
}

TEST_CASE("a rough look sees types, keys and what nests") {
  const json::value schema = json::parse(R"({"type": "object", "required": ["a"], "additionalProperties": false,
      "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"type": "string"}},
                     "c": {"anyOf": [{"type": "null"}, {"type": "object", "required": ["d"]}]}}})");
  for (const char* good :
       {R"({"a": 1})", R"({"a": -1, "b": []})", R"({"a": 1, "b": ["x"], "c": null})", R"({"a": 1, "c": {"d": 1}})"})
    CHECK(fits_roughly(json::parse(good), schema));
  for (const char* bad :
       {"3", "{}", R"({"a": 1.5})", R"({"a": 1, "b": [2]})", R"({"a": 1, "c": {}})", R"({"a": 1, "e": 1})"})
    CHECK_FALSE(fits_roughly(json::parse(bad), schema));
}

TEST_CASE("a made-up vocabulary has as many tokens as asked for, no two alike, and the last one ends") {
  for (const uint32_t num_tokens : {64u, 258u, 5000u}) {
    const auto vocabulary = made_up_vocabulary(num_tokens);
    CHECK(vocabulary->num_tokens() == num_tokens);
    std::set<std::string_view> texts;
    for (uint32_t v = 0; v + 1 < num_tokens; ++v) texts.insert(vocabulary->bytes(static_cast<int32_t>(v)));
    CHECK(texts.size() == num_tokens - 1);
    CHECK_FALSE(texts.contains(""));
    for (const char* needed : {"{", "}", "\"", ":", ",", "7", "t", "T"}) CHECK(texts.contains(needed));
    CHECK(vocabulary->is_end(static_cast<int32_t>(num_tokens) - 1));
  }
}

TEST_CASE("the words of a file must be readable") {
  const auto model = test::make_fake_model();
  CHECK(grammar_vocabulary(*model, "").ok());
  CHECK_FALSE(grammar_vocabulary(*model, "/nothing").ok());
}
