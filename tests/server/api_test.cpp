// Bodies of the completion endpoints to Requests, without a socket: every field at its default, at a value, out of its
// range; what is unknown follows its tier (fields_test.cpp). And events to text, log-probabilities and JSON.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <set>

#include "core/base/utf8.h"
#include "server/api_answer.h"
#include "server/bad_words.h"
#include "server/json_reader.h"
#include "server/render.h"
#include "server/tokenize.h"
#include "tests/server/letter_model.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

json::object object_of(std::string_view text) {
  auto value = read_json(text);
  INFO((value ? "" : value.error().message));
  REQUIRE(value.ok());
  return value->as_object();
}
ApiRequest completion(std::string_view body, const ServedModel& model = letter_model()) {
  auto parsed = parse_completion(object_of(body), model, 7);
  if (const auto* error = std::get_if<ApiError>(&parsed)) FAIL(error->message);
  return std::get<ApiRequest>(std::move(parsed));
}
ApiRequest chat(std::string_view body) {
  auto parsed = parse_chat(object_of(body), letter_model(), 7);
  if (const auto* error = std::get_if<ApiError>(&parsed)) FAIL(error->message);
  return std::get<ApiRequest>(std::move(parsed));
}
ApiError completion_error(std::string_view body, const ServedModel& model = letter_model()) {
  auto parsed = parse_completion(object_of(body), model, 7);
  INFO(body);
  REQUIRE(std::holds_alternative<ApiError>(parsed));
  return std::get<ApiError>(parsed);
}
ApiError chat_error(std::string_view body) {
  auto parsed = parse_chat(object_of(body), letter_model(), 7);
  INFO(body);
  REQUIRE(std::holds_alternative<ApiError>(parsed));
  return std::get<ApiError>(parsed);
}
std::vector<int32_t> ids(std::string_view text) {
  return {text.begin(), text.end()};
}

// SentencePiece: <unk>, so many of the 256 bytes, then these, the better ones first.
std::shared_ptr<const Tokenizer> pieces_tokenizer(int num_bytes, std::initializer_list<const char*> pieces) {
  Vocabulary vocabulary;
  vocabulary.model = "llama";
  const auto add = [&](std::string token, TokenType type, float score = 0) {
    vocabulary.tokens.push_back(std::move(token));
    vocabulary.types.push_back(type);
    vocabulary.scores.push_back(score);
  };
  vocabulary.unk = 0;
  add("<unk>", TokenType::kUnknown);
  for (int byte = 0; byte < num_bytes; ++byte) add(fmt::format("<0x{:02X}>", byte), TokenType::kByte);
  for (const char* piece : pieces) add(piece, TokenType::kNormal, -static_cast<float>(vocabulary.tokens.size()));
  auto made = Tokenizer::create(vocabulary);
  REQUIRE(made.ok());
  return std::move(*made);
}

class CountingTokenizer final : public LetterTokenizer {
 public:
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override {
    ++num_texts;
    tokens_max = options.tokens_max;
    return LetterTokenizer::encode(text, options);
  }
  mutable int num_texts = 0;
  mutable size_t tokens_max = 0;
};

// The letters, and which of them are control tokens.
class TypedTokenizer final : public LetterTokenizer {
 public:
  TypedTokenizer() : typed_(LetterTokenizer::vocabulary()) {
    typed_.types.assign(typed_.tokens.size(), TokenType::kNormal);
    typed_.types[kStartToken] = typed_.types[kEndToken] = TokenType::kControl;
  }
  const Vocabulary& vocabulary() const override { return typed_; }

 private:
  Vocabulary typed_;
};

// ---- JSON ----------------------------------------------------------------------------------------------------------

TEST_CASE("JSON from outside is read strictly") {
  CHECK(read_json(R"({"a": [1, 2.5, "x", null, true]})").ok());
  for (const char* bad :
       {"", "{", "{\"a\":1}x", "{\"a\":1,\"a\":2}", "{\"b\":{\"a\":1,\"a\":2}}", "[1e999]", "[NaN]", "[-1e400]", "[01]",
        "{'a':1}", "[1,]", "\"\xff\"", "\"\\ud800\"", "\xEF\xBB\xBF{}", "// c\n1", "\"a\nb\""}) {
    INFO(bad);
    const auto value = read_json(bad);
    REQUIRE_FALSE(value.ok());
    CHECK(value.error().code == ErrorCode::kInvalidArgument);
  }
  CHECK(read_json(std::string(64, '[') + std::string(64, ']')).ok());
  CHECK_FALSE(read_json(std::string(65, '[') + std::string(65, ']')).ok());
  CHECK_FALSE(read_json(std::string(1000000, '[')).ok());
}

// ---- requests ------------------------------------------------------------------------------------------------------

TEST_CASE("a JSON error says what stands where, in valid UTF-8") {
  const auto message = [](const std::string& text) { return read_json(text).error().message; };
  const std::string long_key = "x" + [] {
    std::string text;
    for (int i = 0; i < 40; ++i) text += "\u00e9";
    return text;
  }();
  CHECK(is_valid_utf8(message("{\"" + long_key + "\":1,\"" + long_key + "\":2}")));
  CHECK(message("\"a\xff\"") == "invalid JSON: byte 2: invalid UTF-8");
  CHECK(message("\"a\nb\"") == "invalid JSON: byte 2: a control character, 0x0a, that is not escaped");
  CHECK(message("[1,]") == "invalid JSON: byte 3: a syntax error, found ']'");
  CHECK(message("\"\\ud800\\u0041\"").find("half a surrogate pair") != std::string::npos);
  CHECK(message("\"\\udc00\"").find("half a surrogate pair") != std::string::npos);

  // What follows the first half is not at fault, whatever it is.
  for (const char* half : {"\"a\\ud83dx\"", "\"a\\ud83d\xE2\x80\xA6\"", "\"\\uD83D\\n\"", "\"\\ud83d\"",
                           "\"\\udbff\\\\\"", "\"\\ud83d\\ud83d\"", "{\"\\ud83dx\": 1}"}) {
    INFO(half);
    CHECK(message(half).find("an escape of half a surrogate pair") != std::string::npos);
  }
  // A backslash that is escaped itself begins none.
  CHECK(read_json("\"\\\\ud83dx\"").ok());
  CHECK(message("\"\\\\ud83d\xff\"").find("invalid UTF-8") != std::string::npos);
  CHECK(message("\xE2\x80\xA6").find("a character outside of a string") != std::string::npos);
  CHECK(message("\xEF\xBB\xBF{}") == "invalid JSON: byte 0: a byte-order mark before the JSON");

  ParseContext strict;
  strict.strict_fields = true;
  const auto unknown = std::get<ApiError>(
      parse_completion(object_of("{\"prompt\":\"a\",\"" + long_key + "\":1}"), letter_model(), strict));
  CHECK(unknown.code == "unknown_field");
  CHECK((is_valid_utf8(unknown.message) && is_valid_utf8(unknown.param)));
  CHECK(
      std::get<ApiError>(parse_completion(object_of("{\"prompt\":\"a\",\"b\\nc\":1}"), letter_model(), strict)).param ==
      "b?c");
}

