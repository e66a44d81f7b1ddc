#include "tools/llmrt_bench/load/answer_stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/json_reader.h"

namespace llmrt::bench {
namespace {

namespace json = boost::json;

constexpr size_t kChunksPerTokenMax = 4;  // of a server that sends characters

std::string begin_of(std::string_view text) {
  constexpr size_t kBytesMax = 200;
  return text.size() <= kBytesMax ? std::string(text) : std::string(text.substr(0, kBytesMax)) + "...";
}

const json::value* field_of(const json::object* object, std::string_view name) {
  return object ? object->if_contains(name) : nullptr;
}

bool has_text(const json::object* object, std::string_view name) {
  const json::value* value = field_of(object, name);
  return value && value->is_string() && !value->get_string().empty();
}

const json::array* calls_of(const json::object* parts) {
  const json::value* calls = field_of(parts, "tool_calls");
  return calls ? calls->if_array() : nullptr;
}

const json::object* delta_of(const json::object& choice) {
  const json::value* delta = choice.if_contains("delta");
  return delta ? delta->if_object() : nullptr;
}

bool has_call(const json::object* parts) {
  const json::array* calls = calls_of(parts);
  if (!calls) return false;
  return std::ranges::any_of(*calls, [](const json::value& call) {
    const json::value* function = field_of(call.if_object(), "function");
    const json::object* told = function ? function->if_object() : nullptr;
    return has_text(told, "name") || has_text(told, "arguments");
  });
}

bool has_ids(const json::object& choice) {
  const json::value* ids = choice.if_contains("token_ids");
  return ids && ids->is_array() && !ids->get_array().empty();
}

// In completions, in chat, in chat with a model that thinks aloud (two names are in use), and as ids.
bool has_text(const json::object& choice) {
  const json::object* parts = delta_of(choice);
  return has_ids(choice) || has_call(parts) || has_text(&choice, "text") || has_text(parts, "content") ||
         has_text(parts, "reasoning_content") || has_text(parts, "reasoning");
}

uint32_t count_of(const json::object& usage, std::string_view name) {
  const json::value* value = usage.if_contains(name);
  boost::system::error_code error;
  const auto count = value ? value->to_number<uint32_t>(error) : 0;
  return error ? 0 : count;
}

}  // namespace

bool AnswerStream::feed(std::string_view bytes, TimeNs now_ns) {
  while (!bytes.empty() && !is_over()) {
    const size_t end = bytes.find('\n');
    const size_t size = std::min(end, bytes.size());
    if (line_.size() + size > kStreamLineBytesMax) {
      outcome_->fail(Failure::kLongLine,
                     fmt::format("a line of more than {} bytes: {}", kStreamLineBytesMax, begin_of(line_)));
      break;
    }
    line_ += bytes.substr(0, size);
    if (end == std::string_view::npos) break;
    bytes.remove_prefix(end + 1);
    if (line_.ends_with('\r')) line_.pop_back();
    take_line(line_, now_ns);
    line_.clear();
  }
  if (is_over()) outcome_->end_ns = now_ns;
  return !is_over();
}

void AnswerStream::end(TimeNs now_ns) {
  outcome_->end_ns = now_ns;
  if (outcome_->failure) return;
  if (!is_done_ && !has_finish_reason_)
    outcome_->fail(
        Failure::kCutStream,
        fmt::format("the stream ended after {} chunks, without a finish_reason or [DONE]", outcome_->times_ns.size()));
  else if (outcome_->times_ns.empty())
    outcome_->fail(Failure::kNoTokens, "the answer ended and no chunk had text");
  else if (!outcome_->is_counted_by_server)
    outcome_->output_tokens = static_cast<uint32_t>(outcome_->times_ns.size());
}

// An event is its data lines; an empty line ends it. Comments and other fields say nothing to us.
void AnswerStream::take_line(std::string_view line, TimeNs now_ns) {
  if (line.empty()) {
    if (!data_.empty()) take_event(now_ns);
    data_.clear();
    return;
  }
  if (line.starts_with('{'))  // an error without the frame of an event
    return outcome_->fail(Failure::kBadReply, fmt::format("expected server-sent events, found {}", begin_of(line)));
  if (!line.starts_with("data:")) return;
  line.remove_prefix(5);
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (!data_.empty()) data_ += '\n';
  data_ += line;
  if (data_.size() > kStreamLineBytesMax)
    outcome_->fail(Failure::kLongLine, fmt::format("an event of more than {} bytes", kStreamLineBytesMax));
}

void AnswerStream::take_event(TimeNs now_ns) {
  if (data_ == "[DONE]") {
    is_done_ = true;
    return end(now_ns);
  }
  Result<json::value> parsed = server::read_json(data_);
  if (!parsed || !parsed->is_object())
    return outcome_->fail(Failure::kBadReply,
                          fmt::format("expected a JSON object as the data of an event, found {}", begin_of(data_)));
  const json::object& event = parsed->get_object();
  if (const json::value* error = event.if_contains("error"); error && !error->is_null())
    return outcome_->fail(Failure::kErrorEvent, begin_of(json::serialize(*error)));
  if (const json::value* usage = event.if_contains("usage"); usage && usage->is_object()) {
    outcome_->output_tokens = count_of(usage->get_object(), "completion_tokens");
    if (const uint32_t tokens = count_of(usage->get_object(), "prompt_tokens")) outcome_->prompt_tokens = tokens;
    const json::value* details = field_of(&usage->get_object(), "prompt_tokens_details");
    if (const json::object* told = details ? details->if_object() : nullptr; told && told->contains("cached_tokens"))
      outcome_->cached_tokens = count_of(*told, "cached_tokens");
    outcome_->is_counted_by_server = outcome_->output_tokens > 0;
  }
  const json::value* choices = event.if_contains("choices");
  if (!choices || !choices->is_array())
    return outcome_->fail(Failure::kBadReply, fmt::format("expected an event with choices, found {}", begin_of(data_)));
  if (choices->get_array().empty()) return;  // of the usage alone
  const json::object* choice = choices->get_array().front().if_object();
  if (!choice)
    return outcome_->fail(Failure::kBadReply,
                          fmt::format("expected choices that are objects, found {}", begin_of(data_)));
  if (has_text(*choice)) outcome_->times_ns.push_back(now_ns);
  if (outcome_->times_ns.size() > kChunksPerTokenMax * outcome_->asked_tokens)
    return outcome_->fail(Failure::kTooLong, fmt::format("{} tokens were asked for, and {} chunks with text came",
                                                         outcome_->asked_tokens, outcome_->times_ns.size()));
  const json::value* reason = choice->if_contains("finish_reason");
  has_finish_reason_ |= reason && !reason->is_null();
  if (reason && reason->is_string()) outcome_->finish_reason = printable(begin_of(reason->get_string()));
  if (outcome_->is_structured || outcome_->keeps_answer) keep_text(*choice);
}

// Calls come in pieces that say which call they are of.
void AnswerStream::keep_text(const json::object& choice) {
  AnswerText& answer = outcome_->answer;
  const json::object* parts = delta_of(choice);
  const auto append = [&](const json::object* object, std::string_view name, std::string* text) {
    if (!has_text(object, name)) return;
    const json::string& piece = object->at(name).get_string();
    kept_bytes_ += piece.size();
    if (kept_bytes_ <= kAnswerBytesMax) text->append(piece.data(), piece.size());
  };
  append(&choice, "text", &answer.content);
  append(parts, "content", &answer.content);
  if (const json::array* calls = calls_of(parts)) {
    for (const json::value& call : *calls) {
      const json::object* object = call.if_object();
      const json::value* function = field_of(object, "function");
      const uint32_t i = object ? count_of(*object, "index") : 0;
      if (!function || i >= kCallsMax) continue;
      if (answer.calls.size() <= i) answer.calls.resize(i + 1);
      append(function->if_object(), "name", &answer.calls[i].name);
      append(function->if_object(), "arguments", &answer.calls[i].arguments);
    }
  }
  if (kept_bytes_ > kAnswerBytesMax) answer = {};
}

}  // namespace llmrt::bench
