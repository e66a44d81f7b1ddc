// The HTTP server: listens, accepts, and runs the sessions on a few threads of its own. Ends by drain (open answers
// finish, within a grace time) or stop.
#pragma once

#include <memory>

#include "core/base/status.h"
#include "core/log/log.h"
#include "server/config.h"
#include "server/engine_door.h"
#include "server/served_model.h"

namespace llmrt::server {

class Server {
 public:
  // Binds and listens. io_error when the address cannot be had (a port in use), with the reason.
  static Result<std::unique_ptr<Server>> listen(const ServerConfig& config, ServedModel model,
                                                std::shared_ptr<EngineDoor> door,
                                                std::shared_ptr<Log> log = silent_log());
  ~Server();

  uint16_t port() const;
  // Serves until drained or stopped; no session is left then. Called once. The engine behind the door may be destroyed
  // after that, and must be before the server: it may still hold sinks.
  void run();
  // Any thread. No new connections or answers; open answers may finish within grace_s, then the engine is stopped,
  // which ends them with an error. The second call, like stop(), closes every connection at once.
  void drain();
  void stop();
  // Calls drain() on SIGINT and SIGTERM; to be called before run().
  void drain_on_signals();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace llmrt::server
