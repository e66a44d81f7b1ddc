#include "server/shared_state.h"

#include "server/model_choice.h"

namespace llmrt::server {
namespace {

std::string left_out(uint64_t count) {
  return count == 0 ? "" : fmt::format(" ({} lines like this were left out before it)", count);
}

// The server's own fault; not a version, a coding or a method that it need not know, nor a deadline that has passed.
bool is_fault(int status) {
  return status >= 500 && status != 501 && status != 503 && status != 504 && status != 505;
}

ApiError unavailable(std::string code, std::string message, int retry_after_s) {
  ApiError error = http_error(503, std::move(code), std::move(message));
  error.retry_after_s = retry_after_s;
  return error;
}

}  // namespace

ServerFigures SharedState::figures() const {
  std::lock_guard lock(mutex);
  ServerFigures figures = counts;
  figures.connections_open = sessions.size();
  figures.connections_limit = config.connections_max;
  figures.client_memory_bytes = memory->used_bytes();
  figures.client_memory_limit_bytes = memory->limit_bytes();
  figures.access = keys->figures();
  if (files) figures.files = files->figures();
  return figures;
}

ApiError SharedState::no_memory(ClientMemoryPart part) {
  {
    std::lock_guard lock(mutex);
    ++counts.memory_refusals[static_cast<size_t>(part)];
  }
  return to_api_error(
      make_error(ErrorCode::kOverloaded,
                 "client memory: expected at most {} MiB held for bodies, waiting requests and answers, "
                 "{} MiB are taken (--client-memory-mib)",
                 memory->limit_bytes() >> 20, memory->used_bytes() >> 20));
}

std::optional<ApiError> SharedState::not_ready() const {
  if (!loaded) return unavailable("loading", "the model is being loaded", 5);
  if (const std::optional<NotServing> why = not_serving(*models))
    return unavailable(why->is_loading ? "loading" : "unavailable", why->reason, why->is_loading ? 5 : 10);
  if (draining) return unavailable("draining", "the server is shutting down", 10);
  return std::nullopt;
}

void SharedState::stop_models() {
  models->close();
  for (const SeenModel& model : see_models(*models))
    if (model.loaded) model.loaded->door->stop();
}

// Messages may name what a client sent: quoted, so that they cannot forge a line.
void SharedState::log_error(const ApiError& error, std::string_view target, const LogOrigin& origin) {
  {
    std::lock_guard lock(mutex);
    count_refusal(counts.refusals, error.code);
  }
  constexpr size_t kShownBytes = 400;
  const bool ours = is_fault(error.status);
  const auto count = (ours ? fault_lines : refusal_lines).take();
  if (!count) return;
  const auto quoted = [](std::string_view text) {
    return boost::json::serialize(boost::json::string(text.substr(0, kShownBytes)));
  };
  const bool is_path = target.starts_with('/') && target.find(' ') == target.npos;  // else it is said what was asked
  log->event(ours ? LogLevel::kError : LogLevel::kInfo,
             {{"status", static_cast<uint64_t>(error.status)},
              {"code", error.code},
              {"path", is_path ? target : std::string_view()},
              {"request_id", origin.request_id},
              {"trace_id", origin.trace_id},
              {"key", origin.key},
              {"model", origin.model}},
             "{} {} for {}: {}{}{}", error.status, error.code, quoted(target), quoted(error.message),
             origin.request_id.empty() ? "" : fmt::format(", {}", origin.request_id), left_out(*count));
}

void SharedState::log_bounded(LogLevel level, std::string_view text, LogFields fields) {
  if (const auto count = refusal_lines.take()) log->event(level, fields, "{}{}", text, left_out(*count));
}

}  // namespace llmrt::server
