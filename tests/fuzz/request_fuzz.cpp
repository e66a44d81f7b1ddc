// Any bytes as what a client sends: the head of a request, then a JSON body for each endpoint, responses among them,
// with unknown fields ignored and refused. Each must end in a value or an ApiError; token ids and lengths of what is
// accepted must lie inside their ranges, and what a reply's header would hold must be fit for one.
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/check.h"
#include "server/api_request.h"
#include "server/http.h"
#include "server/json_reader.h"
#include "server/known_fields.h"
#include "server/messages_request.h"
#include "server/ollama_request.h"
#include "server/responses_request.h"
#include "server/tokenize.h"
#include "tests/server/letter_model.h"

namespace {

using namespace llmrt;
using namespace llmrt::server;

const ServedModel& model() {
  static const ServedModel one = letter_model();
  return one;
}

void check_notes(const ParseNotes& notes) {
  LLMRT_CHECK(notes.ignored_fields.size() <= kIgnoredNamesMax && notes.headers.size() <= 2, "few notes");
  for (const auto& [name, value] : notes.headers)
    for (char c : name + value)
      LLMRT_CHECK(std::isalnum(static_cast<unsigned char>(c)) || std::string_view("_.-, ").find(c) != std::string::npos,
                  "a header of letters and digits");
}

void check(const ApiResult<ApiRequest>& parsed) {
  const auto* accepted = std::get_if<ApiRequest>(&parsed);
  if (!accepted) return;
  LLMRT_CHECK(accepted->prompts.empty() == !accepted->ready.empty(), "an accepted request has a prompt or its answer");
  check_notes(*accepted);
  for (const PromptRequest& prompt : accepted->prompts) {
    const Request& request = prompt.request;
    LLMRT_CHECK(!request.prompt.empty() && request.prompt.size() + request.max_tokens <= model().context_max,
                "prompt and answer lie inside the context");
    for (int32_t id : request.prompt) LLMRT_CHECK(id >= 0 && id < static_cast<int>(kLetterVocabulary), "an id outside");
    LLMRT_CHECK(validate(request.sampling, kLetterVocabulary).ok(), "sampling parameters outside their ranges");
    LLMRT_CHECK(request.min_tokens <= request.max_tokens, "more tokens asked for than allowed");
  }
}

// A count is that of the request itself.
void check_count(const boost::json::object& body, const ParseContext& context) {
  ParseNotes notes;
  const auto counted = count_messages(body, model(), context, &notes);
  check_notes(notes);
  const auto parsed = parse_messages(body, model(), context);
  const auto* accepted = std::get_if<ApiRequest>(&parsed);
  if (!accepted) return;
  const auto* count = std::get_if<boost::json::object>(&counted);
  LLMRT_CHECK(
      count != nullptr && count->at("input_tokens").to_number<size_t>() == accepted->prompts[0].request.prompt.size(),
      "a request is counted as it is served");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const HeadScan scan = scan_head(text, {});
  LLMRT_CHECK(scan.bytes <= text.size() && !(scan.bytes > 0 && scan.error), "a head is complete or wrong");
  Result<boost::json::value> body = read_json(text);
  if (!body || !body->is_object()) return 0;
  for (const bool strict : {false, true}) {
    const ParseContext context{.random_seed = 1, .strict_fields = strict, .request_class = strict ? "batch" : ""};
    check(parse_chat(body->get_object(), model(), context));
    check(parse_completion(body->get_object(), model(), context));
    check(parse_responses(body->get_object(), model(), context));
    check(parse_messages(body->get_object(), model(), context));
    check(parse_ollama_chat(body->get_object(), model(), context));
    check(parse_ollama_generate(body->get_object(), model(), context));
    check_count(body->get_object(), context);
    ParseNotes notes;
    (void)tokenize(body->get_object(), model(), context, &notes);
    check_notes(notes);
    (void)detokenize(body->get_object(), model(), context);
  }
  return 0;
}
