#include "server/responses_request.h"

#include <algorithm>
#include <array>

#include "server/json_reader.h"
#include "server/known_fields.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

constexpr size_t kNameBytesMax = 1024;
constexpr size_t kIncludesMax = 64;

struct ElsewhereField {
  std::string_view name, instead;
};
// What a chat reads, and what is called otherwise here or has no place in a response.
constexpr std::array kElsewhere = {
    ElsewhereField{"messages", "use input"},
    ElsewhereField{"max_tokens", "use max_output_tokens"},
    ElsewhereField{"max_completion_tokens", "use max_output_tokens"},
    ElsewhereField{"response_format", "use text: {format}"},
    ElsewhereField{"reasoning_effort", "use reasoning: {effort}"},
    ElsewhereField{"logprobs", "use top_logprobs, or include: [\"message.output_text.logprobs\"]"},
    ElsewhereField{"use_beam_search", "use /v1/chat/completions"},
    ElsewhereField{"return_token_ids", "use /v1/chat/completions"},
    ElsewhereField{"continue_final_message", "use /v1/chat/completions"},
};

class ResponsesReader {
 public:
  ResponsesReader(const json::object& body, const ServedModel& model, const ParseContext& context)
      : body_(body),
        fields_(body),
        strict_(context.strict_fields),
        shows_inline_system_(model.shows_inline_system),
        form_(std::make_shared<ResponsesForm>()) {}

  // The chat's body; fields().failed() where the client's is wrong.
  json::object read() {
    refuse();
    ClientPaths& paths = form_->paths;
    paths.add_field("response_format.json_schema", "text.format");
    paths.add_field("response_format", "text.format");
    paths.add_field("max_tokens", "max_output_tokens");
    paths.add_field("reasoning_effort", "reasoning.effort");
    json::object chat;
    chat["messages"] = read_input(fields_, {strict_, shows_inline_system_}, &paths, ignored_);
    translate_tools(fields_, strict_, &chat, form_.get(), ignored_);
    read_reasoning(chat);
    read_text(chat);
    read_include(chat);
    read_lengths(chat);
    for (const char* name : {"max_tool_calls", "store", "background", "previous_response_id", "conversation", "prompt"})
      fields_.any(name);
    if (fields_.string("truncation", kNameBytesMax).value_or("disabled") != "disabled")
      add_ignored(ignored_, "truncation");
    // Whatever else there is means the same in a chat, or is judged as there.
    fields_.for_each_unread([&](std::string_view name, const json::value& value) { chat.emplace(name, value); });
    return chat;
  }
  Fields& fields() { return fields_; }
  const std::shared_ptr<ResponsesForm>& form() const { return form_; }
  std::vector<std::string>& ignored() { return ignored_; }

  // What the response says again, for clients that keep responses as their record.
  std::string echo() const {
    json::object out{{"background", false},
                     {"max_tool_calls", nullptr},
                     {"previous_response_id", nullptr},
                     {"store", false},
                     {"truncation", "disabled"},
                     {"parallel_tool_calls", given("parallel_tool_calls", true)},
                     {"temperature", given("temperature", 1.0)},
                     {"top_p", given("top_p", 1.0)},
                     {"top_logprobs", given("top_logprobs", 0)},
                     {"max_output_tokens", given("max_output_tokens", nullptr)},
                     {"service_tier", given("service_tier", "default")},
                     {"reasoning", {{"effort", effort_}, {"summary", nullptr}}}};
    json::object large{{"instructions", nullptr},
                       {"tools", json::array()},
                       {"tool_choice", "auto"},
                       {"text", {{"format", {{"type", "text"}}}}},
                       {"metadata", json::object()}};
    if (const json::object repeated = large_fields(); !repeated.empty())
      for (const auto& member : repeated) large[member.key()] = member.value();
    else
      large.erase("text");
    for (auto& member : large) out[member.key()] = std::move(member.value());
    const std::string all = json::serialize(out);
    return all.substr(1, all.size() - 2);
  }

 private:
  // Those that may be large, as they were given; empty where they are. Looked at before they are copied.
  json::object large_fields() const {
    size_t bytes = 0;
    json::object fields{{"store", false}};
    for (const char* name : {"instructions", "tools", "tool_choice", "text", "metadata", "user", "safety_identifier",
                             "prompt_cache_key"}) {
      const json::value* value = body_.if_contains(name);
      if (!value || value->is_null()) continue;
      if ((bytes += text_bytes_least(*value, kResponsesEchoBytesMax)) > kResponsesEchoBytesMax) return {};
      fields[name] = *value;
    }
    return json::serialize(fields).size() > kResponsesEchoBytesMax ? json::object() : fields;
  }
  json::value given(std::string_view name, json::value otherwise) const {
    const json::value* value = body_.if_contains(name);
    return value && !value->is_null() ? *value : std::move(otherwise);
  }

