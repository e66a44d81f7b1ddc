// Errors inside the template engine travel as an exception, which chat_template.cpp turns into an Error: none leaves
// the room.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "core/base/status.h"

namespace llmrt::jinja {

struct Position {
  int line = 1;
  int column = 1;
};

struct TemplateError {
  ErrorCode code;
  std::string message;
  std::optional<Position> at;  // filled by the innermost node that knows its place
};

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateError{ErrorCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...), {}};
}

template <typename... Args>
[[noreturn]] void fail_unsupported(fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateError{ErrorCode::kUnsupported, fmt::format(format, std::forward<Args>(args)...), {}};
}

template <typename... Args>
[[noreturn]] void fail_syntax(Position at, fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateError{ErrorCode::kCorruptFile, fmt::format(format, std::forward<Args>(args)...), at};
}

}  // namespace llmrt::jinja
