// Answers of /v1/messages as Anthropic's clients read them: a message of blocks, or the events of one. Pure.
#pragma once

#include <memory>

#include "server/answer_writer.h"
#include "server/messages_request.h"
#include "server/served_model.h"

namespace llmrt::server {

// form.own is a MessagesForm. `model` outlives the writer.
std::unique_ptr<AnswerWriter> make_messages_writer(const ServedModel& model, const AnswerForm& form, AnswerHead head);

}  // namespace llmrt::server
