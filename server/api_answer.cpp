#include "server/api_answer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "server/answer_json.h"
#include "server/http.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

void append_finish(const json::value& finish, std::string& out) {
  fmt::format_to(std::back_inserter(out), ",\"finish_reason\":{}", json::serialize(finish));
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
    case FinishReason::kDisconnected:
    case FinishReason::kHandedOver:
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

// As many digits as tell the float apart, and always one that says that it is no integer.
void append_logprob(float logprob, std::string& out) {
  const float shown = std::isfinite(logprob) ? std::max(logprob, -9999.0f) : -9999.0f;
  const size_t begin = out.size();
  fmt::format_to(std::back_inserter(out), "{}", shown);
  if (out.find_first_of(".e", begin) == std::string::npos) out += ".0";
}

void append_warnings(const AnswerForm& form, std::string& out) {
  if (form.warnings.empty()) return;
  out += ",\"warnings\":";
  append_list(form.warnings.size(), out, [&](size_t i) {
    out += "{\"param\":";
    append_string(form.warnings[i].param, out);
    out += ",\"message\":";
    append_string(form.warnings[i].message, out);
    out += '}';
  });
}

// ---- drafts --------------------------------------------------------------------------------------------------------

AnswerDraft& DraftWriter::draft(size_t choice) {
  if (choice >= drafts_.size()) drafts_.resize(choice + 1);
  return drafts_[choice];
}

void DraftWriter::add(size_t choice, const ChoiceDelta& delta) {
  AnswerDraft& grows = draft(choice);
  std::string member;
  append_escaped(delta.text, member);
  grows.text.append(member);
  for (const AnswerPart& part : delta.parts) {
    member.clear();
    append_escaped(part.text, member);
    switch (part.kind) {
      case AnswerPart::Kind::kContent:
        grows.text.append(member);
        break;
      case AnswerPart::Kind::kThought:
        grows.thought.append(member);
        break;
      case AnswerPart::Kind::kCallHead:
        grows.calls.push_back({part.id, part.name, part.is_custom, {}});
        break;
      case AnswerPart::Kind::kCallArguments:
        grows.calls.back().arguments.append(member);
        break;
    }
  }
  grows.ends_in_calls |= delta.ends_in_calls;
  for (const TokenRecord& record : delta.records) add_record(record, grows);
  for (const int32_t id : delta.token_ids) append_member(grows.token_ids, fmt::to_string(id));
  if (delta.finish != FinishReason::kNone) grows.finish = delta.finish;
}

size_t DraftWriter::held_bytes() const {
  size_t bytes = 0;
  for (const AnswerDraft& draft : drafts_) bytes += draft.held_bytes();
  return bytes;
}

void DraftWriter::fail(const ApiError& error, std::string& out) {
  out += format_event(error_body(error));
}

// ---- OpenAI's ------------------------------------------------------------------------------------------------------

std::string OpenAiWriter::frame(bool is_chunk) const {
  std::string out = "{\"id\":";
  append_string(head_.id, out);
  fmt::format_to(std::back_inserter(out), ",\"object\":\"{}\",\"created\":{},\"model\":", object(is_chunk),
                 head_.created);
  append_string(model_.id, out);
  return out;
}

std::string_view OpenAiWriter::bytes_of(int32_t token) const {
  return model_.tokenizer ? model_.tokenizer->token_bytes(token, /*special=*/true) : std::string_view();
}

bool OpenAiWriter::begins(size_t choice) {
  if (choice >= begun_.size()) begun_.resize(choice + 1);
  if (begun_[choice]) return false;
  begun_[choice] = true;
  return true;
}

// `stop` where a certain call was asked for, as others have it; `length` stays.
json::value OpenAiWriter::finish_of(FinishReason finish, bool ends_in_calls) const {
  json::value text = finish_text(finish);
  const bool is_named = form_.structure && form_.structure->choice == AnswerStructure::Choice::kNamed;
  if (ends_in_calls && !is_named && text == "stop") return "tool_calls";
  return text;
}

TextPieces OpenAiWriter::whole(const std::vector<Choice>& choices) {
  TextPieces body;
  body.append(frame(/*is_chunk=*/false));
  body.append(",\"choices\":[");
  size_t index = 0;
  std::string tail;
  for (const size_t i : shown_choices(choices, form_)) {
    AnswerDraft said = std::move(draft(i));
    body.append(fmt::format("{}{{\"index\":{},", index > 0 ? "," : "", index));
    const json::value finish = finish_of(said.finish, said.ends_in_calls);
    append_said(said, body);
    body.append("\"logprobs\":");
    if (form_.logprobs < 0)
      body.append("null");
    else
      append_logprob_lists(said, body);
    tail.clear();
    append_finish(finish, tail);
    body.append(tail);
    if (form_.return_token_ids) {
      body.append(",\"token_ids\":[");
      body.append(std::move(said.token_ids));
      tail = "]";
      if (tells_prompt_by_choice()) {
        tail += ",\"prompt_token_ids\":";
        append_ids(choices[i].prompt_tokens(), tail);
      }
      body.append(tail);
    }
    body.append("}");
    ++index;
  }
  tail = fmt::format("],\"usage\":{}", json::serialize(usage_of(choices, form_)));
  if (form_.return_token_ids && !tells_prompt_by_choice()) {
    tail += ",\"prompt_token_ids\":";
    append_ids(choices[0].prompt_tokens(), tail);
  }
  append_warnings(form_, tail);
  tail += '}';
  body.append(tail);
  return body;
}

// The end of a chunk with a choice: usage is null where only the last chunk tells it.
void OpenAiWriter::end_chunk(const std::vector<Choice>& choices, std::string& out) const {
  if (form_.include_usage && !form_.continuous_usage) out += ",\"usage\":null";
  if (form_.continuous_usage) {
    json::object usage = usage_of(choices, form_);
    usage.erase("prompt_tokens_details");  // known at the end
    usage.erase("completion_tokens_details");
    out += ",\"usage\":" + json::serialize(usage);
  }
  out += "}\n\n";
}

void OpenAiWriter::end(const std::vector<Choice>& choices, std::string& out) {
  if (form_.include_usage) {
    out += "data: " + frame(/*is_chunk=*/true);
    out += ",\"choices\":[],\"usage\":" + json::serialize(usage_of(choices, form_));
    append_warnings(form_, out);
    out += "}\n\n";
  }
  out += "data: [DONE]\n\n";
}

}  // namespace llmrt::server
