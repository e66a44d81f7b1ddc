// Every keyword of JSON Schema: texts that its grammar accepts and rejects, or the refusal. The public suite is held
// against the same code by schema_suite.py; here is what it does not say: the spelling, the order, limits and messages.
#include "core/grammar/json_schema.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <memory>
#include <string>
#include <vector>

#include "core/grammar/json_spelling.h"
#include "tests/grammar/text_acceptor.h"

namespace llmrt {
namespace {

using Catch::Matchers::ContainsSubstring;

struct Compiled {
  GrammarBuilder builder;
  SchemaNotes notes;
  Result<SymbolId> symbol = GrammarBuilder::kNothing;
};

std::unique_ptr<Compiled> compile(const std::string& schema, const SchemaOptions& options = {}) {
  auto out = std::make_unique<Compiled>();
  boost::json::parse_options parse;
  parse.max_depth = 10000;
  parse.numbers = boost::json::number_precision::precise;
  out->symbol = add_json_schema(&out->builder, boost::json::parse(schema, {}, parse), options, &out->notes);
  return out;
}

std::string error_of(const std::string& schema, const SchemaOptions& options = {}) {
  const auto compiled = compile(schema, options);
  return compiled->symbol ? "compiled" : compiled->symbol.error().message;
}

struct Row {
  std::string schema;
  std::vector<std::string> accepted, rejected;
};

void check(const Row& row, const SchemaOptions& options = {}) {
  INFO("schema " << row.schema);
  const auto compiled = compile(row.schema, options);
  INFO((compiled->symbol ? "" : compiled->symbol.error().message));
  REQUIRE(compiled->symbol.ok());
  fakes::TextAcceptor acceptor(&compiled->builder, *compiled->symbol);
  for (const std::string& text : row.accepted) {
    INFO("text " << text);
    CHECK(acceptor.accepts(text));
  }
  for (const std::string& text : row.rejected) {
    INFO("text " << text);
    CHECK_FALSE(acceptor.accepts(text));
  }
}

const std::string k7 = R"("$schema":"http://json-schema.org/draft-07/schema#",)";
const std::string k2019 = R"("$schema":"https://json-schema.org/draft/2019-09/schema",)";
const std::string k4 = R"("$schema":"http://json-schema.org/draft-04/schema#",)";

}  // namespace

TEST_CASE("scalars are written in one spelling") {
  const std::vector<Row> rows = {
      {R"({"type":"null"})", {"null"}, {"true", "0", "\"null\"", " null", "null "}},
      {R"({"type":"boolean"})", {"true", "false"}, {"True", "0"}},
      {R"({"type":"integer"})", {"0", "-7", "120"}, {"1.0", "-0", "01", "1e3", "+1", "1.5"}},
      {R"({"type":"number"})", {"0", "-7", "1.50", "3.0", "-0.5"}, {"-0", "-0.0", "1e3", ".5", "5.", "00"}},
      {R"({"type":["integer","null"]})", {"1", "null"}, {"1.0", "\"\""}},
      {R"({"type":["integer","number"]})", {"1", "1.0", "1.5"}, {"true"}},
      {R"({"type":"string"})",
       {R"("")", R"("a/b")", R"("\"\\\b\f\n\r\t\u0001\u001f")", "\"\x7f\"", R"("é")"},
       {R"("\/")", R"("\u0061")", R"("\u000a")", R"("\u001F")", "\"\n\"", R"(")", R"('a')"}},
      {"true", {"1", "[]", "{\"a\":[null]}", "\"x\""}, {"", "[1", "nul"}},
      {"false", {}, {"1", "null", "{}", ""}},
      {R"({"const":1})", {"1"}, {"1.0", "2", "true"}},
      {R"({"const":-2.50})", {"-2.5"}, {"-2.50", "-2"}},
      {R"({"const":1e3})", {"1000"}, {"1e3"}},
      {R"({"const":{"b":1,"a":[true,{}]}})", {R"({"b":1,"a":[true,{}]})"}, {R"({"a":[true,{}],"b":1})", R"({"b":1})"}},
      {R"({"enum":["a","b\n",3,null,[1]]})", {R"("a")", R"("b\n")", "3", "null", "[1]"}, {R"("c")", "[2]", "4"}},
      {R"({"enum":["a",3],"type":"integer"})", {"3"}, {R"("a")"}},
  };
  for (const Row& row : rows) check(row);
}

TEST_CASE("strings meet all their keywords at once") {
  const std::vector<Row> rows = {
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {R"("ab")", R"("\n\n\n")", R"("😀é")"},
       {R"("a")", R"("abcd")"}},
      {R"({"pattern":"^a+$"})", {R"("aa")", "1", "[]"}, {R"("ab")", R"("")"}},
      {R"({"type":"string","pattern":"b"})", {R"("abc")", R"("\nb")"}, {R"("ac")"}},
      {R"({"type":"string","pattern":"^[a-z]*$","minLength":2,"maxLength":3})",
       {R"("ab")"},
       {R"("a")", R"("abcd")", R"("a1")"}},
      {R"({"type":"string","pattern":"^\\S+\"$"})", {R"("a\"")"}, {R"("a")", R"("a"")"}},
      {R"({"type":"string","format":"date","pattern":"^2024"})",
       {R"("2024-02-29")"},
       {R"("2023-01-01")", R"("2024-02-30")"}},
      {R"({"type":"string","not":{"pattern":"a"}})", {R"("b\n")", R"("\"")"}, {R"("ba")", R"("\q")", R"("\u0062")"}},
      {R"({"type":"string","maxLength":0})", {R"("")"}, {R"("a")"}},
      {R"({"type":"string","minLength":3,"maxLength":2})", {}, {R"("")", R"("aa")", R"("aaa")"}},
  };
  for (const Row& row : rows) check(row);
}