TEST_CASE("prompts of one request draw apart, but by a seed that is asked for") {
  const ApiRequest apart = completion(R"({"prompt": ["a", "a", [97]]})");
  REQUIRE(apart.prompts.size() == 3);
  std::set<uint64_t> seeds;
  for (const PromptRequest& prompt : apart.prompts) seeds.insert(prompt.request.sampling.seed);
  CHECK(seeds.size() == 3);
  const ApiRequest alike = completion(R"({"prompt": ["a", "a"], "seed": 5})");
  for (const PromptRequest& prompt : alike.prompts) CHECK(prompt.request.sampling.seed == 5);
}

TEST_CASE("a completion's defaults are OpenAI's") {
  const ApiRequest parsed = completion(R"({"prompt": "abc"})");
  REQUIRE(parsed.prompts.size() == 1);
  const Request& request = parsed.prompts[0].request;
  CHECK(request.prompt == ids("abc"));
  CHECK(request.max_tokens == 16);
  CHECK(request.min_tokens == 0);
  CHECK(request.sampling.temperature == 1);
  CHECK(request.sampling.seed == 7);
  CHECK(request.sampling.logprobs == -1);
  CHECK_FALSE(request.sampling.prompt_logprobs);
  CHECK_FALSE(parsed.form.stream);
}

TEST_CASE("every supported field arrives in the request") {
  const Request request = completion(R"({"model": "letters", "prompt": [1, 2, 3], "max_tokens": 40, "temperature": 0.5,
      "top_p": 0.9, "top_k": 12, "min_p": 0.05, "seed": -3, "stop": ["x", "yz"], "stop_token_ids": [9],
      "include_stop_str_in_output": true, "ignore_eos": true, "min_tokens": 4, "presence_penalty": 0.5,
      "frequency_penalty": -0.5, "repetition_penalty": 1.25, "logit_bias": {"65": -100, "66": 5}, "logprobs": 20,
      "logprobs_mode": "processed", "no_repeat_ngram_size": 3, "bad_words": ["ab", [65, 66, 67]],
      "user": "u", "metadata": {"a": "b"}, "store": true})")
                              .prompts[0]
                              .request;
  CHECK(request.prompt == std::vector<int32_t>{1, 2, 3});
  CHECK(request.max_tokens == 40);
  CHECK(request.min_tokens == 4);
  CHECK(request.sampling.temperature == 0.5f);
  CHECK(request.sampling.top_p == 0.9f);
  CHECK(request.sampling.top_k == 12);
  CHECK(request.sampling.min_p == 0.05f);
  CHECK(request.sampling.seed == static_cast<uint64_t>(-3));
  CHECK(request.stop.strings == std::vector<std::string>{"x", "yz"});
  CHECK(request.stop.token_ids == std::vector<int32_t>{9});
  CHECK(request.stop.include_string);
  CHECK(request.stop.ignore_eos);
  CHECK(request.sampling.presence_penalty == 0.5f);
  CHECK(request.sampling.frequency_penalty == -0.5f);
  CHECK(request.sampling.repetition_penalty == 1.25f);
  CHECK(request.sampling.logit_bias.size() == 2);
  CHECK(request.sampling.logprobs == 20);
  CHECK(request.sampling.no_repeat_ngram_size == 3);
  CHECK(request.sampling.processed_logprobs);
  CHECK(request.sampling.bad_words == std::vector<std::vector<int32_t>>{ids("ab"), ids(" ab"), {65, 66, 67}});
}

TEST_CASE("a bad word is spelled at a text's beginning and behind a space, by either kind of tokenizer") {
  const auto letters = letter_model().tokenizer;
  CHECK(spellings(*letters, "ab") == std::vector<std::vector<int32_t>>{ids("ab"), ids(" ab")});
  // SentencePiece puts a space before every text by itself.
  const auto pieces = pieces_tokenizer(256, {"\u2581ab", "ab", "\u2581", "a", "b"});
  const TokenId spaced = 257, whole = 258;
  CHECK(spellings(*pieces, "ab") == std::vector<std::vector<int32_t>>{{whole}, {spaced}});
}

TEST_CASE("an answer that a policy ended says content_filter") {
  CHECK(finish_text(FinishReason::kPolicy) == "content_filter");
}

TEST_CASE("a cache salt reaches every prompt's request") {
  for (const PromptRequest& prompt : completion(R"({"prompt": ["a", "b"], "cache_salt": "tenant"})").prompts)
    CHECK(prompt.request.cache_salt == "tenant");
}

TEST_CASE("a request's class has a name of ours or a tier's") {
  const auto class_of = [](const char* body) { return completion(body).prompts[0].request.request_class; };
  CHECK(class_of(R"({"prompt": "a"})") == RequestClass::kInteractive);
  CHECK(class_of(R"({"prompt": "a", "service_tier": "priority"})") == RequestClass::kInteractive);
  CHECK(class_of(R"({"prompt": "a", "service_tier": "flex"})") == RequestClass::kBatch);
  CHECK(class_of(R"({"prompt": "a", "service_tier": "flex", "request_class": "agent"})") == RequestClass::kAgent);
  CHECK(class_of(R"({"prompt": "a", "request_class": "background"})") == RequestClass::kBackground);
  CHECK(completion(R"({"prompt": "a", "deadline_ms": 1500})").prompts[0].request.deadline_ms == 1500);
}

TEST_CASE("a temperature that a float cannot divide by is greedy") {
  CHECK(completion(R"({"prompt": "a", "temperature": 1e-38})").prompts[0].request.sampling.temperature == 0);
  CHECK(completion(R"({"prompt": "a", "temperature": 1e-5})").prompts[0].request.sampling.temperature == 1e-5f);
}

