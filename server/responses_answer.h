// Answers of /v1/responses: items (messages, thoughts, calls) in the order in which the model wrote them, as one
// response or as the events that build it up. Pure.
#pragma once

#include <memory>

#include "server/answer_writer.h"

namespace llmrt::server {

// form.own is a ResponsesForm.
std::unique_ptr<AnswerWriter> make_responses_writer(const ServedModel& model, const AnswerForm& form, AnswerHead head);

}  // namespace llmrt::server
