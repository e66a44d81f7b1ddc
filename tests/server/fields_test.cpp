// Fields that the endpoints do not read themselves: refused with what to use, passed, or ignored and told; and what
// messages and tools of real clients become for the chat template. Tables of names are those of the servers and clients
// that people come from.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>

#include "server/api_request.h"
#include "server/chat_messages.h"
#include "server/json_reader.h"
#include "server/known_fields.h"
#include "server/tokenize.h"
#include "tests/server/letter_model.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;
using Parsed = ApiResult<ApiRequest>;

json::value value_of(std::string_view text) {
  auto value = read_json(text);
  INFO(text << (value ? "" : value.error().message));
  REQUIRE(value.ok());
  return std::move(*value);
}
json::object object_of(std::string_view text) {
  return value_of(text).as_object();
}
json::object usual_body(Endpoint endpoint) {
  if (endpoint == Endpoint::kChat) return {{"messages", json::array{json::object{{"role", "user"}, {"content", "a"}}}}};
  return {{"prompt", "a"}};
}
Parsed parse(const json::object& body, Endpoint endpoint, bool strict = false) {
  ParseContext context;
  context.strict_fields = strict;
  return endpoint == Endpoint::kChat ? parse_chat(body, letter_model(), context)
                                     : parse_completion(body, letter_model(), context);
}
Parsed parse_with(std::string_view name, const json::value& value, Endpoint endpoint, bool strict = false) {
  json::object body = usual_body(endpoint);
  body[name] = value;
  return parse(body, endpoint, strict);
}
const ApiError* error_of(const Parsed& parsed) {
  return std::get_if<ApiError>(&parsed);
}
std::string header_of(const Parsed& parsed, std::string_view name) {
  if (const auto* error = error_of(parsed)) FAIL(error->message);
  for (const auto& [key, value] : std::get<ApiRequest>(parsed).headers)
    if (key == name) return value;
  return "";
}
constexpr Endpoint kEndpoints[] = {Endpoint::kChat, Endpoint::kCompletion};

json::array values_of_all_kinds() {
  return value_of(R"([false, true, 0, 1, -1, 0.5, 7, "", "x", [], ["x"], {}, {"x": 1}])").as_array();
}

// What each of them sends where its user sets nothing, and the names of all the others.
constexpr const char* kVllmChat = R"({"frequency_penalty": null, "logit_bias": null, "logprobs": false,
    "top_logprobs": 0, "max_tokens": null, "max_completion_tokens": null, "n": 1, "presence_penalty": null,
    "response_format": null, "seed": null, "stop": [], "stream": false, "stream_options": null, "temperature": null,
    "top_p": null, "tools": null, "tool_choice": "none", "reasoning_effort": null, "thinking_token_budget": null,
    "include_reasoning": true, "parallel_tool_calls": true, "user": null, "use_beam_search": false, "top_k": null,
    "min_p": null, "repetition_penalty": null, "watermarking": null, "length_penalty": 1.0, "stop_token_ids": [],
    "include_stop_str_in_output": false, "ignore_eos": false, "min_tokens": 0, "skip_special_tokens": true,
    "spaces_between_special_tokens": true, "truncate_prompt_tokens": null, "truncation_side": null,
    "prompt_logprobs": null, "logprob_token_ids": null, "allowed_token_ids": null, "bad_words": [], "echo": false,
    "add_generation_prompt": true, "continue_final_message": false, "add_special_tokens": false, "documents": null,
    "chat_template": null, "chat_template_kwargs": null, "media_io_kwargs": null, "mm_processor_kwargs": null,
    "structured_outputs": null, "priority": 0, "request_id": "3f2c", "session_id": null,
    "return_tokens_as_token_ids": null, "return_token_ids": null, "routed_experts_prompt_start": 0,
    "return_token_offsets": false, "return_prompt_text": null, "return_mm_kwargs": true, "cache_salt": null,
    "kv_transfer_params": null, "ec_transfer_params": null, "vllm_xargs": null, "repetition_detection": null,
    "stream_interval": null, "mm_payload": null, "return_weight_versions": false})";