TEST_CASE("numbers keep their bounds") {
  const std::vector<Row> rows = {
      {R"({"type":"integer","minimum":-3,"maximum":12})", {"-3", "0", "12"}, {"-4", "13", "5.0"}},
      {R"({"type":"number","exclusiveMinimum":0.5,"maximum":2})", {"0.51", "2", "2.0"}, {"0.5", "2.01", "0.50"}},
      {R"({"type":"integer","exclusiveMaximum":0})", {"-1"}, {"0", "1"}},
      {R"({"type":"integer","minimum":2.5})", {"3"}, {"2"}},
      {R"({"type":"integer","multipleOf":7,"minimum":10})", {"14", "21"}, {"7", "15"}},
      {R"({"type":"number","multipleOf":0.01})", {"1.25", "3", "1.250"}, {"1.255"}},
      {R"({"allOf":[{"minimum":1},{"minimum":3}],"type":"integer"})", {"3"}, {"2"}},
      {R"({"type":"number","not":{"type":"integer"}})", {"1.5"}, {"1", "1.0"}},
      {"{" + k4 + R"("type":"integer","minimum":3,"exclusiveMinimum":true})", {"4"}, {"3"}},
  };
  for (const Row& row : rows) check(row);
}

TEST_CASE("properties have one order, and optional ones may be left out") {
  const std::vector<Row> rows = {
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"null"},"c":{"const":1}},"required":["b"],
           "additionalProperties":false})",
       {R"({"b":null})", R"({"a":1,"b":null})", R"({"b":null,"c":1})", R"({"a":1,"b":null,"c":1})", R"({ "b" : null })",
        "{\n  \"a\": 1,\n  \"b\": null\n}"},
       {"{}", R"({"b":null,"a":1})", R"({"a":1})", R"({"a":1,,"b":null})", R"({,"b":null})", R"({"b":null,})",
        R"({"b":null,"d":1})", "{  \"b\":null}", "{\n\n\"b\":null}"}},
      {R"({"properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},"additionalProperties":false})",
       {"{}", "{ }", R"({"a":1})", R"({"b":2})", R"({"c":3})", R"({"a":1,"c":3})", R"({"a":1,"b":2,"c":3})", "[]"},
       {R"({"b":2,"a":1})", R"({"a":1 "b":2})", R"({"c":3,})", "{  }"}},
      {R"({"type":"object","required":["z","y"],"properties":{"y":{"const":1}}})",
       {R"({"y":1,"z":[]})", R"({"y":1,"z":0,"other":true})"},
       {R"({"z":0,"y":1})", R"({"y":1})", R"({"y":1,"o":1,"z":0})"}},
      {R"({"type":"object","additionalProperties":{"type":"integer"}})",
       {"{}", R"({"a":1})", R"({"a":1,"b":2})", R"({"\n\"":1})"},
       {R"({"a":"x"})", R"({"a":1,})", R"({"\u0061":1})"}},
      {R"({"properties":{"a":{"const":1}},"additionalProperties":{"const":2}})",
       {R"({"a":1,"b":2})", R"({"aa":2})", R"({"b":2,"c":2})"},
       {R"({"a":2})", R"({"b":2,"a":1})", R"({"a":1,"a":2})"}},
      {R"({"properties":{"a":false,"b":{"const":1}}})", {R"({"b":1})", R"({"c":1})"}, {R"({"a":1})"}},
      {R"({"type":"object","patternProperties":{"^x":{"type":"integer"},"y$":{"maximum":5}},"additionalProperties":false})",
       {R"({"x1":9})", R"({"ay":3})", R"({"xy":5})", R"({"ay":"s"})"},
       {R"({"xy":9})", R"({"xy":"s"})", R"({"b":1})"}},
      {R"({"properties":{"xa":{"minimum":2}},"patternProperties":{"^x":{"type":"integer"}}})",
       {R"({"xa":2})", R"({"xb":1})", R"({"c":"s"})"},
       {R"({"xa":1})", R"({"xa":2.5})", R"({"xb":"s"})"}},
      {R"({"type":"object","propertyNames":{"pattern":"^[a-z]+$","maxLength":2}})",
       {R"({"ab":1})", "{}"},
       {R"({"abc":1})", R"({"A":1})"}},
      {R"({"properties":{"abc":{},"a":{}},"propertyNames":{"maxLength":2}})", {R"({"a":1})"}, {R"({"abc":1})"}},
      {R"({"type":"object","properties":{"a":{"const":1},"b":{"const":1},"c":{"const":1}},"additionalProperties":false,
           "minProperties":1,"maxProperties":2})",
       {R"({"a":1})", R"({"c":1})", R"({"a":1,"b":1})", R"({"b":1,"c":1})"},
       {"{}", R"({"a":1,"b":1,"c":1})"}},
      {R"({"type":"object","minProperties":1})", {R"({"a":1})", R"({"a":1,"b":1})"}, {"{}", "{ }"}},
      {R"({"type":"object","maxProperties":2})", {"{}", R"({"a":1,"b":1})"}, {R"({"a":1,"b":1,"c":1})"}},
      {R"({"type":"object","maxProperties":0})", {"{}"}, {R"({"a":1})"}},
      {R"({"type":"object","required":["a"],"minProperties":2})", {R"({"a":1,"b":1})"}, {R"({"a":1})"}},
      {R"({"type":"object","properties":{"a\"\n":{"const":1}},"additionalProperties":false})",
       {R"({"a\"\n":1})"},
       {"{\"a\"\n\":1}"}},
  };
  for (const Row& row : rows) check(row);
}

