#include "answer_runs.h"

#include <algorithm>
#include <catch2/catch_all.hpp>

#include "core/base/utf8.h"

namespace llmrt::chat_test {
namespace {

struct Piece {
  int32_t token;
  std::string bytes;
};

// Tokens of the format, and the text between them cut at `cuts`.
std::vector<Piece> pieces_of(const ResolvedFormat& format, std::string_view text, const std::vector<size_t>& cuts,
                             bool is_spelled) {
  std::vector<Piece> pieces;
  bool joins = false;
  for (size_t pos = 0; pos < text.size();) {
    const ResolvedFormat::Token* longest = nullptr;
    for (const auto& token : format.tokens) {
      const bool is_longer = !longest || token.text.size() > longest->text.size();
      if (!is_spelled && is_longer && text.substr(pos).starts_with(token.text)) longest = &token;
    }
    if (longest) {
      pieces.push_back({longest->id, longest->text});
      pos += longest->text.size();
      joins = false;
      continue;
    }
    if (!joins || std::ranges::count(cuts, pos) > 0) pieces.push_back({-1, ""});
    pieces.back().bytes += text[pos++];
    joins = true;
  }
  return pieces;
}

void check_events(const std::vector<AnswerEvent>& events, uint32_t* num_started, bool* is_open) {
  for (const AnswerEvent& event : events) {
    CHECK(is_valid_utf8(event.text));
    switch (event.kind) {
      case AnswerEvent::Kind::kCallStart:
        CHECK_FALSE(*is_open);
        CHECK(event.index == *num_started);
        CHECK_FALSE(event.name.empty());
        CHECK_FALSE(event.id.empty());
        ++*num_started;
        *is_open = true;
        break;
      case AnswerEvent::Kind::kArgs:
        CHECK(*is_open);
        CHECK(event.index + 1 == *num_started);
        break;
      case AnswerEvent::Kind::kCallEnd:
        CHECK(*is_open);
        CHECK(event.index + 1 == *num_started);
        *is_open = false;
        break;
      default:
        CHECK_FALSE(event.text.empty());
        CHECK_FALSE(*is_open);
    }
  }
}

}  // namespace

ResolvedFormat resolve(const ChatFormat& format, Spelling spelling) {
  return resolve_format(format, [&](std::string_view text) -> int32_t {
    if (spelling == Spelling::kText) return -1;
    const auto it = std::ranges::find(format.tokens, text);
    return it == format.tokens.end() ? -1 : 1000 + static_cast<int32_t>(it - format.tokens.begin());
  });
}

std::vector<ToolTypes> case_tools() {
  const auto tool = [](std::string name, std::string_view properties) {
    return tool_types(std::move(name), boost::json::parse("{\"properties\":" + std::string(properties) + "}"));
  };
  return {tool("w", R"({"city":{"type":"string"},"days":{"type":"integer"}})"), tool("f", "{}"),
          tool("p", R"({"path":{"type":"string"},"text":{"type":"string"}})"),
          tool("s", R"({"o":{"type":"object"},"a":{"type":"array"},"b":{"type":"boolean"}})")};
}

Run read_answer(const ResolvedFormat& format, const AnswerOptions& options, std::string_view text,
                AnswerParser::End end, const std::vector<size_t>& cuts, bool is_spelled) {
  AnswerParser parser(format, options);
  Run run;
  uint32_t num_started = 0;
  bool is_open = false;
  const auto take = [&](const std::vector<AnswerEvent>& events) {
    check_events(events, &num_started, &is_open);
    run.answer.add(events);
  };
  for (const Piece& piece : pieces_of(format, text, cuts, is_spelled)) {
    take(parser.feed(piece.token, piece.bytes, piece.token >= 0));
  }
  take(parser.finish(end));
  CHECK_FALSE(is_open);
  run.counts = parser.counts();
  run.num_thought_tokens = parser.num_thought_tokens();
  run.has_complete_call = parser.has_complete_call();
  run.finish = end == AnswerParser::End::kLimit ? "length" : parser.num_calls() > 0 ? "tool_calls" : "stop";
  return run;
}

Run read_all_ways(const ResolvedFormat& format, const AnswerOptions& options, std::string_view text,
                  AnswerParser::End end, bool is_spelled) {
  Run whole = read_answer(format, options, text, end, {}, is_spelled);
  const std::string expected = summary(whole);
  std::vector<size_t> everywhere;
  for (size_t at = 0; at < text.size(); ++at) {
    everywhere.push_back(at);
    const Run run = read_answer(format, options, text, end, {at}, is_spelled);
    INFO("cut at byte " << at);
    CHECK(summary(run) == expected);
    CHECK(run.counts.of == whole.counts.of);
  }
  const Run bytewise = read_answer(format, options, text, end, everywhere, is_spelled);
  INFO("byte by byte");
  CHECK(summary(bytewise) == expected);
  return whole;
}

std::string with_newlines(std::string_view text) {
  constexpr std::string_view kSign = "⏎";
  std::string result(text);
  for (size_t at = 0; (at = result.find(kSign, at)) != std::string::npos;) result.replace(at, kSign.size(), "\n");
  return result;
}

std::string summary(const Run& run) {
  std::string result;
  if (run.answer.thought) result += "T|" + *run.answer.thought + "|";
  if (run.answer.content) result += "C|" + *run.answer.content + "|";
  for (const Answer::Call& call : run.answer.calls) {
    result += call.name + call.args + (call.is_complete ? "" : "...") + "|";
    if (!call.id.starts_with("call_")) result += "id " + call.id + "|";
  }
  return result + run.finish;
}

}  // namespace llmrt::chat_test
