#include "core/kv_events/zmq.h"

#include <algorithm>
#include <array>
#include <type_traits>

namespace llmrt {

// As zmq.h of the library declares them; they are stable since its version 4.0.
struct ZmqCalls {
  std::shared_ptr<const DynamicLibrary> library;
  void* (*ctx_new)();
  int (*ctx_term)(void*);
  void* (*socket)(void*, int);
  int (*close)(void*);
  int (*setsockopt)(void*, int, const void*, size_t);
  int (*getsockopt)(void*, int, void*, size_t*);
  int (*bind)(void*, const char*);
  int (*connect)(void*, const char*);
  int (*send)(void*, const void*, size_t, int);
  int (*recv)(void*, void*, size_t, int);
  int (*get_errno)();
  const char* (*strerror)(int);
};

namespace {

constexpr int kReceiveMore = 13, kLinger = 17, kMaxMessageSize = 22, kSendQueue = 23, kLastEndpoint = 32,
              kRouterMandatory = 33, kIpv6 = 42;
constexpr int kDontWait = 1, kSendMore = 2;
constexpr int kLingerMs = 500;
constexpr int64_t kReceiveBytesMax = 4096;  // of a frame; requests have a few

bool is_bound(const std::string& endpoint) {
  return endpoint.find('*') != std::string::npos || endpoint.find("::") != std::string::npos ||
         endpoint.starts_with("ipc://");
}

}  // namespace

Result<std::shared_ptr<const ZmqCalls>> open_zmq() {
  auto library = DynamicLibrary::open({"libzmq.so.5"});
  if (!library)
    return make_error(ErrorCode::kNotFound,
                      "ZeroMQ: expected libzmq.so.5 (Debian: apt install libzmq5), found none: {}",
                      library.error().message);
  auto calls = std::make_shared<ZmqCalls>();
  calls->library = *library;
  std::string missing;
  const auto find = [&](const char* name, auto* call) {
    *call = reinterpret_cast<std::remove_pointer_t<decltype(call)>>(calls->library->symbol(name));
    if (*call == nullptr) missing = name;
  };
  find("zmq_ctx_new", &calls->ctx_new);
  find("zmq_ctx_term", &calls->ctx_term);
  find("zmq_socket", &calls->socket);
  find("zmq_close", &calls->close);
  find("zmq_setsockopt", &calls->setsockopt);
  find("zmq_getsockopt", &calls->getsockopt);
  find("zmq_bind", &calls->bind);
  find("zmq_connect", &calls->connect);
  find("zmq_send", &calls->send);
  find("zmq_recv", &calls->recv);
  find("zmq_errno", &calls->get_errno);
  find("zmq_strerror", &calls->strerror);
  if (!missing.empty()) return make_error(ErrorCode::kNotFound, "ZeroMQ: libzmq.so.5 has no {}", missing);
  return std::shared_ptr<const ZmqCalls>(std::move(calls));
}

Result<std::unique_ptr<ZmqSocket>> ZmqSocket::open(std::shared_ptr<const ZmqCalls> calls, ZmqKind kind,
                                                   const std::string& endpoint, bool binds, int queue_max) {
  void* context = calls->ctx_new();
  void* socket = context ? calls->socket(context, static_cast<int>(kind)) : nullptr;
  if (socket == nullptr) {
    if (context) calls->ctx_term(context);
    return make_error(ErrorCode::kOutOfMemory, "ZeroMQ: no socket: {}", calls->strerror(calls->get_errno()));
  }
  std::unique_ptr<ZmqSocket> made(new ZmqSocket(std::move(calls), context, socket));
  const bool is_router = kind == ZmqKind::kRouter;
  Status status = made->set(kLinger, kLingerMs);
  if (status) status = made->set(kSendQueue, queue_max);
  if (status) status = made->set(kIpv6, endpoint.find("::") != std::string::npos);
  if (status && is_router) status = made->set(kRouterMandatory, 1);
  if (!status) return status.error();
  made->calls_->setsockopt(socket, kMaxMessageSize, &kReceiveBytesMax, sizeof kReceiveBytesMax);
  const bool is_server = binds || is_bound(endpoint);
  const auto begin = is_server ? made->calls_->bind : made->calls_->connect;
  if (begin(socket, endpoint.c_str()) != 0)
    return made->error(fmt::format("{} {}", is_server ? "listening on" : "connecting to", endpoint));
  std::array<char, 256> text = {};
  size_t size = text.size();
  made->endpoint_ = endpoint;
  if (made->calls_->getsockopt(socket, kLastEndpoint, text.data(), &size) == 0 && size > 1)
    made->endpoint_.assign(text.data(), size - 1);
  return made;
}

ZmqSocket::~ZmqSocket() {
  calls_->close(socket_);
  calls_->ctx_term(context_);
}

Status ZmqSocket::set(int option, int value) {
  if (calls_->setsockopt(socket_, option, &value, sizeof value) == 0) return {};
  return error(fmt::format("option {}", option));
}

Error ZmqSocket::error(std::string_view what) const {
  return make_error(ErrorCode::kInvalidArgument, "ZeroMQ: {}: {}", what, calls_->strerror(calls_->get_errno()));
}

bool ZmqSocket::send(const std::vector<std::string_view>& frames) {
  for (size_t i = 0; i < frames.size(); ++i) {
    const int flags = kDontWait | (i + 1 < frames.size() ? kSendMore : 0);
    if (calls_->send(socket_, frames[i].data(), frames[i].size(), flags) < 0) return false;
  }
  return true;
}

std::optional<std::vector<std::string>> ZmqSocket::receive(size_t frames_max) {
  std::vector<std::string> frames;
  for (int has_more = 1; has_more != 0;) {
    std::string frame(static_cast<size_t>(kReceiveBytesMax), '\0');
    const int size = calls_->recv(socket_, frame.data(), frame.size(), kDontWait);
    if (size < 0) return std::nullopt;
    frame.resize(std::min(frame.size(), static_cast<size_t>(size)));
    if (frames.size() < frames_max) frames.push_back(std::move(frame));
    size_t size_of_flag = sizeof has_more;
    if (calls_->getsockopt(socket_, kReceiveMore, &has_more, &size_of_flag) != 0) return std::nullopt;
  }
  return frames;
}

}  // namespace llmrt
