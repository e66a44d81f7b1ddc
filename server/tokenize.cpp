#include "server/tokenize.h"

#include "core/base/utf8.h"
#include "server/api_request.h"
#include "server/chat_messages.h"
#include "server/fields.h"
#include "server/known_fields.h"
#include "server/prompt_tokens.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

void check_model(Fields& fields, const ServedModel& model) {
  check_model_name(fields, model);
  if (!model.tokenizer) fields.fail("model", "this model has no tokenizer", "unsupported");
}

void finish(Fields& fields, const ParseContext& context, ParseNotes& notes) {
  judge_rest(fields, Endpoint::kTokenize, context.strict_fields, notes.ignored_fields);
  if (!notes.ignored_fields.empty()) notes.headers.emplace_back("x-llmrt-ignored", join_ignored(notes.ignored_fields));
}

}  // namespace

ApiResult<json::object> tokenize(const json::object& body, const ServedModel& model, const ParseContext& context,
                                 ParseNotes* notes) {
  ParseNotes unwanted;
  ParseNotes& told = notes ? *notes : unwanted;
  Fields fields(body);
  check_model(fields, model);
  std::vector<int32_t> tokens;
  const bool want_strings = fields.boolean("return_token_strs").value_or(false);
  const json::value* prompt = fields.any("prompt");
  if (fields.any("messages")) {
    if (prompt) fields.fail("prompt", "expected prompt or messages, found both");
    ReadChat chat = read_chat(fields, model, context, /*only_counting=*/true, told.ignored_fields);
    finish(fields, context, told);
    tokens = render_chat(fields, model, context, &chat);
  } else {
    const bool add_bos = fields.boolean("add_special_tokens").value_or(true);
    if (!prompt || !prompt->is_string())
      fields.fail("prompt",
                  fmt::format("expected a string, or messages, found {}", prompt ? describe(*prompt) : "none"));
    finish(fields, context, told);
    if (!fields.failed() && check_text_bytes(fields, model, "prompt", prompt->get_string().size()))
      tokens = encode_prompt(fields, model, context, "prompt", std::string_view(prompt->get_string()), add_bos);
  }
  if (fields.error()) return *fields.error();

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

ApiResult<json::object> detokenize(const json::object& body, const ServedModel& model, const ParseContext& context,
                                   ParseNotes* notes) {
  ParseNotes unwanted;
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
  finish(fields, context, notes ? *notes : unwanted);
  if (fields.error()) return *fields.error();
  return json::object{{"prompt", replace_invalid_utf8(model.tokenizer->decode(ids, /*special=*/true))}};
}

}  // namespace llmrt::server
