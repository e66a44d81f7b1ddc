// What all sessions of a server share. The plain members are fixed once `loaded` is set, and not to be read before;
// config and log are fixed from the beginning. The others are thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "core/log/log.h"
#include "server/api_error.h"
#include "server/batch_runner.h"
#include "server/client_memory.h"
#include "server/config.h"
#include "server/file_store.h"
#include "server/key_ring.h"
#include "server/line_bound.h"
#include "server/served_engine.h"
#include "server/server_figures.h"
#include "server/tls.h"
#include "server/work_queue.h"

namespace llmrt::server {

class Session;

// Whose line of the log it is, as far as that is known. Views.
struct LogOrigin {
  std::string_view request_id = {}, trace_id = {}, key = {}, model = {};
};

struct SharedState {
  explicit SharedState(const ServerConfig& settings)
      : config(settings), refusal_lines(static_cast<uint64_t>(settings.log_lines_max)) {}

  ServerConfig config;
  std::shared_ptr<Log> log;
  std::shared_ptr<ModelHost> models;     // each a ServedEngine once it is loaded
  std::string settings_text;             // the text of /config; empty: there is none
  std::unique_ptr<WorkQueue> workers;    // parsing, templates, tokenising
  std::unique_ptr<WorkQueue> answerers;  // large pieces of answers to text
  std::shared_ptr<ClientMemory> memory;
  std::unique_ptr<KeyRing> keys;  // fixed from the beginning, thread-safe, like tls
  std::unique_ptr<TlsFiles> tls;
  std::unique_ptr<FileStore> files;      // fixed from the beginning, thread-safe; null: there is no folder for them
  std::unique_ptr<BatchRunner> batches;  // null as long as there are no models

  std::atomic<bool> loaded{false};
  std::atomic<bool> draining{false};  // no new answers; the port may be open for some time yet
  std::atomic<bool> closing{false};   // the port is closed: no new requests

  void count_response(int status) {
    std::lock_guard lock(mutex);
    ++counts.responses[status];
  }
  void count_slow(SlowOutcome outcome) {
    std::lock_guard lock(mutex);
    ++counts.slow_clients[static_cast<size_t>(outcome)];
  }
  void count_handshake(bool is_done) {
    std::lock_guard lock(mutex);
    ++(is_done ? counts.handshakes : counts.failed_handshakes);
  }
  void count_ignored_fields(CountedPath path, uint64_t num_fields) {
    std::lock_guard lock(mutex);
    counts.ignored_fields[static_cast<size_t>(path)] += num_fields;
  }
  void count_oddities(const AnswerCounts& counted) {
    std::lock_guard lock(mutex);
    for (size_t i = 0; i < kNumOddities; ++i) counts.oddities[i] += counted.of[i];
  }
  ServerFigures figures() const;
  void count_no_host_memory() {
    std::lock_guard lock(mutex);
    ++counts.host_out_of_memory;
  }
  // 503: clients hold all that they may. Counted, as each is the end of a request.
  ApiError no_memory(ClientMemoryPart part);
  // Ends every request, those that wait for their model among them.
  void stop_models();
  // Why no request can be served; nothing: it can.
  std::optional<ApiError> not_ready() const;

  // One line for a client that got `error` instead of an answer, level error where the fault is ours; and it is
  // counted. Lines are bounded, as clients cause them.
  void log_error(const ApiError& error, std::string_view target, const LogOrigin& origin = {});
  // A line of another kind that clients may cause as often as they like.
  void log_bounded(LogLevel level, std::string_view text, LogFields fields = {});

  mutable std::mutex mutex;
  ServerFigures counts;         // what is counted as it happens; figures() fills in the rest
  std::set<Session*> sessions;  // alive ones; each removes itself
  LineBound refusal_lines, fault_lines{100};
};

}  // namespace llmrt::server