constexpr const char* kVllmCompletion = R"({"echo": false, "frequency_penalty": null, "logit_bias": null,
    "logprobs": null, "max_tokens": 16, "n": 1, "presence_penalty": null, "seed": null, "stop": [], "stream": false,
    "stream_options": null, "suffix": null, "temperature": null, "top_p": null, "user": null,
    "use_beam_search": false, "top_k": null, "min_p": null, "repetition_penalty": null, "watermarking": null,
    "length_penalty": 1.0, "stop_token_ids": [], "include_stop_str_in_output": false, "ignore_eos": false,
    "min_tokens": 0, "skip_special_tokens": true, "spaces_between_special_tokens": true,
    "truncate_prompt_tokens": null, "truncation_side": null, "allowed_token_ids": null, "prompt_logprobs": null,
    "logprob_token_ids": null, "bad_words": [], "prompt_embeds": null, "add_special_tokens": true,
    "response_format": null, "structured_outputs": null, "priority": 0, "request_id": "3f2c", "session_id": null,
    "return_tokens_as_token_ids": null, "return_token_ids": null, "routed_experts_prompt_start": 0,
    "return_token_offsets": false, "return_mm_kwargs": true, "cache_salt": null, "kv_transfer_params": null,
    "ec_transfer_params": null, "vllm_xargs": null, "repetition_detection": null, "thinking_token_budget": null,
    "stream_interval": null, "mm_payload": null, "return_weight_versions": false})";
constexpr const char* kSglangChat = R"({"frequency_penalty": 0.0, "logit_bias": null, "logprobs": false,
    "top_logprobs": null, "max_tokens": null, "max_completion_tokens": null, "n": 1, "presence_penalty": 0.0,
    "response_format": null, "seed": null, "stop": null, "stream": false, "stream_options": null,
    "temperature": null, "top_p": null, "user": null, "tools": null, "tool_choice": "auto",
    "parallel_tool_calls": true, "return_hidden_states": false, "return_routed_experts": false,
    "routed_experts_start_len": 0, "return_cached_tokens_details": false, "return_spec_tokens_details": false,
    "return_prompt_token_ids": false, "return_token_ids": false, "return_meta_info": false,
    "return_input_ids_in_sglext": false, "return_output_ids_in_sglext": false, "return_sampling_mask": false,
    "sampling_logprobs_mode": null, "return_flat_raw_output_top_logprobs": false,
    "return_flat_raw_top_logprobs_b64": true, "reasoning_effort": null, "thinking": null, "task": null, "top_k": null,
    "min_p": null, "min_tokens": 0, "regex": null, "ebnf": null, "repetition_penalty": null, "stop_token_ids": null,
    "stop_regex": null, "no_stop_trim": false, "ignore_eos": false, "continue_final_message": false,
    "skip_special_tokens": true, "lora_path": null, "session_id": null, "session_params": null,
    "separate_reasoning": true, "stream_reasoning": true, "chat_template_kwargs": null, "max_dynamic_patch": null,
    "min_dynamic_patch": null, "use_audio_in_video": false, "images_config": null, "video_config": null,
    "mm_processor_kwargs": null, "custom_logit_processor": null, "custom_params": null, "watermark": null,
    "input_ids": null, "rid": null, "extra_key": null, "cache_salt": null, "priority": null,
    "data_parallel_rank": null})";
constexpr const char* kSglangCompletion = R"({"best_of": null, "echo": false, "frequency_penalty": 0.0,
    "logit_bias": null, "logprobs": null, "max_tokens": 16, "n": 1, "presence_penalty": 0.0, "seed": null,
    "stop": null, "stream": false, "stream_options": null, "suffix": null, "temperature": 1.0, "top_p": 1.0,
    "user": null, "return_hidden_states": false, "return_routed_experts": false, "routed_experts_start_len": 0,
    "return_cached_tokens_details": false, "return_spec_tokens_details": false, "return_token_ids": false,
    "top_k": -1, "min_p": 0.0, "min_tokens": 0, "json_schema": null, "regex": null, "ebnf": null,
    "repetition_penalty": 1.0, "stop_token_ids": null, "stop_regex": null, "no_stop_trim": false,
    "ignore_eos": false, "skip_special_tokens": true, "lora_path": null, "session_id": null, "session_params": null,
    "response_format": null, "custom_params": null, "custom_logit_processor": null, "watermark": null,
    "images_config": null, "mm_processor_kwargs": null, "data_parallel_rank": null, "rid": null, "extra_key": null,
    "cache_salt": null, "priority": null, "custom_labels": null, "bootstrap_host": null, "bootstrap_port": null,
    "bootstrap_room": null, "routed_dp_rank": null, "disagg_prefill_dp_rank": null, "ngram_corpus_id": null})";
constexpr const char* kRouter = R"({"no_stop_trim": false, "separate_reasoning": true, "stream_reasoning": true,
    "return_hidden_states": false})";
