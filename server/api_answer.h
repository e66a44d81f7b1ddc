// Answers of the two completion endpoints as JSON: the whole body, or one chunk of a stream. Pure.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "server/choice.h"

namespace llmrt::server {

struct AnswerHead {
  std::string id;  // one for the whole answer: "chatcmpl-..." or "cmpl-..."
  int64_t created = 0;
};

// "stop", "length"; null while there is none.
boost::json::value finish_text(FinishReason reason);
// `choices`: form.best_of of each prompt in a row. The prompt counts once, every generated token counts.
boost::json::object usage_of(const std::vector<Choice>& choices, const AnswerForm& form);
// Which of them are shown, in order: of each prompt all, or the form.n best.
std::vector<size_t> shown_choices(const std::vector<Choice>& choices, const AnswerForm& form);

class AnswerWriter {
 public:
  AnswerWriter(const ServedModel* model, const AnswerForm& form, AnswerHead head)
      : model_(model), form_(form), head_(std::move(head)) {}

  // The whole answer: everything that each choice said, in order.
  boost::json::object whole(const std::vector<Choice>& choices, std::vector<ChoiceDelta> answers) const;

  // Chunks of a stream, of choice `index`. first_chunk: the role of a chat's choice, before its text.
  boost::json::object first_chunk(size_t index, const std::vector<Choice>& choices) const;
  boost::json::object chunk(size_t index, const ChoiceDelta& delta, bool first,
                            const std::vector<Choice>& choices) const;
  boost::json::object usage_chunk(const std::vector<Choice>& choices) const;

 private:
  boost::json::object frame(const char* object) const;
  boost::json::value usage_so_far(const std::vector<Choice>& choices) const;
  boost::json::value logprobs(const std::vector<TokenRecord>& records) const;
  boost::json::object chat_record(int32_t token, std::string_view bytes, bool has_logprob, float logprob) const;
  boost::json::object chat_logprobs(const std::vector<TokenRecord>& records) const;
  boost::json::object completion_logprobs(const std::vector<TokenRecord>& records) const;
  std::string_view bytes_of(int32_t token) const;  // of an alternative: special tokens are spelled out

  const ServedModel* model_;
  AnswerForm form_;
  AnswerHead head_;
};

}  // namespace llmrt::server
