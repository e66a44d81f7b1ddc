// Answers of /api/chat and /api/generate as Ollama's clients read them: one JSON object, or one a line. Pure, but for
// the clock.
#pragma once

#include <memory>

#include "core/base/clock.h"
#include "server/answer_writer.h"
#include "server/ollama_request.h"
#include "server/served_model.h"

namespace llmrt::server {

// form.own is an OllamaForm. `model` and `clock` outlive the writer; it begins to count now.
std::unique_ptr<AnswerWriter> make_ollama_writer(const ServedModel& model, const AnswerForm& form, AnswerHead head,
                                                 const Clock& clock);

}  // namespace llmrt::server