TEST_CASE("each wrong field is a 400 that names it") {
  struct Row {
    const char* body;
    const char* param;
  };
  const Row row = GENERATE(
      Row{R"({"prompt": "a", "temperature": -1})", "temperature"},
      Row{R"({"prompt": "a", "temperature": "hot"})", "temperature"}, Row{R"({"prompt": "a", "top_p": 1.5})", "top_p"},
      Row{R"({"prompt": "a", "top_k": -2})", "top_k"}, Row{R"({"prompt": "a", "min_p": 2})", "min_p"},
      Row{R"({"prompt": "a", "n": 0})", "n"}, Row{R"({"prompt": "a", "n": 129})", "n"},
      Row{R"({"prompt": "a", "n": 3, "best_of": 2})", "best_of"}, Row{R"({"prompt": "a", "best_of": 129})", "best_of"},
      Row{R"({"prompt": ["a", "b"], "n": 65})", "n"}, Row{R"({"prompt": ["a", "b"], "best_of": 65})", "best_of"},
      Row{R"({"prompt": "a", "best_of": 2, "stream": true})", "best_of"},
      Row{R"({"prompt": "a", "use_beam_search": true, "stream": true})", "use_beam_search"},
      Row{R"({"prompt": "a", "use_beam_search": true, "stop": "x"})", "use_beam_search"},
      Row{R"({"prompt": "a", "use_beam_search": true, "temperature": 0.5})", "use_beam_search"},
      Row{R"({"prompt": "a", "use_beam_search": true, "logprobs": 1})", "use_beam_search"},
      Row{R"({"prompt": "a", "use_beam_search": true, "length_penalty": 11})", "length_penalty"},
      Row{R"({"prompt": "a", "use_beam_search": true, "early_stopping": "never"})", "early_stopping"},
      Row{R"({"prompt": "a", "length_penalty": 2})", "length_penalty"},
      Row{R"({"prompt": "a", "early_stopping": true})", "early_stopping"},

      Row{R"({"prompt": "a", "max_tokens": 1.5})", "max_tokens"},
      Row{R"({"prompt": "a", "max_tokens": 0})", "max_tokens"},
      Row{R"({"prompt": "a", "max_tokens": true})", "max_tokens"},
      Row{R"({"prompt": "a", "logprobs": 21})", "logprobs"}, Row{R"({"prompt": "a", "seed": 1e30})", "seed"},
      Row{R"({"prompt": "a", "logprobs": "1"})", "logprobs"}, Row{R"({"prompt": "a", "max_tokens": -2})", "max_tokens"},
      Row{R"({"prompt": "a", "top_p": -0.1})", "top_p"}, Row{R"({"prompt": "a", "service_tier": "x"})", "service_tier"},
      Row{R"({"prompt": "a", "stop": [1]})", "stop"},
      Row{R"({"prompt": "a", "stop_token_ids": [258]})", "stop_token_ids"},
      Row{R"({"prompt": "a", "logit_bias": {"258": 1}})", "logit_bias"},
      Row{R"({"prompt": "a", "logit_bias": {"x": 1}})", "logit_bias"},
      Row{R"({"prompt": "a", "logit_bias": {"1": 101}})", "logit_bias"},
      Row{R"({"prompt": "a", "logit_bias": {"01": 1, "1": 2}})", "logit_bias"},
      Row{R"({"prompt": "a", "logit_bias": {"-0": 1, "0": 2}})", "logit_bias"},
      Row{R"({"prompt": "a", "logit_bias": {"-00": 1}})", "logit_bias"},
      Row{R"({"prompt": "a", "logit_bias": {"1x": 1}})", "logit_bias"},
      Row{R"({"prompt": "a", "logit_bias": {"": 1}})", "logit_bias"},
      Row{R"({"prompt": "a", "logit_bias": {"99999999999": 1}})", "logit_bias"},
      Row{R"({"prompt": "a", "bad_words": "x"})", "bad_words"},
      Row{R"({"prompt": "a", "bad_words": [""]})", "bad_words"},
      Row{R"({"prompt": "a", "bad_words": [[]]})", "bad_words"},
      Row{R"({"prompt": "a", "bad_words": [[258]]})", "bad_words"},
      Row{R"({"prompt": "a", "use_beam_search": true, "bad_words": ["x"]})", "use_beam_search"},
      Row{R"({"prompt": "a", "logprobs_mode": "cooked"})", "logprobs_mode"},
      Row{R"({"prompt": "a", "use_beam_search": true, "logprobs_mode": "processed"})", "use_beam_search"},
      Row{R"({"prompt": "a", "no_repeat_ngram_size": -1})", "no_repeat_ngram_size"},
      Row{R"({"prompt": "a", "repetition_penalty": 1e-30})", "repetition_penalty"},
      Row{R"({"prompt": "a", "suffix": "z"})", "suffix"}, Row{R"({"prompt": "a", "stream": "yes"})", "stream"},
      Row{R"({"prompt": "a", "cache_salt": 5})", "cache_salt"},
      Row{R"({"prompt": "a", "safety_identifier": 5})", "safety_identifier"},
      Row{R"({"prompt": "a", "prompt_cache_key": {}})", "prompt_cache_key"},
      Row{R"({"prompt": "a", "prompt_cache_retention": true})", "prompt_cache_retention"},
      Row{R"({"prompt": "a", "request_class": "urgent"})", "request_class"},
      Row{R"({"prompt": "a", "deadline_ms": 0})", "deadline_ms"},
      Row{R"({"prompt": "a", "stream": true, "stream_options": {"continuous_usage_stats": true}})",
          "stream_options.continuous_usage_stats"},
      Row{R"({"prompt": "a", "min_tokens": 17})", "min_tokens"}, Row{R"({"prompt": "a", "messages": []})", "messages"},
      Row{R"({"prompt": "a", "max_completion_tokens": 5})", "max_completion_tokens"},
      Row{R"({"prompt": "a", "response_format": {"type": "json_object"}})", "response_format"},
      Row{R"({"prompt": "a", "guided_json": {}})", "guided_json"}, Row{R"({"prompt": "a", "model": "other"})", "model"},
      Row{R"({})", "prompt"}, Row{R"({"prompt": ""})", "prompt"}, Row{R"({"prompt": []})", "prompt"},
      Row{R"({"prompt": 5})", "prompt"}, Row{R"({"prompt": [258]})", "prompt"}, Row{R"({"prompt": [-1]})", "prompt"},
      Row{R"({"prompt": [1, "a"]})", "prompt"}, Row{R"({"prompt": [1.5]})", "prompt"},
      Row{R"({"prompt": null})", "prompt"});
  const ApiError error = completion_error(row.body);
  CHECK(error.param == row.param);
  CHECK(error.status == (std::string_view(row.param) == "model" ? 404 : 400));
  CHECK(error.message.starts_with(row.param));
}

TEST_CASE("a known field at its neutral value is accepted") {
  completion(R"({"prompt": "a", "n": 1, "best_of": 1, "suffix": "", "logit_bias": {}, "stop": [], "bad_words": [],
      "response_format": {"type": "text"}, "use_beam_search": false, "skip_special_tokens": true, "echo": false,
      "stream_options": null, "logprobs": null, "priority": 0, "length_penalty": 1.0, "seed": null})");
  chat(R"({"messages": [{"role": "user", "content": "a", "tool_calls": []}], "n": 1, "tools": [], "tool_choice": "none",
      "parallel_tool_calls": true, "functions": [], "modalities": ["text"], "top_logprobs": 0, "logprobs": false,
      "reasoning_effort": null, "continue_final_message": false, "service_tier": "auto"})");
}

TEST_CASE("hints that OpenAI's clients send change nothing") {
  const ApiRequest hinted = completion(R"({"prompt": "a", "safety_identifier": "u", "prompt_cache_key": "k",
      "prompt_cache_retention": "24h"})");
  CHECK(hinted.prompts[0].request.cache_salt.empty());
  const ApiRequest hints = chat(R"({"messages": [{"role": "user", "content": "a"}], "safety_identifier": null,
      "prompt_cache_key": "k", "prompt_cache_retention": "in-memory", "verbosity": "low", "service_tier": "scale",
      "prediction": {"type": "content", "content": "x"}, "reasoning_effort": "low", "stream_options": {"x": 1}})");
  CHECK(hints.headers.empty());
}

