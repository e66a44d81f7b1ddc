// The engine as the server sees it; tests put a fake behind it. Every method is thread-safe and does not block.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/metrics/exchange_stats.h"
#include "core/request/request.h"
#include "core/request/request_trace.h"
#include "server/served_worker.h"

namespace llmrt::server {

class EngineDoor {
 public:
  virtual ~EngineDoor() = default;
  virtual Result<RequestId> submit(Request request) = 0;
  // `sent`: when parts of the branch's answer went out, by the engine's clock (SteadyClock).
  virtual void cancel(RequestId id, const SentTimes& sent) = 0;
  // The same where its client is gone, or was given up.
  virtual void disconnect(RequestId id, const SentTimes& sent) { cancel(id, sent); }
  // Its client can take no more for now (true), or again: a door that can computes nothing for it meanwhile.
  virtual void set_paused(RequestId, bool) {}
  virtual void drained(RequestId id, const SentTimes& sent) = 0;
  // As Engine::load_adapter has it; slow.
  virtual Result<ReadyAdapter> load_adapter(const std::string& path) {
    return make_error(ErrorCode::kUnsupported, "adapter {}: this engine takes none", path);
  }
  // The engines behind it, one at least.
  virtual std::vector<ServedWorker> workers() const = 0;
  // Of engines that hand prompts over; nothing: they do not.
  virtual std::optional<ExchangeStats> exchange() const { return std::nullopt; }
  // Named after its device, of several: it takes no more requests (true), or again. False: there is none of that name.
  virtual bool drain(std::string_view worker, bool is_drained) {
    (void)worker, (void)is_drained;
    return false;
  }
  // Why no step can run; nothing when all is well.
  virtual std::optional<std::string> trouble() const = 0;
  // The end: every request that is still there is ended as cancelled.
  virtual void stop() = 0;
};

}  // namespace llmrt::server
