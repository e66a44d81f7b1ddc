#include "server/json_reader.h"

#include <boost/json/basic_parser_impl.hpp>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "core/text/utf8.h"
#include "server/fields.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

// Builds the value on Boost's own stack, and refuses on the way what Boost would let through.
struct Handler {
  static constexpr size_t max_object_size = static_cast<size_t>(-1);
  static constexpr size_t max_array_size = static_cast<size_t>(-1);
  static constexpr size_t max_key_size = static_cast<size_t>(-1);
  static constexpr size_t max_string_size = static_cast<size_t>(-1);

  json::value_stack stack;
  std::vector<std::set<std::string, std::less<>>> keys;  // of each open object
  std::string key;
  std::string problem;

  bool on_document_begin(json::error_code&) {
    stack.reset();
    return true;
  }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code&) {
    keys.emplace_back();
    return true;
  }
  bool on_object_end(size_t size, json::error_code&) {
    keys.pop_back();
    stack.push_object(size);
    return true;
  }
  bool on_array_begin(json::error_code&) { return true; }
  bool on_array_end(size_t size, json::error_code&) {
    stack.push_array(size);
    return true;
  }
  bool on_key_part(json::string_view part, size_t, json::error_code&) {
    key.append(part);
    stack.push_chars(part);
    return true;
  }
  bool on_key(json::string_view part, size_t, json::error_code& error) {
    key.append(part);
    stack.push_key(part);
    if (!keys.back().insert(key).second) {
      problem = fmt::format("duplicate key: '{}'", shown_name(key));
      error = json::make_error_code(json::error::syntax);
      return false;
    }
    key.clear();
    return true;
  }
  bool on_string_part(json::string_view part, size_t, json::error_code&) {
    stack.push_chars(part);
    return true;
  }
  bool on_string(json::string_view part, size_t, json::error_code&) {
    stack.push_string(part);
    return true;
  }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(int64_t number, json::string_view, json::error_code&) {
    stack.push_int64(number);
    return true;
  }
  bool on_uint64(uint64_t number, json::string_view, json::error_code&) {
    stack.push_uint64(number);
    return true;
  }
  bool on_double(double number, json::string_view, json::error_code& error) {
    if (!std::isfinite(number)) {
      problem = "a number is too large";
      error = json::make_error_code(json::error::syntax);
      return false;
    }
    stack.push_double(number);
    return true;
  }
  bool on_bool(bool value, json::error_code&) {
    stack.push_bool(value);
    return true;
  }
  bool on_null(json::error_code&) {
    stack.push_null();
    return true;
  }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }
};

std::string describe_problem(json::error_code error, const std::string& problem, std::string_view rest, int depth_max) {
  if (!problem.empty()) return problem;
  if (error == json::error::too_deep) return fmt::format("nested deeper than {}", depth_max);
  if (error == json::error::incomplete) return "it ends too early";
  if (error == json::error::extra_data) return "more follows the value";
  if (error == json::error::illegal_leading_surrogate || error == json::error::illegal_trailing_surrogate ||
      error == json::error::expected_utf16_escape)
    return "an escape of half a surrogate pair";
  // A character that the parser refuses by its first byte, or by one behind it.
  const auto byte = rest.empty() ? 0u : static_cast<unsigned char>(rest.front());
  if (byte >= 0x80) return "invalid UTF-8, or a character outside of a string";
  if (byte < 0x20) return fmt::format("a control character, 0x{:02x}, that is not escaped", byte);
  return fmt::format("a syntax error, found '{}'", static_cast<char>(byte));
}

}  // namespace

Result<json::value> read_json(std::string_view text, int depth_max) {
  json::parse_options options;
  options.max_depth = static_cast<size_t>(depth_max);
  json::basic_parser<Handler> parser(options);
  json::error_code error;
  const size_t used = parser.write_some(false, text.data(), text.size(), error);
  if (!error && used < text.size()) error = json::make_error_code(json::error::extra_data);
  if (error) {
    return make_error(ErrorCode::kInvalidArgument, "invalid JSON: byte {}: {}", used,
                      describe_problem(error, parser.handler().problem, text.substr(used), depth_max));
  }
  return parser.handler().stack.release();
}

}  // namespace llmrt::server
