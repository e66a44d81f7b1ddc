// JSON from outside, read strictly: nesting at most `depth_max`, no duplicate keys in any object, no number that is not
// finite as a double, valid UTF-8, nothing behind the value, no byte-order mark. Its work is metered: time follows the
// length of the text, whatever names an object has, and memory the number of values. Pure; any thread.
#pragma once

#include <boost/json.hpp>

#include <cstddef>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "server/api_error.h"

namespace llmrt::server {

inline constexpr int kJsonDepthMax = 64;
inline constexpr size_t kJsonValuesMax = 1 << 20;   // each object and array is one, too
inline constexpr size_t kJsonMembersMax = 1 << 14;  // of one object
// What a text may take while and after it is read, beside the text itself: for each value and each byte of it. A table
// of the stack that values wait on doubles, so it may hold three times what is on it.
inline constexpr size_t kJsonBytesPerValue = 192, kJsonBytesPerByte = 4;

struct JsonLimits {
  int depth_max = kJsonDepthMax;
  size_t values_max = kJsonValuesMax;
};

// invalid_argument with what is wrong and at which byte. `num_values`: how many values it has, where it is asked for.
Result<boost::json::value> read_json(std::string_view text, const JsonLimits& limits = {},
                                     size_t* num_values = nullptr);

// A request's body, which is freed when it is read: 400 invalid_json, or invalid_argument where it is no object.
ApiResult<boost::json::object> read_body_object(std::string body);

}  // namespace llmrt::server
