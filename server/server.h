// The HTTP server: listens, accepts, and runs the sessions on a few threads of its own. It has a port before it has a
// model, and tells everybody so meanwhile. Ends by drain (open answers finish, within a grace time) or stop.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/log/log.h"
#include "server/config.h"
#include "server/engine_door.h"
#include "server/served_engine.h"
#include "server/served_model.h"

namespace llmrt::server {

class Server {
 public:
  // Binds, listens and answers: /live with 200, everything else with 503 until open(). io_error when an address cannot
  // be had (a port in use), with the reason.
  static Result<std::unique_ptr<Server>> bind(const ServerConfig& config, std::shared_ptr<Log> log = silent_log());
  // From now on these models are served, each a ServedEngine where it is loaded. Called once. `settings`: the text of
  // /config. The host is stopped by whoever made it, between run() and the end of the server.
  void open(std::shared_ptr<ModelHost> models, std::string settings = {});
  // The same for one model that is there and stays.
  Status open(ServedModel model, std::shared_ptr<EngineDoor> door);
  // Both of them.
  static Result<std::unique_ptr<Server>> listen(const ServerConfig& config, ServedModel model,
                                                std::shared_ptr<EngineDoor> door,
                                                std::shared_ptr<Log> log = silent_log());
  // Without run(): ends all connections.
  ~Server();

  uint16_t port() const;
  std::vector<std::string> urls() const;  // "http://127.0.0.1:8000", of each address; "unix:PATH"
  // Waits until drained or stopped; no session is left then. Called once, after open(). The engine behind the door may
  // be destroyed after that, and must be before the server: it may still hold sinks.
  void run();
  // Any thread. /ready and /health say so, and new answers are refused; drain_notice_s later the port closes. Open
  // answers may finish within grace_s, then the engine is stopped, which ends them with an error. The second call, like
  // stop(), closes everything at once.
  void drain();
  void stop();
  // Calls drain() on SIGINT (without notice: somebody waits at a keyboard) and SIGTERM; to be called before run().
  // After the second signal the process is gone within two seconds, whatever hangs (signal_watch.h).
  void drain_on_signals();
  // Any thread: reads again what may change while it runs (keys, certificate). What is bad there stays as it was, with
  // a line in the log. SIGHUP does it, where there is something to read.
  void reload();
  static bool has_tls();                               // whether this build can speak it
  static bool can_reload(const ServerConfig& config);  // whether there is something to read

 private:
  struct Impl;
  void drain(int notice_s);
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace llmrt::server
