// Answers of /v1/chat/completions.
#include <iterator>

#include "core/base/utf8.h"
#include "server/answer_json.h"
#include "server/api_answer.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

// What a call is: {"id", "type", "function": {"name", "arguments": "
void append_call_head(std::string_view id, std::string_view name, bool is_custom, std::string& out) {
  out += "\"id\":";
  append_string(id, out);
  out += is_custom ? ",\"type\":\"custom\",\"custom\":{\"name\":" : ",\"type\":\"function\",\"function\":{\"name\":";
  append_string(name, out);
  out += is_custom ? ",\"input\":\"" : ",\"arguments\":\"";
}

// Without the closing brace: top_logprobs may follow.
void append_token(int32_t token, std::string_view bytes, bool has_logprob, float logprob, bool with_ids,
                  std::string& out) {
  out += "{\"token\":";
  append_string(replace_invalid_utf8(bytes), out);
  out += ",\"logprob\":";
  if (has_logprob)
    append_logprob(logprob, out);
  else
    out += "null";
  out += ",\"bytes\":";
  append_list(bytes.size(), out,
              [&](size_t i) { fmt::format_to(std::back_inserter(out), "{}", static_cast<unsigned char>(bytes[i])); });
  if (with_ids) fmt::format_to(std::back_inserter(out), ",\"token_id\":{}", token);
}

class ChatWriter final : public OpenAiWriter {
 public:
  using OpenAiWriter::OpenAiWriter;

  void chunk(size_t choice, const ChoiceDelta& delta, const std::vector<Choice>& choices, bool is_last,
             std::string& out) override;

 private:
  const char* object(bool is_chunk) const override { return is_chunk ? "chat.completion.chunk" : "chat.completion"; }
  bool tells_prompt_by_choice() const override { return false; }
  void append_said(AnswerDraft& draft, TextPieces& body) const override;
  void append_logprob_lists(AnswerDraft& draft, TextPieces& body) const override {
    body.append("{\"content\":[");
    body.append(std::move(draft.tokens));
    body.append("],\"refusal\":null}");
  }
  void add_record(const TokenRecord& record, AnswerDraft& draft) const override {
    if (form_.logprobs < 0) return;
    std::string member;
    append_entry(record, member);
    append_member(draft.tokens, member);
  }
  void append_entry(const TokenRecord& record, std::string& out) const {
    append_token_entry(model_, record, form_.return_token_ids, out);
  }
  void first_chunk(size_t choice, const std::vector<Choice>& choices, std::string& out) const;
  void part_chunk(size_t choice, const AnswerPart& part, const std::vector<Choice>& choices, std::string& out) const;
};

void ChatWriter::append_said(AnswerDraft& draft, TextPieces& body) const {
  body.append("\"message\":{\"role\":\"assistant\",\"content\":");
  if (draft.text.empty() && !draft.calls.empty()) {
    body.append("null");
  } else {
    body.append("\"");
    body.append(std::move(draft.text));
    body.append("\"");
  }
  if (!draft.thought.empty()) {
    body.append(fmt::format(",\"{}\":\"", model_.thought_field));
    body.append(std::move(draft.thought));
    body.append("\"");
  }
  std::string text;
  for (size_t i = 0; i < draft.calls.size(); ++i) {
    AnswerDraft::Call& call = draft.calls[i];
    text = i == 0 ? ",\"tool_calls\":[{" : ",{";
    append_call_head(call.id, call.name, call.is_custom, text);
    body.append(text);
    body.append(std::move(call.arguments));
    body.append("\"}}");
  }
  if (!draft.calls.empty()) body.append("]");
  body.append(",\"refusal\":null},");
}

void ChatWriter::first_chunk(size_t choice, const std::vector<Choice>& choices, std::string& out) const {
  out += "data: " + frame(/*is_chunk=*/true);
  fmt::format_to(std::back_inserter(out),
                 ",\"choices\":[{{\"index\":{},\"delta\":{{\"role\":\"assistant\",\"content\":\"\"}},"
                 "\"logprobs\":null,\"finish_reason\":null}}]",
                 choice);
  if (form_.return_token_ids) {
    out += ",\"prompt_token_ids\":";
    append_ids(choices[choice].prompt_tokens(), out);
  }
  end_chunk(choices, out);
}

