// Sixty cases of chat formats and some more: what models write, in form and out of it, and what a client gets. Each is
// read with the format's tokens as tokens and as text, whole and cut at every byte.
#include <catch2/catch_all.hpp>

#include "answer_runs.h"

namespace llmrt::chat_test {
namespace {

enum class Ways : uint8_t { kBoth, kTokens, kText, kSpelled };

struct Case {
  std::string name;
  std::string_view format;
  std::string_view text;
  std::string_view expected;  // as summary(); finish "stop" or "tool_calls" may be left out
  AnswerStart start = AnswerStart::kText;
  Ways ways = Ways::kBoth;
  AnswerParser::End end = AnswerParser::End::kStop;
  uint32_t calls_max = UINT32_MAX;
  std::vector<Oddity> counted = {};
};

constexpr auto kOpened = AnswerStart::kThought;
constexpr auto kClosed = AnswerStart::kAfterThought;
constexpr auto kHeader = AnswerStart::kHeader;

#define ROME R"({"name":"w","arguments":{"city":"Rome"}})"
#define ROME_CALL "<tool_call>⏎" ROME "⏎</tool_call>"

const std::vector<Case>& cases() {
  static const std::vector<Case> table = {
      {"1", "hermes", ROME_CALL, R"(w{"city":"Rome"}|)"},
      {"2", "hermes", "I look.⏎" ROME_CALL, R"(C|I look.|w{"city":"Rome"}|)"},
      {"3", "hermes", ROME_CALL "⏎" ROME_CALL, R"(w{"city":"Rome"}|w{"city":"Rome"}|)"},
      {"4", "hermes", ROME_CALL "⏎Done.", R"(C|Done.|w{"city":"Rome"}|)"},
      {"5", "hermes", R"(<tool_call>⏎{"arguments":{"city":"Rome"},"name":"w"}⏎</tool_call>)", R"(w{"city":"Rome"}|)"},
      {"6", "hermes",
       R"(<tool_call>{"name":"f","arguments":{}}</tool_call><tool_call>{"name":"f"}</tool_call><tool_call>{"name":"f","arguments":null}</tool_call>)",
       "f{}|f{}|f{}|"},
      {.name = "7",
       .format = "hermes",
       .text = R"(<tool_call>{"name":"w","arguments":"{\"city\":\"Rome\"}"}</tool_call>)",
       .expected = R"(w{"city":"Rome"}|)",
       .counted = {Oddity::kQuotedArgs}},
      {"8", "hermes", "a <tool_cable> b", "C|a <tool_cable> b|"},
      {.name = "9", .format = "hermes", .text = ROME_CALL, .expected = R"(w{"city":"Rome"}|)", .ways = Ways::kText},
      {.name = "10", .format = "hermes", .text = ROME_CALL, .expected = "C|" ROME_CALL "|", .ways = Ways::kSpelled},
      {"11", "hermes", R"(<tool_call>{"name":"w","arguments":{"city":"a </tool_call> }{ \"q\""}}</tool_call>)",
       R"(w{"city":"a </tool_call> }{ \"q\""}|)"},
      {"12", "hermes", R"(<tool_call>{"name":"s","arguments":{"o":{"x":{"y":[{"z":"}]"}]}}}}</tool_call>)",
       R"(s{"o":{"x":{"y":[{"z":"}]"}]}}}|)"},
      {"13", "hermes", R"(<tool_call>{"name":"w","arguments":{"city":"città 🌧"}}</tool_call>)",
       R"(w{"city":"città 🌧"}|)"},
      {"14", "hermes", R"(<tool_call>{"name":"w","arguments":{"city":"Rom\u00e9 \ud83c\udf27"}}</tool_call>)",
       R"(w{"city":"Rom\u00e9 \ud83c\udf27"}|)"},
      {.name = "15",
       .format = "hermes",
       .text = "<tool_call>⏎" ROME,
       .expected = R"(w{"city":"Rome"}|)",
       .counted = {Oddity::kMissingClose}},
      {.name = "15b",
       .format = "hermes",
       .text = R"(<tool_call>{"name":"w","arguments":{"city":"Rome"})",
       .expected = R"(w{"city":"Rome"}|)",
       .counted = {Oddity::kMissingClose}},
      {"16", "hermes", R"(<tool_call>⏎{"name":"we)", R"(C|<tool_call>⏎{"name":"we|)"},
      {.name = "17",
       .format = "hermes",
       .text = R"(<tool_call>{"name":"w","arguments":{"city":"Ro)",
       .expected = R"(w{"city":"Ro...|length)",
       .end = AnswerParser::End::kLimit},
      {.name = "18",
       .format = "hermes",
       .text = R"(<tool_call>⏎{"name":"w","arguments":{"city":Rome}}⏎</tool_call>)",
       .expected = R"(w{"city":Rome}|)",
       .counted = {Oddity::kBrokenArgs}},
      {.name = "19",
       .format = "hermes",
       .text = "<tool_call>⏎not json⏎</tool_call> bye",
       .expected = "C|<tool_call>⏎not json⏎</tool_call> bye|",
       .counted = {Oddity::kBrokenCall}},
      {.name = "20",
       .format = "hermes",
       .text = R"(<tool_call>{"name":"nope","arguments":{}}</tool_call>)",
       .expected = "nope{}|",
       .counted = {Oddity::kUndeclaredName}},
      {.name = "21",
       .format = "hermes",
       .text = ROME_CALL "⏎"
                         R"(<tool_call>{"name":"f"}</tool_call>)",
       .expected = R"(w{"city":"Rome"}|)",
       .calls_max = 1,
       .counted = {Oddity::kDroppedCall}},
      {"22", "hermes", "<think>⏎plan⏎</think>⏎⏎Hi", "T|plan|C|Hi|"},
      {"23", "hermes", "<think>⏎⏎</think>⏎⏎Hi", "C|Hi|"},
      {"24", "qwen-xml", "plan⏎</think>⏎⏎Hi", "T|plan|C|Hi|", kOpened},
      {"25", "qwen-xml", "<think>⏎plan⏎</think>⏎⏎Hi", "T|plan|C|Hi|", kOpened},
      {"26", "qwen-xml", "plan on", "T|plan on|", kOpened},
      {"27", "qwen-xml", "</think>⏎⏎Hi", "C|Hi|", kClosed},
      {"28", "qwen-xml", "plan <tool_call>⏎<function=f>⏎</function>⏎</tool_call>", "T|plan|f{}|", kOpened},
      {"29", "deepseek-v3", "I could write <tool_call> here.⏎</think>⏎Hi", "T|I could write <tool_call> here.|C|Hi|",
       kOpened},
      {"31", "qwen-xml",
       "<tool_call>⏎<function=w>⏎<parameter=city>⏎Rome⏎</parameter>⏎<parameter=days>⏎3⏎</parameter>⏎</function>⏎</"
       "tool_call>",
       R"(w{"city":"Rome","days":3}|)"},
      {.name = "32",
       .format = "qwen-xml",
       .text = "<tool_call><function=w><parameter=city>3</parameter><parameter=days>three</parameter></function></"
               "tool_call>",
       .expected = R"(w{"city":"3","days":"three"}|)",
       .counted = {Oddity::kWrongType}},
      {"33", "qwen-xml", "<tool_call>⏎<function=p>⏎<parameter=text>⏎⏎a⏎⏎</parameter>⏎</function>⏎</tool_call>",
       R"(p{"text":"\na\n"}|)"},
      {"34", "qwen-xml",
       "<tool_call>⏎<function=p>⏎<parameter=text>⏎\"quo\\te\" </param x "
       "</paramete⏎</parameter>⏎</function>⏎</tool_call>",
       R"(p{"text":"\"quo\\te\" </param x </paramete"}|)"},
      {"35", "qwen-xml", "<tool_call><function=p><parameter=path>a</parameter></function></tool_call>",
       R"(p{"path":"a"}|)"},
      {"36", "qwen-xml",
       "<tool_call>⏎<function=s>⏎<parameter=o>⏎{\"k\":[1,{\"b\":\"</x>}\"}]}⏎</parameter>⏎<parameter=b>⏎True⏎"
       "</parameter>⏎</function>⏎</tool_call>",
       R"(s{"o":{"k":[1,{"b":"</x>}"}]},"b":true}|)"},
      {.name = "37",
       .format = "qwen-xml",
       .text = "Look:⏎<function=w>⏎<parameter=city>⏎Rome⏎</parameter>⏎</function>",
       .expected = R"(C|Look:|w{"city":"Rome"}|)",
       .counted = {Oddity::kMissingOpen}},
      {"37b", "qwen-xml", "<function=zzz>⏎</function>", "C|<function=zzz>⏎</function>|"},
      {"37c", "qwen-xml", "a <function=w>⏎</function>", "C|a <function=w>⏎</function>|"},
      {.name = "38",
       .format = "qwen-xml",
       .text = "<tool_call>⏎<function=w>⏎<parameter=city>⏎Rome",
       .expected = R"(w{"city":"Rome"}|)",
       .counted = {Oddity::kMissingClose}},
      {.name = "38b",
       .format = "qwen-xml",
       .text = "<tool_call>⏎<function=w>⏎<parameter=city>⏎Rome",
       .expected = R"(w{"city":"Rome...|length)",
       .end = AnswerParser::End::kLimit},
      {.name = "39",
       .format = "qwen-xml",
       .text =
           "<tool_call><function=w><parameter=city>a</parameter><parameter=city>b</parameter></function></tool_call>",
       .expected = R"(w{"city":"a"}|)",
       .counted = {Oddity::kRepeatedKey}},
      {"40", "glm-4.7",
       "<tool_call>f</tool_call><tool_call>w<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call>",
       R"(f{}|w{"city":"Rome"}|)"},
      {"40b", "glm-4.5", "<tool_call>w⏎<arg_key>days</arg_key>⏎<arg_value>3</arg_value>⏎</tool_call>",
       R"(w{"days":3}|)"},
      {"40c", "glm-4.5", "<tool_call>zzz⏎</tool_call>", "C|<tool_call>zzz⏎</tool_call>|"},
      {"41", "llama3", R"({"name":"w","parameters":{"city":"Rome"}})", R"(w{"city":"Rome"}|)"},
      {"41b", "llama3", R"({"name":"w","parameters":{"city":"Rome"}}; {"name":"f","parameters":{}})",
       R"(w{"city":"Rome"}|f{}|)"},
      {"42", "llama3", R"({"name":"Bob","age":3})", R"(C|{"name":"Bob","age":3}|)"},
      {"42b", "llama3", "[1, 2, 3]", "C|[1, 2, 3]|"},
      {"43", "llama3", R"(<|python_tag|>w.call(city="Rome")<|eom_id|>)", R"(w{"city":"Rome"}|)", AnswerStart::kText,
       Ways::kTokens},
      {"43b", "llama3", R"(<|python_tag|>{"name":"w","parameters":{"city":"Rome"}})", R"(w{"city":"Rome"}|)"},
      {"44", "llama4-pythonic", R"#([w(city="it's [x)", days=3), f()])#", R"#(w{"city":"it's [x)","days":3}|f{}|)#"},
      {"45", "mistral-old", R"([TOOL_CALLS][{"name":"w","arguments":{"city":"Rome"},"id":"abcdefghi"}])",
       R"(w{"city":"Rome"}|id abcdefghi|)"},
      {"46", "mistral-v11",
       R"([TOOL_CALLS]w[CALL_ID]abcdefghi[ARGS]{"city":"Rome"}[TOOL_CALLS]f[CALL_ID]jklmnopqr[ARGS]{})",
       R"(w{"city":"Rome"}|id abcdefghi|f{}|id jklmnopqr|)"},
      {"47", "mistral-v13", "[THINK]p[/THINK]ok[TOOL_CALLS]f[ARGS]{}", "T|p|C|ok|f{}|"},
      {"48", "harmony",
       "<|channel|>analysis<|message|>p<|end|><|start|>assistant<|channel|>final<|message|>Hi<|return|>", "T|p|C|Hi|",
       kHeader},
      {"49", "harmony", R"(<|channel|>commentary to=functions.w <|constrain|>json<|message|>{"city":"Rome"}<|call|>)",
       R"(w{"city":"Rome"}|)", kHeader},
      {"49b", "harmony", R"( to=functions.w<|channel|>commentary <|constrain|>json<|message|>{"city":"Rome"}<|call|>)",
       R"(w{"city":"Rome"}|)", kHeader},
      {"49c", "harmony", R"(<|channel|>commentary to=functions.w<|message|>{"city":"Rome"}<|call|>)",
       R"(w{"city":"Rome"}|)", kHeader},
      {"50", "harmony",
       "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
       "<|constrain|>json<|message|>{}<|call|>",
       "C|I look.|f{}|", kHeader},
      {"51", "harmony", R"(<|channel|>analysis to=functions.w<|message|>{"city":"Rome"}<|call|>)",
       R"(w{"city":"Rome"}|)", kHeader},
      {.name = "51b",
       .format = "harmony",
       .text = "<|channel|>analysis to=python<|message|>print(1)<|call|>",
       .expected = "stop",
       .start = kHeader,
       .counted = {Oddity::kDroppedCall}},
      {"52", "harmony", "<|channel|>final<|message|>Hi<|end|><|start|>assistant<|channel|>comm", "C|Hi|", kHeader},
      {"52b", "harmony", "Hi there", "C|Hi there|", kHeader},
      {"53", "gemma4", R"(<|tool_call>call:w{city:<|"|>Ro"me}<|"|>,days:3}<tool_call|><|tool_response>)",
       R"(w{"city":"Ro\"me}","days":3}|)", AnswerStart::kText, Ways::kTokens},
      {"53b", "gemma4", R"(<|tool_call>call:w{city:<|"|>Ro"me}<|"|>,days:3}<tool_call|>)",
       R"(w{"city":"Ro\"me}","days":3}|)"},
      {"54", "gemma4",
       R"(<|tool_call>call:s{o:{k:[1,{z:<|"|><|"|>}]},b:true}<tool_call|><|tool_call>call:f{}<tool_call|>)",
       R"(s{"o":{"k":[1,{"z":""}]},"b":true}|f{}|)"},
      {"55", "gemma4", "<|channel>thought⏎<channel|><|channel>thought⏎<channel|>Hi<channel|>", "C|Hi|",
       AnswerStart::kText, Ways::kTokens},
      {"56", "deepseek-v3",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>w⏎```json⏎{\"city\":\"Rome\"}⏎```<"
       "｜tool▁call▁end｜>⏎"
       "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f⏎```json⏎{}⏎```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       R"(w{"city":"Rome"}|f{}|)"},
      {"56b", "deepseek-v3.1",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>w<｜tool▁sep｜>{\"city\":\"Rome\"}<｜tool▁call▁end｜>"
       "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
       R"(w{"city":"Rome"}|f{}|)"},
      {"57", "deepseek-dsml",
       "<｜DSML｜function_calls>⏎<｜DSML｜invoke name=\"x\">⏎<｜DSML｜parameter name=\"a\" "
       "string=\"true\">5</｜DSML｜parameter>⏎"
       "<｜DSML｜parameter name=\"b\" "
       "string=\"false\">5</｜DSML｜parameter>⏎</｜DSML｜invoke>⏎</｜DSML｜function_calls>",
       R"(x{"a":"5","b":5}|)"},
      {"58", "kimi-k2",
       "p <|tool_calls_section_begin|><|tool_call_begin|>functions.w:3<|tool_call_argument_begin|>{\"city\":\"Rome\"}"
       "<|tool_call_end|>",
       R"(T|p|w{"city":"Rome"}|id functions.w:3|)", kOpened},
      {"59", "lfm2", "<|tool_call_start|>[w(city='a', days=3)]<|tool_call_end|>[w(city='a', days=3)]",
       R"(w{"city":"a","days":3}|)"},
      {"61", "phi4-mini", R"(<|tool_call|>{"name": "w", "arguments": {"city": "Rome"}}<|/tool_call|>)",
       R"(w{"city": "Rome"}|)", AnswerStart::kText, Ways::kTokens},
      {"62", "phi4-mini", "import functools and more", "C|import functools and more|"},
      {"63", "hermes", "<tool_call>⏎" ROME "}⏎</tool_call>", R"(w{"city":"Rome"}|)"},
      {"64", "lfm2", "<|tool_call_start|>[f()]<|tool_call_end|>Checking [it] now.", "C|Checking [it] now.|f{}|"},
      {"65", "lfm2", "<|tool_call_start|>[w(city='it's fine', days=007)]<|tool_call_end|>",
       R"(w{"city":"it's fine","days":7}|)"},
      {"66", "mistral-v11", R"([TOOL_CALLS]f{"a":1})", R"(f{"a":1}|)"},
      {"67", "gemma4", "<|tool_call>f{a:1}<tool_call|>", R"(f{"a":1}|)"},
      {"68", "deepseek-v3", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f⏎{}<｜tool▁call▁end｜>", "f{}|"},
      {"69", "granite3", "<response>Hi</response>", "C|Hi|"},
      {"70", "hermes", "I write <tool_call> in text", "C|I write <tool_call> in text|"},
      {"71", "qwen-xml", "a <tool_call> b⏎</think>⏎Hi", "T|a <tool_call> b|C|Hi|", kOpened},
      {"72", "llama3", R"({"type": "function", "function": {"name": "w", "parameters": {"city":"Rome"}}})",
       R"(w{"city":"Rome"}|)"},
      {"73", "llama3", R"([w(city="Rome")])", R"(w{"city":"Rome"}|)"},
      {"74", "hermes", "<tool_call>" ROME " and then text", R"(C|and then text|w{"city":"Rome"}|)"},
      {"60", "minimax-m2",
       "<minimax:tool_call>⏎<invoke name='p'><parameter name=path>/a</parameter><parameter "
       "name=\"text\">x<y&z</parameter>"
       "</invoke>⏎</minimax:tool_call>",
       R"(p{"path":"/a","text":"x<y&z"}|)"},
  };
  return table;
}

void run_case(const Case& c, Spelling spelling) {
  const auto format = find_chat_format(c.format);
  REQUIRE(format.ok());
  const ResolvedFormat resolved = resolve(**format, spelling);
  const AnswerOptions options{.tools = case_tools(), .start = c.start, .calls_max = c.calls_max};
  const Run run = read_all_ways(resolved, options, with_newlines(c.text), c.end, spelling == Spelling::kSpelled);
  std::string expected = with_newlines(c.expected);
  if (expected.ends_with('|')) expected += run.answer.calls.empty() ? "stop" : "tool_calls";
  CHECK(summary(run) == expected);
  for (const Oddity oddity : c.counted) {
    INFO(oddity_name(oddity));
    CHECK(run.counts[oddity] >= 1);
  }
}

}  // namespace

TEST_CASE("sixty cases and some more come out as they must, however they are cut") {
  for (const Case& c : cases()) {
    INFO("case " << c.name << " of " << c.format);
    if (c.ways == Ways::kBoth || c.ways == Ways::kTokens) run_case(c, Spelling::kTokens);
    if (c.ways == Ways::kBoth || c.ways == Ways::kText) run_case(c, Spelling::kText);
    if (c.ways == Ways::kSpelled) run_case(c, Spelling::kSpelled);
  }
}

// Case 30.
TEST_CASE("the prompt's last turn says whether the thought is open") {
  const auto start = [](std::string_view name, std::string_view tail) {
    return answer_start(**find_chat_format(name), tail);
  };
  const std::string history = "<|im_start|>assistant\n<think>\nx\n</think>\n\nHi<|im_end|>\n";
  CHECK(start("qwen-xml", history + "<|im_start|>assistant\n<think>\n") == AnswerStart::kThought);
  CHECK(start("qwen-xml", history + "<|im_start|>assistant\n<think>\n\n</think>\n\n") == AnswerStart::kAfterThought);
  CHECK(start("qwen-xml", history + "<|im_start|>assistant\n") == AnswerStart::kText);
  CHECK(start("hermes", "<|im_start|>user\nsay <think><|im_end|>\n<|im_start|>assistant\n") == AnswerStart::kText);
  CHECK(start("harmony", "<|end|><|start|>assistant") == AnswerStart::kHeader);
  CHECK(start("harmony", "<|end|><|start|>assistant<|channel|>analysis<|message|>") == AnswerStart::kThought);
  CHECK(start("harmony", "<|end|><|start|>assistant<|channel|>final<|message|>") == AnswerStart::kText);
  CHECK(start("gemma4", "<|turn>model\n<|channel>thought\n<channel|>") == AnswerStart::kAfterThought);
  CHECK(thought_is_open(**find_chat_format("deepseek-v3"), "<｜User｜>a<｜Assistant｜><think>\n"));
}

TEST_CASE("tokens are counted as thought by the parser's state, marks included") {
  const auto format = find_chat_format("hermes");
  const ResolvedFormat resolved = resolve(**format, Spelling::kTokens);
  AnswerParser parser(resolved, {.tools = case_tools()});
  const auto id = [&](std::string_view text) {
    for (const auto& token : resolved.tokens) {
      if (token.text == text) return token.id;
    }
    return -1;
  };
  parser.feed(id("<think>"), "<think>", true);
  parser.feed(1, "plan", false);
  parser.feed(2, " it", false);
  parser.feed(id("</think>"), "</think>", true);
  CHECK(parser.num_thought_tokens() == 4);
  parser.feed(3, "Hi", false);
  CHECK(parser.num_thought_tokens() == 4);
}

}  // namespace llmrt::chat_test
