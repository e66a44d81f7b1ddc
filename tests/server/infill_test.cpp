// Texts that are written between two others: which tokens a vocabulary has for it, prompts of /infill and of `suffix`,
// answers in llama.cpp's form.
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "core/base/clock.h"
#include "core/text/fim_tokens.h"
#include "server/api_answer.h"
#include "server/api_request.h"
#include "tests/server/letter_model.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

ServedModel code_model(const std::vector<std::string>& marks, uint32_t context_max = 4096) {
  ServedModel model = letter_model(context_max);
  auto tokenizer = std::make_shared<LetterTokenizer>(marks);
  model.vocab_size = static_cast<uint32_t>(tokenizer->vocab_size());
  model.fim = find_fim_tokens(tokenizer->vocabulary());
  model.tokenizer = std::move(tokenizer);
  return model;
}
const std::vector<std::string> kQwen = {"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|repo_name|>",
                                        "<|file_sep|>"};

using Parsed = ApiResult<ApiRequest>;
Parsed infill(const ServedModel& model, std::string_view body) {
  return parse_infill(json::parse(body).as_object(), model, ParseContext{});
}
Parsed completion(const ServedModel& model, std::string_view body) {
  return parse_completion(json::parse(body).as_object(), model, 1);
}
std::string prompt_of(const ServedModel& model, const Parsed& parsed, size_t index = 0) {
  if (const auto* error = std::get_if<ApiError>(&parsed)) return error->param + ": " + error->message;
  return model.tokenizer->decode(std::get<ApiRequest>(parsed).prompts[index].request.prompt, true);
}

const InfillForm& form_of(const ApiRequest& request) {
  return static_cast<const InfillForm&>(*request.form.own);
}

