// The grammar of answers against the parser: random texts of the grammar, read by the parser, give calls whose
// arguments hold, and nothing odd. So the grammar's language is part of the parser's.
#include <catch2/catch_all.hpp>

#include <algorithm>
#include <random>

#include "answer_runs.h"
#include "core/chat/answer_grammar.h"
#include "core/grammar/json_schema.h"
#include "grammar_walk.h"

namespace llmrt::chat_test {
namespace {

namespace json = boost::json;
using Choice = AnswerSpec::Choice;

constexpr uint32_t kSeed = 49;

std::vector<ToolGrammar> tools(bool strict) {
  const auto tool = [&](std::string name, std::string_view schema) {
    return ToolGrammar{.name = std::move(name), .parameters = json::parse(schema), .strict = strict};
  };
  return {
      tool("w", R"({"type":"object","properties":{"city":{"type":"string","minLength":1,"maxLength":9},
                       "days":{"type":"integer","minimum":1,"maximum":30}},"required":["city"],"additionalProperties":false})"),
      tool("f", R"({"type":"object","properties":{},"additionalProperties":false})"),
      tool("p", R"({"type":"object","properties":{"path":{"type":"string","enum":["/a","/b\"c"]},
                       "text":{"$ref":"#/$defs/t"}},"required":["path","text"],"additionalProperties":false,
                       "$defs":{"t":{"type":"string"}}})"),
      tool(
          "s",
          R"({"type":"object","properties":{"o":{"type":"object","properties":{"k":{"type":"string"},"n":{"type":"integer"}},
                       "required":["k"],"additionalProperties":false},"a":{"type":"array","items":{"type":"integer"},"maxItems":3},
                       "b":{"type":"boolean"}},"required":["b"],"additionalProperties":false})")};
}

void check_arguments(const Answer::Call& call) {
  INFO(call.name << call.args);
  boost::system::error_code error;
  const json::value value = json::parse(call.args, error);
  REQUIRE_FALSE(error);
  REQUIRE(value.is_object());
  const json::object& args = value.get_object();
  const auto* schema_owner = &call.name;
  const auto all = tools(true);
  const auto tool = std::ranges::find_if(all, [&](const auto& t) { return t.name == *schema_owner; });
  REQUIRE(tool != all.end());
  for (const auto& [key, unused] : args) {
    CHECK(tool->parameters.at("properties").get_object().contains(key));
  }
  if (call.name == "w") {
    REQUIRE(args.contains("city"));
    CHECK(args.at("city").is_string());
    CHECK_FALSE(args.at("city").get_string().empty());
    if (args.contains("days")) CHECK((args.at("days").to_number<int>() >= 1 && args.at("days").to_number<int>() <= 30));
  }
  if (call.name == "f") CHECK(args.empty());
  if (call.name == "p") {
    CHECK((args.at("path") == "/a" || args.at("path") == "/b\"c"));
    CHECK(args.at("text").is_string());
  }
  if (call.name == "s") {
    CHECK(args.at("b").is_bool());
    if (args.contains("a")) CHECK(args.at("a").is_array());
    if (args.contains("o")) CHECK(args.at("o").at("k").is_string());
  }
}

std::vector<ToolTypes> types(bool strict) {
  std::vector<ToolTypes> result;
  for (const ToolGrammar& tool : tools(strict)) result.push_back(tool_types(tool.name, tool.parameters));
  return result;
}

struct Setting {
  const ChatFormat& format;
  Spelling spelling;
  AnswerSpec spec;
};