// llama.cpp's own page and Ollama's clients, at the values that change nothing.
constexpr const char* kLocal = R"({"repeat_penalty": 1.0, "n_predict": -1, "cache_prompt": true, "id_slot": -1,
    "samplers": null, "typical_p": 1, "typ_p": 1.0, "xtc_probability": 0, "xtc_threshold": 0.1, "dry_multiplier": 0,
    "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": -1, "mirostat": 0, "mirostat_tau": 5,
    "mirostat_eta": 0.1, "dynatemp_range": 0, "dynatemp_exponent": 1, "timings_per_token": false, "n_keep": 0,
    "n_discard": 0, "n_probs": 0, "min_keep": 0, "grammar": "", "t_max_predict_ms": 0, "options": {}, "format": "",
    "keep_alive": "5m", "think": null, "num_ctx": 8192, "num_predict": -1, "top_n_sigma": -1, "lora": []})";
constexpr const char* kOtherNames[] = {"provider",
                                       "models",
                                       "transforms",
                                       "route",
                                       "plugins",
                                       "usage",
                                       "reasoning",
                                       "metadata",
                                       "trace",
                                       "session",
                                       "top_a",
                                       "context_length",
                                       "safe_prompt",
                                       "random_seed",
                                       "prompt_mode",
                                       "search_parameters",
                                       "deferred",
                                       "chat_id",
                                       "id",
                                       "features",
                                       "files",
                                       "tool_ids",
                                       "tool_servers",
                                       "variables",
                                       "model_item",
                                       "background_tasks",
                                       "filter_ids",
                                       "extra_body",
                                       "drop_params",
                                       "timeout",
                                       "num_retries",
                                       "api_base",
                                       "api_key",
                                       "custom_llm_provider",
                                       "extra_headers",
                                       "extra_query",
                                       "caching",
                                       "cache",
                                       "tags",
                                       "title",
                                       "thinking",
                                       "thinking_budget",
                                       "enable_thinking",
                                       "system",
                                       "stop_sequences",
                                       "context_management",
                                       "container",
                                       "betas",
                                       "speed",
                                       "mcp_servers",
                                       "inference_geo",
                                       "prompt_cache_options",
                                       "moderation",
                                       "include",
                                       "instructions",
                                       "input",
                                       "previous_response_id",
                                       "conversation",
                                       "background",
                                       "truncation",
                                       "reasoning_format",
                                       "reasoning_budget",
                                       "parse_tool_calls",
                                       "grammar_lazy",
                                       "grammar_triggers",
                                       "preserved_tokens",
                                       "chat_format",
                                       "response_fields",
                                       "post_sampling_probs",
                                       "template",
                                       "raw",
                                       "context",
                                       "images",
                                       "options",
                                       "num_gpu",
                                       "main_gpu",
                                       "low_vram",
                                       "f16_kv",
                                       "numa",
                                       "tfs_z",
                                       "penalize_newline",
                                       "repeat_last_n",
                                       "num_keep",
                                       "num_batch",
                                       "num_thread",
                                       "use_mmap",
                                       "use_mlock",
                                       "max_new_tokens",
                                       "do_sample",
                                       "return_full_text",
                                       "num_beams",
                                       "min_length",
                                       "max_length",
                                       "typical_p",
                                       "guidance_scale",
                                       "negative_prompt",
                                       "mode",
                                       "character",
                                       "instruction_template",
                                       "your_name",
                                       "preset",
                                       "ban_eos_token",
                                       "add_bos_token",
                                       "custom_token_bans",
                                       "auto_max_new_tokens",
                                       "truncation_length",
                                       "sampler_priority",
                                       "prompt_lookup_num_tokens",
                                       "mirostat_mode",
                                       "smoothing_factor",
                                       "tfs",
                                       "rep_pen",
                                       "max_context_length",
                                       "rescale_logits",
                                       "compute_logprobs",
                                       "stream_response",
                                       "stream_id",
                                       "seed_id",
                                       "nvext",
                                       "ext",
                                       "sla",
                                       "ttl"};

// ---- fields --------------------------------------------------------------------------------------------------------

TEST_CASE("a name that would shape the answer and is not served is never accepted in silence") {
  size_t num_checked = 0;
  for (const KnownField& field : known_fields()) {
    for (const Endpoint endpoint : kEndpoints) {
      if (field.tier != Tier::kRefused || !(field.endpoints & static_cast<uint8_t>(endpoint))) continue;
      INFO(field.name);
      CHECK_FALSE(field.instead.empty());
      for (const json::value& value : values_of_all_kinds()) {
        const Parsed parsed = parse_with(field.name, value, endpoint);
        INFO(json::serialize(value));
        const bool passes = is_neutral(field.neutral, value);
        CHECK((error_of(parsed) == nullptr) == passes);
        if (passes) CHECK(std::get<ApiRequest>(parsed).headers.empty());
        if (!error_of(parsed)) continue;
        CHECK(error_of(parsed)->status == 400);
        CHECK(error_of(parsed)->code == "unsupported");
        CHECK(error_of(parsed)->param == field.name);
        CHECK(error_of(parsed)->message.find(field.instead) != std::string::npos);
        ++num_checked;
      }
    }
  }
  CHECK(num_checked > 1000);
  const Parsed renamed = parse_with("repeat_penalty", 1.1, Endpoint::kChat);
  CHECK(error_of(renamed)->message ==
        "repeat_penalty: not supported: expected 1 or nothing, found 1.1; use repetition_penalty");
}