TEST_CASE("marks are found by the ids of the file, and by the names of every family") {
  const auto tokens = [](const std::vector<std::string>& marks) {
    return find_fim_tokens(LetterTokenizer(marks).vocabulary());
  };
  CHECK_FALSE(tokens({}));
  CHECK_FALSE(tokens({"<|fim_prefix|>", "<|fim_suffix|>", "<fim_middle>"}));  // of two families
  const auto qwen = tokens(kQwen);
  REQUIRE(qwen);
  CHECK(qwen->prefix == 258);
  CHECK(qwen->middle == 259);
  CHECK(qwen->suffix == 260);
  CHECK(qwen->repo == 261);
  CHECK(qwen->file == 262);
  for (const std::vector<std::string>& marks :
       {std::vector<std::string>{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
        {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
        {"▁<PRE>", "▁<SUF>", "▁<MID>"},
        {"<PRE>", "<SUF>", "<MID>"}}) {
    const auto found = tokens(marks);
    REQUIRE(found);
    CHECK((found->prefix == 258 && found->suffix == 259 && found->middle == 260 && !found->suffix_first));
  }
  const auto codestral = tokens({"[PREFIX]", "[SUFFIX]"});
  REQUIRE(codestral);
  CHECK((codestral->suffix_first && codestral->middle < 0));
  Vocabulary named = LetterTokenizer().vocabulary();
  named.fim = {.prefix = 1, .suffix = 2, .middle = 3};
  CHECK(find_fim_tokens(named)->middle == 3);
}

TEST_CASE("a suffix stands behind the prompt, before the mark of the middle") {
  const ServedModel model = code_model(kQwen);
  const auto prompt = [&](std::string_view body) { return prompt_of(model, completion(model, body)); };
  CHECK(prompt(R"({"prompt": "a(", "suffix": ")b"})") == "<|fim_prefix|>a(<|fim_suffix|>)b<|fim_middle|>");
  CHECK(prompt(R"({"prompt": [97, 98], "suffix": "c"})") == "<|fim_prefix|>ab<|fim_suffix|>c<|fim_middle|>");
  CHECK(prompt(R"({"prompt": "a", "suffix": ""})") == "a");
  CHECK(prompt(R"({"prompt": "a", "suffix": null})") == "a");
  // Sources may spell marks: they are text there.
  const Parsed spelled = completion(model, R"({"prompt": "<|fim_middle|>", "suffix": "<|fim_suffix|>"})");
  CHECK(std::get<ApiRequest>(spelled).prompts[0].request.prompt.size() == 14 + 14 + 3);
  const Parsed both = completion(model, R"({"prompt": ["a", "b"], "suffix": "c"})");
  CHECK(prompt_of(model, both, 1) == "<|fim_prefix|>b<|fim_suffix|>c<|fim_middle|>");
  CHECK(prompt(R"({"prompt": "a", "suffix": 5})").starts_with("suffix: "));
  CHECK(prompt(R"({"prompt": "a", "suffix": "b", "echo": true})").starts_with("echo: "));
  const ServedModel plain = code_model({});
  const Parsed refused = completion(plain, R"({"prompt": "a", "suffix": "b"})");
  CHECK(prompt_of(plain, refused).find("has no fill-in-the-middle tokens") != std::string::npos);
  CHECK(std::get<ApiError>(refused).param == "suffix");
  CHECK(std::get<ApiError>(refused).code == "unsupported");
  const ServedModel codestral = code_model({"[PREFIX]", "[SUFFIX]"});
  CHECK(prompt_of(codestral, completion(codestral, R"({"prompt": "a", "suffix": "b"})")) == "[SUFFIX]b[PREFIX]a");
  const ServedModel narrow = code_model(kQwen, 8);
  CHECK(prompt_of(narrow, completion(narrow, R"({"prompt": "aaaa", "suffix": "bbb"})")).starts_with("prompt: "));
}

TEST_CASE("what an editor sends to /infill becomes the prompt, with as much beside it as fits") {
  const ServedModel model = code_model(kQwen);
  const char* body = R"({"input_prefix": "one\n", "input_suffix": "\nthree", "prompt": "tw", "n_predict": 32,
      "input_extra": [{"text": "x = 1\n", "filename": "x.py", "time": 1}, {"text": "y = 2\n", "filename": null}],
      "id_slot": 0, "top_k": 40, "top_p": 0.99, "stream": false, "samplers": ["top_k", "top_p", "infill"],
      "cache_prompt": true, "t_max_prompt_ms": 500, "t_max_predict_ms": 1000, "n_indent": 4,
      "response_fields": ["content", "timings/prompt_n", "truncated", "none/such"]})";
  const Parsed parsed = infill(model, body);
  CHECK(prompt_of(model, parsed) ==
        "<|repo_name|>repository\n<|file_sep|>x.py\nx = 1\n<|file_sep|>file\ny = 2\n<|file_sep|>file\n"
        "<|fim_prefix|>one\ntw<|fim_suffix|>\nthree<|fim_middle|>");
  const auto& request = std::get<ApiRequest>(parsed);
  CHECK(request.prompts[0].request.max_tokens == 32);
  CHECK(request.prompts[0].request.sampling.top_k == 40);
  CHECK_FALSE(form_of(request).is_cut);
  CHECK(request.ignored_fields == std::vector<std::string>{"samplers", "n_indent", "t_max_predict_ms"});
  CHECK(prompt_of(model, infill(model, "{}")) == "<|fim_prefix|><|fim_suffix|><|fim_middle|>");
  // The last chunks stay: "<|file_sep|>file\n" and 40 bytes for each, and what stands before and behind all.
  const std::string chunk(40, 'c');
  std::string extra;
  for (int i = 0; i < 9; ++i) extra += fmt::format(R"({}{{"text": "{}{}"}})", i == 0 ? "" : ",", i, chunk.substr(1));
  const ServedModel narrow = code_model(kQwen, 200);
  const Parsed cut = infill(narrow, fmt::format(R"({{"input_prefix": "p", "input_suffix": "s", "n_predict": 8,
      "input_extra": [{}]}})",
                                                extra));
  const std::string shown = prompt_of(narrow, cut);
  CHECK(shown.starts_with("<|repo_name|>repository\n<|file_sep|>file\n6ccc"));
  CHECK(shown.find("8ccc") != std::string::npos);
  CHECK(form_of(std::get<ApiRequest>(cut)).is_cut);
  const ServedModel starcoder = code_model({"<fim_prefix>", "<fim_suffix>", "<fim_middle>"});
  CHECK(prompt_of(starcoder, infill(starcoder, R"({"input_prefix": "a", "input_extra": [{"text": "t"}]})")) ==
        "\n\n--- snippet ---\n\nt<fim_prefix>a<fim_suffix><fim_middle>");
  for (const char* wrong :
       {R"({"input_prefix": 5})", R"({"input_extra": [5]})", R"({"input_extra": [{"filename": "a"}]})", R"({"n": 2})",
        R"({"use_beam_search": true})", R"({"n_predict": 4, "max_tokens": 5})", R"({"suffix": "a"})",
        R"({"messages": []})", R"({"response_fields": [5]})", R"({"n_predict": -2})"}) {
    CAPTURE(wrong);
    CHECK(std::get<ApiError>(infill(model, wrong)).status == 400);
  }
  const ServedModel plain = code_model({});
  CHECK(std::get<ApiError>(infill(plain, body)).message.find("fill-in-the-middle") != std::string::npos);
}

