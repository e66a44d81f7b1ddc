// The fields of one JSON object from a client, read once each against a closed range. The first wrong one is kept and
// all later reads return nothing. A null counts as absent, whatever its name. What nobody asked for is dropped, or
// refused by refuse_unread(); a body's own fields are judged by server/known_fields.h.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"

namespace llmrt::server {

// "true", "a string", "an array of 3": what stands where something else was expected. Never the client's own text.
std::string describe(const boost::json::value& value);
// A name from outside, fit for a message: at most 64 bytes of whole characters, without control characters.
std::string shown_name(std::string_view name);

class Fields {
 public:
  // `object` must outlive this; `place` stands before the names in messages ("messages[2].").
  explicit Fields(const boost::json::object& object, std::string place = "")
      : object_(object), place_(std::move(place)) {}

  std::optional<bool> boolean(std::string_view name);
  std::optional<int64_t> integer(std::string_view name, int64_t min, int64_t max);
  std::optional<double> number(std::string_view name, double min, double max);
  std::optional<std::string> string(std::string_view name, size_t bytes_max);
  const boost::json::array* array(std::string_view name, size_t size_max);
  const boost::json::object* object(std::string_view name);
  // Any value that is there and not null.
  const boost::json::value* any(std::string_view name);

  // Known to others, not done here: accepted when absent, null or `is_neutral`, else refused by name.
  void neutral(std::string_view name, const std::function<bool(const boost::json::value&)>& is_neutral,
               std::string_view neutral_text);

  void fail(std::string_view name, std::string message, std::string code = "invalid_argument");
  void fail(ApiError error);
  // The name as messages spell it, with its place.
  std::string full(std::string_view name) const { return place_ + std::string(name); }
  bool failed() const { return error_.has_value(); }
  const std::optional<ApiError>& error() const { return error_; }

  // Members that are not null and that nobody has asked for; until something fails.
  void for_each_unread(const std::function<void(std::string_view name, const boost::json::value& value)>& visit);
  void refuse_unread();  // the first of them, as an unknown field
  const boost::json::object& object() const { return object_; }
  const std::vector<std::string_view>& known() const { return known_; }

 private:
  void expected(std::string_view name, std::string_view what, const boost::json::value& found);

  const boost::json::object& object_;
  std::string place_;
  std::vector<std::string_view> known_;
  std::optional<ApiError> error_;
};

}  // namespace llmrt::server
