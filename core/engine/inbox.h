// What other threads ask of the engine, in order. Bounded by the tokens that wait.
#pragma once

#include <condition_variable>
#include <mutex>
#include <variant>
#include <vector>

#include "core/kv/prefix_listener.h"
#include "core/request/request.h"
#include "core/request/request_trace.h"

namespace llmrt {

struct CancelMessage {
  RequestId id;
  SentTimes sent;
  FinishReason why;
};
struct PauseMessage {
  RequestId id;
  bool is_paused;
};
struct DrainedMessage {
  RequestId id;
  SentTimes sent;
};
struct ListenMessage {
  std::shared_ptr<PrefixListener> listener;
};
using InboxMessage = std::variant<Request, CancelMessage, DrainedMessage, PauseMessage, ListenMessage>;

class Inbox {
 public:
  // False after the last take: nobody would ever read it.
  bool post(InboxMessage message) {
    {
      std::lock_guard lock(mutex_);
      if (closed_) return false;
      messages_.push_back(std::move(message));
    }
    arrived_.notify_one();
    return true;
  }
  // Swaps out everything that has come; *out is cleared first and keeps its capacity. `last`: nothing comes any more.
  void take(std::vector<InboxMessage>* out, bool last = false) {
    out->clear();
    std::lock_guard lock(mutex_);
    messages_.swap(*out);
    closed_ |= last;
  }
  // Sleeps until a message is there, stop() was called or `timeout` has passed (deadlines are looked at then).
  void wait(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, timeout, [this] { return !messages_.empty() || stopped_; });
  }
  void stop() {
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    arrived_.notify_one();
  }
  bool stopped() const {
    std::lock_guard lock(mutex_);
    return stopped_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<InboxMessage> messages_;
  bool stopped_ = false, closed_ = false;
};

}  // namespace llmrt
