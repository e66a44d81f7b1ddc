#include "server/api_answer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>

#include "core/base/utf8.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

// The inside of a JSON string. `text` is valid UTF-8.
void append_escaped(std::string_view text, std::string& out) {
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
}
void append_string(std::string_view text, std::string& out) {
  out += '"';
  append_escaped(text, out);
  out += '"';
}

// JSON has no infinity; -9999 is what others write for "never". As many digits as tell the float apart, and always one
// that says that it is no integer.
void append_logprob(float logprob, std::string& out) {
  const float shown = std::isfinite(logprob) ? std::max(logprob, -9999.0f) : -9999.0f;
  const size_t begin = out.size();
  fmt::format_to(std::back_inserter(out), "{}", shown);
  if (out.find_first_of(".e", begin) == std::string::npos) out += ".0";
}

// A token as a JSON string that is unique: bytes that are no text alone are spelled out.
void append_token_text(std::string_view bytes, std::string& out) {
  if (is_valid_utf8(bytes)) return append_string(bytes, out);
  out += "\"bytes:";
  for (const unsigned char byte : bytes) fmt::format_to(std::back_inserter(out), "\\\\x{:02x}", byte);
  out += '"';
}

template <typename Append>
void append_list(size_t count, std::string& out, Append append) {
  out += '[';
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) out += ',';
    append(i);
  }
  out += ']';
}
void append_ids(const std::vector<int32_t>& ids, std::string& out) {
  append_list(ids.size(), out, [&](size_t i) { fmt::format_to(std::back_inserter(out), "{}", ids[i]); });
}

void append_finish(FinishReason finish, std::string& out) {
  fmt::format_to(std::back_inserter(out), ",\"finish_reason\":{}", json::serialize(finish_text(finish)));
}

// One more member of a list that grows.
void append_member(TextPieces& list, std::string_view member) {
  if (!list.empty()) list.append(",");
  list.append(member);
}

}  // namespace

size_t AnswerDraft::held_bytes() const {
  return text.held_bytes() + tokens.held_bytes() + logprobs.held_bytes() + tops.held_bytes() + offsets.held_bytes() +
         token_ids.held_bytes();
}

json::value finish_text(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return nullptr;
    case FinishReason::kEos:
    case FinishReason::kStopToken:
    case FinishReason::kStopString:
    case FinishReason::kGrammarEnd:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kPolicy:
      return "content_filter";
    case FinishReason::kCancelled:
    case FinishReason::kTimeout:
    case FinishReason::kError:
      return "error";
  }
  return nullptr;
}

json::object usage_of(const std::vector<Choice>& choices, const AnswerForm& form) {
  size_t prompt = 0, generated = 0, cached = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    generated += choices[i].num_generated();
    if (i % form.best_of != 0) continue;
    prompt += choices[i].prompt_tokens().size();
    cached += choices[i].num_cached();
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", generated},
          {"total_tokens", prompt + generated},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

std::vector<size_t> shown_choices(const std::vector<Choice>& choices, const AnswerForm& form) {
  std::vector<size_t> shown;
  for (size_t first = 0; first < choices.size(); first += form.best_of) {
    std::vector<size_t> order(form.best_of);
    std::iota(order.begin(), order.end(), first);
    if (form.best_of > form.n && !form.beams)
      std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return choices[i].mean_logprob(); });
    order.resize(form.n);
    shown.insert(shown.end(), order.begin(), order.end());
  }
  return shown;
}

std::string AnswerWriter::frame(const char* object) const {
  std::string out = "{\"id\":";
  append_string(head_.id, out);
  fmt::format_to(std::back_inserter(out), ",\"object\":\"{}\",\"created\":{},\"model\":", object, head_.created);
  append_string(model_->id, out);
  return out;
}

std::string_view AnswerWriter::bytes_of(int32_t token) const {
  return model_->tokenizer ? model_->tokenizer->token_bytes(token, /*special=*/true) : std::string_view();
}

