// From the engine to one HTTP answer: events of its choices, in order. The engine's thread puts, the session's strand
// takes. A client that does not read lets it fill: the session watches pending_bytes() and gives such a client up. What
// waits here counts as the connection's memory; without room for more, events are dropped and overflowed() tells it.
#pragma once

#include <boost/asio.hpp>

#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "core/request/request.h"
#include "server/client_memory.h"
#include "server/engine_door.h"

namespace llmrt::server {

struct ChoiceEvent {
  size_t choice;
  TokenEvent event;
};

class Outbox : public std::enable_shared_from_this<Outbox> {
 public:
  Outbox(boost::asio::any_io_executor strand, std::shared_ptr<EngineDoor> door, std::shared_ptr<MemoryAccount> account);

  // The sink for a request whose branches are the choices from this one on; keeps the outbox alive.
  std::shared_ptr<EventSink> sink(size_t first_choice);

  // On the strand: waits until there is something, or the client is gone, or `timeout` passed. Empty for the last two.
  boost::asio::awaitable<std::vector<ChoiceEvent>> take(std::chrono::seconds timeout);
  // On the strand, before the sinks are used and at the end (with nothing): `on_full` is called, on the strand, with
  // true when more than `bytes_max` wait, and with false when all of that was taken and asked for more.
  void watch(size_t bytes_max, std::function<void(bool)> on_full);
  // On the strand: wakes take() for good.
  void client_gone();
  bool gone() const { return gone_; }
  size_t pending_bytes() const;  // of events that wait
  bool overflowed() const;       // the answer is no longer whole

  // On the strand: nobody takes any more. Ends of choices are still acknowledged to the engine.
  void abandon();

 private:
  class Sink;
  void tell_full();
  void put(size_t first_choice, std::span<const TokenEvent> events);

  std::shared_ptr<EngineDoor> door_;
  std::shared_ptr<MemoryAccount> account_;
  boost::asio::any_io_executor strand_;
  boost::asio::steady_timer wake_;
  std::function<void(bool)> on_full_;
  bool told_full_ = false;  // on_full_ last heard
  bool gone_ = false;

  mutable std::mutex mutex_;
  std::vector<ChoiceEvent> events_;
  size_t bytes_ = 0;        // of events_
  size_t taken_bytes_ = 0;  // of those that were taken last: they are there until the next ones are
  bool abandoned_ = false, overflowed_ = false;
  size_t bytes_max_ = std::numeric_limits<size_t>::max();
  bool is_full_ = false;
};

}  // namespace llmrt::server