TEST_CASE("drafts are asked for by name, and a prediction is drafted from") {
  const auto asked = [](const char* fields) {
    return completion(fmt::format(R"({{"prompt": "abc", {}}})", fields)).prompts[0].request.speculation;
  };
  CHECK_FALSE(asked(R"("max_tokens": 3)"));
  const auto none = asked(R"("speculative": {"mode": "none"}, "prediction": {"type": "content", "content": "xyz"})");
  REQUIRE(none);
  CHECK(none->source == nullptr);
  const auto few = asked(R"("speculative": {"draft_tokens": 2})");
  REQUIRE(few);
  CHECK(few->source != nullptr);
  CHECK(few->tokens_max == 2);
  for (const char* content : {R"("xyz")", R"([{"type": "text", "text": "x"}, {"type": "text", "text": "yz"}])"}) {
    const auto predicted = asked(fmt::format(R"("prediction": {{"type": "content", "content": {}}})", content).c_str());
    REQUIRE(predicted);
    std::vector<int32_t> drafts;
    predicted->source->begin(3)->propose(std::vector<int32_t>{'a', 'b', 'c', 'x'}, 4, &drafts);
    CHECK(std::string(drafts.begin(), drafts.begin() + 2) == "yz");
  }
  for (const char* wrong :
       {R"("speculative": {"mode": "eagle"})", R"("speculative": {"draft_tokens": 0})",
        R"("speculative": {"mode": "model"})", R"("speculative": {"mode": "both"})",
        R"("speculative": {"draft_tokens": 17})", R"("speculative": {"modes": "ngram"})", R"("speculative": true)"})
    CHECK(completion_error(fmt::format(R"({{"prompt": "a", {}}})", wrong)).param.starts_with("speculative"));
  for (const char* wrong : {R"("prediction": "x")", R"("prediction": {})", R"("prediction": {"content": [5]})"})
    CHECK(completion_error(fmt::format(R"({{"prompt": "a", {}}})", wrong)).param == "prediction");
}

TEST_CASE("a prompt that leaves no room is refused with both lengths, a longer answer is cut to the room") {
  const ServedModel model = letter_model(10);
  const ApiError error = completion_error(R"({"prompt": "0123456789", "max_tokens": 5})", model);
  CHECK(error.code == "context_length_exceeded");
  CHECK(
      error.message.find("maximum context length is 10 tokens, 11 were requested: 10 in the prompt, 1 in the answer") !=
      std::string::npos);
  CHECK(completion_error(R"({"prompt": "0123456789a"})", model).code == "context_length_exceeded");
  CHECK(completion_error(R"({"prompt": [1,2,3,4,5,6,7,8,9,10,11], "max_tokens": -1})", model).code ==
        "context_length_exceeded");
  // Scoring a prompt that fills the context needs no room for an answer.
  CHECK(completion(R"({"prompt": "0123456789", "max_tokens": 0, "echo": true, "logprobs": 0})", model)
            .prompts[0]
            .request.sampling.prompt_logprobs);

  using Headers = std::vector<std::pair<std::string, std::string>>;
  struct Row {
    const char* body;
    uint32_t max_tokens;
    Headers headers;
  };
  for (const Row& row : {Row{R"({"prompt": "abcdef", "max_tokens": 4})", 4, {}},
                         Row{R"({"prompt": "abcdef", "max_tokens": 5})", 4, {{"x-llmrt-max-tokens", "4"}}},
                         Row{R"({"prompt": ["a", "abcdef"], "max_tokens": 500})", 9, {{"x-llmrt-max-tokens", "4"}}},
                         Row{R"({"prompt": "abcdef"})", 4, {{"x-llmrt-max-tokens", "4"}}},  // 16 by default
                         Row{R"({"prompt": "abcdef", "max_tokens": -1})", 4, {}},
                         Row{R"({"prompt": "abcdef", "max_tokens": -1.0})", 4, {}}}) {
    INFO(row.body);
    const ApiRequest request = completion(row.body, model);
    CHECK(request.prompts[0].request.max_tokens == row.max_tokens);
    CHECK(request.headers == row.headers);
  }
  CHECK(completion_error(R"({"prompt": "abcdef", "max_tokens": 9, "min_tokens": 5})", model).param == "min_tokens");
  const ApiRequest all = chat(R"({"messages": [{"role": "user", "content": "a"}], "max_completion_tokens": -1})");
  CHECK(all.prompts[0].request.max_tokens == 256 - all.prompts[0].request.prompt.size());
  CHECK(all.headers.empty());
  const ApiRequest cut = chat(R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 4096})");
  CHECK(cut.headers == Headers{{"x-llmrt-max-tokens", fmt::to_string(cut.prompts[0].request.max_tokens)}});
}

TEST_CASE("all prompts are checked before any is tokenised") {
  ServedModel model = letter_model(10);
  model.tokenizer = std::make_shared<CountingTokenizer>();
  const auto* counting = static_cast<const CountingTokenizer*>(model.tokenizer.get());
  CHECK(completion_error(R"({"prompt": ["abc", "def", 5]})", model).param == "prompt");
  CHECK(completion_error(R"({"prompt": ["abc", "def"], "n": 100})", model).param == "n");
  CHECK(completion_error(R"({"prompt": ["abc"], "temprature": 1})", model).param == "temprature");
  CHECK(counting->num_texts == 0);
  // And none behind one that is too long.
  CHECK(completion_error(R"({"prompt": ["abc", "0123456789a", "def"]})", model).code == "context_length_exceeded");
  CHECK(counting->num_texts == 2);
  CHECK(counting->tokens_max == 10);
  CHECK(std::holds_alternative<ApiError>(tokenize(object_of(R"({"prompt": "0123456789a"})"), model)));
  CHECK(counting->num_texts == 3);
  counting->num_texts = 2;
  const std::atomic<bool> gone{true};
  const auto parsed = parse_completion(object_of(R"({"prompt": "abc"})"), model, ParseContext{.cancelled = &gone});
  CHECK(std::get<ApiError>(parsed).code == "cancelled");
  CHECK(counting->num_texts == 2);
}

TEST_CASE("up to 64 stop strings, of which empty ones stop nothing") {
  std::string many = "[\"0\"";
  for (int i = 1; i < 64; ++i) many += fmt::format(",\"{}\"", i);
  CHECK(completion("{\"prompt\": \"a\", \"stop\": " + many + "]}").prompts[0].request.stop.strings.size() == 64);
  CHECK(completion_error("{\"prompt\": \"a\", \"stop\": " + many + ",\"x\"]}").param == "stop");
  for (const char* none : {R"("")", "[]", R"([""])", "null"})
    CHECK(completion(fmt::format(R"({{"prompt": "a", "stop": {}}})", none)).prompts[0].request.stop.strings.empty());
  std::string long_ones = "[\"" + std::string(256, 'x') + "\"";
  for (int i = 1; i < 17; ++i) long_ones += ",\"" + std::string(256, 'x') + "\"";
  CHECK(completion_error("{\"prompt\": \"a\", \"stop\": " + long_ones + "]}").param == "stop");
}

