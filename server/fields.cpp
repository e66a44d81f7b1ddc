#include "server/fields.h"

#include <algorithm>

namespace llmrt::server {

namespace json = boost::json;

std::string describe(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return value.get_bool() ? "true" : "false";
    case json::kind::int64:
      return fmt::format("{}", value.get_int64());
    case json::kind::uint64:
      return fmt::format("{}", value.get_uint64());
    case json::kind::double_:
      return fmt::format("{}", value.get_double());
    case json::kind::string:
      return fmt::format("a string of {} bytes", value.get_string().size());
    case json::kind::array:
      return fmt::format("an array of {}", value.get_array().size());
    case json::kind::object:
      return "an object";
  }
  return "?";
}

std::string shown_name(std::string_view name) {
  constexpr size_t kBytesMax = 64;
  size_t end = std::min(name.size(), kBytesMax);
  while (end > 0 && end < name.size() && (static_cast<unsigned char>(name[end]) & 0xC0) == 0x80) --end;
  std::string shown(name.substr(0, end));
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return shown;
}

const json::value* Fields::any(std::string_view name) {
  known_.push_back(name);
  const json::value* value = object_.if_contains(name);
  return value == nullptr || value->is_null() || failed() ? nullptr : value;
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const json::value* value = any(name);
  if (!value) return std::nullopt;
  if (!value->is_bool()) {
    expected(name, "true or false", *value);
    return std::nullopt;
  }
  return value->get_bool();
}

std::optional<int64_t> Fields::integer(std::string_view name, int64_t min, int64_t max) {
  const json::value* value = any(name);
  if (!value) return std::nullopt;
  json::error_code error;
  const int64_t number = value->is_number() ? value->to_number<int64_t>(error) : 0;  // 3.0 counts, 3.5 does not
  if (!value->is_number() || error || number < min || number > max) {
    expected(name, fmt::format("an integer in [{}, {}]", min, max), *value);
    return std::nullopt;
  }
  return number;
}

std::optional<double> Fields::number(std::string_view name, double min, double max) {
  const json::value* value = any(name);
  if (!value) return std::nullopt;
  const double number = value->is_number() ? value->to_number<double>() : 0;
  if (!value->is_number() || !(number >= min && number <= max)) {
    expected(name, fmt::format("a number in [{}, {}]", min, max), *value);
    return std::nullopt;
  }
  return number;
}

std::optional<std::string> Fields::string(std::string_view name, size_t bytes_max) {
  const json::value* value = any(name);
  if (!value) return std::nullopt;
  if (!value->is_string() || value->get_string().size() > bytes_max) {
    expected(name, fmt::format("a string of at most {} bytes", bytes_max), *value);
    return std::nullopt;
  }
  return std::string(value->get_string());
}

const json::array* Fields::array(std::string_view name, size_t size_max) {
  const json::value* value = any(name);
  if (!value) return nullptr;
  if (!value->is_array() || value->get_array().size() > size_max) {
    expected(name, fmt::format("an array of at most {}", size_max), *value);
    return nullptr;
  }
  return &value->get_array();
}

const json::object* Fields::object(std::string_view name) {
  const json::value* value = any(name);
  if (!value) return nullptr;
  if (!value->is_object()) {
    expected(name, "an object", *value);
    return nullptr;
  }
  return &value->get_object();
}

void Fields::neutral(std::string_view name, const std::function<bool(const json::value&)>& is_neutral,
                     std::string_view neutral_text) {
  const json::value* value = any(name);
  if (value && !is_neutral(*value))
    fail(name, fmt::format("not supported: expected {} or nothing, found {}", neutral_text, describe(*value)),
         "unsupported");
}

void Fields::fail(std::string_view name, std::string message, std::string code) {
  fail(invalid_field(full(name), std::move(message), std::move(code)));
}

void Fields::fail(ApiError error) {
  if (!failed()) error_ = std::move(error);
}

void Fields::expected(std::string_view name, std::string_view what, const json::value& found) {
  fail(name, fmt::format("expected {}, found {}", what, describe(found)));
}

void Fields::for_each_unread(const std::function<void(std::string_view, const json::value&)>& visit) {
  std::vector<std::string_view> known = known_;
  std::sort(known.begin(), known.end());
  for (const auto& field : object_) {
    if (failed()) return;
    const std::string_view name(field.key());
    if (!field.value().is_null() && !std::binary_search(known.begin(), known.end(), name)) visit(name, field.value());
  }
}

void Fields::refuse_unread() {
  for_each_unread(
      [&](std::string_view name, const json::value&) { fail(shown_name(name), "unknown field", "unknown_field"); });
}

}  // namespace llmrt::server
