// The served OpenAPI document against what the server does: every route is in it, and every field that it tells is
// read.
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "core/sample/sampling_params.h"
#include "server/dialect.h"
#include "server/openapi.h"
#include "server/routes.h"
#include "tests/server/letter_model.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

json::object least_body(Endpoint endpoint) {
  if (endpoint == Endpoint::kChat) return {{"messages", json::array{json::object{{"role", "user"}, {"content", "a"}}}}};
  if (endpoint == Endpoint::kCompletion) return {{"prompt", "a"}};
  if (endpoint == Endpoint::kResponses) return {{"input", "a"}};
  if (endpoint == Endpoint::kMessages) {
    json::object body = least_body(Endpoint::kChat);
    body["max_tokens"] = 1;
    return body;
  }
  if (endpoint == Endpoint::kOllamaChat) return least_body(Endpoint::kChat);
  if (endpoint == Endpoint::kOllamaGenerate) return {{"prompt", "a"}};
  return {{"input_prefix", "a"}};
}

// A value of a type that the schema does not allow.
json::value wrong_value(const json::object& schema) {
  const std::string types = json::serialize(schema.contains("type") ? schema.at("type") : json::value("string"));
  if (types.find("object") == std::string::npos) return json::object{{"no", 1}};
  return 5;
}

TEST_CASE("every route is in the document, and nothing else") {
  const json::object document = openapi_document("1.2");
  CHECK(document.at("openapi") == "3.1.0");
  CHECK(document.at("info").at("version") == "1.2");
  const json::object& paths = document.at("paths").as_object();
  size_t num_operations = 0;
  for (const auto& path : paths) {
    for (const auto& operation : path.value().as_object()) {
      ++num_operations;
      std::string method(operation.key());
      for (char& c : method) c = static_cast<char>(c - 'a' + 'A');
      const Route route = find_route(method, path.key());
      REQUIRE(route.row);
      const json::object& told = operation.value().as_object();
      CHECK(told.contains("requestBody") == (route.row->method == Method::kPost));
      // An answer, but where there never is one, and each error with the route's own body.
      const json::object& answers = told.at("responses").as_object();
      CHECK(answers.contains("200") == !path.key().starts_with("/v1/responses/{"));
      CHECK(answers.contains("401") == (route.row->access != Access::kOpen));
      CHECK(answers.contains("529") == (route.row->errors == ErrorForm::kMessages));
      CHECK_FALSE(answers.contains("default"));
      CHECK(told.contains("security") == (route.row->access != Access::kOpen));
      const bool is_list = method == "GET" && (path.key() == "/v1/files" || path.key() == "/v1/batches");
      CHECK(told.contains("parameters") == (path.key().find('{') != std::string_view::npos || is_list));
    }
  }
  CHECK(num_operations == routes().size());
}

TEST_CASE("references lead to schemas") {
  const json::object document = openapi_document("1");
  const json::object& schemas = document.at("components").at("schemas").as_object();
  const std::string text = json::serialize(document.at("paths"));
  constexpr std::string_view kBegin = "#/components/schemas/";
  size_t count = 0;
  for (size_t at = 0; (at = text.find(kBegin, at)) != std::string::npos; ++count) {
    at += kBegin.size();
    CHECK(schemas.contains(std::string_view(text).substr(at, text.find('"', at) - at)));
  }
  CHECK(count >= routes().size());
  CHECK(schemas.at("Error").at("properties").at("error").at("properties").as_object().contains("code"));
  CHECK(schemas.at("MessagesError").at("required").as_array().size() == 3);
}

TEST_CASE("a field of the document is one that the endpoint reads") {
  ServedModel model = letter_model();
  model.grammars = std::make_shared<GrammarCompiler>(TokenVocabulary::create(*model.tokenizer));
  model.fim = FimTokens{};
  for (const Endpoint endpoint : {Endpoint::kChat, Endpoint::kCompletion, Endpoint::kInfill, Endpoint::kResponses,
                                  Endpoint::kMessages, Endpoint::kOllamaChat, Endpoint::kOllamaGenerate}) {
    const Dialect& dialect = dialect_of(endpoint);
    const json::object schema = body_schema(endpoint);
    const json::object& properties = schema.at("properties").as_object();
    CHECK((properties.contains("options") ? properties.at("options").at("properties").as_object() : properties)
              .contains("temperature"));
    for (const auto& property : properties) {
      if (property.value().as_object().empty()) continue;  // any value
      CAPTURE(dialect.path, std::string(property.key()));
      json::object body = least_body(endpoint);
      body[property.key()] = wrong_value(property.value().as_object());
      const auto parsed = dialect.parse(body, model, {.random_seed = 1});
      REQUIRE(std::holds_alternative<ApiError>(parsed));
      // A slip or a name that is not served would be told otherwise.
      CHECK(std::get<ApiError>(parsed).param.starts_with(property.key()));
      CHECK(std::get<ApiError>(parsed).code == "invalid_argument");
    }
    if (!schema.contains("required")) continue;
    json::object body = least_body(endpoint);
    for (const json::value& name : schema.at("required").as_array()) {
      CHECK(body.erase(name.as_string()) == 1);
      CHECK(std::holds_alternative<ApiError>(dialect.parse(body, model, {.random_seed = 1})));
    }
  }
}

}  // namespace
}  // namespace llmrt::server