// 2 ms to the first token, 3 ms to each later one.
struct HandClock final : Clock {
  TimeNs now = 1;
  TimeNs now_ns() const override { return now; }
  void sleep_until(TimeNs) const override {}
};

// The answer "ab", whole or as a stream.
std::string answered(const ServedModel& model, std::string_view body, bool is_stream) {
  const Parsed parsed = infill(model, body);
  if (const auto* error = std::get_if<ApiError>(&parsed)) return error->message;
  const auto& request = std::get<ApiRequest>(parsed);
  std::vector<Choice> choices;
  choices.emplace_back(&model, request.form, request.prompts[0]);
  HandClock clock;
  const auto writer = make_infill_writer(model, request.form, {"id", 1}, clock);
  std::string text;
  for (const int32_t token : {int32_t{'a'}, int32_t{'b'}, kEndToken}) {
    TokenEvent event;
    event.token = token;
    event.cached_tokens = 1;
    if (token == kEndToken) event.finish = FinishReason::kEos;
    clock.now += token == 'a' ? 2000000 : 3000000;
    writer->note(event);
    const ChoiceDelta delta = choices[0].advance(event);
    if (is_stream)
      writer->chunk(0, delta, choices, token == kEndToken, text);
    else
      writer->add(0, delta);
  }
  if (is_stream) return text;
  TextPieces pieces = writer->whole(choices);
  for (const std::string& piece : pieces.take()) text += piece;
  return text;
}

TEST_CASE("answers of /infill are what plugins of llama.cpp read") {
  const ServedModel model = code_model(kQwen);
  const json::object whole = json::parse(answered(model, R"({"input_prefix": "x"})", false)).as_object();
  CHECK(whole.at("content") == "ab");
  CHECK(whole.at("stop") == true);
  CHECK(whole.at("stop_type") == "eos");
  CHECK(whole.at("tokens_predicted") == 3);
  CHECK(whole.at("tokens_evaluated") == 4);
  CHECK(whole.at("truncated") == false);
  CHECK(whole.at("timings").at("prompt_n").to_number<int>() == 3);
  CHECK(whole.at("timings").at("predicted_per_token_ms").to_number<double>() == 2);
  const auto fields = [&](const char* names) {
    return answered(model, fmt::format(R"({{"response_fields": {}}})", names), false);
  };
  CHECK(json::parse(fields(R"(["content", "truncated", "timings/predicted_n", "x"])")).as_object() ==
        json::object{{"content", "ab"}, {"truncated", false}, {"timings/predicted_n", 3}});
  CHECK(fields(R"(["content"])") == R"({"content":"ab"})");
  CHECK(fields(R"(["x"])") == "{}");
  CHECK(fields(R"(["stop"])") == R"({"stop":true})");
  const json::object warm = json::parse(answered(model, R"({"n_predict": 0})", false)).as_object();
  CHECK(warm.at("content") == "");
  CHECK(warm.at("tokens_predicted") == 0);
  const std::string stream = answered(model, R"({"stream": true})", true);
  std::string added;
  size_t num_chunks = 0;
  for (size_t at = 0; (at = stream.find("data: ", at)) != std::string::npos; ++num_chunks) {
    at += 6;
    const json::object chunk =
        json::parse(std::string_view(stream).substr(at, stream.find("\n\n", at) - at)).as_object();
    added += chunk.at("content").as_string();
    CHECK(chunk.at("stop") == (num_chunks == 2));
  }
  CHECK(added == "ab");
  CHECK(num_chunks == 3);
}

}  // namespace
}  // namespace llmrt::server
