#include "server/json_reader.h"

#include <boost/json/basic_parser_impl.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/base/keyed_hash.h"
#include "core/base/utf8.h"
#include "server/fields.h"
#include "server/json_memory.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

// The names of one open object: they stand in Handler::names from `begin` on.
struct OpenObject {
  size_t begin;
  KeyedViewSet seen;  // only of an object that is not small
};

// Builds the value on Boost's own stack, and refuses on the way what Boost would let through.
struct Handler {
  static constexpr size_t max_object_size = static_cast<size_t>(-1);
  static constexpr size_t max_array_size = static_cast<size_t>(-1);
  static constexpr size_t max_key_size = static_cast<size_t>(-1);
  static constexpr size_t max_string_size = static_cast<size_t>(-1);

  std::string_view text;
  size_t values_max = 0;
  JsonMemory* memory = nullptr;
  json::value_stack stack;
  std::vector<OpenObject> open;
  std::vector<std::string_view> names;  // of all open objects: in the text, or in `memory` where they have escapes
  std::string name_part;
  size_t num_values = 0;
  std::string problem;

  bool refuse(std::string what, json::error_code& error) {
    problem = std::move(what);
    error = json::make_error_code(json::error::syntax);
    return false;
  }
  bool count_value(json::error_code& error) {
    if (++num_values <= values_max) return true;
    return refuse(fmt::format("more than {} values", values_max), error);
  }
  // A name that outlives the parser's own buffer.
  std::string_view keep(std::string_view name) {
    if (std::less_equal<>()(text.data(), name.data()) &&
        std::less_equal<>()(name.data() + name.size(), text.data() + text.size()))
      return name;
    char* copy = static_cast<char*>(static_cast<json::memory_resource*>(memory)->allocate(name.size() + 1, 1));
    std::copy(name.begin(), name.end(), copy);
    return {copy, name.size()};
  }
  bool is_new(std::string_view name) {
    OpenObject& object = open.back();
    const size_t size = names.size() - object.begin;
    if (size < JsonMemory::kSmallObject)
      return std::find(names.begin() + static_cast<ptrdiff_t>(object.begin), names.end(), name) == names.end();
    if (object.seen.empty()) object.seen.insert(names.begin() + static_cast<ptrdiff_t>(object.begin), names.end());
    return object.seen.insert(name).second;
  }

  bool on_document_begin(json::error_code&) {
    stack.reset(json::make_shared_resource<JsonMemory>(&memory));
    return true;
  }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code& error) {
    open.push_back({names.size(), {}});
    return count_value(error);
  }
  bool on_object_end(size_t size, json::error_code& error) {
    const std::span<const std::string_view> members(names.data() + open.back().begin, size);
    if (size > JsonMemory::kSmallObject && !memory->place_table(members))
      return refuse("the names of one object were chosen to collide", error);
    names.resize(open.back().begin);
    open.pop_back();
    stack.push_object(size);
    return true;
  }
  bool on_array_begin(json::error_code& error) { return count_value(error); }
  bool on_array_end(size_t size, json::error_code&) {
    stack.push_array(size);
    return true;
  }
  bool on_key_part(json::string_view part, size_t, json::error_code&) {
    name_part.append(part);
    stack.push_chars(part);
    return true;
  }
  bool on_key(json::string_view part, size_t, json::error_code& error) {
    stack.push_key(part);
    std::string_view name(part);
    if (!name_part.empty()) name = name_part.append(part);
    if (names.size() - open.back().begin >= kJsonMembersMax)
      return refuse(fmt::format("an object of more than {} members", kJsonMembersMax), error);
    name = keep(name);
    if (!is_new(name)) return refuse(fmt::format("duplicate key: '{}'", shown_name(name)), error);
    names.push_back(name);
    name_part.clear();
    return true;
  }
  bool on_string_part(json::string_view part, size_t, json::error_code&) {
    stack.push_chars(part);
    return true;
  }
  bool on_string(json::string_view part, size_t, json::error_code& error) {
    stack.push_string(part);
    return count_value(error);
  }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(int64_t number, json::string_view, json::error_code& error) {
    stack.push_int64(number);
    return count_value(error);
  }
  bool on_uint64(uint64_t number, json::string_view, json::error_code& error) {
    stack.push_uint64(number);
    return count_value(error);
  }
  bool on_double(double number, json::string_view, json::error_code& error) {
    if (!std::isfinite(number)) return refuse("a number is too large", error);
    stack.push_double(number);
    return count_value(error);
  }
  bool on_bool(bool value, json::error_code& error) {
    stack.push_bool(value);
    return count_value(error);
  }
  bool on_null(json::error_code& error) {
    stack.push_null();
    return count_value(error);
  }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }
};