// How many calls the walks made.
size_t walk(Setting setting, std::mt19937* random) {
  const ResolvedFormat resolved = resolve(setting.format, setting.spelling);
  GrammarBuilder builder;
  AnswerSpec& spec = setting.spec;
  spec.values = json_schema_values({}, nullptr);
  const bool strict = spec.tools.empty() || spec.tools[0].strict;
  const auto answer = answer_grammar(&builder, resolved, spec);
  if (!answer) {
    FAIL(answer.error().message);
    return 0;
  }
  GrammarWalk walker(&builder, random);
  size_t num_calls = 0;
  for (int i = 0; i < 12; ++i) {
    const auto pieces = walker.text_of(*answer);
    std::string shown;
    AnswerParser parser(resolved,
                        {.tools = types(strict), .start = spec.start, .reads_calls = spec.choice != Choice::kNone});
    Answer read;
    for (const auto& [token, bytes] : pieces) {
      const std::string text = token >= 0 ? resolved.token(resolved.unit_of.at(token)).text : bytes;
      shown += text;
      read.add(parser.feed(token, text, token >= 0));
    }
    read.add(parser.finish(AnswerParser::End::kStop));
    INFO(shown);
    for (size_t odd = 0; odd < kNumOddities; ++odd) {
      const auto oddity = static_cast<Oddity>(odd);
      // Any text may be no value of its type where the schema does not hold; blanks may look like a list's echo.
      if (!strict && (oddity == Oddity::kWrongType || oddity == Oddity::kRepeatedKey)) continue;
      INFO(oddity_name(oddity));
      CHECK(parser.counts()[oddity] == 0);
    }
    const size_t num = read.calls.size();
    num_calls += num;
    if (spec.choice == Choice::kNone) CHECK(num == 0);
    if (spec.choice == Choice::kRequired) CHECK(num >= 1);
    if (spec.choice == Choice::kNamed) CHECK(num == 1);
    if (!spec.parallel) CHECK(num <= 1);
    for (const auto& call : read.calls) {
      CHECK(call.is_complete);
      if (spec.choice == Choice::kNamed) CHECK(call.name == spec.named);
      if (strict) {
        check_arguments(call);
      } else {
        boost::system::error_code error;
        const json::value value = json::parse(call.args, error, {}, {.max_depth = 500});
        INFO(call.args);
        CHECK((!error && value.is_object()));
      }
    }
    if (spec.content && num == 0) CHECK(read.content == "{\"x\": 1}");
  }
  return num_calls;
}

}  // namespace

TEST_CASE("what the grammar writes, the parser reads as calls with arguments that hold") {
  std::mt19937 random(kSeed);
  size_t num_calls[2] = {};
  for (const ChatFormat& format : chat_formats()) {
    if (!format.has_calls()) continue;
    for (const Spelling spelling : {Spelling::kTokens, Spelling::kText}) {
      for (const bool strict : {true, false}) {
        for (const Choice choice : {Choice::kAuto, Choice::kRequired, Choice::kNamed}) {
          for (const bool parallel : {true, false}) {
            AnswerSpec spec{.tools = tools(strict), .choice = choice, .named = "s", .parallel = parallel};
            if (format.header.used()) spec.start = AnswerStart::kHeader;
            INFO("seed " << kSeed << ", format " << format.name
                         << (spelling == Spelling::kText ? " as text" : " with tokens") << ", strict " << strict
                         << ", choice " << int(choice) << ", parallel " << parallel);
            num_calls[choice == Choice::kAuto] += walk({format, spelling, spec}, &random);
          }
        }
      }
    }
  }
  CHECK(num_calls[0] > 2000);
  CHECK(num_calls[1] > 500);
}

