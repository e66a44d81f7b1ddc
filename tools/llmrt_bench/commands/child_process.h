// A program run to its end.
#pragma once

#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/status.h"

namespace llmrt::bench {

struct ChildOutput {
  TimeNs begun_ns = 0;  // just before exec, by SteadyClock
  std::string text;     // of its standard output
};

// `environment`: NAME=VALUE, beside this process' own. Standard error is this process'. Errors: io, when it cannot be
// started or ends with anything but 0; timeout, by when it has been ended.
Result<ChildOutput> run_child(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                              double timeout_s);

}  // namespace llmrt::bench