// Without the closing brace: top_logprobs may follow.
void AnswerWriter::chat_record(int32_t token, std::string_view bytes, bool has_logprob, float logprob,
                               std::string& out) const {
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
  if (form_.return_token_ids) fmt::format_to(std::back_inserter(out), ",\"token_id\":{}", token);
}

void AnswerWriter::chat_entry(const TokenRecord& record, std::string& out) const {
  chat_record(record.token, record.bytes, record.has_logprob, record.logprob, out);
  out += ",\"top_logprobs\":";
  append_list(record.top.size(), out, [&](size_t i) {
    const TopLogprob& other = record.top[i];
    chat_record(other.token, bytes_of(other.token), true, other.logprob, out);
    out += '}';
  });
  out += '}';
}

// Alternatives by text; the chosen token is always there, and of several with one text the likeliest.
void AnswerWriter::completion_top(const TokenRecord& record, std::string& out) const {
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

void AnswerWriter::append_logprobs(const std::vector<TokenRecord>& records, std::string& out) const {
  if (form_.logprobs < 0) {
    out += "null";
  } else if (form_.chat) {
    out += "{\"content\":";
    append_list(records.size(), out, [&](size_t i) { chat_entry(records[i], out); });
    out += ",\"refusal\":null}";
  } else {
    out += "{\"tokens\":";
    append_list(records.size(), out, [&](size_t i) { append_token_text(records[i].bytes, out); });
    out += ",\"token_logprobs\":";
    append_list(records.size(), out, [&](size_t i) {
      if (records[i].has_logprob)
        append_logprob(records[i].logprob, out);
      else
        out += "null";
    });
    out += ",\"top_logprobs\":";
    append_list(records.size(), out, [&](size_t i) { completion_top(records[i], out); });
    out += ",\"text_offset\":";
    append_list(records.size(), out,
                [&](size_t i) { fmt::format_to(std::back_inserter(out), "{}", records[i].text_offset); });
    out += '}';
  }
}

// ---- a whole answer ------------------------------------------------------------------------------------------------

void AnswerWriter::add(const ChoiceDelta& delta, AnswerDraft& draft) const {
  std::string member;
  append_escaped(delta.text, member);
  draft.text.append(member);
  const auto add = [&](TextPieces& list, auto append) {
    member.clear();
    append();
    append_member(list, member);
  };
  for (const TokenRecord& record : delta.records) {
    if (form_.chat) {
      add(draft.tokens, [&] { chat_entry(record, member); });
      continue;
    }
    add(draft.tokens, [&] { append_token_text(record.bytes, member); });
    add(draft.logprobs, [&] { record.has_logprob ? append_logprob(record.logprob, member) : void(member = "null"); });
    add(draft.tops, [&] { completion_top(record, member); });
    add(draft.offsets, [&] { member = fmt::to_string(record.text_offset); });
  }
  for (const int32_t id : delta.token_ids) append_member(draft.token_ids, fmt::to_string(id));
  if (delta.finish != FinishReason::kNone) draft.finish = delta.finish;
}

TextPieces AnswerWriter::whole(const std::vector<Choice>& choices, std::vector<AnswerDraft> drafts) const {
  TextPieces body;
  body.append(frame(form_.chat ? "chat.completion" : "text_completion"));
  body.append(",\"choices\":[");
  size_t index = 0;
  std::string tail;
  for (const size_t i : shown_choices(choices, form_)) {
    AnswerDraft draft = std::move(drafts[i]);
    body.append(fmt::format("{}{{\"index\":{},", index > 0 ? "," : "", index));
    body.append(form_.chat ? "\"message\":{\"role\":\"assistant\",\"content\":\"" : "\"text\":\"");
    body.append(std::move(draft.text));
    body.append(form_.chat ? "\",\"refusal\":null},\"logprobs\":" : "\",\"logprobs\":");
    if (form_.logprobs < 0) {
      body.append("null");
    } else {
      body.append(form_.chat ? "{\"content\":[" : "{\"tokens\":[");
      body.append(std::move(draft.tokens));
      if (!form_.chat) {
        body.append("],\"token_logprobs\":[");
        body.append(std::move(draft.logprobs));
        body.append("],\"top_logprobs\":[");
        body.append(std::move(draft.tops));
        body.append("],\"text_offset\":[");
        body.append(std::move(draft.offsets));
      }
      body.append(form_.chat ? "],\"refusal\":null}" : "]}");
    }
    tail.clear();
    append_finish(draft.finish, tail);
    body.append(tail);
    if (form_.return_token_ids) {
      body.append(",\"token_ids\":[");
      body.append(std::move(draft.token_ids));
      tail = "]";
      if (!form_.chat) {
        tail += ",\"prompt_token_ids\":";
        append_ids(choices[i].prompt_tokens(), tail);
      }
      body.append(tail);
    }
    body.append("}");
    ++index;
  }
  tail = fmt::format("],\"usage\":{}", json::serialize(usage_of(choices, form_)));
  if (form_.return_token_ids && form_.chat) {
    tail += ",\"prompt_token_ids\":";
    append_ids(choices[0].prompt_tokens(), tail);
  }
  tail += '}';
  body.append(tail);
  return body;
}

// ---- chunks --------------------------------------------------------------------------------------------------------

// The end of a chunk with a choice: usage is null where only the last chunk tells it.
void AnswerWriter::end_chunk(const std::vector<Choice>& choices, std::string& out) const {
  if (form_.include_usage && !form_.continuous_usage) out += ",\"usage\":null";
  if (form_.continuous_usage) {
    json::object usage = usage_of(choices, form_);
    usage.erase("prompt_tokens_details");  // known at the end
    out += ",\"usage\":" + json::serialize(usage);
  }
  out += "}\n\n";
}

void AnswerWriter::first_chunk(size_t index, const std::vector<Choice>& choices, std::string& out) const {
  out += "data: " + frame("chat.completion.chunk");
  fmt::format_to(std::back_inserter(out),
                 ",\"choices\":[{{\"index\":{},\"delta\":{{\"role\":\"assistant\",\"content\":\"\"}},"
                 "\"logprobs\":null,\"finish_reason\":null}}]",
                 index);
  if (form_.return_token_ids) {
    out += ",\"prompt_token_ids\":";
    append_ids(choices[index].prompt_tokens(), out);
  }
  end_chunk(choices, out);
}

void AnswerWriter::chunk(size_t index, const ChoiceDelta& delta, bool first, const std::vector<Choice>& choices,
                         std::string& out) const {
  out += "data: " + frame(form_.chat ? "chat.completion.chunk" : "text_completion");
  fmt::format_to(std::back_inserter(out), ",\"choices\":[{{\"index\":{},", index);
  if (!form_.chat) {
    out += "\"text\":";
    append_string(delta.text, out);
  } else if (delta.text.empty()) {
    out += "\"delta\":{}";
  } else {
    out += "\"delta\":{\"content\":";
    append_string(delta.text, out);
    out += '}';
  }
  out += ",\"logprobs\":";
  if (delta.records.empty())
    out += "null";
  else
    append_logprobs(delta.records, out);
  append_finish(delta.finish, out);
  if (form_.return_token_ids) {
    out += ",\"token_ids\":";
    append_ids(delta.token_ids, out);
    if (first && !form_.chat) {
      out += ",\"prompt_token_ids\":";
      append_ids(choices[index].prompt_tokens(), out);
    }
  }
  out += "}]";
  end_chunk(choices, out);
}

void AnswerWriter::usage_chunk(const std::vector<Choice>& choices, std::string& out) const {
  out += "data: " + frame(form_.chat ? "chat.completion.chunk" : "text_completion");
  out += ",\"choices\":[],\"usage\":" + json::serialize(usage_of(choices, form_)) + "}\n\n";
}

}  // namespace llmrt::server