TEST_CASE("thoughts that the prompt opened or closed, content of a grammar, no calls") {
  std::mt19937 random(kSeed + 1);
  for (const ChatFormat& format : chat_formats()) {
    for (const AnswerStart start : {AnswerStart::kText, AnswerStart::kThought, AnswerStart::kAfterThought}) {
      if (start != AnswerStart::kText && !format.has_thoughts()) continue;
      if (format.header.used() && start == AnswerStart::kAfterThought) continue;
      for (const Choice choice : {Choice::kNone, Choice::kAuto, Choice::kRequired}) {
        if (choice == Choice::kRequired && !format.has_calls()) continue;
        for (const bool has_content : {false, true}) {
          INFO("seed " << kSeed << ", format " << format.name << ", start " << int(start) << ", choice " << int(choice)
                       << ", content " << has_content);
          const ResolvedFormat resolved = resolve(format, Spelling::kTokens);
          GrammarBuilder builder;
          AnswerSpec spec{
              .tools = format.has_calls() ? tools(true) : std::vector<ToolGrammar>(), .choice = choice, .start = start};
          spec.values = json_schema_values({}, nullptr);
          if (has_content) spec.content = builder.literal("{\"x\": 1}");
          const auto answer = answer_grammar(&builder, resolved, spec);
          REQUIRE(answer.ok());
          GrammarWalk walker(&builder, &random);
          for (int i = 0; i < 10; ++i) {
            AnswerParser parser(resolved,
                                {.tools = types(true), .start = start, .reads_calls = choice != Choice::kNone});
            Answer read;
            std::string shown;
            for (const auto& [token, bytes] : walker.text_of(*answer)) {
              const std::string text = token >= 0 ? resolved.token(resolved.unit_of.at(token)).text : bytes;
              shown += text;
              read.add(parser.feed(token, text, token >= 0));
            }
            read.add(parser.finish(AnswerParser::End::kStop));
            INFO(shown);
            CHECK(parser.counts()[Oddity::kBrokenCall] == 0);
            CHECK(parser.counts()[Oddity::kBrokenArgs] == 0);
            for (const auto& call : read.calls) check_arguments(call);
            if (choice == Choice::kRequired) CHECK_FALSE(read.calls.empty());
            if (choice == Choice::kNone) CHECK(read.calls.empty());
            if (has_content && read.calls.empty()) CHECK(read.content == "{\"x\": 1}");
          }
        }
      }
    }
  }
}

TEST_CASE("what a format cannot write is refused by name") {
  const auto error = [](std::string_view name, AnswerSpec spec) {
    const ResolvedFormat resolved = resolve(**find_chat_format(name), Spelling::kTokens);
    GrammarBuilder builder;
    spec.values = json_schema_values({}, nullptr);
    const auto answer = answer_grammar(&builder, resolved, spec);
    return answer ? std::string() : std::string(error_code_name(answer.error().code)) + ": " + answer.error().message;
  };
  CHECK_THAT(error("hermes", {.choice = Choice::kRequired}), Catch::Matchers::ContainsSubstring("invalid_argument"));
  CHECK_THAT(error("plain", {.choice = Choice::kRequired}),
             Catch::Matchers::ContainsSubstring("plain has no tool calls"));
  const auto tool = [](std::string_view name, std::string_view schema) {
    return std::vector<ToolGrammar>{{.name = std::string(name), .parameters = json::parse(schema), .strict = true}};
  };
  CHECK_THAT(error("qwen-xml", {.tools = tool("a b", "{}")}), Catch::Matchers::ContainsSubstring("tool name"));
  CHECK_THAT(error("qwen-xml", {.tools = tool("a", R"({"properties":{},"minProperties":1})")}),
             Catch::Matchers::ContainsSubstring("minProperties"));
  CHECK_THAT(error("gemma4", {.tools = tool("a", R"({"properties":{"x":{"type":"array"}}})")}),
             Catch::Matchers::ContainsSubstring("/properties/x: keyword items"));
  CHECK_THAT(error("glm-4.5", {.tools = tool("a", R"({"properties":{"x":{"type":["string","integer"]}}})")}),
             Catch::Matchers::ContainsSubstring("/properties/x"));
  CHECK_THAT(
      error("gemma4", {.tools = tool("a", R"({"$defs":{"n":{"type":"object","properties":{"c":{"$ref":"#/$defs/n"}}}},
                             "properties":{"x":{"$ref":"#/$defs/n"}}})")}),
      Catch::Matchers::ContainsSubstring("nesting without end"));
  CHECK(error("qwen-xml",
              {.tools = tool("a", R"({"properties":{"x":{"type":"string","pattern":"^a+$","format":"uuid"}}})")})
            .empty());
}

}  // namespace llmrt::chat_test
