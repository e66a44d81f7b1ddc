// Writes calls as a model of a format does: the tests' own reading of each format, by name, not from the description.
#pragma once

#include <boost/json.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace llmrt::chat_test {

struct WrittenCall {
  std::string name;
  boost::json::object args;
};

// All calls of an answer; ids where the format has them.
std::string write_calls(std::string_view format, const std::vector<WrittenCall>& calls);
std::string write_thought(std::string_view format, std::string_view thought);
bool writes_thoughts(std::string_view format);
// Text before calls: a message of its own where the format has them.
std::string write_text(std::string_view format, std::string_view text);

}  // namespace llmrt::chat_test