TEST_CASE("arrays") {
  const std::vector<Row> rows = {
      {R"({"type":"array"})", {"[]", "[ ]", "[1,\"a\",[]]", "[1, 2]", "[ 1 , 2 ]"}, {"[,]", "[1,]", "[1 2]", "[  ]"}},
      {R"({"type":"array","items":{"const":1},"minItems":1,"maxItems":3})",
       {"[1]", "[1,1]", "[1,1,1]"},
       {"[]", "[1,1,1,1]", "[2]"}},
      {R"({"prefixItems":[{"const":1},{"const":2}],"items":false})", {"[]", "[1]", "[1,2]"}, {"[2]", "[1,2,3]"}},
      {R"({"prefixItems":[{"const":1}],"items":{"const":2},"minItems":2})", {"[1,2]", "[1,2,2]"}, {"[1]", "[1,1]"}},
      {"{" + k7 + R"("items":[{"const":1}],"additionalItems":{"const":2}})",
       {"[]", "[1]", "[1,2,2]"},
       {"[1,1]", "[2]"}},
      {"{" + k7 + R"("items":[{"const":1}],"additionalItems":false})", {"[1]"}, {"[1,1]"}},
      {R"({"type":"array","items":{"const":1},"contains":{"const":1}})", {"[1]", "[1,1]"}, {"[]", "[2]"}},
      {R"({"type":"array","items":{"enum":[1,2]},"contains":{"const":1},"maxContains":1})",
       {"[1]", "[2,1,2]"},
       {"[]", "[2]", "[1,1]"}},
      {R"({"type":"array","items":{"enum":[1,2]},"contains":{"const":1},"minContains":2})",
       {"[1,1]", "[1,2,1]"},
       {"[1]", "[1,2]"}},
      {R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true})",
       {"[]", R"(["b"])", R"(["c","a","b"])"},
       {R"(["a","a"])", R"(["a","b","a"])", R"(["d"])"}},
      {R"({"type":"array","items":{"enum":[1,1.0,2]},"uniqueItems":true,"minItems":2})",
       {"[1,2]", "[2,1]"},
       {"[1,1]", "[1]"}},
      {R"({"type":"array","items":{"type":"boolean"},"uniqueItems":true})", {"[true,false]"}, {"[true,true]"}},
      {R"({"type":"array","uniqueItems":true,"maxItems":1})", {"[]", "[{}]"}, {"[1,2]"}},
      {R"({"type":"array","items":{"type":"array","items":{"type":"integer"}}})", {"[[],[1,2]]"}, {"[1]", "[[\"\"]]"}},
      {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
  };
  for (const Row& row : rows) check(row);
}

