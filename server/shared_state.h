// What all sessions of a server share. The plain members are fixed once the server runs; the others are thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>

#include "core/log/log.h"
#include "server/api_error.h"
#include "server/client_memory.h"
#include "server/config.h"
#include "server/engine_door.h"
#include "server/served_model.h"
#include "server/server_figures.h"
#include "server/work_queue.h"

namespace llmrt::server {

class Session;

struct SharedState {
  ServerConfig config;
  ServedModel model;
  std::shared_ptr<EngineDoor> door;
  std::unique_ptr<WorkQueue> workers;    // parsing, templates, tokenising
  std::unique_ptr<WorkQueue> answerers;  // large pieces of answers to text
  std::shared_ptr<ClientMemory> memory;
  std::shared_ptr<Log> log;

  std::atomic<bool> draining{false};
  std::atomic<uint64_t> num_answers{0};  // numbers their ids

  void count_response(int status) {
    std::lock_guard lock(mutex);
    ++counts.responses[status];
  }
  void count_ignored_fields(Endpoint endpoint, uint64_t num_fields) {
    std::lock_guard lock(mutex);
    counts.ignored_fields[static_cast<size_t>(endpoint)] += num_fields;
  }
  ServerFigures figures() const;

  // One line for a client that got `error` instead of an answer, level error where the fault is ours; and it is
  // counted.
  void log_error(const ApiError& error, std::string_view target);

  mutable std::mutex mutex;
  ServerFigures counts;         // what is counted as it happens; figures() fills in the rest
  std::set<Session*> sessions;  // alive ones; each removes itself
};

}  // namespace llmrt::server
