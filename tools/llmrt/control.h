// What `llmrt ps`, `llmrt stop` and `llmrt drain` ask of a running `llmrt serve`, and its answers
// (server/control_socket.h).
#pragma once

#include <memory>

#include "core/log/log.h"
#include "core/router/model_host.h"
#include "server/control_socket.h"
#include "server/server.h"

namespace llmrt::cli {

// Answers them for this server while it lives; null, with a line in the log, where there can be no socket. `server`
// outlives it.
std::unique_ptr<server::ControlSocket> listen_for_control(std::shared_ptr<ModelHost> models, server::Server& server,
                                                          Log& log);

// The answer to {"command": "ps"}, {"command": "unload", "model": NAME}, {"command": "drain"} or {"command":
// "drain-worker", "worker": DEVICE, "drains": BOOL}; {"error": ...} where it is none of these.
boost::json::object control_answer(const boost::json::object& question, ModelHost& models, server::Server& server);

}  // namespace llmrt::cli
