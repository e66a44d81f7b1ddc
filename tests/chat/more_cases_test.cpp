// Every format with calls, in some fifteen situations each: well-formed calls, odd values, text around them, answers
// that end in the middle. Each answer is read in all ways.
#include <catch2/catch_all.hpp>

#include "answer_runs.h"
#include "core/base/utf8.h"
#include "format_writer.h"

namespace llmrt::chat_test {
namespace {

namespace json = boost::json;
using End = AnswerParser::End;

struct Situation {
  const ChatFormat& format;
  Spelling spelling;
  AnswerStart start;

  Run read(std::string_view text, End end = End::kStop) const {
    const ResolvedFormat resolved = resolve(format, spelling);
    return read_all_ways(resolved, {.tools = case_tools(), .start = start}, text, end);
  }
  std::string calls(const std::vector<WrittenCall>& calls) const { return write_calls(format.name, calls); }
  bool has_bare_calls() const { return format.calls.bare; }
};

WrittenCall call(std::string name, std::string_view args) {
  return {std::move(name), json::parse(args).as_object()};
}

void check_calls(const Run& run, const std::vector<WrittenCall>& expected) {
  REQUIRE(run.answer.calls.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(run.answer.calls[i].name == expected[i].name);
    CHECK(run.answer.calls[i].args == json::serialize(expected[i].args));
    CHECK(run.answer.calls[i].is_complete);
  }
}

void check_call_cases(const Situation& s) {
  const std::vector<std::vector<WrittenCall>> lists = {
      {call("w", R"({"city":"Rome","days":3})")},
      {call("w", R"({"city":"Rome"})"), call("f", "{}")},
      {call("w", R"({"city":"a"})"), call("w", R"({"city":"b"})"), call("s", R"({"b":false})")},
      {call("f", "{}")},
      {call("w", R"({"city":"città 🌧 日本"})")},
      {call("p", R"({"path":"C:\\x \"y\" 'z'","text":"{\"a\": [1, 2}] (), b=\n  c\tand\\n"})")},
      {call("s", R"({"o":{"k":[1,{"b":"}]"},null],"n":-1.5},"a":["x",[],{}],"b":true})")},
      {call("p", R"({"path":"","text":" leading and trailing "})")},
      {call("p", R"({"text":"<tool_call> [TOOL_CALLS] </think> functools[ <|tool_call> <start_function_call>"})")},
  };
  for (const auto& list : lists) {
    const std::string text = s.calls(list);
    INFO(text);
    const Run run = s.read(text);
    check_calls(run, list);
    CHECK_FALSE(run.answer.content.has_value());
    CHECK_FALSE(run.answer.thought.has_value());
    CHECK(run.finish == "tool_calls");
    CHECK(run.has_complete_call);
    AnswerCounts none;
    if (!s.format.turn.stop.empty()) CHECK(run.counts.of == none.of);
  }
}

void check_surroundings(const Situation& s) {
  const std::vector<WrittenCall> one = {call("w", R"({"city":"Rome"})")};
  if (!s.has_bare_calls()) {
    const Run before = s.read(write_text(s.format.name, "I look it up.") + s.calls(one));
    check_calls(before, one);
    CHECK(before.answer.content == "I look it up.");
  } else {
    // Without an opening only an answer's beginning is a call.
    const Run before = s.read("I look: " + s.calls(one));
    CHECK(before.answer.calls.empty());
    CHECK(before.answer.content == "I look: " + s.calls(one));
  }
  if (!s.format.header.used()) {
    const Run after = s.read(s.calls(one) + "\nDone.");
    check_calls(after, one);
    CHECK(after.answer.content == "Done.");
  }
  if (writes_thoughts(s.format.name)) {
    const Run thought = s.read(write_thought(s.format.name, "I need\nthe city") + s.calls(one));
    check_calls(thought, one);
    CHECK(thought.answer.thought == "I need\nthe city");
    CHECK_FALSE(thought.answer.content.has_value());
  }
  const std::vector<WrittenCall> undeclared = {call("nope", R"({"city":"Rome"})")};
  const std::string text = s.calls(undeclared);
  const Run run = s.read(text);
  if (s.has_bare_calls() || s.format.name.starts_with("glm")) {
    CHECK(run.answer.calls.empty());
    CHECK(run.answer.content == text);
    CHECK(run.finish == "stop");
  } else {
    check_calls(run, undeclared);
    CHECK(run.counts[Oddity::kUndeclaredName] == 1);
  }
}

bool is_inside_token(const ResolvedFormat& format, std::string_view text, size_t at) {
  for (const auto& token : format.tokens) {
    for (size_t from = text.find(token.text); from != text.npos && from < at; from = text.find(token.text, from + 1)) {
      if (at < from + token.text.size()) return true;
    }
  }
  return false;
}

// Whatever the place where the answer ends: text or a call, never both lost; and a limit stays a limit.
void check_cuts(const Situation& s) {
  const std::vector<WrittenCall> one = {call("w", R"({"city":"Rome","days":3})")};
  const std::string text = s.calls(one);
  const ResolvedFormat resolved = resolve(s.format, s.spelling);
  const AnswerOptions options{.tools = case_tools(), .start = s.start};
  for (size_t size = 1; size <= text.size(); ++size) {
    if (is_inside_token(resolved, text, size)) continue;
    const std::string_view part = std::string_view(text).substr(0, size);
    INFO("cut behind " << part);
    const Run limit = read_answer(resolved, options, part, End::kLimit, {});
    CHECK(limit.finish == "length");
    const Run stop = read_answer(resolved, options, part, End::kStop, {});
    for (const Run* run : {&limit, &stop}) {
      if (run->answer.calls.empty()) {
        // Nothing is lost, but what a header swallows.
        const bool is_header = s.format.header.used();
        // A token without the text around it that makes it a mark is hidden.
        const bool is_part = s.spelling == Spelling::kTokens && s.format.name == "deepseek-dsml";
        if (!is_header && !is_part && is_valid_utf8(part) && part.find_first_not_of(" \n") != part.npos) {
          CHECK(run->answer.content == part);
        }
        continue;
      }
      REQUIRE(run->answer.calls.size() == 1);
      const auto& c = run->answer.calls[0];
      CHECK(c.name == "w");
      CHECK_FALSE(run->answer.content.has_value());
      const std::string whole = json::serialize(one[0].args);
      if (run == &limit) CHECK(whole.starts_with(c.args));
      if (c.is_complete) {
        boost::system::error_code error;
        json::parse(c.args, error);
        CHECK_FALSE(error);
      }
    }
  }
}

}  // namespace

