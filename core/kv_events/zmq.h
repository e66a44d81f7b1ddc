// As much of ZeroMQ as is used here. The library (libzmq.so.5) is opened at run time; nothing of it is needed to build.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/platform/dynamic_library.h"

namespace llmrt {

struct ZmqCalls;

// Errors: not_found, naming the package to install.
Result<std::shared_ptr<const ZmqCalls>> open_zmq();

enum class ZmqKind : int { kPub = 1, kRouter = 6 };

// With a context of its own. One thread at a time.
class ZmqSocket {
 public:
  // Binds where the endpoint has a wildcard (*) or "::", or is a file (ipc://), else connects, as vLLM does; `binds`:
  // always. `queue_max`: messages that wait for each peer. Errors: invalid_argument with what the library says.
  static Result<std::unique_ptr<ZmqSocket>> open(std::shared_ptr<const ZmqCalls> calls, ZmqKind kind,
                                                 const std::string& endpoint, bool binds, int queue_max);
  ~ZmqSocket();
  ZmqSocket(const ZmqSocket&) = delete;

  // A message of these frames. False: it was not sent, as its peer is gone or does not read; of a publisher never.
  bool send(const std::vector<std::string_view>& frames);
  // A message that is there; nothing: none is. Frames beyond `frames_max` are read and left out.
  std::optional<std::vector<std::string>> receive(size_t frames_max);

  // As the library writes it: with the port where the system chose it.
  const std::string& endpoint() const { return endpoint_; }

 private:
  ZmqSocket(std::shared_ptr<const ZmqCalls> calls, void* context, void* socket)
      : calls_(std::move(calls)), context_(context), socket_(socket) {}
  Status set(int option, int value);
  Error error(std::string_view what) const;

  const std::shared_ptr<const ZmqCalls> calls_;
  void* const context_;
  void* const socket_;
  std::string endpoint_;
};

}  // namespace llmrt
