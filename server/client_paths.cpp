#include "server/client_paths.h"

#include <charconv>

namespace llmrt::server {
namespace {

// Calls and tools are flat where a chat has an object for the kind.
std::string_view without_kind(std::string_view rest) {
  for (const std::string_view kind : {".function", ".custom"})
    if (rest.starts_with(kind) && (rest.size() == kind.size() || rest[kind.size()] == '.'))
      return rest.substr(kind.size());
  return rest;
}

}  // namespace

std::optional<size_t> take_index(std::string_view name, std::string_view* path) {
  if (!path->starts_with(name) || path->substr(name.size(), 1) != "[") return std::nullopt;
  const std::string_view digits = path->substr(name.size() + 1);
  size_t index = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  const auto length = static_cast<size_t>(end - digits.data());
  if (error != std::errc() || digits.substr(length, 1) != "]") return std::nullopt;
  *path = digits.substr(length + 1);
  return index;
}

void ClientPaths::add_message(std::string path, std::string_view content) {
  messages_.push_back({std::move(path), content, {}});
}

void ClientPaths::add_call(std::string path) {
  messages_.back().calls.push_back(std::move(path));
}

std::string ClientPaths::in_message(std::string_view rest) const {
  const std::optional<size_t> index = take_index("messages", &rest);
  if (!index || *index >= messages_.size()) return "input";
  const Message& message = messages_[*index];
  constexpr std::string_view kContent = ".content", kCalls = ".tool_calls";
  if (rest.starts_with(kContent)) {
    const std::string_view dot = message.content.empty() ? "" : ".";
    return message.path + std::string(dot) + std::string(message.content) + std::string(rest.substr(kContent.size()));
  }
  if (rest.starts_with(kCalls)) {
    rest.remove_prefix(1);
    const std::optional<size_t> call = take_index("tool_calls", &rest);
    if (call && *call < message.calls.size()) return message.calls[*call] + std::string(without_kind(rest));
    return message.path;
  }
  return message.path + std::string(rest);
}

std::string ClientPaths::translate(std::string_view chat_path) const {
  if (chat_path.starts_with("messages")) return in_message(chat_path);
  std::string_view rest = chat_path;
  if (const std::optional<size_t> tool = take_index("tools", &rest); tool && *tool < tools_.size())
    return tools_[*tool] + std::string(without_kind(rest));
  for (const Field& field : fields_) {
    const bool is_it = chat_path.starts_with(field.chat) &&
                       (chat_path.size() == field.chat.size() || chat_path[field.chat.size()] == '.');
    if (is_it) return std::string(field.client) + std::string(chat_path.substr(field.chat.size()));
  }
  return std::string(chat_path);
}

ApiError ClientPaths::translate(ApiError error) const {
  std::string param = translate(error.param);
  const size_t size = error.param.size();
  if (size > 0 && error.message.starts_with(error.param) && error.message.substr(size, 1) == ":")
    error.message = param + error.message.substr(size);
  error.param = std::move(param);
  return error;
}

}  // namespace llmrt::server