TEST_CASE("a stop string that spells a special token stops on the token") {
  ServedModel model = letter_model();
  model.tokenizer = std::make_shared<TypedTokenizer>();
  const Request request =
      completion(R"({"prompt": "a", "stop": ["<|start|>", "b"], "stop_token_ids": [9]})", model).prompts[0].request;
  CHECK(request.stop.strings == std::vector<std::string>{"<|start|>", "b"});
  CHECK(request.stop.token_ids == std::vector<int32_t>{9, kStartToken});
  // A part of its text is text.
  CHECK(completion(R"({"prompt": "a", "stop": "<|start"})", model).prompts[0].request.stop.token_ids.empty());
}

TEST_CASE("values at the edge mean what they mean elsewhere") {
  CHECK(completion(R"({"prompt": "a", "top_p": 0})").prompts[0].request.sampling.top_p > 0);
  CHECK(completion(R"({"prompt": "a", "top_p": 0})").prompts[0].request.sampling.top_p < 1e-6f);
  CHECK(completion(R"({"prompt": "a", "logprobs": true})").form.logprobs == 1);
  CHECK(completion(R"({"prompt": "a", "logprobs": false})").form.logprobs == -1);
  CHECK_FALSE(completion(R"({"prompt": "a", "stream_options": {"include_usage": true}})").form.stream);
}

TEST_CASE("class and salt may come by header, and the body wins") {
  const auto with = [](const char* body, ParseContext context) {
    auto parsed = parse_completion(object_of(body), letter_model(), context);
    if (const auto* error = std::get_if<ApiError>(&parsed)) FAIL(error->message);
    return std::get<ApiRequest>(std::move(parsed)).prompts[0].request;
  };
  const ParseContext headers{.request_class = "batch", .cache_salt = "tenant"};
  CHECK(with(R"({"prompt": "a"})", headers).request_class == RequestClass::kBatch);
  CHECK(with(R"({"prompt": "a"})", headers).cache_salt == "tenant");
  CHECK(with(R"({"prompt": "a", "service_tier": "priority"})", headers).request_class == RequestClass::kBatch);
  const Request body = with(R"({"prompt": "a", "request_class": "agent", "cache_salt": "own"})", headers);
  CHECK(body.request_class == RequestClass::kAgent);
  CHECK(body.cache_salt == "own");
  const std::string long_salt(257, 'x');
  for (const auto& [context, param] : {std::pair{ParseContext{.request_class = "urgent"}, "x-request-class"},
                                       {ParseContext{.cache_salt = long_salt}, "x-cache-salt"}}) {
    const auto parsed = parse_completion(object_of(R"({"prompt": "a"})"), letter_model(), context);
    CHECK(std::get<ApiError>(parsed).param == param);
  }
}

TEST_CASE("several prompts become several requests") {
  CHECK(completion(R"({"prompt": ["ab", "c"]})").prompts.size() == 2);
  CHECK(completion(R"({"prompt": [[1, 2], [3]]})").prompts[1].request.prompt == std::vector<int32_t>{3});
  std::string many = R"({"prompt": ["a")";
  for (int i = 0; i < 128; ++i) many += R"(,"a")";
  CHECK(completion_error(many + "]}").param == "prompt");
}

TEST_CASE("n and best_of are branches of one request") {
  const ApiRequest both = completion(R"({"prompt": ["a", "b"], "n": 3, "stream": true})");
  REQUIRE(both.prompts.size() == 2);
  CHECK(both.prompts[1].request.n == 3);
  CHECK(both.prompts[1].request.sampling.logprobs == -1);
  CHECK(both.form.best_of == 3);
  const ApiRequest best = completion(R"({"prompt": "a", "n": 2, "best_of": 4})");
  CHECK(best.prompts[0].request.n == 4);
  CHECK(best.prompts[0].request.sampling.logprobs == 0);  // what decides
  CHECK(best.form.n == 2);
  CHECK(best.form.logprobs == -1);
  CHECK(chat(R"({"messages": [{"role": "user", "content": "a"}], "n": 128})").prompts[0].request.n == 128);
}

TEST_CASE("beam search has n or best_of beams, and n of the answers are shown as they come") {
  const ServedModel model = letter_model();
  const ApiRequest request = completion(
      R"({"prompt": "a", "n": 2, "best_of": 3, "use_beam_search": true, "length_penalty": 0.5, "early_stopping": true})");
  const Request& search = request.prompts[0].request;
  CHECK(search.n == 3);
  REQUIRE(search.beam);
  CHECK(search.beam->length_penalty == 0.5f);
  CHECK(search.beam->early_stopping);
  CHECK(search.sampling.logprobs == -1);
  std::vector<Choice> choices(3, Choice(&model, request.form, request.prompts[0]));
  CHECK(shown_choices(choices, request.form) == std::vector<size_t>{0, 1});
  CHECK(chat(R"({"messages": [{"role": "user", "content": "a"}], "n": 4, "use_beam_search": true})")
            .prompts[0]
            .request.beam->length_penalty == 1);
}

TEST_CASE("special tokens are parsed in raw prompts and in the template, never in messages") {
  CHECK(completion(R"({"prompt": "a<|end|>"})").prompts[0].request.prompt == std::vector<int32_t>{'a', kEndToken});
  const Request request = chat(R"({"messages": [{"role": "user", "content": "<|end|>"}]})").prompts[0].request;
  std::vector<int32_t> expected{kStartToken};
  for (char c : std::string("user:<|end|>")) expected.push_back(c);
  expected.push_back(kEndToken);
  expected.push_back(kStartToken);
  for (char c : std::string("assistant:")) expected.push_back(c);
  CHECK(request.prompt == expected);
  CHECK(request.max_tokens == 256 - expected.size());
}

TEST_CASE("messages are checked one by one") {
  CHECK(chat(R"({"messages": [{"role": "developer", "content": [{"type": "text", "text": "a"},
      {"type": "text", "text": "b"}]}], "add_generation_prompt": false})")
            .prompts[0]
            .request.prompt.size() == std::string("system:a\nb").size() + 2);
  struct Row {
    const char* body;
    const char* param;
  };
  const Row row = GENERATE(
      Row{R"({"messages": []})", "messages"}, Row{R"({})", "messages"}, Row{R"({"messages": "hi"})", "messages"},
      Row{R"({"messages": [5]})", "messages[0]"}, Row{R"({"messages": [{"role": "user"}]})", "messages[0].content"},
      Row{R"({"messages": [{"role": "boss", "content": "a"}]})", "messages[0].role"},
      Row{R"({"messages": [{"content": "a"}]})", "messages[0].role"},
      Row{R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}]})",
          "messages[0].content[0].type"},
      Row{R"({"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function"}]})", "tools[0].function"},
      Row{R"({"messages": [{"role": "user", "content": "a"}], "tool_choice": "required"})", "tool_choice"},
      Row{R"({"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2})", "top_logprobs"},
      Row{R"({"messages": [{"role": "user", "content": "a"}], "logprobs": true, "top_logprobs": 21})", "top_logprobs"},
      Row{R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 3, "max_completion_tokens": 4})",
          "max_completion_tokens"},
      Row{R"({"messages": [{"role": "user", "content": "a"}], "prompt": "a"})", "prompt"});
  const ApiError error = chat_error(row.body);
  INFO(row.body << " " << error.message);
  CHECK(error.param == row.param);
  CHECK(error.status == 400);
}

