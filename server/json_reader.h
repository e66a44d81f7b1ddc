// JSON from outside, read strictly: nesting at most `depth_max`, no duplicate keys in any object, no number that is not
// finite as a double, valid UTF-8, nothing behind the value, no byte-order mark. Pure; any thread.
#pragma once

#include <boost/json.hpp>

#include <string_view>

#include "core/base/status.h"

namespace llmrt::server {

inline constexpr int kJsonDepthMax = 64;

// invalid_argument with what is wrong and at which byte.
Result<boost::json::value> read_json(std::string_view text, int depth_max = kJsonDepthMax);

}  // namespace llmrt::server
