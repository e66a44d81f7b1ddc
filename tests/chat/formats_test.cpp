// The table of formats: names, detection by template, what is known not to be there; types from schemas; literals.
#include <catch2/catch_all.hpp>

#include <algorithm>
#include <set>

#include "core/chat/call_ids.h"
#include "core/chat/literal_reader.h"
#include "core/chat/resolved_format.h"
#include "core/chat/tool_types.h"
#include "core/text/tokenizer.h"

namespace llmrt::chat_test {
namespace {

std::unique_ptr<Tokenizer> tokenizer_with(std::vector<std::pair<std::string, TokenType>> tokens) {
  Vocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = "gpt-2";
  vocabulary.tokens = {"a", "b"};
  vocabulary.types = {TokenType::kNormal, TokenType::kNormal};
  for (auto& [text, type] : tokens) {
    vocabulary.tokens.push_back(text);
    vocabulary.types.push_back(type);
  }
  auto tokenizer = Tokenizer::create(std::move(vocabulary));
  REQUIRE(tokenizer.ok());
  return std::move(*tokenizer);
}

std::string literal(std::string_view text) {
  LiteralReader reader;
  std::string out;
  for (const char c : text) {
    const auto step = reader.push(c, &out);
    if (step == LiteralReader::Step::kFailed) return "failed";
  }
  return reader.end(&out) == LiteralReader::Step::kDone ? out : "failed";
}

}  // namespace

TEST_CASE("formats have names of their own, and absent ones are told by name") {
  std::set<std::string> names;
  for (const ChatFormat& format : chat_formats()) {
    CHECK(names.insert(format.name).second);
    CHECK(find_chat_format(format.name).ok());
    // Every mark that holds a token's text names that token.
    for (const std::string& stop : format.turn.stop) CHECK(std::ranges::count(format.tokens, stop) == 1);
  }
  const auto absent = find_chat_format("deepseek-v4");
  REQUIRE_FALSE(absent.ok());
  CHECK(absent.error().code == ErrorCode::kUnsupported);
  const auto unknown = find_chat_format("hermez");
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().code == ErrorCode::kInvalidArgument);
  CHECK(unknown.error().message.find("hermes") != std::string::npos);
}

TEST_CASE("a template says which format it is") {
  const auto tokenizer = tokenizer_with({});
  const auto name = [&](std::string_view source) { return detect_chat_format(source, *tokenizer).name; };
  CHECK(name("{{ '<|im_start|>' }}<tool_call>{\"name\"") == "hermes");
  CHECK(name("<tool_call>\n<function=example>\n<parameter=x>") == "qwen-xml");
  CHECK(name("<|start_header_id|> {\"name\": function name, \"parameters\": dictionary}") == "llama3");
  CHECK(name("[TOOL_CALLS] [CALL_ID] [ARGS]") == "mistral-v11");
  CHECK(name("[TOOL_CALLS] [ARGS]") == "mistral-v13");
  CHECK(name("[TOOL_CALLS] [") == "mistral-old");
  CHECK(name("<|start|>assistant<|channel|>final<|message|>") == "harmony");
  CHECK(name("<|tool_call>call:") == "gemma4");
  CHECK(name("<start_of_turn>model") == "gemma3");
  CHECK(name("<｜tool▁sep｜> ```json") == "deepseek-v3");
  CHECK(name("<｜tool▁sep｜>") == "deepseek-v3.1");
  CHECK(name("<arg_key>k</arg_key>\n<arg_value>") == "glm-4.5");
  CHECK(name("<arg_key>k</arg_key><arg_value>") == "glm-4.7");
  CHECK(name("<|tool_call|> <|start_of_role|>") == "granite3");
  CHECK(name("<|tool|><|/tool|>") == "phi4-mini");
  CHECK(name("<|tool_call_start|>") == "lfm2");
  CHECK(name("<|tool_calls_section_begin|>") == "kimi-k2");
  CHECK(name("<minimax:tool_call>") == "minimax-m2");
  CHECK(name("<think>") == "think");
  CHECK(name("{% for message in messages %}<|im_start|>") == "plain");
  CHECK(name("<｜DSML｜tool_calls>") == "plain");
  CHECK(absent_chat_format("<｜DSML｜tool_calls>") == "deepseek-v4");
  CHECK(absent_chat_format("dsml_token = \"｜DSML｜\" <{{ dsml_token }}tool_calls>") == "deepseek-v4");
  CHECK(absent_chat_format("｜DSML｜ function_calls").empty());
  CHECK(absent_chat_format("'<|end_of_msg|>'") == "kimi-k3");
  CHECK(absent_chat_format("<tool_call>").empty());
}

TEST_CASE("ids of calls take the form that the template asks for") {
  const ChatFormat& mistral = **find_chat_format("mistral-v11");
  CHECK(prompt_call_id(mistral, "abcdEFG12") == "abcdEFG12");
  const std::string mapped = prompt_call_id(mistral, "call_0123456789abcdef");
  CHECK(mapped.size() == 9);
  CHECK(mapped.find_first_not_of("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") ==
        std::string::npos);
  CHECK(prompt_call_id(mistral, "call_0123456789abcdef") == mapped);
  CHECK(prompt_call_id(mistral, "call_0123456789abcdeg") != mapped);
  CHECK(prompt_call_id(**find_chat_format("hermes"), "call_x") == "call_x");
}

