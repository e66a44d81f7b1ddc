#include "server/responses_answer.h"

#include <iterator>

#include "server/answer_json.h"
#include "server/api_answer.h"
#include "server/ids.h"
#include "server/responses_json.h"
#include "server/responses_request.h"

namespace llmrt::server {
namespace {

using Item = ResponseItem;

const char* id_begin(Item::Kind kind) {
  switch (kind) {
    case Item::Kind::kMessage:
      return "msg_";
    case Item::Kind::kReasoning:
      return "rs_";
    case Item::Kind::kFunctionCall:
      return "fc_";
    case Item::Kind::kCustomCall:
      return "ctc_";
  }
  return "";
}

class ResponsesWriter final : public AnswerWriter {
 public:
  ResponsesWriter(const ServedModel& model, const AnswerForm& form, AnswerHead head)
      : model_(model), form_(form), head_(std::move(head)), own_(static_cast<const ResponsesForm&>(*form_.own)) {}

  void add(size_t, const ChoiceDelta& delta) override { take(delta); }
  size_t held_bytes() const override {
    size_t bytes = closed_bytes_ + (response_.is_open ? response_.items.back().held_bytes() : 0);
    for (const TokenRecord& record : tokens_) bytes += sizeof(record) + record.top.capacity() * sizeof(TopLogprob);
    return bytes;
  }
  TextPieces whole(const std::vector<Choice>& choices) override;
  void chunk(size_t, const ChoiceDelta& delta, const std::vector<Choice>&, bool, std::string& out) override {
    out_ = &out;
    begin();
    take(delta);
    out_ = nullptr;
  }
  void end(const std::vector<Choice>& choices, std::string& out) override {
    out_ = &out;
    response_event(final_event(), final_status(), &choices, nullptr);
    out_ = nullptr;
  }
  // Codex gives a stream up in which no event came for some minutes, and comments are none: while the prompt is
  // computed the response tells that it is in progress.
  void keep_alive(std::string& out) override {
    if (!response_.items.empty()) return AnswerWriter::keep_alive(out);
    out_ = &out;
    if (has_begun_)
      response_event("response.in_progress", "in_progress", nullptr, nullptr);
    else
      begin();
    out_ = nullptr;
  }
  void fail(const ApiError& error, std::string& out) override {
    out_ = &out;
    begin();
    response_event("response.failed", "failed", nullptr, &error);
    out_ = nullptr;
  }

 private:
  bool is_streamed() const { return out_ != nullptr; }
  const char* final_status() const { return response_.is_cut() ? "incomplete" : "completed"; }
  const char* final_event() const { return response_.is_cut() ? "response.incomplete" : "response.completed"; }

  void begin();
  void take(const ChoiceDelta& delta);
  void take_part(const AnswerPart& part);
  void say(Item::Kind kind, std::string_view text);
  Item& open(Item::Kind kind);
  void close(const char* status);
  void take_logprobs(const Item& item, std::string_view text, std::string* list);

  // Parts of events; only of a stream.
  void begin_event(const char* type);
  void end_event() { *out_ += "}\n\n"; }
  void append_place(const Item& item);
  void part_event(const char* type, const Item& item, std::string_view text);
  void item_event(const char* type, const Item& item, bool is_whole);
  void delta_event(const Item& item, std::string_view text, std::string_view logprobs);
  void done_event(const Item& item);

  void response_event(const char* type, const char* status, const std::vector<Choice>* choices, const ApiError* error);