// A delta of one part alone.
void ChatWriter::part_chunk(size_t choice, const AnswerPart& part, const std::vector<Choice>& choices,
                            std::string& out) const {
  out += "data: " + frame(/*is_chunk=*/true);
  fmt::format_to(std::back_inserter(out), ",\"choices\":[{{\"index\":{},\"delta\":{{", choice);
  switch (part.kind) {
    case AnswerPart::Kind::kContent:
      out += "\"content\":";
      append_string(part.text, out);
      break;
    case AnswerPart::Kind::kThought:
      fmt::format_to(std::back_inserter(out), "\"{}\":", model_.thought_field);
      append_string(part.text, out);
      break;
    case AnswerPart::Kind::kCallHead:
      fmt::format_to(std::back_inserter(out), "\"tool_calls\":[{{\"index\":{},", part.call_idx);
      append_call_head(part.id, part.name, part.is_custom, out);
      out += "\"}}]";
      break;
    case AnswerPart::Kind::kCallArguments:
      fmt::format_to(std::back_inserter(out), "\"tool_calls\":[{{\"index\":{},\"{}\":{{\"{}\":", part.call_idx,
                     part.is_custom ? "custom" : "function", part.is_custom ? "input" : "arguments");
      append_string(part.text, out);
      out += "}}]";
      break;
  }
  out += "},\"logprobs\":null,\"finish_reason\":null}]";
  end_chunk(choices, out);
}

void ChatWriter::chunk(size_t choice, const ChoiceDelta& delta, const std::vector<Choice>& choices, bool is_last,
                       std::string& out) {
  if (begins(choice)) first_chunk(choice, choices, out);
  // A delta that says nothing new is not sent, except where tokens have no text at all.
  if (delta.empty() && model_.tokenizer) return;
  for (const AnswerPart& part : delta.parts) part_chunk(choice, part, choices, out);
  const bool says_more = !delta.records.empty() || !delta.token_ids.empty() || delta.finish != FinishReason::kNone;
  if (!delta.parts.empty() && !says_more) return;
  out += "data: " + frame(/*is_chunk=*/true);
  fmt::format_to(std::back_inserter(out), ",\"choices\":[{{\"index\":{},\"delta\":{{", choice);
  if (!delta.text.empty()) {
    out += "\"content\":";
    append_string(delta.text, out);
  }
  out += "},\"logprobs\":";
  if (delta.records.empty() || form_.logprobs < 0) {
    out += "null";
  } else {
    out += "{\"content\":";
    append_list(delta.records.size(), out, [&](size_t i) { append_entry(delta.records[i], out); });
    out += ",\"refusal\":null}";
  }
  out += ",\"finish_reason\":" + json::serialize(finish_of(delta.finish, delta.ends_in_calls));
  if (form_.return_token_ids) {
    out += ",\"token_ids\":";
    append_ids(delta.token_ids, out);
  }
  out += "}]";
  if (is_last && !form_.include_usage) append_warnings(form_, out);
  end_chunk(choices, out);
}

}  // namespace

void append_token_entry(const ServedModel& model, const TokenRecord& record, bool with_ids, std::string& out) {
  append_token(record.token, record.bytes, record.has_logprob, record.logprob, with_ids, out);
  out += ",\"top_logprobs\":";
  append_list(record.top.size(), out, [&](size_t i) {
    const TopLogprob& other = record.top[i];
    const std::string_view bytes = model.tokenizer ? model.tokenizer->token_bytes(other.token, /*special=*/true) : "";
    append_token(other.token, bytes, true, other.logprob, with_ids, out);
    out += '}';
  });
  out += '}';
}

std::unique_ptr<AnswerWriter> make_chat_writer(const ServedModel& model, const AnswerForm& form, AnswerHead head) {
  return std::make_unique<ChatWriter>(model, form, std::move(head));
}

}  // namespace llmrt::server
