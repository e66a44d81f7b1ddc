// Answers of /v1/completions.
#include <algorithm>
#include <iterator>

#include "core/base/utf8.h"
#include "server/answer_json.h"
#include "server/api_answer.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

// A token as a JSON string that is unique: bytes that are no text alone are spelled out.
void append_token_text(std::string_view bytes, std::string& out) {
  if (is_valid_utf8(bytes)) return append_string(bytes, out);
  out += "\"bytes:";
  for (const unsigned char byte : bytes) fmt::format_to(std::back_inserter(out), "\\\\x{:02x}", byte);
  out += '"';
}
void append_record_logprob(const TokenRecord& record, std::string& out) {
  if (record.has_logprob)
    append_logprob(record.logprob, out);
  else
    out += "null";
}

class CompletionWriter final : public OpenAiWriter {
 public:
  using OpenAiWriter::OpenAiWriter;

  void chunk(size_t choice, const ChoiceDelta& delta, const std::vector<Choice>& choices, bool is_last,
             std::string& out) override;

 private:
  const char* object(bool) const override { return "text_completion"; }
  bool tells_prompt_by_choice() const override { return true; }
  void append_said(AnswerDraft& draft, TextPieces& body) const override {
    body.append("\"text\":\"");
    body.append(std::move(draft.text));
    body.append("\",");
  }
  void append_logprob_lists(AnswerDraft& draft, TextPieces& body) const override;
  void add_record(const TokenRecord& record, AnswerDraft& draft) const override;
  void append_top(const TokenRecord& record, std::string& out) const;
  void append_logprobs(const std::vector<TokenRecord>& records, std::string& out) const;
};

// Alternatives by text; the chosen token is always there, and of several with one text the likeliest.
void CompletionWriter::append_top(const TokenRecord& record, std::string& out) const {
  if (!record.has_logprob) {
    out += "null";
    return;
  }
  out += '{';
  append_token_text(record.bytes, out);
  out += ':';
  append_logprob(record.logprob, out);
  std::vector<std::string_view> seen = {record.bytes};
  for (const TopLogprob& other : record.top) {
    const std::string_view bytes = bytes_of(other.token);
    if (std::ranges::find(seen, bytes) != seen.end()) continue;
    seen.push_back(bytes);
    out += ',';
    append_token_text(bytes, out);
    out += ':';
    append_logprob(other.logprob, out);
  }
  out += '}';
}

void CompletionWriter::append_logprobs(const std::vector<TokenRecord>& records, std::string& out) const {
  out += "{\"tokens\":";
  append_list(records.size(), out, [&](size_t i) { append_token_text(records[i].bytes, out); });
  out += ",\"token_logprobs\":";
  append_list(records.size(), out, [&](size_t i) { append_record_logprob(records[i], out); });
  out += ",\"top_logprobs\":";
  append_list(records.size(), out, [&](size_t i) { append_top(records[i], out); });
  out += ",\"text_offset\":";
  append_list(records.size(), out,
              [&](size_t i) { fmt::format_to(std::back_inserter(out), "{}", records[i].text_offset); });
  out += '}';
}

void CompletionWriter::add_record(const TokenRecord& record, AnswerDraft& draft) const {
  if (form_.logprobs < 0) return;
  std::string member;
  const auto add = [&](TextPieces& list, auto append) {
    member.clear();
    append();
    append_member(list, member);
  };
  add(draft.tokens, [&] { append_token_text(record.bytes, member); });
  add(draft.logprobs, [&] { append_record_logprob(record, member); });
  add(draft.tops, [&] { append_top(record, member); });
  add(draft.offsets, [&] { member = fmt::to_string(record.text_offset); });
}

void CompletionWriter::append_logprob_lists(AnswerDraft& draft, TextPieces& body) const {
  body.append("{\"tokens\":[");
  body.append(std::move(draft.tokens));
  body.append("],\"token_logprobs\":[");
  body.append(std::move(draft.logprobs));
  body.append("],\"top_logprobs\":[");
  body.append(std::move(draft.tops));
  body.append("],\"text_offset\":[");
  body.append(std::move(draft.offsets));
  body.append("]}");
}

void CompletionWriter::chunk(size_t choice, const ChoiceDelta& delta, const std::vector<Choice>& choices, bool is_last,
                             std::string& out) {
  // A delta that says nothing new is not sent, except where tokens have no text at all.
  if (delta.empty() && model_.tokenizer) return;
  out += "data: " + frame(/*is_chunk=*/true);
  fmt::format_to(std::back_inserter(out), ",\"choices\":[{{\"index\":{},\"text\":", choice);
  append_string(delta.text, out);
  out += ",\"logprobs\":";
  if (delta.records.empty() || form_.logprobs < 0)
    out += "null";
  else
    append_logprobs(delta.records, out);
  out += ",\"finish_reason\":" + json::serialize(finish_of(delta.finish, delta.ends_in_calls));
  if (form_.return_token_ids) {
    out += ",\"token_ids\":";
    append_ids(delta.token_ids, out);
    if (begins(choice)) {
      out += ",\"prompt_token_ids\":";
      append_ids(choices[choice].prompt_tokens(), out);
    }
  }
  out += "}]";
  if (is_last && !form_.include_usage) append_warnings(form_, out);
  end_chunk(choices, out);
}

}  // namespace

std::unique_ptr<AnswerWriter> make_completion_writer(const ServedModel& model, const AnswerForm& form,
                                                     AnswerHead head) {
  return std::make_unique<CompletionWriter>(model, form, std::move(head));
}

}  // namespace llmrt::server
