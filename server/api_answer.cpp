#include "server/api_answer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>

#include "core/base/utf8.h"
#include "core/grammar/json_spelling.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

// The inside of a JSON string. `text` is valid UTF-8.
void append_escaped(std::string_view text, std::string& out) {
  const auto& spellings = json_spellings();
  for (const char c : text) out += spellings[static_cast<uint8_t>(c)];
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

void append_finish(const json::value& finish, std::string& out) {
  fmt::format_to(std::back_inserter(out), ",\"finish_reason\":{}", json::serialize(finish));
}

// What a call is: {"id", "type", "function": {"name", "arguments": "
void append_call_head(std::string_view id, std::string_view name, bool is_custom, std::string& out) {
  out += "\"id\":";
  append_string(id, out);
  out += is_custom ? ",\"type\":\"custom\",\"custom\":{\"name\":" : ",\"type\":\"function\",\"function\":{\"name\":";
  append_string(name, out);
  out += is_custom ? ",\"input\":\"" : ",\"arguments\":\"";
}

// One more member of a list that grows.
void append_member(TextPieces& list, std::string_view member) {
  if (!list.empty()) list.append(",");
  list.append(member);
}

}  // namespace

size_t AnswerDraft::held_bytes() const {
  size_t of_calls = 0;
  for (const Call& call : calls)
    of_calls += sizeof(call) + call.id.size() + call.name.size() + call.arguments.held_bytes();
  return of_calls + thought.held_bytes() + text.held_bytes() + tokens.held_bytes() + logprobs.held_bytes() +
         tops.held_bytes() + offsets.held_bytes() + token_ids.held_bytes();
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
  size_t prompt = 0, generated = 0, cached = 0, thought = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    generated += choices[i].num_generated();
    thought += choices[i].num_thought_tokens();
    if (i % form.best_of != 0) continue;
    prompt += choices[i].prompt_tokens().size();
    cached += choices[i].num_cached();
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", generated},
          {"total_tokens", prompt + generated},
          {"prompt_tokens_details", {{"cached_tokens", cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", thought}}}};
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

void AnswerWriter::append_warnings(std::string& out) const {
  if (form_.warnings.empty()) return;
  out += ",\"warnings\":";
  append_list(form_.warnings.size(), out, [&](size_t i) {
    out += "{\"param\":";
    append_string(form_.warnings[i].param, out);
    out += ",\"message\":";
    append_string(form_.warnings[i].message, out);
    out += '}';
  });
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
  for (const AnswerPart& part : delta.parts) {
    member.clear();
    append_escaped(part.text, member);
    switch (part.kind) {
      case AnswerPart::Kind::kContent:
        draft.text.append(member);
        break;
      case AnswerPart::Kind::kThought:
        draft.thought.append(member);
        break;
      case AnswerPart::Kind::kCallHead:
        draft.calls.push_back({part.id, part.name, part.is_custom, {}});
        break;
      case AnswerPart::Kind::kCallArguments:
        draft.calls.back().arguments.append(member);
        break;
    }
  }
  draft.ends_in_calls |= delta.ends_in_calls;
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

// `stop` where a certain call was asked for, as others have it; `length` stays.
json::value AnswerWriter::finish_of(FinishReason finish, bool ends_in_calls) const {
  json::value text = finish_text(finish);
  const bool is_named = form_.structure && form_.structure->choice == AnswerStructure::Choice::kNamed;
  if (ends_in_calls && !is_named && text == "stop") return "tool_calls";
  return text;
}

void AnswerWriter::append_message(AnswerDraft&& draft, TextPieces& body) const {
  if (!form_.chat) {
    body.append("\"text\":\"");
    body.append(std::move(draft.text));
    return body.append("\",\"logprobs\":");
  }
  body.append("\"message\":{\"role\":\"assistant\",\"content\":");
  if (draft.text.empty() && !draft.calls.empty()) {
    body.append("null");
  } else {
    body.append("\"");
    body.append(std::move(draft.text));
    body.append("\"");
  }
  if (!draft.thought.empty()) {
    body.append(fmt::format(",\"{}\":\"", model_->thought_field));
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
  body.append(",\"refusal\":null},\"logprobs\":");
}

TextPieces AnswerWriter::whole(const std::vector<Choice>& choices, std::vector<AnswerDraft> drafts) const {
  if (form_.infill) return infill_whole(choices[0], std::move(drafts[0]));
  TextPieces body;
  body.append(frame(form_.chat ? "chat.completion" : "text_completion"));
  body.append(",\"choices\":[");
  size_t index = 0;
  std::string tail;
  for (const size_t i : shown_choices(choices, form_)) {
    AnswerDraft draft = std::move(drafts[i]);
    body.append(fmt::format("{}{{\"index\":{},", index > 0 ? "," : "", index));
    const json::value finish = finish_of(draft.finish, draft.ends_in_calls);
    append_message(std::move(draft), body);
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
    append_finish(finish, tail);
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
  append_warnings(tail);
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
    usage.erase("completion_tokens_details");
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

// A delta of one part alone.
void AnswerWriter::part_chunk(size_t index, const AnswerPart& part, const std::vector<Choice>& choices,
                              std::string& out) const {
  out += "data: " + frame("chat.completion.chunk");
  fmt::format_to(std::back_inserter(out), ",\"choices\":[{{\"index\":{},\"delta\":{{", index);
  switch (part.kind) {
    case AnswerPart::Kind::kContent:
      out += "\"content\":";
      append_string(part.text, out);
      break;
    case AnswerPart::Kind::kThought:
      fmt::format_to(std::back_inserter(out), "\"{}\":", model_->thought_field);
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

void AnswerWriter::chunk(size_t index, const ChoiceDelta& delta, bool first, const std::vector<Choice>& choices,
                         std::string& out, bool is_last) const {
  if (form_.infill) return infill_chunk(choices[index], delta, out);
  for (const AnswerPart& part : delta.parts) part_chunk(index, part, choices, out);
  const bool says_more = !delta.records.empty() || !delta.token_ids.empty() || delta.finish != FinishReason::kNone;
  if (!delta.parts.empty() && !says_more) return;
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
  append_finish(finish_of(delta.finish, delta.ends_in_calls), out);
  if (form_.return_token_ids) {
    out += ",\"token_ids\":";
    append_ids(delta.token_ids, out);
    if (first && !form_.chat) {
      out += ",\"prompt_token_ids\":";
      append_ids(choices[index].prompt_tokens(), out);
    }
  }
  out += "}]";
  if (is_last) append_warnings(out);
  end_chunk(choices, out);
}

void AnswerWriter::usage_chunk(const std::vector<Choice>& choices, std::string& out) const {
  out += "data: " + frame(form_.chat ? "chat.completion.chunk" : "text_completion");
  out += ",\"choices\":[],\"usage\":" + json::serialize(usage_of(choices, form_));
  append_warnings(out);
  out += "}\n\n";
}

}  // namespace llmrt::server