TEST_CASE("combinators are a conjunction with their siblings") {
  const std::vector<Row> rows = {
      {R"({"anyOf":[{"type":"string"},{"type":"integer"}],"maxLength":1,"maximum":3})",
       {R"("a")", "3"},
       {R"("ab")", "4", "null"}},
      {R"({"properties":{"a":{"type":"integer"}},"required":["a"],"anyOf":[{"properties":{"a":{"minimum":5}}},{"required":["b"]}]})",
       {R"({"a":5})", R"({"a":1,"b":0})"},
       {R"({"a":1})", R"({"a":"x","b":0})", R"({"b":0})"}},
      {R"({"allOf":[{"properties":{"a":{"type":"integer"}}},{"properties":{"a":{"minimum":2},"b":{"const":1}}}],"required":["a"]})",
       {R"({"a":2})", R"({"a":3,"b":1})"},
       {R"({"a":1})", R"({"a":2,"b":2})"}},
      {R"({"allOf":[{"properties":{"a":{}},"additionalProperties":false},{"properties":{"b":{}}}]})",
       {R"({"a":1})", "{}"},
       {R"({"b":1})"}},
      {R"({"oneOf":[{"type":"string"},{"type":"null"}]})", {R"("a")", "null"}, {"1"}},
      {R"({"oneOf":[{"properties":{"kind":{"const":"a"},"x":{"type":"integer"}},"required":["kind","x"]},
                    {"properties":{"kind":{"const":"b"},"y":{"type":"null"}},"required":["kind"]}]})",
       {R"({"kind":"a","x":1})", R"({"kind":"b"})", R"({"kind":"b","y":null})"},
       {R"({"kind":"a"})", R"({"kind":"c"})", "{}"}},
      {R"({"oneOf":[{"multipleOf":3},{"multipleOf":2}],"type":"integer"})", {"2", "3"}, {"6", "1", "0"}},
      {R"({"oneOf":[{"required":["a"]},{"required":["b"]}],"type":"object","properties":{"a":{"const":1},"b":{"const":1}}})",
       {R"({"a":1})", R"({"b":1})"},
       {"{}", R"({"a":1,"b":1})"}},
      {R"({"not":{"type":["string","object"]}})", {"1", "null", "[]"}, {R"("a")", "{}"}},
      {R"({"type":"integer","not":{"enum":[1,2]}})", {"3", "12"}, {"1", "2"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"}},"not":{"required":["b"]}})",
       {R"({"a":1})"},
       {R"({"b":1})"}},
      {R"({"if":{"properties":{"t":{"const":1}},"required":["t"]},"then":{"required":["x"]},"else":{"required":["y"]},
           "properties":{"t":{"enum":[1,2]},"x":{"const":0},"y":{"const":0}},"additionalProperties":false})",
       {R"({"t":1,"x":0})", R"({"t":2,"y":0})", R"({"y":0})", R"({"t":1,"x":0,"y":0})"},
       {R"({"t":1,"y":0})", R"({"t":2,"x":0})", "{}"}},
      {R"({"if":{"type":"integer"},"then":{"minimum":3}})", {"3", R"("a")", "2.5"}, {"2"}},
      {R"({"if":{"type":"integer"},"else":{"type":"string"}})", {"3", R"("a")"}, {"2.5", "null"}},
      {R"({"type":"object","properties":{"a":{"const":1},"b":{"const":1}},"dependentRequired":{"a":["b"]}})",
       {"{}", R"({"b":1})", R"({"a":1,"b":1})"},
       {R"({"a":1})"}},
      {R"({"type":"object","dependentSchemas":{"a":{"properties":{"b":{"const":2}},"required":["b"]}}})",
       {"{}", R"({"a":0,"b":2})", R"({"b":7})"},
       {R"({"a":0})", R"({"a":0,"b":1})"}},
      {"{" + k7 + R"("type":"object","dependencies":{"a":["b"],"c":{"maxProperties":1}}})",
       {"{}", R"({"a":1,"b":1})", R"({"c":1})"},
       {R"({"a":1})"}},
      {R"({"allOf":[{"properties":{"a":{"const":1}}}],"properties":{"b":{"const":2}},"unevaluatedProperties":false})",
       {"{}", R"({"b":2,"a":1})", R"({"a":1})"},
       {R"({"c":1})", R"({"a":2})"}},
      {R"({"anyOf":[{"properties":{"a":{"const":1}},"required":["a"]},{"properties":{"b":{"const":2}},"required":["b"]}],
           "unevaluatedProperties":false})",
       {R"({"a":1})", R"({"b":2})", R"({"a":1,"b":2})"},
       {"{}", R"({"a":1,"b":3})", R"({"a":1,"c":1})"}},
      {R"({"prefixItems":[{"const":1}],"allOf":[{"prefixItems":[true,{"const":2}]}],"unevaluatedItems":false})",
       {"[1]", "[1,2]"},
       {"[1,2,3]", "[1,3]"}},
      {R"({"contains":{"const":1},"unevaluatedItems":{"type":"string"}})", {"[1]", R"(["a",1])"}, {"[2,1]", "[]"}},
  };
  for (const Row& row : rows) check(row);
}