TEST_CASE("names without effect here pass, and those that ask for something are told") {
  for (const KnownField& field : known_fields()) {
    for (const Endpoint endpoint : kEndpoints) {
      if (field.tier == Tier::kRefused || !(field.endpoints & static_cast<uint8_t>(endpoint))) continue;
      INFO(field.name);
      for (const json::value& value : values_of_all_kinds()) {
        const bool is_told = field.tier == Tier::kNoted && !is_neutral(field.neutral, value);
        CHECK(header_of(parse_with(field.name, value, endpoint), "x-llmrt-ignored") ==
              (is_told ? std::string(field.name) : ""));
      }
    }
  }
}

TEST_CASE("a null is absent, whatever its name") {
  for (const Endpoint endpoint : kEndpoints) {
    json::object body = usual_body(endpoint);
    for (const char* names : {kVllmChat, kVllmCompletion, kSglangChat, kSglangCompletion, kLocal})
      for (const auto& field : object_of(names)) body.emplace(field.key(), nullptr);
    for (const char* name :
         {"deadline_ms", "request_class", "batch_invariant", "no_repeat_ngram_size", "early_stopping", "logprobs_mode",
          "modalities", "functions", "function_call", "safety_identifier", "temprature", "nobody_knows"})
      body.emplace(name, nullptr);
    for (const KnownField& field : known_fields()) body.emplace(field.name, nullptr);
    const Parsed parsed = parse(body, endpoint, /*strict=*/true);
    CHECK(header_of(parsed, "x-llmrt-ignored").empty());
  }
  const char* chat =
      R"({"messages": [{"role": "assistant", "content": "x", "reasoning_content": null, "reasoning": null,
      "tool_calls": null, "function_call": null, "refusal": null, "audio": null, "annotations": null, "name": null,
      "tool_call_id": null, "nobody_knows": null},
      {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": null}]}],
      "tools": null, "stream_options": null, "chat_template_kwargs": null})";
  CHECK(header_of(parse(value_of(chat).as_object(), Endpoint::kChat, /*strict=*/true), "x-llmrt-ignored").empty());
}

TEST_CASE("what other servers' clients send where their user sets nothing is accepted without a note") {
  for (const auto& [text, endpoint] : {std::pair{kVllmChat, Endpoint::kChat},
                                       {kVllmCompletion, Endpoint::kCompletion},
                                       {kSglangChat, Endpoint::kChat},
                                       {kSglangCompletion, Endpoint::kCompletion},
                                       {kRouter, Endpoint::kChat},
                                       {kRouter, Endpoint::kCompletion},
                                       {kLocal, Endpoint::kChat},
                                       {kLocal, Endpoint::kCompletion}}) {
    json::object body = usual_body(endpoint);
    for (const auto& field : object_of(text)) body[field.key()] = field.value();
    CHECK(header_of(parse(body, endpoint), "x-llmrt-ignored").empty());
  }
}

TEST_CASE("no real name is taken for a slip of another") {
  std::vector<std::string> names(std::begin(kOtherNames), std::end(kOtherNames));
  for (const char* text : {kVllmChat, kVllmCompletion, kSglangChat, kSglangCompletion, kLocal})
    for (const auto& field : object_of(text)) names.emplace_back(field.key());
  for (const std::string& name : names) {
    for (const Endpoint endpoint : kEndpoints) {
      const Parsed parsed = parse_with(name, json::object{{"x", 1}}, endpoint);
      INFO(name << (error_of(parsed) ? error_of(parsed)->message : ""));
      CHECK((!error_of(parsed) || error_of(parsed)->code != "unknown_field"));
    }
  }
}

