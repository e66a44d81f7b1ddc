// Reads lines of JSON {"schema": ..., "instances": [text, ...], "walks": 0, "lenient": false, "coerce_one_of": false}
// and answers each with a line: {"compiled": true, "accepted": [true, ...], "written": [text, ...], "stuck": [text,
// ...], "ignored": [...], "ms": 0.4}, or {"compiled": false, "code": ..., "message": ...}. written: what random walks
// along the grammar came to; stuck: where one could not go on.
#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "core/grammar/json_schema.h"
#include "tests/grammar/text_acceptor.h"

namespace llmrt {
namespace {

namespace json = boost::json;

// Bytes drawn from those that may follow; after a while those that lead to an end, if one is there.
void walk(ParseStates* states, std::mt19937* random, json::array* written, json::array* stuck) {
  constexpr size_t kSoonMax = 60, kLengthMax = 600;
  constexpr std::string_view kEnding = "}]\"";
  TextPosition position(*states);
  for (std::string text; text.size() < kLengthMax;) {
    std::vector<std::pair<char, TextPosition>> ways;
    for (int byte = 0; byte < 0x80; ++byte) {  // characters beyond ASCII are as good as others
      TextPosition next = position;
      if (next.step(states, static_cast<uint8_t>(byte)) && next.is_live(states)) {
        ways.emplace_back(static_cast<char>(byte), std::move(next));
      }
    }
    const bool may_end = states->accepts(position.state());
    if (ways.empty() || (may_end && (text.size() > kSoonMax || (*random)() % 4 == 0))) {
      (may_end ? written : stuck)->push_back(json::string(text));
      return;
    }
    size_t chosen = (*random)() % ways.size();
    for (const char c : kEnding) {
      const auto it = std::ranges::find(ways, c, [](const auto& way) { return way.first; });
      const bool is_wanted = text.size() > kSoonMax || (*random)() % 4 == 0;
      if (it != ways.end() && is_wanted) chosen = static_cast<size_t>(it - ways.begin());
    }
    text += ways[chosen].first;
    position = std::move(ways[chosen].second);
  }
}

json::object answer(const json::object& line) {
  SchemaOptions options;
  const auto flag = [&](const char* name) {
    const json::value* found = line.if_contains(name);
    return found != nullptr && found->as_bool();
  };
  options.lenient = flag("lenient");
  options.coerce_one_of = flag("coerce_one_of");
  if (getenv("BIG")) {
    options.limits.schema_bytes_max = 1u << 24;
    options.limits.properties_max = 4096;
  }
  GrammarBuilder builder;
  SchemaNotes notes;
  const auto begin = std::chrono::steady_clock::now();
  Result<SymbolId> symbol = add_json_schema(&builder, line.at("schema"), options, &notes);
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  if (!symbol) {
    return {{"compiled", false}, {"code", error_code_name(symbol.error().code)}, {"message", symbol.error().message}};
  }
  const uint32_t num_symbols = builder.num_symbols(), num_nodes = builder.regexes().num_nodes();
  fakes::TextAcceptor acceptor(&builder, *symbol);
  json::array accepted, ignored;
  for (const json::value& text : line.at("instances").as_array()) {
    accepted.push_back(acceptor.accepts(text.as_string()));
  }
  json::array written, stuck;
  std::mt19937 random(7);
  const json::value* walks = line.if_contains("walks");
  for (int64_t i = walks != nullptr && acceptor.states() != nullptr ? walks->as_int64() : 0; i > 0; --i) {
    walk(acceptor.states(), &random, &written, &stuck);
  }
  for (const std::string& note : notes.ignored) ignored.push_back(json::string(note));
  return {{"compiled", true}, {"accepted", accepted},   {"written", written}, {"stuck", stuck}, {"ignored", ignored},
          {"ms", ms},         {"symbols", num_symbols}, {"nodes", num_nodes}};
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
