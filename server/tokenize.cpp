#include "server/tokenize.h"

#include "core/text/utf8.h"
#include "server/api_request.h"
#include "server/chat_messages.h"
#include "server/fields.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

void check_model(Fields& fields, const ServedModel& model) {
  check_model_name(fields, model);
  if (!model.tokenizer) fields.fail("model", "this model has no tokenizer", "unsupported");
}

}  // namespace

ApiResult<json::object> tokenize(const json::object& body, const ServedModel& model) {
  Fields fields(body);
  check_model(fields, model);
  std::vector<int32_t> tokens;
  const bool want_strings = fields.boolean("return_token_strs").value_or(false);
  const bool has_prompt = fields.any("prompt") != nullptr;
  if (fields.any("messages")) {
    if (has_prompt) fields.fail("prompt", "expected prompt or messages, found both");
    tokens = read_chat_prompt(fields, model);
  } else {
    EncodeOptions options;
    options.add_bos = fields.boolean("add_special_tokens").value_or(true);
    const json::value* prompt = fields.any("prompt");
    if (!fields.failed() && (!prompt || !prompt->is_string()))
      fields.fail("prompt",
                  fmt::format("expected a string, or messages, found {}", prompt ? describe(*prompt) : "none"));
    if (!fields.failed() && check_text_bytes(fields, model, "prompt", prompt->get_string().size()))
      tokens = model.tokenizer->encode(std::string_view(prompt->get_string()), options);
  }
  if (const auto& error = fields.finish()) return *error;

  json::object answer{{"tokens", json::array(tokens.begin(), tokens.end())},
                      {"count", tokens.size()},
                      {"max_model_len", model.context_max},
                      {"token_strs", nullptr}};
  if (want_strings) {
    json::array strings;
    for (int32_t token : tokens) strings.emplace_back(replace_invalid_utf8(model.tokenizer->token_bytes(token, true)));
    answer["token_strs"] = std::move(strings);
  }
  return answer;
}

ApiResult<json::object> detokenize(const json::object& body, const ServedModel& model) {
  Fields fields(body);
  check_model(fields, model);
  std::vector<int32_t> ids;
  // An id of a few digits may stand for hundreds of bytes, and many clients may be slow to take their answers.
  const json::array* tokens = fields.array("tokens", model.context_max);
  if (!tokens) fields.fail("tokens", "expected an array of token ids, found none");
  if (!fields.failed()) {
    for (const json::value& token : *tokens) {
      json::error_code error;
      const int64_t id = token.is_number() ? token.to_number<int64_t>(error) : -1;
      if (error || id < 0 || id >= static_cast<int64_t>(model.vocab_size)) {
        fields.fail("tokens",
                    fmt::format("expected token ids in [0, {}), found {}", model.vocab_size, describe(token)));
        break;
      }
      ids.push_back(static_cast<int32_t>(id));
    }
  }
  if (const auto& error = fields.finish()) return *error;
  return json::object{{"prompt", replace_invalid_utf8(model.tokenizer->decode(ids, /*special=*/true))}};
}

}  // namespace llmrt::server