TEST_CASE("an unknown field is ignored and told, a slip of a known one is refused with the name that was meant") {
  CHECK(header_of(parse_with("foo", 1, Endpoint::kChat), "x-llmrt-ignored") == "foo");
  CHECK(std::get<ApiRequest>(parse_with("foo", 1, Endpoint::kChat)).ignored_fields == std::vector<std::string>{"foo"});
  for (const auto& [slip, meant] : {std::pair{"temprature", "temperature"},
                                    {"temperatur", "temperature"},
                                    {"temperature_", "temperature"},
                                    {"tempertaure", "temperature"},
                                    {"timperature", "temperature"},
                                    {"max_token", "max_tokens"},
                                    {"maxTokens", "max_tokens"},
                                    {"top-p", "top_p"},
                                    {"Stop", "stop"},
                                    {"stops", "stop"},
                                    {"logit_biass", "logit_bias"},
                                    {"guided_jsn", "guided_json"},
                                    {"response_formt", "response_format"}}) {
    const Parsed parsed = parse_with(slip, 1, Endpoint::kChat);
    INFO(slip);
    REQUIRE(error_of(parsed));
    CHECK(error_of(parsed)->code == "unknown_field");
    CHECK(error_of(parsed)->param == slip);
    CHECK(error_of(parsed)->message == fmt::format("{}: unknown field: did you mean {}?", slip, meant));
    CHECK_FALSE(error_of(parse_with(slip, nullptr, Endpoint::kChat)));
  }
  CHECK_FALSE(looks_like("temperature", "temperature"));
  CHECK_FALSE(looks_like("tmeprature", "temperature"));  // two slips
  CHECK_FALSE(looks_like("m", "n"));
  CHECK_FALSE(looks_like("", "stop"));
}

TEST_CASE("the header has few, short, clean names") {
  json::object body = usual_body(Endpoint::kCompletion);
  for (int i = 0; i < 20; ++i) body[fmt::format("zz_{}{}", i, std::string(100, 'z'))] = 1;
  std::string header = header_of(parse(body, Endpoint::kCompletion), "x-llmrt-ignored");
  CHECK(std::count(header.begin(), header.end(), ',') == 7);
  CHECK(header.size() == 8 * 40 + 7 * 2);
  for (const auto& [name, told] : {std::pair<std::string, std::string>{"a\r\nset-cookie: x", "a__set-cookie__x"},
                                   {"\xC3\xA4,b", "___b"},
                                   {"", "_"},
                                   {std::string("a\0b", 3), "a_b"}})
    CHECK(header_of(parse_with(name, 1, Endpoint::kCompletion), "x-llmrt-ignored") == told);
}

TEST_CASE("strict: what has no effect and no name here is refused") {
  for (const Endpoint endpoint : kEndpoints) {
    CHECK(error_of(parse_with("foo", 1, endpoint, true))->code == "unknown_field");
    CHECK(error_of(parse_with("return_prompt_text", true, endpoint, true))->code == "unsupported");
    CHECK_FALSE(error_of(parse_with("return_prompt_text", false, endpoint, true)));
    CHECK_FALSE(error_of(parse_with("user", "me", endpoint, true)));
  }
  for (const auto& [body, param] :
       {std::pair{R"({"messages": [{"role": "user", "content": "a", "id": "m1"}]})", "messages[0].id"},
        {R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "x": 1}]}]})",
         "messages[0].content[0].x"},
        {R"({"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "x": 1, "function": {"name": "f"}}]}]})",
         "messages[0].tool_calls[0].x"},
        {R"({"messages": [{"role": "user", "content": "a"}], "tool_choice": "none",
             "tools": [{"type": "function", "x": 1, "function": {"name": "f"}}]})",
         "tools[0].x"},
        {R"({"messages": [{"role": "user", "content": "a"}], "stream_options": {"x": 1}})", "stream_options.x"}}) {
    const json::value value = value_of(body);
    CHECK(header_of(parse(value.as_object(), Endpoint::kChat), "x-llmrt-ignored").empty());
    const Parsed strict = parse(value.as_object(), Endpoint::kChat, true);
    INFO(body);
    REQUIRE(error_of(strict));
    CHECK(error_of(strict)->message == fmt::format("{}: unknown field", param));
  }
}

TEST_CASE("nothing large hides in a field that has no effect") {
  for (const char* name : {"user", "metadata", "foo", "return_prompt_text"}) {
    INFO(name);
    CHECK_FALSE(error_of(parse_with(name, json::string(60000, 'x'), Endpoint::kCompletion)));
    const Parsed parsed = parse_with(name, json::string(70000, 'x'), Endpoint::kCompletion);
    REQUIRE(error_of(parsed));
    CHECK(error_of(parsed)->message.find("at most 65536 bytes") != std::string::npos);
    CHECK(error_of(parse_with(name, json::array(70000, 0), Endpoint::kCompletion)));
    CHECK(error_of(parse_with(name, json::object{{std::string(70000, 'x'), 0}}, Endpoint::kCompletion)));
  }
  json::object body = usual_body(Endpoint::kCompletion);
  for (int i = 0; i < 5; ++i) body[fmt::format("field_{}", i)] = json::string(60000, 'x');
  const Parsed all = parse(body, Endpoint::kCompletion);
  REQUIRE(error_of(all));
  CHECK(error_of(all)->message.find("at most 262144 bytes in all") != std::string::npos);
  body = usual_body(Endpoint::kCompletion);
  for (int i = 0; i < 1023; ++i) body[fmt::format("field_{}", i)] = 1;
  const auto begin = std::chrono::steady_clock::now();
  CHECK_FALSE(error_of(parse(body, Endpoint::kCompletion)));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(1));
  body["one_more"] = 1;
  CHECK(error_of(parse(body, Endpoint::kCompletion))->param == "body");
}