  // A state that is not kept, and names that would be read as a chat's.
  void refuse() {
    for (const char* name : {"previous_response_id", "conversation"})
      if (fields_.any(name))
        fields_.fail(name, "not supported: nothing is stored here: send the whole history as input", "unsupported");
    if (fields_.boolean("background").value_or(false))
      fields_.fail("background", "not supported: expected false or nothing, found true; use stream", "unsupported");
    if (fields_.any("prompt"))
      fields_.fail("prompt", "not supported: no prompts are stored here: use instructions and input", "unsupported");
    if (const auto n = fields_.integer("n", 1, kChoicesMax); n && *n != 1)
      fields_.fail("n", fmt::format("expected 1 for this path, found {}", *n));
    fields_.boolean("store");  // always as false
    for (const ElsewhereField& field : kElsewhere) {
      const json::value* value = body_.if_contains(field.name);
      if (!value || value->is_null() || *value == false) continue;
      fields_.fail(field.name,
                   fmt::format("not supported: expected nothing, found {}; {}", describe(*value), field.instead),
                   "unsupported");
    }
  }

  void read_reasoning(json::object& chat) {
    const json::object* reasoning = fields_.object("reasoning");
    if (!reasoning) return;
    Fields inner(*reasoning, "reasoning.");
    if (const auto effort = inner.string("effort", 64)) chat["reasoning_effort"] = effort_ = json::string(*effort);
    for (const char* known : {"summary", "generate_summary", "context", "mode"}) inner.any(known);
    finish(inner);
  }

  void read_text(json::object& chat) {
    const json::object* text = fields_.object("text");
    if (!text) return;
    Fields inner(*text, "text.");
    inner.string("verbosity", 64);
    if (const json::object* format = inner.object("format")) {
      Fields flat(*format, "text.format.");
      const std::string type = flat.string("type", 64).value_or("");
      for (const char* known : {"name", "description", "strict"}) flat.any(known);
      if (type == "json_schema") {
        json::object described;
        if (const json::value* schema = flat.any("schema")) described["schema"] = *schema;
        chat["response_format"] = {{"type", type}, {"json_schema", std::move(described)}};
      } else {
        chat["response_format"] = {{"type", type}};  // text, json_object, or wrong
      }
      if (strict_) flat.refuse_unread();
      if (flat.error()) inner.fail(*flat.error());
    }
    finish(inner);
  }

  void read_include(json::object& chat) {
    const json::array* include = fields_.array("include", kIncludesMax);
    bool has_logprobs = false;
    for (size_t i = 0; include && i < include->size() && !fields_.failed(); ++i) {
      const json::string* name = (*include)[i].if_string();
      if (!name) return fields_.fail(fmt::format("include[{}]", i), "expected a string");
      if (*name == "reasoning.encrypted_content")
        form_->seals_thoughts = true;
      else if (*name == "message.output_text.logprobs")
        has_logprobs = true;
      else
        add_ignored(ignored_, "include." + std::string(*name));
    }
    const auto top = fields_.integer("top_logprobs", 0, kTopLogprobsMax);
    if (!has_logprobs && top.value_or(0) == 0) return;
    chat["logprobs"] = true;
    chat["top_logprobs"] = top.value_or(0);
  }

  void read_lengths(json::object& chat) {
    if (const json::value* most = fields_.any("max_output_tokens")) chat["max_tokens"] = *most;
  }

  void finish(Fields& inner) {
    if (strict_) inner.refuse_unread();
    if (inner.error()) fields_.fail(*inner.error());
  }

  const json::object& body_;
  Fields fields_;
  const bool strict_, shows_inline_system_;
  const std::shared_ptr<ResponsesForm> form_;
  std::vector<std::string> ignored_;
  json::value effort_;
};

// Names the fields of structures as the client knows them; ignored ones before those that the chat's reader found.
void tell_as_client(ApiRequest* request, const ClientPaths& paths, std::vector<std::string> ignored) {
  if (request->form.structure && request->form.structure->content) {
    auto structure = std::make_shared<AnswerStructure>(*request->form.structure);
    structure->content_field = paths.translate(structure->content_field);
    request->form.structure = std::move(structure);
  }
  for (const std::string& name : request->ignored_fields) add_ignored(ignored, name);
  if (ignored.empty()) return;
  std::erase_if(request->headers, [](const auto& header) { return header.first == kIgnoredHeader; });
  request->headers.emplace_back(kIgnoredHeader, join_ignored(ignored));
  request->ignored_fields = std::move(ignored);
}

}  // namespace

ApiResult<ApiRequest> parse_responses(const json::object& body, const ServedModel& model, const ParseContext& context) {
  // Before its members are copied.
  if (body.size() > kFieldsMax)
    return invalid_field("body", fmt::format("expected at most {} fields, found {}", kFieldsMax, body.size()));
  ResponsesReader reader(body, model, context);
  const json::object chat = reader.read();
  if (reader.fields().error()) return *reader.fields().error();
  const ClientPaths& paths = reader.form()->paths;
  ApiResult<ApiRequest> parsed = parse_chat(chat, model, context);
  if (auto* error = std::get_if<ApiError>(&parsed)) return paths.translate(std::move(*error));
  ApiRequest& request = std::get<ApiRequest>(parsed);
  reader.form()->echo = reader.echo();
  request.form.own = reader.form();
  tell_as_client(&request, paths, std::move(reader.ignored()));
  return parsed;
}

ApiResult<json::object> count_responses(const json::object& body, const ServedModel& model, const ParseContext& context,
                                        ParseNotes* notes) {
  ApiResult<ApiRequest> parsed = parse_responses(body, model, context);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  const ApiRequest& request = std::get<ApiRequest>(parsed);
  if (notes) *notes = request;
  return json::object{{"object", "response.input_tokens"}, {"input_tokens", request.prompts[0].request.prompt.size()}};
}

}  // namespace llmrt::server