TEST_CASE("without a template the vocabulary's tokens say it") {
  const ChatFormat& harmony = **find_chat_format("harmony");
  std::vector<std::pair<std::string, TokenType>> tokens;
  for (const std::string& text : harmony.tokens) tokens.emplace_back(text, TokenType::kControl);
  CHECK(detect_chat_format("", *tokenizer_with(tokens)).name == "harmony");
  CHECK(detect_chat_format("", *tokenizer_with({})).name == "plain");
}

TEST_CASE("marks are tokens where the vocabulary has them, control or user-defined") {
  const auto tokenizer = tokenizer_with({{"<tool_call>", TokenType::kUserDefined},
                                         {"</tool_call>", TokenType::kNormal},
                                         {"<think>", TokenType::kControl}});
  const ResolvedFormat resolved = resolve_format(**find_chat_format("hermes"), marker_tokens(*tokenizer));
  CHECK(resolved.has_token("<tool_call>"));
  CHECK(resolved.has_token("<think>"));
  CHECK_FALSE(resolved.has_token("</tool_call>"));
  CHECK(resolved.units("a<think>").size() == 2);
  CHECK(resolved.text(resolved.units("a<think>b")) == "a<think>b");
}

TEST_CASE("types of parameters follow references and alternatives") {
  const auto tool =
      tool_types("t", boost::json::parse(R"({"$defs":{"n":{"type":"integer"},"loop":{"$ref":"#/$defs/loop"}},
    "properties":{"a":{"type":"string"},"b":{"$ref":"#/$defs/n"},"c":{"anyOf":[{"type":"string"},{"type":"null"}]},
    "d":{"enum":[1,2]},"e":{},"f":{"$ref":"#/$defs/loop"},"g":{"type":["integer","string"]},"h":{"items":{}},"i":{"const":"x"}}})"));
  CHECK(tool.of("a").only_string());
  CHECK(tool.of("b").bits == ValueTypes::kInteger);
  CHECK(tool.of("c").bits == (ValueTypes::kString | ValueTypes::kNull));
  CHECK(tool.of("d").bits == ValueTypes::kInteger);
  CHECK(tool.of("e").only_string());
  CHECK(tool.of("f").only_string());
  CHECK(tool.of("g").bits == (ValueTypes::kInteger | ValueTypes::kString));
  CHECK(tool.of("h").bits == ValueTypes::kArray);
  CHECK(tool.of("i").only_string());
  CHECK(tool.of("unknown").only_string());
  CHECK(tool_types("t", nullptr).of("x").bits == ValueTypes::kAll);
}

TEST_CASE("text becomes a value of its declared type") {
  const auto value = [](std::string_view text, uint8_t types, bool odd = false) {
    bool is_odd = false;
    const std::string result = json_value_of(text, {types}, &is_odd);
    CHECK(is_odd == odd);
    return result;
  };
  CHECK(value("3", ValueTypes::kInteger) == "3");
  CHECK(value("3", ValueTypes::kString) == "\"3\"");
  CHECK(value("3", ValueTypes::kString | ValueTypes::kInteger) == "3");
  CHECK(value("x", ValueTypes::kString | ValueTypes::kInteger) == "\"x\"");
  CHECK(value("x", ValueTypes::kInteger, true) == "\"x\"");
  CHECK(value(" True ", ValueTypes::kBoolean) == "true");
  CHECK(value("None", ValueTypes::kNull | ValueTypes::kString) == "null");
  CHECK(value("{'a': (1, 2), }", ValueTypes::kObject) == R"({"a":[1,2]})");
  CHECK(value("{\"a\": 1.50}", ValueTypes::kObject) == R"({"a":1.50})");
  CHECK(value("{\"a\": ", ValueTypes::kObject, true) == R"("{\"a\": ")");
  CHECK(value("[1] x", ValueTypes::kArray, true) == "\"[1] x\"");
}

TEST_CASE("literals of Python and JSON become compact JSON") {
  CHECK(literal("007") == "7");
  CHECK(literal("-1_000.5e3") == "-1000.5e3");
  CHECK(literal(".5") == "0.5");
  CHECK(literal("'it\\'s'") == R"("it's")");
  CHECK(literal("'it's'") == R"("it's")");
  CHECK(literal(R"("\u00e9\x41\n")") == R"("éA\n")");
  CHECK(literal(R"("\ud83c\udf27")") == R"("🌧")");
  CHECK(literal("{'a': [True, None, -2], \"b\": {}}") == R"({"a":[true,null,-2],"b":{}})");
  CHECK(literal("{'a' 1}") == "failed");
  CHECK(literal("[1, 2") == "failed");
  CHECK(literal("[1}") == "failed");
  CHECK(literal(std::string(500, '[')) == "failed");
  CHECK(literal("bare word") == R"("bare word")");
}

}  // namespace llmrt::chat_test