TEST_CASE("references are local and may be recursive") {
  const std::vector<Row> rows = {
      {R"({"$defs":{"n":{"type":"integer"}},"$ref":"#/$defs/n","minimum":3})", {"3"}, {"2", "\"a\""}},
      {"{" + k7 + R"("definitions":{"n":{"type":"integer"}},"$ref":"#/definitions/n","minimum":3})",
       {"2", "3"},
       {"\"a\""}},
      {R"({"$defs":{"a/b~c":{"const":1},"p%q":{"const":2}},"prefixItems":[{"$ref":"#/$defs/a~1b~0c"},{"$ref":"#/$defs/p%25q"}]})",
       {"[1,2]"},
       {"[2]"}},
      {R"({"$defs":{"x":{"$anchor":"here","const":1}},"$ref":"#here"})", {"1"}, {"2"}},
      {R"({"$id":"http://e.org/root","$defs":{"x":{"$id":"sub/x","const":1}},"$ref":"sub/x"})", {"1"}, {"2"}},
      {R"({"type":"object","properties":{"v":{"type":"integer"},"next":{"$ref":"#"}},"required":["v"],"additionalProperties":false})",
       {R"({"v":1})", R"({"v":1,"next":{"v":2,"next":{"v":3}}})"},
       {R"({"next":{"v":1}})", R"({"v":1,"next":{}})"}},
      {R"({"$defs":{"t":{"type":"array","items":{"$ref":"#/$defs/t"}}},"$ref":"#/$defs/t"})",
       {"[]", "[[],[[]]]"},
       {"[1]"}},
      {R"({"type":"object","required":["a"],"properties":{"a":{"$ref":"#"}}})", {}, {"{}", R"({"a":{}})"}},
  };
  for (const Row& row : rows) check(row);
}

TEST_CASE("what is not supported is refused with pointer, keyword and reason") {
  const std::vector<std::pair<std::string, std::string>> rows = {
      {R"j({"properties":{"a":{"pattern":"(?=x)"}}})j",
       R"(unsupported schema: /properties/a/pattern: keyword "pattern": )"},
      {R"j({"patternProperties":{"(?!x)":{}}})j", R"(/patternProperties/(?!x): keyword "patternProperties": )"},
      {R"({"items":{"format":"iri"}})", R"(unsupported schema: /items/format: keyword "format": )"},
      {R"({"not":{"format":"regex"}})", "the complement of a format that is not written in full"},
      {R"j({"oneOf":[{"format":"regex"},{"const":"(?<a>b)"}]})j",
       "the complement of a format that is not written in full"},
      {R"({"propertyNames":{"format":"regex"}})", R"(unsupported schema: /propertyNames: keyword "propertyNames": )"},
      {R"({"$ref":"http://example.org/x.json"})", R"(unsupported schema: /$ref: keyword "$ref": )"},
      {R"({"$dynamicRef":"#x"})", R"(unsupported schema: /$dynamicRef: keyword "$dynamicRef")"},
      {"{" + k2019 + R"("$recursiveRef":"#"})", R"(unsupported schema: /$recursiveRef: keyword "$recursiveRef")"},
      {R"({"$vocabulary":{}})", R"(unsupported schema: /$vocabulary: keyword "$vocabulary")"},
      {R"({"$schema":"http://example.org/mine"})", R"(unsupported schema: /$schema: keyword "$schema")"},
      {R"({"allOf":[{"$ref":"#"}]})", "references lead back here"},
      {R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})",
       "references lead back here"},
      {R"({"oneOf":[{"type":"array"},{"type":"array","uniqueItems":true}]})",
       R"(unsupported schema: /oneOf: keyword "oneOf": schemas 0 and 1)"},
      {R"({"not":{"type":"array","uniqueItems":true}})", R"(unsupported schema: /not: keyword "not")"},
      {R"({"type":"array","uniqueItems":true,"minItems":12,"items":{"enum":[0,1,2,3,4,5,6,7,8,9]}})",
       R"(unsupported schema: /uniqueItems: keyword "uniqueItems": 12 items that must differ)"},
      {R"({"type":"array","uniqueItems":true,"contains":{"enum":[1,2,3,4,5,6,7,8,9]}})",
       R"(unsupported schema: /uniqueItems: keyword "uniqueItems": beside contains)"},
      {R"({"type":"object","minProperties":3,"propertyNames":{"pattern":"^[a-z]$"}})",
       R"(unsupported schema: /minProperties: keyword "minProperties")"},
      {R"({"type":"array","maxItems":5000})", R"(unsupported schema: /maxItems: keyword "maxItems")"},
      {"{" + k7 + R"("minimum":3,"exclusiveMinimum":true})",
       R"(unsupported schema: /exclusiveMinimum: keyword "exclusiveMinimum")"},
      {R"({"const":98249283749234923498293171823948729348710298301928331})",
       R"(unsupported schema: /const: keyword "const")"},
  };
  for (const auto& [schema, message] : rows) {
    INFO(schema);
    const auto compiled = compile(schema);
    REQUIRE_FALSE(compiled->symbol.ok());
    CHECK(compiled->symbol.error().code == ErrorCode::kUnsupportedSchema);
    CHECK_THAT(compiled->symbol.error().message, ContainsSubstring(message));
  }
}

TEST_CASE("a schema that breaks its draft is invalid") {
  const std::vector<std::pair<std::string, std::string>> rows = {
      {R"({"properties":{"a":{"type":5}}})", "invalid schema: /properties/a/type: "},
      {R"({"type":"text"})", "/type"},
      {R"({"type":[]})", "/type"},
      {R"({"enum":3})", "/enum"},
      {R"({"minLength":-1})", "/minLength"},
      {R"({"maxItems":1.5})", "/maxItems"},
      {R"({"pattern":3})", "/pattern"},
      {R"({"minimum":"3"})", "/minimum"},
      {R"({"multipleOf":0})", "/multipleOf"},
      {R"({"properties":[]})", "/properties"},
      {R"({"properties":{"a":3}})", "/properties/a"},
      {R"({"required":"a"})", "/required"},
      {R"({"anyOf":[]})", "/anyOf"},
      {R"({"anyOf":[3]})", "/anyOf/0"},
      {R"({"items":[{}]})", "/items"},
      {R"({"$ref":"#/$defs/none"})", "/$ref"},
      {R"({"$ref":"#none"})", "/$ref"},
      {R"({"uniqueItems":1})", "/uniqueItems"},
      {R"({"dependentRequired":{"a":1}})", "/dependentRequired"},
      {"3", "expected an object or a boolean"},
  };
  for (const auto& [schema, message] : rows) {
    INFO(schema);
    const auto compiled = compile(schema);
    REQUIRE_FALSE(compiled->symbol.ok());
    CHECK(compiled->symbol.error().code == ErrorCode::kInvalidArgument);
    CHECK_THAT(compiled->symbol.error().message, ContainsSubstring(message));
  }
}

TEST_CASE("unknown keywords are listed, annotations are not") {
  const auto compiled = compile(
      R"({"title":"t","description":"d","default":1,"properties":{"a":{"nullable":true,"examples":[],"type":"null"}},"x-order":3})");
  REQUIRE(compiled->symbol.ok());
  CHECK(compiled->notes.ignored == std::vector<std::string>{": x-order", "/properties/a: nullable"});
}

TEST_CASE("lenient drops what is refused and lists it") {
  SchemaOptions options;
  options.lenient = true;
  const auto compiled = compile(
      R"j({"type":"object","properties":{"a":{"type":"string","pattern":"(?=x)","maxLength":2},
          "b":{"type":"array","contains":{"enum":[1,2,3,4,5,6,7,8,9]},"uniqueItems":true},"c":{"type":"string","format":"iri"}},
          "additionalProperties":false})j",
      options);
  REQUIRE(compiled->symbol.ok());
  CHECK(compiled->notes.ignored ==
        std::vector<std::string>{"/properties/a: pattern", "/properties/c: format", "/properties/b: uniqueItems"});
  fakes::TextAcceptor acceptor(&compiled->builder, *compiled->symbol);
  CHECK(acceptor.accepts(R"({"a":"ab","b":[1,1],"c":"x"})"));
  CHECK_FALSE(acceptor.accepts(R"({"a":"abc"})"));
  // Inside `not` nothing is dropped alone, or the complement would lose values: the whole `not` goes.
  const auto negated = compile(R"j({"type":"string","not":{"pattern":"(?=x)"}})j", options);
  REQUIRE(negated->symbol.ok());
  CHECK(fakes::TextAcceptor(&negated->builder, *negated->symbol).accepts("\"a\""));
  CHECK(negated->notes.ignored == std::vector<std::string>{": not"});
}

TEST_CASE("oneOf that cannot be written exactly is a union when asked for") {
  SchemaOptions options;
  options.coerce_one_of = true;
  check({R"({"oneOf":[{"type":"array","items":{"type":"integer"}},{"type":"array","uniqueItems":true}]})",
         {"[1]", "[1,1]", "[\"a\"]"},
         {R"(["a","a"])", "{}"}},
        options);
}

TEST_CASE("white space by option") {
  SchemaOptions compact, any;
  compact.spaces = SchemaOptions::Spaces::kCompact;
  any.spaces = SchemaOptions::Spaces::kAny;
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"array"}}})";
  check({schema, {R"({"a":[1,2]})"}, {R"({"a": [1,2]})", R"({"a":[1, 2]})", "{ }"}}, compact);
  check({schema, {R"({"a":[1,2]})", "{ \t\r\n\n\"a\"  :\n[ 1\n\n,2 ] }", "{  }"}, {R"( {"a":[]})", R"({"a":[]} )"}},
        any);
  const std::string blanks(64, ' ');
  check({schema, {"{\n" + blanks + "\"a\":[]}"}, {"{\n " + blanks + "\"a\":[]}", "{\t\"a\":[]}"}});
}

TEST_CASE("any JSON") {
  GrammarBuilder of_value, of_object;
  fakes::TextAcceptor value(&of_value, add_any_json(&of_value, {}));
  fakes::TextAcceptor object(&of_object, add_any_json_object(&of_object, {}));
  std::string deep = "1";
  for (int i = 0; i < 50; ++i) deep = i % 2 == 0 ? "[" + deep + "]" : "{\"k\":" + deep + "}";
  for (const std::string& text : {deep, std::string("null"), std::string("[true,{\"a\":-1.5}]")}) {
    CHECK(value.accepts(text));
  }
  CHECK(object.accepts(deep));
  CHECK_FALSE(object.accepts("[]"));
  CHECK_FALSE(value.accepts("{\"a\" 1}"));
  CHECK_FALSE(value.accepts("{\"a\":1,\"a\":2}"));
}

TEST_CASE("rules grow with the number of properties, not with its square") {
  const auto symbols = [](int num, bool is_required) {
    std::string properties, required;
    for (int i = 0; i < num; ++i) {
      const std::string name = "\"property_" + std::to_string(i) + "\"";
      properties += (i > 0 ? "," : "") + name + R"(:{"type":"string"})";
      required += (i > 0 ? "," : "") + name;
    }
    const auto compiled = compile("{\"type\":\"object\",\"properties\":{" + properties + "}" +
                                  (is_required ? ",\"required\":[" + required + "]" : "") + "}");
    REQUIRE(compiled->symbol.ok());
    size_t words = 0;
    for (SymbolId id = 0; id < compiled->builder.num_symbols(); ++id)
      words += 1 + compiled->builder.symbol(id).parts.size();
    return words;
  };
  for (bool is_required : {false, true}) {
    const size_t small = symbols(128, is_required), large = symbols(512, is_required);
    INFO(small << " " << large);
    CHECK(large < small * 9 / 2);
  }
}

TEST_CASE("hostile schemas end in an error, in time") {
  std::string deep = "{}";
  for (int i = 0; i < 3000; ++i) deep = "{\"not\":" + deep + "}";
  CHECK_THAT(error_of(deep), ContainsSubstring("too deep"));

  std::string wide = "{\"properties\":{";
  for (int i = 0; i < 600; ++i) wide += (i > 0 ? ",\"p" : "\"p") + std::to_string(i) + "\":{}";
  CHECK_THAT(error_of(wide + "}}"), ContainsSubstring("/properties: keyword \"properties\": expected at most 512"));

  std::string list = "[1";
  for (int i = 0; i < 4096; ++i) list += "," + std::to_string(i);
  CHECK_THAT(error_of("{\"enum\":" + list + "]}"), ContainsSubstring("/enum: keyword \"enum\": expected at most 4096"));

  CHECK_THAT(error_of("{\"description\":\"" + std::string(5 << 20, 'x') + "\"}"), ContainsSubstring("too large"));

  // Conjunctions of unions: 4^20 alternatives.
  std::string product = "{\"allOf\":[";
  for (int i = 0; i < 20; ++i) {
    product += i > 0 ? ",{\"anyOf\":[" : "{\"anyOf\":[";
    for (int j = 0; j < 4; ++j) {
      product +=
          std::string(j > 0 ? "," : "") + "{\"required\":[\"r" + std::to_string(i) + "_" + std::to_string(j) + "\"]}";
    }
    product += "]}";
  }
  CHECK_THAT(error_of(product + "]}"), ContainsSubstring("more than 512 alternatives"));

  // Patterns that overlap in 2^12 ways.
  std::string patterns = "{\"patternProperties\":{";
  for (int i = 0; i < 12; ++i)
    patterns += (i > 0 ? ",\"" : "\"") + std::string(1, static_cast<char>('a' + i)) +
                "\":{\"maximum\":" + std::to_string(i) + "}";
  CHECK_THAT(error_of(patterns + "}}"), ContainsSubstring("overlap in too many ways"));

  // References in a row.
  std::string chain = "{\"$ref\":\"#/$defs/d0\",\"$defs\":{";
  for (int i = 0; i < 1000; ++i)
    chain += "\"d" + std::to_string(i) + "\":{\"$ref\":\"#/$defs/d" + std::to_string(i + 1) + "\"},";
  CHECK_THAT(error_of(chain + "\"d1000\":{}}}"), ContainsSubstring("more than 200 schemas apply"));
}

TEST_CASE("strings and numbers as JSON writes them") {
  CHECK(json_string_text("a\"\\/\b\f\n\r\t\x01\x1f\x7fé") == "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7fé\"");
  const auto number = [](const char* text) { return json_number_text(boost::json::parse(text)).value_or("none"); };
  CHECK(number("12") == "12");
  CHECK(number("-0.0") == "0");
  CHECK(number("1.50") == "1.5");
  CHECK(number("1e3") == "1000");
  CHECK(number("-1.25e-3") == "-0.00125");
  CHECK(number("0.1") == "0.1");
  CHECK(number("18446744073709551615") == "18446744073709551615");
  CHECK(number("1e20") == "100000000000000000000");
  CHECK(number("12345678901234567890123") == "none");
}

}  // namespace llmrt
