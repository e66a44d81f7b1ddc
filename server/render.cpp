#include "server/render.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "server/api_request.h"
#include "server/ids.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

// 0.7f as 0.7: a client compares it with what it sent.
double shortest_double(double value) {
  std::array<char, 64> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), static_cast<float>(value)).ptr;
  double read = value;
  std::from_chars(digits.data(), end, read);
  return read;
}

const json::value* sent_member(const json::object& body, std::string_view name) {
  const json::value* value = body.if_contains(name);
  return value && !value->is_null() ? value : nullptr;
}

// Those with vLLM's meaning. Bad words are token ids here and structures are grammars: both are left out.
json::object sampling_params(const json::object& body, const AnswerForm& form, const Request& request) {
  const SamplingParams& sampling = request.sampling;
  json::object out{{"n", form.n}, {"max_tokens", request.max_tokens}, {"min_tokens", request.min_tokens}};
  for (const SamplingParameter& parameter : kSamplingParameters) {
    const double value = parameter.of(sampling);
    if (parameter.is_whole())
      out[parameter.name] = static_cast<uint64_t>(value);
    else
      out[parameter.name] = shortest_double(value);
  }
  out["seed"] = sent_member(body, "seed") ? json::value(static_cast<int64_t>(sampling.seed)) : json::value();
  json::array& stops = out["stop"].emplace_array();
  for (const StopStrings* strings : {&request.stop.strings, &form.content_stops})
    for (const std::string& string : *strings) stops.emplace_back(string);
  out["stop_token_ids"] = json::array(request.stop.token_ids.begin(), request.stop.token_ids.end());
  out["include_stop_str_in_output"] = request.stop.include_string || form.include_stop;
  out["ignore_eos"] = request.stop.ignore_eos;
  out["logprobs"] = form.logprobs < 0 ? json::value() : json::value(form.logprobs);
  out["prompt_logprobs"] = sampling.prompt_logprobs ? json::value(std::max(0, sampling.logprobs)) : json::value();
  json::value& bias = out["logit_bias"];
  if (!sampling.logit_bias.empty()) bias.emplace_object();
  for (const auto& [token, value] : sampling.logit_bias)
    bias.get_object()[std::to_string(token)] = shortest_double(value);
  return out;
}

json::object generate_request(const json::object& body, const ServedModel& model, const ParseContext& context,
                              const AnswerForm& form, const Request& request) {
  const json::value* name = sent_member(body, "model");
  // The client's own salt. The one that the engine gets has that of the client's key before it, which nobody is told.
  const json::value* salt = sent_member(body, "cache_salt");
  json::object out{{"request_id", make_id(form.chat ? "chatcmpl" : "cmpl")},
                   {"token_ids", json::array(request.prompt.begin(), request.prompt.end())},
                   {"token_offsets", nullptr},
                   {"features", nullptr},
                   {"sampling_params", sampling_params(body, form, request)},
                   {"model", name ? *name : json::value(model.id)},
                   {"stream", form.stream},
                   {"stream_options", nullptr},
                   {"cache_salt", nullptr},
                   {"priority", 0},
                   {"kv_transfer_params", nullptr}};
  if (form.stream)
    out["stream_options"] = {{"include_usage", form.include_usage}, {"continuous_usage_stats", form.continuous_usage}};
  if (salt)
    out["cache_salt"] = *salt;
  else if (!context.cache_salt.empty())
    out["cache_salt"] = context.cache_salt;
  return out;
}

using ParseAnswer = ApiResult<ApiRequest> (*)(const json::object& body, const ServedModel& model,
                                              const ParseContext& context);

ApiResult<ApiRequest> parse_to_render(ParseAnswer parse, const json::object& body, const ServedModel& model,
                                      const ParseContext& context, ParseNotes* notes) {
  ApiResult<ApiRequest> parsed = parse(body, model, context);
  const auto* request = std::get_if<ApiRequest>(&parsed);
  if (!request) return parsed;
  // As vLLM: a search is no request with these parameters.
  if (request->form.beams)
    return invalid_field("use_beam_search", "expected false: a beam search is not rendered", "unsupported");
  if (notes) *notes = *request;
  return parsed;
}

}  // namespace

ApiResult<json::object> rendered_chat(const json::object& body, const ServedModel& model, const ParseContext& context,
                                      ParseNotes* notes) {
  ApiResult<ApiRequest> parsed = parse_to_render(parse_chat, body, model, context, notes);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  const ApiRequest& request = std::get<ApiRequest>(parsed);
  return generate_request(body, model, context, request.form, request.prompts.at(0).request);
}

ApiResult<std::string> rendered_completions(const json::object& body, const ServedModel& model,
                                            const ParseContext& context, ParseNotes* notes) {
  ApiResult<ApiRequest> parsed = parse_to_render(parse_completion, body, model, context, notes);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  const ApiRequest& request = std::get<ApiRequest>(parsed);
  std::string text = "[";
  for (const PromptRequest& prompt : request.prompts) {
    if (text.size() > 1) text += ',';
    text += json::serialize(generate_request(body, model, context, request.form, prompt.request));
  }
  return text + "]";
}

}  // namespace llmrt::server
