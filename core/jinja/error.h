// Errors inside the template engine travel as an exception, which chat_template.cpp turns into an Error: none leaves
// the room. A message is ours and the template's; what may quote a request goes to `detail`, which no log shows.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
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
  std::string detail = "";     // for the client alone
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

// The first bytes of a text, cut between characters: error texts stay short, whatever they speak of.
std::string excerpt(std::string_view text, size_t bytes_max = 200);

// About a name that a request may have brought: it is told to the client alone.
template <typename... Args>
[[noreturn]] void fail_about(std::string_view name, fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateError{ErrorCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...), {}, excerpt(name)};
}

}  // namespace llmrt::jinja