// ---- messages ------------------------------------------------------------------------------------------------------

// The letters, with a template that writes down what it was given.
ServedModel telling_model(std::string_view what) {
  ServedModel model = letter_model(1 << 16);
  auto compiled = ChatTemplate::compile(std::string(what));
  if (!compiled) FAIL(compiled.error().message);
  model.chat_template = std::move(*compiled);
  return model;
}
struct Told {
  std::string text;
  std::string ignored;
};
Told told(std::string_view body, std::string_view what = "{{ messages | tojson }}") {
  const ServedModel model = telling_model(what);
  const Parsed parsed = parse_chat(value_of(body).as_object(), model, ParseContext{});
  INFO(body);
  const std::string ignored = header_of(parsed, "x-llmrt-ignored");
  return {model.tokenizer->decode(std::get<ApiRequest>(parsed).prompts[0].request.prompt, true), ignored};
}
ApiError refused(std::string_view body) {
  const Parsed parsed = parse_chat(value_of(body).as_object(), telling_model("x"), ParseContext{});
  INFO(body);
  REQUIRE(error_of(parsed));
  CHECK(error_of(parsed)->status == 400);
  return *error_of(parsed);
}

TEST_CASE("an agent's history reaches the template as templates read it") {
  const Told history = told(R"({"messages": [
      {"role": "developer", "content": "be brief"},
      {"role": "user", "content": "weather?", "id": "m1", "timestamp": 5},
      {"role": "assistant", "content": null, "reasoning_content": "I look.", "tool_calls": [
         {"id": "call_1", "type": "function", "index": 0, "function": {"name": "w", "arguments": "{\"city\": \"Rome\", \"d\": 3}"}},
         {"id": "call_2", "function": {"name": "f", "arguments": ""}}], "refusal": null, "provider_specific_fields": {"x": 1}},
      {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
      {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
         {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": "Sunny.", "reasoning": "They said so.", "annotations": []}]})");
  CHECK(value_of(history.text) == value_of(R"([
      {"role": "system", "content": "be brief"},
      {"role": "user", "content": "weather?"},
      {"role": "assistant", "content": "", "reasoning": "I look.", "reasoning_content": "I look.", "tool_calls": [
         {"id": "call_1", "type": "function", "function": {"name": "w", "arguments": {"city": "Rome", "d": 3}}},
         {"id": "call_2", "type": "function", "function": {"name": "f", "arguments": {}}}]},
      {"role": "tool", "content": "sunny", "tool_call_id": "call_1"},
      {"role": "tool", "content": "a\nb", "tool_call_id": "call_2"},
      {"role": "assistant", "content": "Sunny.", "reasoning": "They said so.", "reasoning_content": "They said so."}])"));
  CHECK(history.ignored.empty());
}

TEST_CASE("arguments that are no JSON object stay text") {
  for (const auto& [arguments, expected] : {std::pair{R"("{\"a\": ")", R"("{\"a\": ")"},
                                            {R"("[1]")", R"("[1]")"},
                                            {R"({"a": 1})", R"({"a": 1})"},
                                            {R"("  ")", "{}"},
                                            {"null", "{}"},
                                            {R"("{\"a\":1,\"a\":2}")", R"("{\"a\":1,\"a\":2}")"}}) {
    const Told one = told(fmt::format(
        R"({{"messages": [{{"role": "assistant", "tool_calls": [{{"function": {{"name": "f", "arguments": {}}}}}]}}]}})",
        arguments));
    CHECK(value_of(one.text).at(0).at("tool_calls").at(0).at("function").at("arguments") == value_of(expected));
  }
  // Deeper than a template may go: text, which it writes as it stands.
  std::string deep;
  for (int i = 0; i < 40; ++i) deep += R"({\"a\":)";
  deep += "1" + std::string(40, '}');
  const Told one =
      told(R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": ")" + deep +
           R"("}}]}]})");
  CHECK(value_of(one.text).at(0).at("tool_calls").at(0).at("function").at("arguments").is_string());
}

