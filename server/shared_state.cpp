#include "server/shared_state.h"

namespace llmrt::server {

ServerFigures SharedState::figures() const {
  std::lock_guard lock(mutex);
  ServerFigures figures = counts;
  figures.connections_open = sessions.size();
  figures.connections_limit = config.connections_max;
  figures.client_memory_bytes = memory->used_bytes();
  figures.client_memory_limit_bytes = memory->limit_bytes();
  return figures;
}

// Messages may name what a client sent: quoted, so that they cannot forge a line.
void SharedState::log_error(const ApiError& error, std::string_view target) {
  {
    std::lock_guard lock(mutex);
    count_refusal(counts.refusals, error.code);
  }
  constexpr size_t kShownBytes = 400;
  const bool ours = error.status >= 500 && error.status != 503;
  const auto quoted = [](std::string_view text) {
    return boost::json::serialize(boost::json::string(text.substr(0, kShownBytes)));
  };
  log->line(ours ? LogLevel::kError : LogLevel::kInfo, "{} {} for {}: {}", error.status, error.code, quoted(target),
            quoted(error.message));
}

}  // namespace llmrt::server
