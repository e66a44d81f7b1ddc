// A thought as an opaque text that a client keeps and sends back (reasoning.encrypted_content of /v1/responses):
// version, id of the key, MAC, and the thought itself, which is not secret: the client is told it anyway. The MAC
// (HMAC-SHA-256, 16 bytes of it) says that it comes from this process, so nobody puts words into a model's thoughts
// unnoticed. What another process or service has sealed does not open. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace llmrt::server {

std::string seal_thought(std::string_view thought);
// Nothing where it is not ours, or was changed.
std::optional<std::string> open_thought(std::string_view sealed);

}  // namespace llmrt::server