TEST_CASE("roles and calls of old are read as those of today") {
  const Told old = told(R"({"messages": [
      {"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}},
      {"role": "function", "name": "f", "content": "1"}]})");
  CHECK(value_of(old.text) == value_of(R"([
      {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]},
      {"role": "tool", "content": "1", "name": "f"}])"));
}

TEST_CASE("parts of an assistant's message: text, thoughts, a refusal") {
  const Told parts =
      told(R"({"messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"},
      {"type": "text", "text": "a"}, "b", {"type": "refusal", "refusal": "no"}]}]})");
  CHECK(value_of(parts.text) == value_of(R"([{"role": "assistant", "content": "a\nb\nno", "reasoning": "t",
      "reasoning_content": "t"}])"));
}

TEST_CASE("an image is refused as what it is, and dropped from a tool's result") {
  for (const char* type : {"image_url", "input_audio", "file", "video_url"}) {
    const ApiError error = refused(fmt::format(
        R"({{"messages": [{{"role": "user", "content": [{{"type": "text", "text": "a"}}, {{"type": "{}"}}]}}]}})",
        type));
    CHECK(error.param == "messages[0].content[1].type");
    CHECK(error.code == "unsupported");
    CHECK(error.message.find(fmt::format("{}: this model reads text only", type)) != std::string::npos);
  }
  const Told result = told(R"({"messages": [{"role": "tool", "tool_call_id": "c", "content": [
      {"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text", "text": "seen"}, {"type": "image_url"}]}]})");
  CHECK(value_of(result.text) == value_of(R"([{"role": "tool", "content": "seen", "tool_call_id": "c"}])"));
  CHECK(result.ignored == "tool_content.image_url");
}

TEST_CASE("an error names what is wrong, not what else is missing") {
  struct Row {
    const char* message;
    const char* text;
  };
  const Row row = GENERATE(
      Row{R"({"role": "assistant", "content": null})", "content: expected a string or an array of parts, found null"},
      Row{R"({"role": "assistant"})", "content: expected a string or an array of parts, found nothing"},
      Row{R"({"role": "user", "content": null, "tool_calls": [{"function": {"name": "f"}}]})",
          "content: expected a string or an array of parts, found null"},
      Row{R"({"role": "assistant", "content": null, "tool_calls": [{"function": {}}]})",
          "tool_calls[0].function.name: expected the function's name"},
      Row{R"({"role": "assistant", "content": null, "tool_calls": [{}]})",
          "tool_calls[0].function: expected an object"},
      Row{R"({"role": "assistant", "content": null, "tool_calls": [5]})", "tool_calls[0]: expected an object, found 5"},
      Row{R"({"role": "assistant", "content": null, "tool_calls": {}})", "tool_calls: expected an array"},
      Row{R"({"role": "assistant", "content": null, "tool_calls": [{"type": "custom", "custom": {}}]})",
          "tool_calls[0].custom.name: expected the tool's name, found nothing"},
      Row{R"({"role": "assistant", "content": "a", "reasoning_content": 5})", "reasoning_content: expected a string"},
      Row{R"({"role": "assistant", "content": null, "audio": {"id": "a"}})", "audio: not supported"},
      Row{R"({"role": "tool", "content": {"a": 1}})",
          "content: expected a string or an array of parts, found an object"},
      Row{R"({"role": "tool", "content": "a", "tool_call_id": 5})", "tool_call_id: expected a string"});
  const ApiError error = refused(fmt::format(R"({{"messages": [{}]}})", row.message));
  INFO(row.message << " " << error.message);
  CHECK(error.message.starts_with(std::string("messages[0].") + row.text));
}

// ---- tools ---------------------------------------------------------------------------------------------------------

constexpr const char* kTools = R"([{"type": "function", "function": {"description": "d", "name": "w", "strict": true,
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "x-note": 1}}}}, "cache_control": {}}])";

std::string chat_with(std::string_view rest) {
  return fmt::format(R"({{"messages": [{{"role": "user", "content": "a"}}]{}}})", rest);
}

TEST_CASE("tools reach the template with tool_choice none, in the client's order, and nothing else of them") {
  const std::string body = chat_with(fmt::format(R"(, "tool_choice": "none", "tools": {})", kTools));
  CHECK(told(body, "{{ tools | tojson }}").text ==
        R"([{"type": "function", "function": {"description": "d", "name": "w", "parameters": {"type": "object", )"
        R"("properties": {"city": {"type": "string", "x-note": 1}}}}}])");
}

TEST_CASE("tools are undefined in the template when nobody gave any") {
  for (const char* none : {"", R"(, "tools": [])", R"(, "tools": null)", R"(, "tools": [], "tool_choice": "auto")",
                           R"(, "functions": [], "function_call": "none")", R"(, "tool_choice": null)"})
    CHECK(told(chat_with(none), "{{ tools is defined }}").text == "False");
}

