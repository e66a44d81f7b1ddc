// Answers read in every way that a stream may bring them: with the format's tokens as tokens or as text, whole, cut in
// two at every byte, byte by byte.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/chat/answer_parser.h"

namespace llmrt::chat_test {

// How the texts of the format's tokens come.
enum class Spelling : uint8_t {
  kTokens,   // as tokens
  kText,     // as text; the vocabulary has no such tokens
  kSpelled,  // as text, although the vocabulary has the tokens
};

struct Run {
  Answer answer;
  std::string finish;
  AnswerCounts counts;
  uint64_t num_thought_tokens = 0;
  bool has_complete_call = false;
};

// Token ids are 1000 + index of the text in the format's list.
ResolvedFormat resolve(const ChatFormat& format, Spelling spelling);
// The four tools of the cases: w(city string, days integer), f(), p(path, text strings), s(o object, a array, b
// boolean).
std::vector<ToolTypes> case_tools();

// One way to cut: pieces of bytes end at these offsets of the text, and around tokens. is_spelled: no tokens.
Run read_answer(const ResolvedFormat& format, const AnswerOptions& options, std::string_view text,
                AnswerParser::End end, const std::vector<size_t>& cuts, bool is_spelled = false);
// All ways; fails the running test where they differ. The whole one is returned.
Run read_all_ways(const ResolvedFormat& format, const AnswerOptions& options, std::string_view text,
                  AnswerParser::End end, bool is_spelled = false);

// "⏎" becomes a newline.
std::string with_newlines(std::string_view text);
// T|..|C|..|w{..}|... : one line that says it all.
std::string summary(const Run& run);

}  // namespace llmrt::chat_test
