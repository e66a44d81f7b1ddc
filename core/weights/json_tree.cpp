#include "core/weights/json_tree.h"

#include <boost/json/basic_parser_impl.hpp>

#include <cmath>
#include <iterator>

#include "core/base/keyed_hash.h"
#include "core/weights/metadata.h"

namespace llmrt {
namespace {

namespace json = boost::json;

// Values are stacked as they end; the end of an array or object takes its own from the top.
struct TreeHandler {
  static constexpr size_t max_object_size = static_cast<size_t>(-1);
  static constexpr size_t max_array_size = static_cast<size_t>(-1);
  static constexpr size_t max_key_size = static_cast<size_t>(-1);
  static constexpr size_t max_string_size = static_cast<size_t>(-1);

  size_t values_max = 0;
  bool may_be_infinite = false;
  size_t num_values = 0;
  std::vector<JsonTree> stack;
  std::vector<std::string> names;  // of all open objects
  std::vector<KeyedSet> seen;      // one for each open object
  std::string part;
  std::string problem;

  bool refuse(std::string what, json::error_code& error) {
    problem = std::move(what);
    error = json::make_error_code(json::error::syntax);
    return false;
  }
  template <typename T>
  bool push(T value, json::error_code& error) {
    if (++num_values > values_max) return refuse(fmt::format("more than {} values", values_max), error);
    stack.emplace_back().value = std::move(value);
    return true;
  }
  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code&) {
    seen.emplace_back();
    return true;
  }
  bool on_object_end(size_t size, json::error_code& error) {
    JsonTree::Members members(size);
    for (size_t i = 0; i < size; ++i) {
      members[i].name = std::move(names[names.size() - size + i]);
      members[i].value = std::move(stack[stack.size() - size + i]);
    }
    names.resize(names.size() - size);
    stack.resize(stack.size() - size);
    seen.pop_back();
    return push(std::move(members), error);
  }
  bool on_array_begin(json::error_code&) { return true; }
  bool on_array_end(size_t size, json::error_code& error) {
    const auto first = stack.end() - static_cast<ptrdiff_t>(size);
    JsonTree::Items items(std::make_move_iterator(first), std::make_move_iterator(stack.end()));
    stack.resize(stack.size() - size);
    return push(std::move(items), error);
  }
  std::string take(json::string_view last) {
    part.append(last);
    return std::exchange(part, {});
  }
  bool on_key_part(json::string_view text, size_t, json::error_code&) {
    part.append(text);
    return true;
  }
  bool on_key(json::string_view text, size_t, json::error_code& error) {
    names.push_back(take(text));
    if (seen.back().insert(names.back()).second) return true;
    return refuse(fmt::format("\"{}\" occurs twice", printable(names.back())), error);
  }
  bool on_string_part(json::string_view text, size_t, json::error_code&) {
    part.append(text);
    return true;
  }
  bool on_string(json::string_view text, size_t, json::error_code& error) { return push(take(text), error); }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(int64_t number, json::string_view, json::error_code& error) { return push(number, error); }
  bool on_uint64(uint64_t number, json::string_view, json::error_code& error) {
    return push(static_cast<double>(number), error);  // beyond int64: no integer that anything here means
  }
  bool on_double(double number, json::string_view, json::error_code& error) {
    return std::isfinite(number) || may_be_infinite ? push(number, error) : refuse("a number is too large", error);
  }
  bool on_bool(bool value, json::error_code& error) { return push(value, error); }
  bool on_null(json::error_code& error) { return push(std::monostate(), error); }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }
};

}  // namespace

bool JsonTree::number(double* out) const {
  if (const int64_t* whole = integer()) {
    *out = static_cast<double>(*whole);
    return true;
  }
  const double* real = std::get_if<double>(&value);
  if (real != nullptr) *out = *real;
  return real != nullptr;
}

const JsonTree* JsonTree::find(std::string_view name) const {
  if (members() == nullptr) return nullptr;
  for (const JsonMember& member : *members())
    if (member.name == name) return member.value.is_null() ? nullptr : &member.value;
  return nullptr;
}

std::string JsonTree::describe() const {
  if (is_null()) return "null";
  if (const bool* flag = boolean()) return *flag ? "true" : "false";
  if (const std::string* text = string()) return "\"" + printable(*text) + "\"";
  if (items() != nullptr) return fmt::format("an array of {}", items()->size());
  if (members() != nullptr) return fmt::format("an object of {} members", members()->size());
  if (integer() != nullptr) return fmt::format("{}", *integer());
  return fmt::format("{}", std::get<double>(value));
}

Result<JsonTree> parse_json_tree(std::string_view text, std::string_view what, const JsonBounds& bounds) {
  if (text.size() > bounds.bytes)
    return make_error(ErrorCode::kCorruptFile, "{}: expected at most {} bytes, found {}", what, bounds.bytes,
                      text.size());
  json::parse_options options;
  options.max_depth = bounds.depth;
  options.allow_infinity_and_nan = bounds.may_be_infinite;
  json::basic_parser<TreeHandler> parser(options);
  TreeHandler& handler = parser.handler();
  handler.values_max = bounds.values;
  handler.may_be_infinite = bounds.may_be_infinite;
  json::error_code error;
  size_t used = parser.write_some(false, text.data(), text.size(), error);
  // Spaces behind the value: files end with a newline, headers are padded.
  while (!error && used < text.size() && std::string_view(" \t\r\n").find(text[used]) != std::string_view::npos) ++used;
  if (!error && used < text.size()) error = json::make_error_code(json::error::extra_data);
  if (error)
    return make_error(ErrorCode::kCorruptFile, "{}: invalid JSON at byte {}: {}", what, used,
                      !handler.problem.empty()         ? handler.problem
                      : error == json::error::too_deep ? fmt::format("nested deeper than {}", bounds.depth)
                                                       : error.message());
  return std::move(handler.stack.front());
}

}  // namespace llmrt
