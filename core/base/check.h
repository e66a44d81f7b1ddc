// LLMRT_CHECK(condition, message): our own invariants. A broken one prints place, condition and message and stops the
// process, in every build type. Never used on input from outside: that is an Error (status.h).
#pragma once

#include <string_view>

namespace llmrt {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, std::string_view message);
}  // namespace llmrt

#define LLMRT_CHECK(condition, message)                                               \
  do {                                                                                \
    if (!(condition)) ::llmrt::check_failed(__FILE__, __LINE__, #condition, message); \
  } while (0)