// Whether the text before byte `at` ends with an escape of the first half of a surrogate pair, whose second half was to
// follow: Boost calls what does follow a syntax error.
bool follows_half_pair(std::string_view text, size_t at) {
  constexpr size_t kEscapeBytes = 6;
  // The error is told at the byte behind the escape, or at the one behind a backslash there.
  for (const size_t end : {at, at - std::min<size_t>(at, 1)}) {
    if (end < kEscapeBytes) continue;
    const std::string_view escape = text.substr(end - kEscapeBytes, kEscapeBytes);
    const auto is_one_of = [&](size_t i, std::string_view set) { return set.find(escape[i]) != set.npos; };
    size_t num_backslashes = 0;
    while (num_backslashes <= end - kEscapeBytes && text[end - kEscapeBytes - num_backslashes] == '\\')
      ++num_backslashes;
    if (num_backslashes % 2 == 1 && escape[1] == 'u' && is_one_of(2, "dD") && is_one_of(3, "89abAB")) return true;
  }
  return false;
}

std::string describe_problem(json::error_code error, const std::string& problem, std::string_view text, size_t at,
                             int depth_max) {
  if (!problem.empty()) return problem;
  if (error == json::error::too_deep) return fmt::format("nested deeper than {}", depth_max);
  if (error == json::error::incomplete) return "it ends too early";
  if (error == json::error::extra_data) return "more follows the value";
  if (error == json::error::illegal_leading_surrogate || error == json::error::illegal_trailing_surrogate ||
      error == json::error::expected_utf16_escape || follows_half_pair(text, at))
    return "an escape of half a surrogate pair";
  // A character that the parser refuses by its first byte, or by one behind it.
  const auto byte = at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
  if (byte >= 0x80) return is_valid_utf8(text) ? "a character outside of a string" : "invalid UTF-8";
  if (byte < 0x20) return fmt::format("a control character, 0x{:02x}, that is not escaped", byte);
  return fmt::format("a syntax error, found '{}'", static_cast<char>(byte));
}

}  // namespace

Result<json::value> read_json(std::string_view text, const JsonLimits& limits, size_t* num_values) {
  if (text.starts_with("\xEF\xBB\xBF"))
    return make_error(ErrorCode::kInvalidArgument, "invalid JSON: byte 0: a byte-order mark before the JSON");
  json::parse_options options;
  options.max_depth = static_cast<size_t>(limits.depth_max);
  json::basic_parser<Handler> parser(options);
  Handler& handler = parser.handler();
  handler.text = text;
  handler.values_max = limits.values_max;
  json::error_code error;
  const size_t used = parser.write_some(false, text.data(), text.size(), error);
  if (num_values) *num_values = handler.num_values;
  if (!error && used < text.size()) error = json::make_error_code(json::error::extra_data);
  if (error) {
    return make_error(ErrorCode::kInvalidArgument, "invalid JSON: byte {}: {}", used,
                      describe_problem(error, handler.problem, text, used, limits.depth_max));
  }
  return handler.stack.release();
}

ApiResult<json::object> read_body_object(std::string body) {
  Result<json::value> parsed = read_json(body);
  body = {};
  if (!parsed) {
    ApiError error = to_api_error(parsed.error());
    error.code = "invalid_json";
    return error;
  }
  if (!parsed->is_object()) return invalid_field("body", "expected a JSON object");
  return std::move(parsed->get_object());
}

}  // namespace llmrt::server
