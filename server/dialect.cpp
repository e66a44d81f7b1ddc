#include "server/dialect.h"

#include "core/base/check.h"
#include "server/api_answer.h"
#include "server/http.h"
#include "server/messages_answer.h"
#include "server/ollama_answer.h"
#include "server/responses_answer.h"
#include "server/responses_request.h"

namespace llmrt::server {
namespace {

std::unique_ptr<AnswerWriter> make_timed_infill_writer(const ServedModel& model, const AnswerForm& form,
                                                       AnswerHead head) {
  static const SteadyClock clock;
  return make_infill_writer(model, form, std::move(head), clock);
}

std::unique_ptr<AnswerWriter> make_timed_ollama_writer(const ServedModel& model, const AnswerForm& form,
                                                       AnswerHead head) {
  static const SteadyClock clock;
  return make_ollama_writer(model, form, std::move(head), clock);
}

constexpr const char* kNdjson = "application/x-ndjson";

constexpr Dialect kDialects[] = {
    {Endpoint::kChat, "/v1/chat/completions", "chatcmpl-", kEventStream, CountedPath::kChatCompletions, parse_chat,
     make_chat_writer},
    {Endpoint::kCompletion, "/v1/completions", "cmpl-", kEventStream, CountedPath::kCompletions, parse_completion,
     make_completion_writer},
    {Endpoint::kInfill, "/infill", "infill-", kEventStream, CountedPath::kInfill, parse_infill,
     make_timed_infill_writer},
    {Endpoint::kResponses, "/v1/responses", "resp_", kEventStream, CountedPath::kResponses, parse_responses,
     make_responses_writer},
    {Endpoint::kMessages, "/v1/messages", "msg_", kEventStream, CountedPath::kMessages, parse_messages,
     make_messages_writer},
    {Endpoint::kOllamaChat, "/api/chat", "ollama-", kNdjson, CountedPath::kOllamaChat, parse_ollama_chat,
     make_timed_ollama_writer},
    {Endpoint::kOllamaGenerate, "/api/generate", "ollama-", kNdjson, CountedPath::kOllamaGenerate,
     parse_ollama_generate, make_timed_ollama_writer},
};

}  // namespace

const Dialect& dialect_of(Endpoint endpoint) {
  for (const Dialect& dialect : kDialects)
    if (dialect.endpoint == endpoint) return dialect;
  LLMRT_CHECK(false, "an endpoint without a dialect");
  return kDialects[0];
}

}  // namespace llmrt::server
