// A socket in the file system by which the user who runs a server looks at it and stops it: a line of JSON in, a line
// of JSON out, one each connection. Only that user may connect (mode 0600, and the other side's user is asked for).
#pragma once

#include <boost/json.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"

namespace llmrt::server {

// Where the socket of the server on `port` lies: $XDG_RUNTIME_DIR, or /tmp/llmrt-UID, which is made if `makes` says so.
// Errors: io_error where that is not this user's own folder.
Result<std::string> control_folder(bool makes);
std::string control_path(const std::string& folder, uint16_t port);
// The sockets there are, by port; whether somebody listens behind one is not known.
std::vector<std::pair<uint16_t, std::string>> control_paths(const std::string& folder);

class ControlSocket {
 public:
  // Called on a thread of its own, for one connection after the other; must not throw.
  using Answer = std::function<boost::json::object(const boost::json::object&)>;
  // A socket that a process left behind is replaced; io_error where somebody listens behind it.
  static Result<std::unique_ptr<ControlSocket>> listen(const std::string& path, Answer answer);
  // Ends the thread and removes the socket.
  ~ControlSocket();

 private:
  struct Impl;
  explicit ControlSocket(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The other side: asks the server behind `path`. Waits at most `timeout`. Errors: not_found where nobody listens,
// io_error, and what the server answers as {"error": ...}.
Result<boost::json::object> ask_server(const std::string& path, const boost::json::object& question,
                                       std::chrono::seconds timeout);

}  // namespace llmrt::server
