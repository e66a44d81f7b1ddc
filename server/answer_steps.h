// Steps on the way from a parsed body to an answer, which connections and batches have in common. Any thread.
#pragma once

#include <optional>

#include "core/grammar/grammar_compiler.h"
#include "server/answer_writer.h"
#include "server/api_request.h"
#include "server/choice.h"
#include "server/dialect.h"

namespace llmrt::server {

// For answers whose request gives no seed.
uint64_t random_seed();
// A new id, and the time.
AnswerHead make_answer_head(const Dialect& dialect, std::string request_id);
// Requests are named as their answer; several with their number behind it.
void name_requests(ApiRequest& wanted, const RequestNames& names);
// What the compiler made of wanted.grammar goes into every request; or the error to tell.
std::optional<ApiError> take_constraint(ApiRequest& wanted, const ServedModel& model,
                                        const GrammarCompiler::Answer& compiled);
// Where a delta ends its choice badly: how.
std::optional<ApiError> end_error(const ChoiceDelta& delta);

}  // namespace llmrt::server
