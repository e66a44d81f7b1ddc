// What is served, as an OpenAPI 3.1 document: every route of the table, and the fields of the bodies that models answer
// (docs/api.md explains them). Made from the tables that the server itself goes by, where there is one. Pure.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <span>
#include <string_view>

#include "server/known_fields.h"

namespace llmrt::server {

// One field of a body; sampling parameters have a table of their own.
struct BodyField {
  std::string_view name;
  std::string_view schema;  // JSON
  uint8_t endpoints;        // a set of Endpoint
};
std::span<const BodyField> body_fields();
// The schema of the body of an endpoint, which has the fields above and the sampling parameters.
boost::json::object body_schema(Endpoint endpoint);

boost::json::object openapi_document(std::string_view version);

}  // namespace llmrt::server
