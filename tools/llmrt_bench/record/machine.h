// What a record says of the build, the process and the machine.
#pragma once

#include <boost/json.hpp>

#include <string>
#include <vector>

namespace llmrt::bench {

// The commit of the source that was built, "-dirty" behind it where that was changed; empty where there was no
// repository.
std::string git_commit();
// Without what headers of requests say: it may be a key.
std::vector<std::string> command_line();
boost::json::object host_json();
// The clocks of a GPU, by its driver's name, now, as NVIDIA's management library tells; null without that library, and
// when no GPU or more than one has that name.
boost::json::value clocks_json(const std::string& device_name);

}  // namespace llmrt::bench