TEST_CASE("every format's calls come out, whatever stands around and inside them") {
  for (const ChatFormat& format : chat_formats()) {
    if (!format.has_calls()) continue;
    for (const Spelling spelling : {Spelling::kTokens, Spelling::kText}) {
      const AnswerStart start = format.header.used() ? AnswerStart::kHeader : AnswerStart::kText;
      const Situation situation{format, spelling, start};
      INFO("format " << format.name << (spelling == Spelling::kTokens ? " with tokens" : " as text"));
      REQUIRE_FALSE(write_calls(format.name, {call("f", "{}")}).empty());
      check_call_cases(situation);
      check_surroundings(situation);
      check_cuts(situation);
    }
  }
}

TEST_CASE("a call inside an open thought ends it where the format says so") {
  for (const ChatFormat& format : chat_formats()) {
    if (!format.has_calls() || format.header.used() || !format.thought.calls_end_it) continue;
    INFO("format " << format.name);
    const std::vector<WrittenCall> one = {call("w", R"({"city":"Rome"})")};
    const Situation situation{format, Spelling::kTokens, AnswerStart::kThought};
    const Run run = situation.read("plan " + situation.calls(one));
    check_calls(run, one);
    CHECK(run.answer.thought == "plan");
    const Run broken = situation.read("plan " + std::string(format.calls.open[0].text) + "?? more");
    CHECK(broken.answer.calls.empty());
    CHECK_FALSE(broken.answer.content.has_value());
  }
}

TEST_CASE("formats without calls or thoughts pass text through") {
  for (const char* name : {"plain", "gemma3"}) {
    const ResolvedFormat resolved = resolve(**find_chat_format(name), Spelling::kTokens);
    const std::string text = " <tool_call>{}</tool_call> <think>x</think>\n";
    const Run run = read_all_ways(resolved, {.tools = case_tools()}, text, End::kStop);
    CHECK(run.answer.content == text);
  }
}

}  // namespace llmrt::chat_test
