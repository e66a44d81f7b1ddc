// The endpoints that answer with what a model writes, a row each: everything in which they differ.
// server/session_answer knows none of them by name.
#pragma once

#include <boost/json.hpp>

#include <memory>
#include <string_view>

#include "server/answer_writer.h"
#include "server/api_request.h"
#include "server/known_fields.h"
#include "server/server_figures.h"

namespace llmrt::server {

struct Dialect {
  Endpoint endpoint;
  std::string_view path;         // as log lines name it
  std::string_view id_begin;     // of an answer's id; digits follow
  std::string_view stream_type;  // Content-Type of a stream
  CountedPath counted;
  // The body's object to Requests of the core; on a worker.
  ApiResult<ApiRequest> (*parse)(const boost::json::object& body, const ServedModel& model,
                                 const ParseContext& context);
  // `model` outlives the writer.
  std::unique_ptr<AnswerWriter> (*make_writer)(const ServedModel& model, const AnswerForm& form, AnswerHead head);
};

// The row of an endpoint that has one.
const Dialect& dialect_of(Endpoint endpoint);

}  // namespace llmrt::server
