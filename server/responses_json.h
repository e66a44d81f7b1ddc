// The JSON of /v1/responses: a response and its items. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/answer_writer.h"
#include "server/responses_request.h"

namespace llmrt::server {

// One item of the response. Texts are JSON, inside the quotes.
struct ResponseItem {
  enum class Kind : uint8_t { kMessage, kReasoning, kFunctionCall, kCustomCall };
  Kind kind = Kind::kMessage;
  std::string id;
  std::string call_id = {}, name = {}, name_space = {};
  std::string text = {};
  std::string logprobs = {};  // members of the list
  std::string thought = {};   // as it is, where it will be sealed
  const char* status = "in_progress";

  size_t held_bytes() const {
    return sizeof(*this) + id.capacity() + call_id.capacity() + name.capacity() + text.capacity() +
           logprobs.capacity() + thought.capacity();
  }
};

// A response as far as it has come. The references outlive it.
struct ResponseSoFar {
  const ServedModel& model;
  const AnswerForm& form;
  const AnswerHead& head;
  const ResponsesForm& own;
  std::vector<ResponseItem> items = {};
  bool is_open = false;  // the last of them
  FinishReason finish = FinishReason::kNone;

  bool is_cut() const { return finish == FinishReason::kLength || finish == FinishReason::kPolicy; }
};

// `text`: of the part so far.
void append_response_part(const ResponseItem& item, std::string_view text, std::string& out);
// Before it is whole an item has no text.
void append_response_item(const ResponsesForm& own, const ResponseItem& item, bool is_whole, std::string& out);
// choices: of a response that has ended well; error: of one that has not.
void append_response(const ResponseSoFar& response, const char* status, const std::vector<Choice>* choices,
                     const ApiError* error, std::string& out);

}  // namespace llmrt::server
