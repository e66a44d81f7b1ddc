// Random answers: bytes, and soups of a format's marks, words and pieces of JSON. No crash; cut anywhere the same comes
// out; what is no markup is never lost.
#include <catch2/catch_all.hpp>

#include <random>

#include "answer_runs.h"
#include "format_writer.h"
#include "tests/fakes/cpu_seconds.h"

namespace llmrt::chat_test {
namespace {

using End = AnswerParser::End;

constexpr uint32_t kSeed = 20260117;

std::vector<std::string> marks_of(const ChatFormat& format) {
  std::vector<std::string> marks = format.tokens;
  for (const CallOpening& opening : format.calls.open) marks.push_back(opening.text);
  for (const std::string& mark :
       {format.calls.close, format.calls.section_open, format.calls.section_close, format.thought.open,
        format.thought.close, format.name_marks.before, format.name_marks.after, format.args.before,
        format.args.key_before, format.args.key_after, format.args.value_before, format.args.value_after,
        format.args.end, format.args.delimiter, format.call_id.mark}) {
    if (!mark.empty()) marks.push_back(mark);
  }
  return marks;
}

std::string soup(const ChatFormat& format, std::mt19937* random, std::vector<std::string>* words) {
  const auto marks = marks_of(format);
  const std::vector<std::string> bits = {"{",
                                         "}",
                                         "[",
                                         "]",
                                         "\"",
                                         "'",
                                         ":",
                                         ",",
                                         "\\",
                                         "\n",
                                         " ",
                                         "(",
                                         ")",
                                         "=",
                                         "w",
                                         "f",
                                         "\"name\"",
                                         "\"arguments\"",
                                         "{\"name\": \"w\", ",
                                         "```json\n",
                                         "\"arguments\": {\"city\": \"",
                                         "\xf0\x9f",
                                         "é",
                                         "to=functions.w"};
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(*random); };
  std::string text;
  const size_t length = 1 + below(30);
  for (size_t i = 0; i < length; ++i) {
    const size_t kind = below(10);
    if (kind < 5 && !marks.empty()) {
      text += marks[below(marks.size())];
    } else if (kind < 8) {
      text += bits[below(bits.size())];
    } else if (kind == 8) {
      words->push_back("word" + std::to_string(i) + "x");
      text += words->back();
    } else {
      text += write_calls(format.name, {{"w", {{"city", "Rome"}}}});
    }
  }
  return text;
}

}  // namespace

TEST_CASE("random soups of marks are read without loss, the same however they are cut") {
  std::mt19937 random(kSeed);
  for (const ChatFormat& format : chat_formats()) {
    for (int i = 0; i < 400; ++i) {
      const Spelling spelling = i % 2 == 0 ? Spelling::kTokens : Spelling::kText;
      const ResolvedFormat resolved = resolve(format, spelling);
      AnswerOptions options{.tools = case_tools()};
      options.start = format.header.used()                  ? AnswerStart::kHeader
                      : i % 3 == 0 && format.has_thoughts() ? AnswerStart::kThought
                                                            : AnswerStart::kText;
      options.reads_calls = i % 11 != 0;
      if (i % 7 == 0) options.calls_max = 1;
      std::vector<std::string> words;
      const std::string text = soup(format, &random, &words);
      const End end = i % 5 == 0 ? End::kLimit : End::kStop;
      INFO("seed " << kSeed << ", format " << format.name << ", answer " << i << ": " << text);
      const Run whole = read_answer(resolved, options, text, end, {});
      std::vector<size_t> everywhere(text.size());
      for (size_t at = 0; at < text.size(); ++at) everywhere[at] = at;
      for (int cut = 0; cut < 4; ++cut) {
        std::vector<size_t> cuts = {std::uniform_int_distribution<size_t>(0, text.size())(random)};
        if (cut == 0) cuts = everywhere;
        const Run run = read_answer(resolved, options, text, end, cuts);
        CHECK(summary(run) == summary(whole));
        CHECK(run.counts.of == whole.counts.of);
      }
      const bool may_lose = whole.counts[Oddity::kDroppedCall] > 0 || whole.counts[Oddity::kDroppedText] > 0 ||
                            whole.counts[Oddity::kBrokenHeader] > 0 || !whole.answer.calls.empty();
      if (may_lose) continue;
      const std::string shown = whole.answer.thought.value_or("") + "\n" + whole.answer.content.value_or("");
      for (const std::string& word : words) {
        INFO(word << " in " << shown);
        CHECK(shown.find(word) != std::string::npos);
      }
    }
  }
}

TEST_CASE("random bytes are content or thought") {
  std::mt19937 random(kSeed + 1);
  for (const ChatFormat& format : chat_formats()) {
    const ResolvedFormat resolved = resolve(format, Spelling::kTokens);
    for (int i = 0; i < 50; ++i) {
      std::string text;
      for (size_t n = random() % 200; n > 0; --n) text += static_cast<char>(random() % (i % 2 == 0 ? 256 : 128));
      INFO("format " << format.name << ", answer " << i);
      const Run run = read_answer(resolved, {.tools = case_tools()}, text, End::kStop, {});
      std::vector<size_t> everywhere(text.size());
      for (size_t at = 0; at < text.size(); ++at) everywhere[at] = at;
      CHECK(summary(read_answer(resolved, {.tools = case_tools()}, text, End::kStop, everywhere)) == summary(run));
    }
  }
}

// Deep nesting and endless openings: linear time, bounded recursion.
TEST_CASE("hostile answers are read in time that grows with their length") {
  for (const ChatFormat& format : chat_formats()) {
    const ResolvedFormat resolved = resolve(format, Spelling::kTokens);
    for (const std::string& unit :
         {std::string("{"), std::string("["), std::string("{\"a\":"),
          write_calls(format.name, {{"w", {{"city", ""}}}}).substr(0, 40),
          format.calls.open.empty() ? std::string("<") : format.calls.open[0].text,
          format.calls.open.empty() ? std::string("<") : format.calls.open[0].text + "{\"name\":\"<"}) {
      std::string text;
      while (!unit.empty() && text.size() < 100'000) text += unit;
      const double start_s = cpu_seconds();
      AnswerParser parser(resolved, {.tools = case_tools()});
      parser.feed(-1, text, false);
      for (const auto& token : resolved.tokens) parser.feed(token.id, token.text, true);
      parser.feed(-1, text, false);
      parser.finish(End::kStop);
      INFO("format " << format.name << ", a hostile answer of " << unit);
      CHECK(cpu_seconds() - start_s < 2);  // 200 kB; quadratic time would be minutes
    }
  }
}

}  // namespace llmrt::chat_test