  const ServedModel& model_;
  const AnswerForm form_;
  const AnswerHead head_;
  const ResponsesForm& own_;
  ResponseSoFar response_{model_, form_, head_, own_};
  size_t closed_bytes_ = 0;          // what items hold that are not open
  std::vector<TokenRecord> tokens_;  // whose text has not been seen yet
  bool has_begun_ = false;
  uint64_t num_events_ = 0;
  std::string* out_ = nullptr;  // where events go, while one is asked for
};

// ---- items ---------------------------------------------------------------------------------------------------------

void ResponsesWriter::take(const ChoiceDelta& delta) {
  tokens_.insert(tokens_.end(), delta.records.begin(), delta.records.end());
  if (!delta.text.empty()) say(Item::Kind::kMessage, delta.text);
  for (const AnswerPart& part : delta.parts) take_part(part);
  if (delta.finish == FinishReason::kNone) return;
  response_.finish = delta.finish;
  tokens_.clear();
  if (response_.items.empty()) open(Item::Kind::kMessage);  // clients read the text of one
  close(final_status());
}

void ResponsesWriter::take_part(const AnswerPart& part) {
  switch (part.kind) {
    case AnswerPart::Kind::kContent:
      return say(Item::Kind::kMessage, part.text);
    case AnswerPart::Kind::kThought:
      return say(Item::Kind::kReasoning, part.text);
    case AnswerPart::Kind::kCallHead: {
      Item call{.kind = part.is_custom ? Item::Kind::kCustomCall : Item::Kind::kFunctionCall,
                .id = "",
                .call_id = part.id,
                .name = part.name};
      if (const auto found = own_.namespaced.find(part.name); found != own_.namespaced.end()) {
        call.name_space = found->second.name_space;
        call.name = found->second.name;
      }
      close("completed");
      response_.items.push_back(std::move(call));
      open(response_.items.back().kind);
      return;
    }
    case AnswerPart::Kind::kCallArguments:
      return say(response_.items.back().kind, part.text);
  }
}

// The item of that kind that goes on, or a new one. A call's has been added already.
Item& ResponsesWriter::open(Item::Kind kind) {
  const bool is_call = kind == Item::Kind::kFunctionCall || kind == Item::Kind::kCustomCall;
  if (response_.is_open && response_.items.back().kind == kind) return response_.items.back();
  if (!is_call) {
    close("completed");
    response_.items.push_back({.kind = kind, .id = ""});
  }
  Item& item = response_.items.back();
  item.id = make_id_of(id_begin(kind));
  response_.is_open = true;
  if (!is_streamed()) return item;
  item_event("response.output_item.added", item, /*is_whole=*/false);
  if (!is_call) part_event("response.content_part.added", item, "");
  return item;
}

void ResponsesWriter::say(Item::Kind kind, std::string_view text) {
  Item& item = open(kind);
  std::string escaped, logprobs;
  append_escaped(text, escaped);
  item.text += escaped;
  if (kind == Item::Kind::kReasoning && own_.seals_thoughts) item.thought += text;
  take_logprobs(item, text, &logprobs);
  if (!logprobs.empty() && !item.logprobs.empty()) item.logprobs += ',';
  item.logprobs += logprobs;
  if (is_streamed() && !text.empty()) delta_event(item, escaped, logprobs);
}

// Those of the tokens that spell the message's new text: what else came before it was markup, and what is behind it may
// still become text.
void ResponsesWriter::take_logprobs(const Item& item, std::string_view text, std::string* list) {
  if (item.kind != Item::Kind::kMessage) return tokens_.clear();
  std::string spelled;
  for (const TokenRecord& record : tokens_) spelled += record.bytes;
  const size_t found = spelled.rfind(text);
  const size_t begin = found == std::string::npos ? 0 : found;
  const size_t end = found == std::string::npos ? spelled.size() : found + text.size();
  size_t at = 0, num_done = 0;
  for (const TokenRecord& record : tokens_) {
    if (at >= end) break;
    at += record.bytes.size();
    ++num_done;
    if (at <= begin) continue;
    if (!list->empty()) *list += ',';
    append_token_entry(model_, record, /*with_ids=*/false, *list);
  }
  tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<ptrdiff_t>(num_done));
}

void ResponsesWriter::close(const char* status) {
  if (!response_.is_open) return;
  response_.is_open = false;
  Item& item = response_.items.back();
  item.status = status;
  closed_bytes_ += item.held_bytes();
  if (!is_streamed()) return;
  done_event(item);
  if (item.kind == Item::Kind::kMessage || item.kind == Item::Kind::kReasoning)
    part_event("response.content_part.done", item, item.text);
  item_event("response.output_item.done", item, /*is_whole=*/true);
}

TextPieces ResponsesWriter::whole(const std::vector<Choice>& choices) {
  std::string text;
  append_response(response_, final_status(), &choices, nullptr, text);
  TextPieces body;
  body.append(text);
  return body;
}

// ---- events --------------------------------------------------------------------------------------------------------

void ResponsesWriter::begin() {
  if (std::exchange(has_begun_, true)) return;
  for (const char* type : {"response.created", "response.in_progress"})
    response_event(type, "in_progress", nullptr, nullptr);
}

void ResponsesWriter::begin_event(const char* type) {
  fmt::format_to(std::back_inserter(*out_), "event: {0}\ndata: {{\"type\":\"{0}\",\"sequence_number\":{1}", type,
                 num_events_++);
}

void ResponsesWriter::response_event(const char* type, const char* status, const std::vector<Choice>* choices,
                                     const ApiError* error) {
  begin_event(type);
  *out_ += ",\"response\":";
  append_response(response_, status, choices, error, *out_);
  end_event();
}

void ResponsesWriter::append_place(const Item& item) {
  fmt::format_to(std::back_inserter(*out_), ",\"item_id\":\"{}\",\"output_index\":{}", item.id,
                 response_.items.size() - 1);
}

void ResponsesWriter::item_event(const char* type, const Item& item, bool is_whole) {
  begin_event(type);
  fmt::format_to(std::back_inserter(*out_), ",\"output_index\":{},\"item\":", response_.items.size() - 1);
  append_response_item(own_, item, is_whole, *out_);
  end_event();
}

void ResponsesWriter::part_event(const char* type, const Item& item, std::string_view text) {
  begin_event(type);
  append_place(item);
  *out_ += ",\"content_index\":0,\"part\":";
  append_response_part(item, text, *out_);
  end_event();
}

void ResponsesWriter::delta_event(const Item& item, std::string_view text, std::string_view logprobs) {
  const auto with = [&](const char* type, std::string_view before) {
    begin_event(type);
    append_place(item);
    fmt::format_to(std::back_inserter(*out_), "{},\"delta\":\"{}\"", before, text);
  };
  switch (item.kind) {
    case Item::Kind::kMessage:
      with("response.output_text.delta", ",\"content_index\":0");
      fmt::format_to(std::back_inserter(*out_), ",\"logprobs\":[{}]", logprobs);
      break;
    case Item::Kind::kReasoning:
      with("response.reasoning_text.delta", ",\"content_index\":0");
      break;
    case Item::Kind::kFunctionCall:
      with("response.function_call_arguments.delta", "");
      break;
    case Item::Kind::kCustomCall:
      with("response.custom_tool_call_input.delta", "");
      break;
  }
  end_event();
}

void ResponsesWriter::done_event(const Item& item) {
  const auto with = [&](const char* type, std::string_view before, const char* member) {
    begin_event(type);
    append_place(item);
    fmt::format_to(std::back_inserter(*out_), "{},\"{}\":\"{}\"", before, member, item.text);
  };
  switch (item.kind) {
    case Item::Kind::kMessage:
      with("response.output_text.done", ",\"content_index\":0", "text");
      fmt::format_to(std::back_inserter(*out_), ",\"logprobs\":[{}]", item.logprobs);
      break;
    case Item::Kind::kReasoning:
      with("response.reasoning_text.done", ",\"content_index\":0", "text");
      break;
    case Item::Kind::kFunctionCall:
      with("response.function_call_arguments.done", "", "arguments");
      *out_ += ",\"name\":";
      append_string(item.name, *out_);
      break;
    case Item::Kind::kCustomCall:
      with("response.custom_tool_call_input.done", "", "input");
      break;
  }
  end_event();
}

}  // namespace

std::unique_ptr<AnswerWriter> make_responses_writer(const ServedModel& model, const AnswerForm& form, AnswerHead head) {
  return std::make_unique<ResponsesWriter>(model, form, std::move(head));
}

}  // namespace llmrt::server
