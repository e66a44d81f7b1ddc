// The file of --policy: what no answer may say.
//   {"strings": ["..."], "expressions": ["..."], "ignore_case": false}
#pragma once

#include <memory>
#include <string>

#include "core/base/status.h"
#include "core/request/policy.h"

namespace llmrt::server {

inline constexpr size_t kPolicyFileBytesMax = 1 << 20;

// io_error where it cannot be read; invalid_argument and unsupported_schema, with the file's name, for what is in it.
Result<std::shared_ptr<const Policy>> read_policy_file(const std::string& path);

}  // namespace llmrt::server
