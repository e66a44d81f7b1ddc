// Bodies of POST /v1/chat/completions, /v1/completions and /infill to Requests of the core. Pure: checks every field
// against a closed range, renders and tokenises; knows no socket. May take long for a long prompt: not for an I/O
// thread. docs/api.md lists every field.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "core/request/request.h"
#include "server/api_error.h"
#include "server/fields.h"
#include "server/parse_context.h"
#include "server/served_model.h"
#include "server/structure.h"

namespace llmrt::server {

inline constexpr size_t kPromptsMax = 128;
inline constexpr size_t kChoicesMax = 128;          // drawn, of all prompts together
inline constexpr size_t kStopStringBytesMax = 256;  // of one; how many: the core's limits
inline constexpr size_t kLogitBiasMax = 1024;
inline constexpr int kTopLogprobsMax = 20;
inline constexpr size_t kInfillChunksMax = 1024;
inline constexpr size_t kInfillFileNameMax = 1024;  // bytes; more are cut

// What the writer of one dialect needs of the request beside the rest; each dialect has its own.
struct DialectForm {
  DialectForm() = default;
  DialectForm(const DialectForm&) = default;
  DialectForm& operator=(const DialectForm&) = default;
  virtual ~DialectForm() = default;
};
// An answer of /infill, in llama.cpp's form.
struct InfillForm : DialectForm {
  std::vector<std::string> response_fields = {};  // of the whole answer; empty: all
  bool shows_nothing = false;                     // the prompt alone was wanted, for the prefix cache
  bool is_cut = false;                            // not all of input_extra is in the prompt
};

// How the answer is to look.
struct AnswerForm {
  bool chat = false;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;  // in every chunk, not at the end alone
  bool return_token_ids = false;
  bool echo = false;     // completions only: the prompt's text stands before the answer's
  int logprobs = -1;     // alternatives a token; -1 = none at all
  uint32_t n = 1;        // choices of each prompt in the answer
  uint32_t best_of = 1;  // choices drawn of each prompt: those with the best mean log-probability are shown
  bool beams = false;    // the choices come best first
  // What was asked of the answer's structure; never null where the answer is one of a chat.
  std::shared_ptr<const AnswerStructure> structure = {};
  // Stop strings that are looked for in content alone, where thoughts and calls are told apart.
  StopStrings content_stops = {};
  bool include_stop = false;  // in the content
  // Those of which the client is told that they were met (ChoiceDelta::stop_text).
  std::vector<std::string> told_stops = {};
  std::vector<Warning> warnings = {};
  std::shared_ptr<const DialectForm> own = {};
};

// form.best_of choices each; all choices belong to one HTTP request.
struct PromptRequest {
  Request request;        // without a sink; its n is form.best_of
  std::string echo_text;  // the prompt as text, with AnswerForm::echo
  // Characters that its tokens spell and echo_text lacks, before it: a beginning-of-sequence token.
  size_t num_not_echoed = 0;
};

struct ApiRequest : ParseNotes {
  AnswerForm form;
  std::vector<PromptRequest> prompts;
  std::optional<GrammarJob> grammar = {};  // that all choices are held to
  // The answer's body, where nothing is to be written; there are no prompts then.
  std::string ready = {};
};

// With ":latest" behind it or without: Ollama's lists add it, and clients of all dialects send what they read there.
bool is_name_of_model(std::string_view name, const ServedModel& model);
// That, or the name of one of its adapters.
bool is_name_of(std::string_view name, const ServedModel& model);
// 404 when `model` is there and names another.
void check_model_name(Fields& fields, const ServedModel& model);
// That 404.
ApiError model_not_found(std::string_view name, const ServedModel& model);
// 400: a prompt of so many tokens, or more where `at_least`, leaves no room for `answer` ones.
ApiError too_long(const ServedModel& model, std::string field, size_t num_tokens, bool at_least, int64_t answer);
// 503: nobody reads it.
ApiError client_has_gone();
// The most bytes that a text may have whose tokens fit in the context. 0 where there is no such bound, and the bound on
// the body is all: without a tokenizer, or with one that makes one token of a whole run of characters it does not know.
size_t text_bytes_max(const ServedModel& model);
// Whether a text of so many bytes may fit in the context; if not, fields.failed(). To be asked before it is tokenised:
// megabytes take seconds.
bool check_text_bytes(Fields& fields, const ServedModel& model, std::string_view name, size_t num_bytes);

// Names more fields that had no effect, in the header, too.
void note_ignored(ApiRequest& request, const std::vector<std::string>& names);

ApiResult<ApiRequest> parse_chat(const boost::json::object& body, const ServedModel& model,
                                 const ParseContext& context);
ApiResult<ApiRequest> parse_completion(const boost::json::object& body, const ServedModel& model,
                                       const ParseContext& context);
ApiResult<ApiRequest> parse_infill(const boost::json::object& body, const ServedModel& model,
                                   const ParseContext& context);
// With nothing but a seed.
inline ApiResult<ApiRequest> parse_chat(const boost::json::object& body, const ServedModel& model, uint64_t seed) {
  return parse_chat(body, model, ParseContext{.random_seed = seed});
}
inline ApiResult<ApiRequest> parse_completion(const boost::json::object& body, const ServedModel& model,
                                              uint64_t seed) {
  return parse_completion(body, model, ParseContext{.random_seed = seed});
}

}  // namespace llmrt::server