// ---- answers -------------------------------------------------------------------------------------------------------

TokenEvent token(int32_t id, uint32_t hold = 0, FinishReason finish = FinishReason::kNone, uint32_t cut = 0) {
  TokenEvent event;
  event.token = id;
  event.hold_bytes = hold;
  event.cut_bytes = cut;
  event.finish = finish;
  event.has_logprob = true;
  event.logprob = -1;
  event.top_logprobs = {{id, -1.0f}, {'z', -2.0f}};
  return event;
}

TEST_CASE("text waits for whole characters and for stop strings") {
  const ServedModel model = letter_model();
  const ApiRequest request = completion(R"({"prompt": "p", "logprobs": 1, "return_token_ids": true})");
  Choice choice(&model, request.form, request.prompts[0]);
  CHECK(choice.advance(token('a')).text == "a");
  CHECK(choice.advance(token(0xC3)).text.empty());
  CHECK(choice.advance(token(0xA4)).text == "\xC3\xA4");
  CHECK(choice.advance(token('S', 1)).text.empty());
  CHECK(choice.advance(token('T', 2)).text.empty());
  CHECK(choice.advance(token('x')).text == "STx");  // it was no stop string after all
  CHECK(choice.advance(token('S', 1)).text.empty());
  const ChoiceDelta last = choice.advance(token('P', 0, FinishReason::kStopString, 2));
  CHECK(last.text.empty());
  CHECK(last.records.empty());  // of tokens that the stop string took back
  CHECK(last.token_ids == std::vector<int32_t>{'P'});
  CHECK(choice.num_generated() == 8);
}

TEST_CASE("a broken character at the end is replaced") {
  const ServedModel model = letter_model();
  const ApiRequest request = completion(R"({"prompt": "p"})");
  Choice choice(&model, request.form, request.prompts[0]);
  choice.advance(token(0xE2));
  CHECK(choice.advance(token(0x82, 0, FinishReason::kLength)).text == "\xEF\xBF\xBD");
}

TEST_CASE("log-probabilities come with the text that they belong to, and concatenate to it") {
  const ServedModel model = letter_model();
  const ApiRequest request = completion(R"({"prompt": "p", "logprobs": 2})");
  Choice choice(&model, request.form, request.prompts[0]);
  std::string text, bytes;
  size_t offset = 0;
  for (const TokenEvent& event :
       {token('a'), token(0xC3, 0), token(0xA4), token('S', 1), token('b'), token(kEndToken, 0, FinishReason::kEos)}) {
    const ChoiceDelta delta = choice.advance(event);
    text += delta.text;
    for (const TokenRecord& record : delta.records) {
      bytes += record.bytes;
      CHECK(record.text_offset >= offset);
      offset = record.text_offset;
    }
  }
  CHECK(text == "a\xC3\xA4Sb");
  CHECK(bytes == text + "<|end|>");  // which is spelled out, as among the alternatives
  CHECK(offset == 4);                // characters before the end token
}

// The letters, but token 1 is a word.
class WordTokenizer final : public LetterTokenizer {
 public:
  std::string_view token_bytes(TokenId id, bool special) const override {
    return id == 1 ? "word" : LetterTokenizer::token_bytes(id, special);
  }
};

TEST_CASE("a token that a stop string cut in two keeps its log-probability, one that it took back does not") {
  ServedModel model = letter_model();
  model.tokenizer = std::make_shared<WordTokenizer>();
  const ApiRequest request = completion(R"({"prompt": "p", "logprobs": 1})");
  Choice choice(&model, request.form, request.prompts[0]);
  ChoiceDelta all = choice.advance(token(1, 3));
  CHECK(all.text == "w");
  all.append(choice.advance(token('x', 0, FinishReason::kStopString, 4)));
  CHECK(all.text == "w");
  REQUIRE(all.records.size() == 1);
  CHECK(all.records[0].token == 1);

  Choice at_once(&model, request.form, request.prompts[0]);
  CHECK(at_once.advance(token(1, 0, FinishReason::kStopString, 3)).records.size() == 1);
  Choice nothing(&model, request.form, request.prompts[0]);
  CHECK(nothing.advance(token(1, 0, FinishReason::kStopString, 4)).records.empty());
}

// The letters, behind two that begin a text and are no part of it.
class BeginningTokenizer final : public LetterTokenizer {
 public:
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override {
    return LetterTokenizer::encode("BO" + std::string(text), options);
  }
};

TEST_CASE("text offsets count the characters that are shown") {
  ServedModel model = letter_model();
  model.tokenizer = std::make_shared<BeginningTokenizer>();
  const ApiRequest request = completion(R"({"prompt": "xyz", "max_tokens": 1, "echo": true, "logprobs": 0})", model);
  Choice choice(&model, request.form, request.prompts[0]);
  std::vector<size_t> offsets;
  std::string text;
  const auto take = [&](TokenEvent event, bool is_prompt) {
    event.is_prompt = is_prompt;
    const ChoiceDelta delta = choice.advance(event);
    text += delta.text;
    for (const TokenRecord& record : delta.records) offsets.push_back(record.text_offset);
  };
  for (char c : std::string("BOxyz")) take(token(c), true);
  // A byte that is no character is shown as one; two halves of a character are one.
  for (int byte : {0x80, int{'a'}, 0xC3, 0xA4}) take(token(byte), false);
  take(token('b', 0, FinishReason::kLength), false);
  CHECK(text ==
        "xyz\xEF\xBF\xBD"
        "a\xC3\xA4"
        "b");
  CHECK(offsets == std::vector<size_t>{0, 0, 0, 1, 2, 3, 4, 5, 6, 6});
}

TEST_CASE("a text that cannot fit in the context is refused before it is read") {
  ServedModel model = letter_model();
  model.text_bytes_max = 10;
  for (const auto& [prompt, is_refused] : {std::pair{"0123456789", false}, {"0123456789a", true}}) {
    const auto parsed = parse_completion({{"prompt", prompt}, {"max_tokens", 1}}, model, 1);
    const auto* error = std::get_if<ApiError>(&parsed);
    CHECK((error != nullptr) == is_refused);
    if (error) CHECK(error->code == "context_length_exceeded");
    const auto tokens = tokenize({{"prompt", prompt}}, model);
    error = std::get_if<ApiError>(&tokens);
    CHECK((error != nullptr) == is_refused);
    if (error) CHECK(error->code == "context_length_exceeded");
  }
}

TEST_CASE("as many of the longest tokens as the context has are the longest text") {
  ServedModel model = letter_model(3);
  const auto pieces = {"\u2581abcd", "\u2581ab", "cd", "\u2581a", "\u2581", "a", "b", "c", "d"};
  model.tokenizer = pieces_tokenizer(256, pieces);
  CHECK(text_bytes_max(model) == 3 * std::string_view("\u2581abcd").size());
  CHECK(model.tokenizer->encode("\u2581abcd\u2581abcd abcd", {}).size() == 4);  // one is the space before every text
  // Unknown characters, as many as you like, are one token.
  model.tokenizer = pieces_tokenizer(0, pieces);
  CHECK(text_bytes_max(model) == 0);
  CHECK(model.tokenizer->encode(std::string(1000, 'x'), {}).size() == 2);
  model.tokenizer = nullptr;
  CHECK(text_bytes_max(model) == 0);

  Vocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.tokens = {"a", "b", "ab"};
  vocabulary.merges = {"a b"};
  auto bytes = Tokenizer::create(vocabulary);
  REQUIRE(bytes.ok());
  model.tokenizer = std::move(*bytes);
  CHECK(text_bytes_max(model) == 3 * 3 * 2);
}