TEST_CASE("a model whose answers have no calls refuses tools that may be called, and says what goes") {
  for (const char* choice : {"", R"(, "tool_choice": "auto")", R"(, "tool_choice": "required")",
                             R"(, "tool_choice": {"type": "function", "function": {"name": "w"}})"}) {
    const ApiError error = refused(chat_with(fmt::format(R"(, "tools": {}{})", kTools, choice)));
    CHECK(error.param == "tools");
    CHECK(error.message.find("tool_choice \"none\"") != std::string::npos);
  }
  for (const char* choice : {R"({"type": "function", "function": {"name": "w"}})", R"("required")", R"("sometimes")"})
    CHECK(refused(chat_with(fmt::format(R"(, "tool_choice": {})", choice))).param == "tool_choice");
  for (const auto& [tools, param] :
       {std::pair{R"([{"type": "custom"}])", "tools[0].custom"},
        {R"([{"type": "web_search"}])", "tools[0].type"},
        {R"([{"type": "custom", "custom": {"name": "a", "format": {"type": "grammar", "grammar": {"syntax": "gbnf",
             "definition": "start: \"a\""}}}}])",
         "tools[0].custom.format.grammar.syntax"},
        {R"([{"type": "function", "function": {"name": "a b"}}])", "tools[0].function.name"},
        {R"([5])", "tools[0]"},
        {R"([{"type": "function"}])", "tools[0].function"},
        {R"([{"type": "function", "function": {}}])", "tools[0].function.name"},
        {R"([{"type": "function", "function": {"name": "a", "parameters": 5}}])", "tools[0].function.parameters"},
        {R"({})", "tools"}})
    CHECK(refused(chat_with(fmt::format(R"(, "tool_choice": "none", "tools": {})", tools))).param == param);
  std::string many = R"([{"type": "function", "function": {"name": "f"}})";
  for (int i = 0; i < 1024; ++i) many += R"(,{"type": "function", "function": {"name": "f"}})";
  CHECK(refused(chat_with(R"(, "tool_choice": "none", "tools": )" + many + "]")).param == "tools");
}

TEST_CASE("what the template copies is bounded, and so are its variables") {
  const auto zeros = [](size_t count) {
    std::string text = "[0";
    for (size_t i = 1; i < count; ++i) text += ",0";
    return text + "]";
  };
  const std::string many = zeros(kTemplateValuesMax);
  CHECK(refused(chat_with(R"(, "chat_template_kwargs": {"x": )" + many + "}")).param == "chat_template_kwargs");
  CHECK(refused(chat_with(R"(, "tool_choice": "none", "tools": [{"type": "function", "function": {"name": "f",
      "parameters": {"x": )" +
                          many + "}}}]"))
            .param == "tools");
  std::string variables = R"("v0": 0)";
  for (size_t i = 1; i <= kTemplateVariablesMax; ++i) variables += fmt::format(R"(, "v{}": 0)", i);
  CHECK(refused(chat_with(R"(, "chat_template_kwargs": {)" + variables + "}")).param == "chat_template_kwargs");
  // Arguments beyond that stay what the client wrote.
  const std::string call = R"({"function": {"name": "f", "arguments": "{\"x\": )" + zeros(100'000) + R"(}"}})";
  const Told calls = told(R"({"messages": [{"role": "assistant", "tool_calls": [)" + call + "," + call + "]}]}",
                          "{% for c in messages[0].tool_calls %}{{ c.function.arguments is string }} {% endfor %}");
  CHECK(calls.text == "False True ");
}

TEST_CASE("tokenize counts tools whatever is chosen of them") {
  const ServedModel model = telling_model("{{ tools | tojson }}");
  for (const char* choice : {"", R"(, "tool_choice": "auto")", R"(, "tool_choice": "required")"}) {
    const auto answer =
        tokenize(value_of(chat_with(fmt::format(R"(, "tools": {}{})", kTools, choice))).as_object(), model);
    REQUIRE(std::holds_alternative<json::object>(answer));
    CHECK(std::get<json::object>(answer).at("count").to_number<int>() > 100);
  }
}

TEST_CASE("the effort to think reaches the template") {
  constexpr const char* kWhat = "{{ reasoning_effort }},{{ enable_thinking }}";
  CHECK(told(chat_with(R"(, "reasoning_effort": "high")"), kWhat).text == "high,");
  CHECK(told(chat_with(R"(, "reasoning_effort": "none")"), kWhat).text == ",False");
  CHECK(told(chat_with(R"(, "reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": true})"), kWhat)
            .text == ",True");
}

}  // namespace
}  // namespace llmrt::server
