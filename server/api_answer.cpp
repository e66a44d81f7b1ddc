#include "server/api_answer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "core/text/utf8.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

// JSON has no infinity; -9999 is what others write for "never".
double json_logprob(float logprob) {
  return std::isfinite(logprob) ? std::max(static_cast<double>(logprob), -9999.0) : -9999.0;
}

// A token as a JSON string that is unique: bytes that are no text alone are spelled out.
std::string token_text(std::string_view bytes) {
  if (is_valid_utf8(bytes)) return std::string(bytes);
  std::string text = "bytes:";
  for (unsigned char byte : bytes) text += fmt::format("\\x{:02x}", byte);
  return text;
}

json::array to_array(const std::vector<int32_t>& ids) {
  return json::array(ids.begin(), ids.end());
}

}  // namespace

json::value finish_text(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return nullptr;
    case FinishReason::kEos:
    case FinishReason::kStopToken:
    case FinishReason::kStopString:
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

json::object AnswerWriter::frame(const char* object) const {
  return {{"id", head_.id}, {"object", object}, {"created", head_.created}, {"model", model_->id}};
}

std::string_view AnswerWriter::bytes_of(int32_t token) const {
  return model_->tokenizer ? model_->tokenizer->token_bytes(token, /*special=*/true) : std::string_view();
}

json::object AnswerWriter::chat_record(int32_t token, std::string_view bytes, bool has_logprob, float logprob) const {
  json::array numbers;
  for (unsigned char byte : bytes) numbers.emplace_back(byte);
  json::object record;
  record["token"] = replace_invalid_utf8(bytes);
  record["logprob"] = has_logprob ? json::value(json_logprob(logprob)) : json::value(nullptr);
  record["bytes"] = std::move(numbers);
  if (form_.return_token_ids) record["token_id"] = token;
  return record;
}

json::object AnswerWriter::chat_logprobs(const std::vector<TokenRecord>& records) const {
  json::array content;
  for (const TokenRecord& record : records) {
    json::object entry = chat_record(record.token, record.bytes, record.has_logprob, record.logprob);
    json::array top;
    for (const TopLogprob& other : record.top)
      top.emplace_back(chat_record(other.token, bytes_of(other.token), true, other.logprob));
    entry["top_logprobs"] = std::move(top);
    content.emplace_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

json::object AnswerWriter::completion_logprobs(const std::vector<TokenRecord>& records) const {
  json::array tokens, logprobs, tops, offsets;
  for (const TokenRecord& record : records) {
    tokens.emplace_back(token_text(record.bytes));
    offsets.emplace_back(record.text_offset);
    if (!record.has_logprob) {
      logprobs.emplace_back(nullptr);
      tops.emplace_back(nullptr);
      continue;
    }
    logprobs.emplace_back(json_logprob(record.logprob));
    json::object top;
    for (const TopLogprob& other : record.top)
      top.emplace(token_text(bytes_of(other.token)), json_logprob(other.logprob));
    top[token_text(bytes_of(record.token))] = json_logprob(record.logprob);  // the chosen one is always there
    tops.emplace_back(std::move(top));
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

json::value AnswerWriter::logprobs(const std::vector<TokenRecord>& records) const {
  if (form_.logprobs < 0) return nullptr;
  return form_.chat ? chat_logprobs(records) : completion_logprobs(records);
}

json::object AnswerWriter::whole(const std::vector<Choice>& choices, std::vector<ChoiceDelta> answers) const {
  json::object body = frame(form_.chat ? "chat.completion" : "text_completion");
  json::array list;
  for (const size_t i : shown_choices(choices, form_)) {
    json::object choice{{"index", list.size()}};
    if (form_.chat)
      choice["message"] = {{"role", "assistant"}, {"content", answers[i].text}, {"refusal", nullptr}};
    else
      choice["text"] = answers[i].text;
    choice["logprobs"] = logprobs(answers[i].records);
    choice["finish_reason"] = finish_text(answers[i].finish);
    if (form_.return_token_ids) {
      choice["token_ids"] = to_array(answers[i].token_ids);
      if (!form_.chat) choice["prompt_token_ids"] = to_array(choices[i].prompt_tokens());
    }
    list.emplace_back(std::move(choice));
  }
  body["choices"] = std::move(list);
  body["usage"] = usage_of(choices, form_);
  if (form_.return_token_ids && form_.chat) body["prompt_token_ids"] = to_array(choices[0].prompt_tokens());
  return body;
}

// Null where only the last chunk tells it.
json::value AnswerWriter::usage_so_far(const std::vector<Choice>& choices) const {
  if (!form_.continuous_usage) return nullptr;
  json::object usage = usage_of(choices, form_);
  usage.erase("prompt_tokens_details");  // known at the end
  return usage;
}

json::object AnswerWriter::first_chunk(size_t index, const std::vector<Choice>& choices) const {
  json::object body = frame("chat.completion.chunk");
  body["choices"] = {{{"index", index},
                      {"delta", {{"role", "assistant"}, {"content", ""}}},
                      {"logprobs", nullptr},
                      {"finish_reason", nullptr}}};
  if (form_.return_token_ids) body["prompt_token_ids"] = to_array(choices[index].prompt_tokens());
  if (form_.include_usage) body["usage"] = usage_so_far(choices);
  return body;
}

json::object AnswerWriter::chunk(size_t index, const ChoiceDelta& delta, bool first,
                                 const std::vector<Choice>& choices) const {
  json::object body = frame(form_.chat ? "chat.completion.chunk" : "text_completion");
  json::object item{{"index", index}};
  if (!form_.chat)
    item["text"] = delta.text;
  else if (delta.text.empty())
    item["delta"] = json::object();
  else
    item["delta"] = {{"content", delta.text}};
  item["logprobs"] = delta.records.empty() ? json::value(nullptr) : logprobs(delta.records);
  item["finish_reason"] = finish_text(delta.finish);
  if (form_.return_token_ids) {
    item["token_ids"] = to_array(delta.token_ids);
    if (first && !form_.chat) item["prompt_token_ids"] = to_array(choices[index].prompt_tokens());
  }
  body["choices"] = json::array{std::move(item)};
  if (form_.include_usage) body["usage"] = usage_so_far(choices);
  return body;
}

json::object AnswerWriter::usage_chunk(const std::vector<Choice>& choices) const {
  json::object body = frame(form_.chat ? "chat.completion.chunk" : "text_completion");
  body["choices"] = json::array();
  body["usage"] = usage_of(choices, form_);
  return body;
}

}  // namespace llmrt::server