json::object whole(const std::unique_ptr<AnswerWriter>& writer, const std::vector<Choice>& choices,
                   const std::vector<ChoiceDelta>& answers) {
  for (size_t i = 0; i < answers.size(); ++i) writer->add(i, answers[i]);
  CHECK(writer->held_bytes() > 0);
  std::string text;
  for (const std::string& piece : writer->whole(choices).take()) text += piece;
  auto value = read_json(text);
  INFO(text);
  REQUIRE(value.ok());
  return value->as_object();
}

TEST_CASE("echo gives the prompt's text and the log-probabilities of its tokens") {
  const ServedModel model = letter_model();
  const ApiRequest request = completion(R"({"prompt": "xyz", "max_tokens": 0, "echo": true, "logprobs": 1})");
  CHECK(request.prompts[0].request.sampling.prompt_logprobs);
  std::vector<Choice> choices;
  choices.emplace_back(&model, request.form, request.prompts[0]);
  std::vector<ChoiceDelta> answers(1);
  for (char c : std::string("xyz")) {
    TokenEvent event = token(c);
    event.is_prompt = true;
    if (c == 'x') {
      event.has_logprob = false;
      event.top_logprobs.clear();
    }
    answers[0].append(choices[0].advance(event));
  }
  TokenEvent end;
  end.finish = FinishReason::kLength;
  answers[0].append(choices[0].advance(end));
  const json::object body = whole(make_completion_writer(model, request.form, {"cmpl-1", 5}), choices, answers);
  const json::object& choice = body.at("choices").as_array()[0].as_object();
  CHECK(choice.at("text") == "xyz");
  CHECK(choice.at("finish_reason") == "length");
  const json::object& logprobs = choice.at("logprobs").as_object();
  CHECK(logprobs.at("tokens") == json::array({"x", "y", "z"}));
  CHECK(logprobs.at("token_logprobs") == json::array({nullptr, -1.0, -1.0}));
  CHECK(logprobs.at("text_offset") == json::array({0, 1, 2}));
  CHECK(logprobs.at("top_logprobs").as_array()[1].as_object().at("z") == -2.0);
  CHECK(body.at("usage").at("prompt_tokens") == 3);
  CHECK(body.at("usage").at("completion_tokens") == 0);
}

TEST_CASE("a prompt of ids that ends inside a character is completed by the answer") {
  const ServedModel model = letter_model();
  const ApiRequest request = completion(R"({"prompt": [97, 195], "echo": true, "max_tokens": 2})");
  Choice choice(&model, request.form, request.prompts[0]);
  CHECK(choice.advance(token(0xA4)).text == "a\xC3\xA4");
  CHECK(choice.advance(token('b', 0, FinishReason::kLength)).text == "b");
}

TEST_CASE("an answer has the fields that clients read") {
  const ServedModel model = letter_model();
  const ApiRequest request = chat(R"({"messages": [{"role": "user", "content": "a"}], "logprobs": true,
      "top_logprobs": 2, "return_token_ids": true})");
  std::vector<Choice> choices;
  choices.emplace_back(&model, request.form, request.prompts[0]);
  std::vector<ChoiceDelta> answers(1);
  answers[0].append(choices[0].advance(token('h')));
  answers[0].append(choices[0].advance(token(0xFF)));
  TokenEvent end = token(kEndToken, 0, FinishReason::kEos);
  end.cached_tokens = 7;
  answers[0].append(choices[0].advance(end));
  const json::object body = whole(make_chat_writer(model, request.form, {"chatcmpl-1", 5}), choices, answers);
  CHECK(body.at("object") == "chat.completion");
  CHECK(body.at("model") == "letters");
  const json::object& choice = body.at("choices").as_array()[0].as_object();
  CHECK(choice.at("message").at("content") == "h\xEF\xBF\xBD");
  CHECK(choice.at("finish_reason") == "stop");
  CHECK(choice.at("token_ids") == json::array({'h', 0xFF, kEndToken}));
  const json::array& content = choice.at("logprobs").at("content").as_array();
  REQUIRE(content.size() == 3);
  CHECK(content[1].at("bytes") == json::array({0xFF}));
  CHECK(content[0].at("top_logprobs").as_array().size() == 2);
  CHECK(body.at("usage").at("completion_tokens") == 3);
  CHECK(body.at("usage").at("prompt_tokens_details").at("cached_tokens") == 7);
}

TEST_CASE("of best_of choices the n with the best mean log-probability are shown, and all are paid for") {
  const ServedModel model = letter_model();
  const ApiRequest request = completion(R"({"prompt": ["xy", "z"], "n": 2, "best_of": 3})");
  std::vector<Choice> choices;
  std::vector<ChoiceDelta> answers;
  // The sums would say otherwise than the means.
  const std::vector<std::vector<float>> logprobs = {{-1, -1, -1}, {-2}, {-0.5}, {-1}, {-1}, {-3}};
  for (size_t i = 0; i < logprobs.size(); ++i) {
    Choice& choice = choices.emplace_back(&model, request.form, request.prompts[i / 3]);
    ChoiceDelta& answer = answers.emplace_back();
    for (size_t k = 0; k < logprobs[i].size(); ++k) {
      const bool is_last = k + 1 == logprobs[i].size();
      TokenEvent event = token(static_cast<int32_t>('a' + i), 0, is_last ? FinishReason::kLength : FinishReason::kNone);
      event.logprob = logprobs[i][k];
      event.cached_tokens = is_last && i % 3 == 0 ? 1 : 0;
      answer.append(choice.advance(event));
    }
  }
  const json::object body = whole(make_completion_writer(model, request.form, {"cmpl-1", 5}), choices, answers);
  std::string texts;
  for (const json::value& choice : body.at("choices").as_array()) {
    CHECK(choice.at("logprobs").is_null());
    texts += fmt::format("{}:{} ", choice.at("index").to_number<int>(), std::string(choice.at("text").as_string()));
  }
  CHECK(texts == "0:c 1:aaa 2:d 3:e ");
  CHECK(body.at("usage").at("prompt_tokens") == 3);
  CHECK(body.at("usage").at("completion_tokens") == 8);
  CHECK(body.at("usage").at("prompt_tokens_details").at("cached_tokens") == 2);
}

// ---- tokenize ------------------------------------------------------------------------------------------------------

