// Reads lines of JSON {"schema": ..., "instances": [text, ...], "lenient": false, "coerce_one_of": false} and answers
// each with a line: {"compiled": true, "accepted": [true, ...], "ignored": [...], "ms": 0.4}, or {"compiled": false,
// "code": ..., "message": ...}.
#include <boost/json.hpp>
#include <chrono>
#include <iostream>
#include <string>

#include "core/grammar/json_schema.h"
#include "tests/grammar/recogniser.h"

namespace llmrt {
namespace {

namespace json = boost::json;

json::object answer(const json::object& line) {
  SchemaOptions options;
  const auto flag = [&](const char* name) {
    const json::value* found = line.if_contains(name);
    return found != nullptr && found->as_bool();
  };
  options.lenient = flag("lenient");
  options.coerce_one_of = flag("coerce_one_of");
  GrammarBuilder builder;
  SchemaNotes notes;
  const auto begin = std::chrono::steady_clock::now();
  Result<SymbolId> symbol = add_json_schema(&builder, line.at("schema"), options, &notes);
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  if (!symbol) {
    return {{"compiled", false}, {"code", error_code_name(symbol.error().code)}, {"message", symbol.error().message}};
  }
  json::array accepted, ignored;
  for (const json::value& text : line.at("instances").as_array()) {
    accepted.push_back(fakes::Recogniser(&builder, text.as_string()).accepts(*symbol));
  }
  for (const std::string& note : notes.ignored) ignored.push_back(json::string(note));
  return {{"compiled", true},
          {"accepted", accepted},
          {"ignored", ignored},
          {"ms", ms},
          {"symbols", builder.num_symbols()},
          {"nodes", builder.regexes().num_nodes()}};
}

}  // namespace
}  // namespace llmrt

int main() {
  boost::json::parse_options options;
  options.max_depth = 1024;
  options.numbers = boost::json::number_precision::precise;
  for (std::string line; std::getline(std::cin, line);) {
    const boost::json::value read = boost::json::parse(line, {}, options);
    std::cout << boost::json::serialize(llmrt::answer(read.as_object())) << std::endl;
  }
}
