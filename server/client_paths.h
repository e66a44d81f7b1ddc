// Where the client's own fields are, for a dialect whose body is translated to one of a chat: errors and warnings of
// the chat's reader name the chat's fields, and are told under the names that the client sent. Plain value.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"

namespace llmrt::server {

// "NAME[12].rest" with `name` to 12; `path` is then what is behind the bracket. Nothing: the path is another one.
std::optional<size_t> take_index(std::string_view name, std::string_view* path);

class ClientPaths {
 public:
  // The next message comes from `path`; its content from that member of it, or from `path` itself where `content` is
  // empty.
  void add_message(std::string path, std::string_view content);
  // The next call of the last message.
  void add_call(std::string path);
  // The next tool.
  void add_tool(std::string path) { tools_.push_back(std::move(path)); }
  // A field beside messages and tools.
  void add_field(std::string_view chat, std::string_view client) { fields_.push_back({chat, client}); }
  size_t num_tools() const { return tools_.size(); }

  std::string translate(std::string_view chat_path) const;
  // The error with the client's names: of its parameter, and where its message begins with that.
  ApiError translate(ApiError error) const;

 private:
  struct Message {
    std::string path;
    std::string_view content;
    std::vector<std::string> calls;
  };
  struct Field {
    std::string_view chat, client;
  };
  std::string in_message(std::string_view rest) const;

  std::vector<Message> messages_;
  std::vector<std::string> tools_;
  std::vector<Field> fields_;
};

}  // namespace llmrt::server