TEST_CASE("tokenize and detokenize speak vLLM's fields") {
  const ServedModel model = letter_model();
  auto tokens = tokenize(object_of(R"({"model": "letters", "prompt": "a<|end|>", "return_token_strs": true})"), model);
  const json::object& answer = std::get<json::object>(tokens);
  CHECK(answer.at("tokens") == json::array({'a', kEndToken}));
  CHECK(answer.at("count") == 2);
  CHECK(answer.at("max_model_len") == 256);
  CHECK(answer.at("token_strs") == json::array({"a", "<|end|>"}));
  auto messages = tokenize(object_of(R"({"messages": [{"role": "user", "content": "a"}]})"), model);
  CHECK(std::get<json::object>(messages).at("count") == 19);
  tokens = tokenize(object_of(R"({"prompt": "a", "messages": null})"), model);
  CHECK(std::get<json::object>(tokens).at("count") == 1);
  messages = tokenize(object_of(R"({"messages": [{"role": "user", "content": "a"}], "add_special_tokens": false,
      "tools": [], "chat_template": null, "continue_final_message": false})"),
                      model);
  CHECK(std::get<json::object>(messages).at("count") == 19);
  CHECK(std::get<ApiError>(
            tokenize(object_of(R"({"prompt": "a", "messages": [{"role": "user", "content": "a"}]})"), model))
            .param == "prompt");
  auto text = detokenize(object_of(R"({"tokens": [97, 257]})"), model);
  CHECK(std::get<json::object>(text).at("prompt") == "a<|end|>");
  CHECK(std::get<ApiError>(tokenize(object_of(R"({"prompt": 1})"), model)).param == "prompt");
  ParseNotes notes;
  CHECK(std::holds_alternative<json::object>(tokenize(object_of(R"({"prompt": "a", "x": 1})"), model, {}, &notes)));
  CHECK(notes.ignored_fields == std::vector<std::string>{"x"});
  CHECK(std::get<ApiError>(detokenize(object_of(R"({"tokens": [258]})"), model)).param == "tokens");
  for (const size_t count : {256, 257}) {  // the context, and one more
    const auto result = detokenize({{"tokens", json::array(count, 97)}}, model);
    CHECK(std::holds_alternative<ApiError>(result) == (count > 256));
  }
}

// ---- render --------------------------------------------------------------------------------------------------------

TEST_CASE("a rendered chat has the tokens and parameters that it would run with") {
  const ServedModel model = letter_model();
  const json::object body = object_of(R"({"model": "letters", "messages": [{"role": "user", "content": "a"}],
      "temperature": 0.7, "top_k": 5, "max_tokens": 9, "seed": -3, "n": 2, "stop": ["x", "yz"], "stop_token_ids": [98],
      "logit_bias": {"97": -1.5}, "ignore_eos": true, "stream": true, "stream_options": {"include_usage": true},
      "cache_salt": "mine", "logprobs": true, "top_logprobs": 2})");
  ParseContext context;
  context.key_salt = "of-the-key";
  const auto rendered = rendered_chat(body, model, context);
  const json::object& answer = std::get<json::object>(rendered);
  const ApiResult<ApiRequest> run = parse_chat(body, model, context);
  const std::vector<int32_t>& prompt = std::get<ApiRequest>(run).prompts.at(0).request.prompt;
  CHECK(answer.at("token_ids") == json::array(prompt.begin(), prompt.end()));
  CHECK(std::string_view(answer.at("request_id").as_string()).starts_with("chatcmpl-"));
  CHECK(answer.at("model") == "letters");
  CHECK(answer.at("features").is_null());
  CHECK(answer.at("stream") == true);
  CHECK(answer.at("stream_options") == json::object{{"include_usage", true}, {"continuous_usage_stats", false}});
  CHECK(answer.at("cache_salt") == "mine");
  CHECK(json::serialize(answer).find("of-the-key") == std::string::npos);
  const json::object& params = answer.at("sampling_params").as_object();
  CHECK(params.at("temperature") == 0.7);
  CHECK(params.at("top_k") == 5);
  CHECK(params.at("top_p") == 1.0);
  CHECK(params.at("max_tokens") == 9);
  CHECK(params.at("seed") == -3);
  CHECK(params.at("n") == 2);
  CHECK(params.at("stop") == json::array({"x", "yz"}));
  CHECK(params.at("stop_token_ids") == json::array({98}));
  CHECK(params.at("logit_bias") == json::object{{"97", -1.5}});
  CHECK(params.at("ignore_eos") == true);
  CHECK(params.at("logprobs") == 2);
}

TEST_CASE("a rendered chat without parameters has the defaults, and what the context leaves") {
  const ServedModel model = letter_model();
  ParseNotes notes;
  ParseContext context;
  context.cache_salt = "of-the-header";
  const auto rendered =
      rendered_chat(object_of(R"({"messages": [{"role": "user", "content": "a"}], "x": 1})"), model, context, &notes);
  const json::object& answer = std::get<json::object>(rendered);
  CHECK(notes.ignored_fields == std::vector<std::string>{"x"});
  CHECK(answer.at("model") == "letters");
  CHECK(answer.at("stream_options").is_null());
  CHECK(answer.at("cache_salt") == "of-the-header");
  const json::object& params = answer.at("sampling_params").as_object();
  CHECK(params.at("max_tokens") == 256 - answer.at("token_ids").as_array().size());
  CHECK(params.at("seed").is_null());
  CHECK(params.at("logit_bias").is_null());
  CHECK(params.at("logprobs").is_null());
}

TEST_CASE("rendered completions are a list, an object for each prompt") {
  const ServedModel model = letter_model();
  const auto render = [&](std::string_view body) { return rendered_completions(object_of(body), model); };
  const auto list_of = [&](std::string_view body) {
    return json::parse(std::get<std::string>(render(body))).as_array();
  };
  const json::array one = list_of(R"({"prompt": "ab"})");
  REQUIRE(one.size() == 1);
  CHECK(one[0].at("token_ids") == json::array({'a', 'b'}));
  CHECK(one[0].at("sampling_params").at("max_tokens") == 16);
  CHECK(std::string_view(one[0].at("request_id").as_string()).starts_with("cmpl-"));
  const json::array more = list_of(R"({"prompt": [[1, 2], [3]], "max_tokens": 3})");
  REQUIRE(more.size() == 2);
  CHECK(more[0].at("token_ids") == json::array({1, 2}));
  CHECK(more[1].at("token_ids") == json::array({3}));
  CHECK(more[0].at("request_id") != more[1].at("request_id"));
  CHECK(std::get<ApiError>(render(R"({"prompt": "a", "model": "other"})")).status == 404);
  CHECK(std::get<ApiError>(render(R"({"prompt": "a", "temperature": -1})")).param == "temperature");
  CHECK(std::get<ApiError>(render(R"({"prompt": "a", "use_beam_search": true, "n": 2})")).param == "use_beam_search");
}

TEST_CASE("a model without a tokenizer takes and gives token ids") {
  ServedModel model = letter_model();
  model.tokenizer = nullptr;
  model.chat_template = nullptr;
  model.no_chat_reason = "this model has no tokenizer";
  CHECK(completion(R"({"prompt": [1, 2]})", model).prompts[0].request.prompt.size() == 2);
  CHECK(completion_error(R"({"prompt": "a"})", model).code == "unsupported");
  CHECK(completion_error(R"({"prompt": [1], "stop": "a"})", model).param == "stop");
}

}  // namespace
}  // namespace llmrt::server
