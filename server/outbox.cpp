#include "server/outbox.h"

namespace llmrt::server {
namespace {

namespace asio = boost::asio;

// A vector that grows may hold twice what it needs.
size_t event_bytes(const TokenEvent& event) {
  return 2 * sizeof(ChoiceEvent) + event.top_logprobs.size() * sizeof(TopLogprob);
}

}  // namespace

class Outbox::Sink final : public EventSink {
 public:
  Sink(std::shared_ptr<Outbox> outbox, size_t first_choice) : outbox_(std::move(outbox)), first_choice_(first_choice) {}
  void on_events(std::span<const TokenEvent> events) override { outbox_->put(first_choice_, events); }

 private:
  std::shared_ptr<Outbox> outbox_;
  size_t first_choice_;
};

Outbox::Outbox(asio::any_io_executor strand, std::shared_ptr<EngineDoor> door, std::shared_ptr<MemoryAccount> account)
    : door_(std::move(door)), account_(std::move(account)), strand_(strand), wake_(strand) {}

std::shared_ptr<EventSink> Outbox::sink(size_t first_choice) {
  return std::make_shared<Sink>(shared_from_this(), first_choice);
}

void Outbox::put(size_t first_choice, std::span<const TokenEvent> events) {
  std::lock_guard lock(mutex_);
  if (abandoned_) {  // never from this thread: the engine must not be called from inside its own delivery
    for (const TokenEvent& event : events)
      if (event.finish != FinishReason::kNone)
        asio::post(strand_, [door = door_, id = event.request_id] { door->drained(id, {}); });
    return;
  }
  const bool was_empty = events_.empty();
  for (const TokenEvent& event : events) {
    const size_t bytes = event_bytes(event);
    overflowed_ = overflowed_ || !account_->set(MemoryAccount::kEvents, taken_bytes_ + bytes_ + bytes);
    // Ends are kept all the same, for the engine hears of them.
    if (overflowed_ && event.finish == FinishReason::kNone && !events_.empty()) continue;
    bytes_ += bytes;
    events_.push_back({first_choice + event.branch, event});
  }
  if (!is_full_ && bytes_ > bytes_max_) {
    is_full_ = true;
    asio::post(strand_, [self = shared_from_this()] { self->tell_full(); });
  }
  if (was_empty) asio::post(strand_, [self = shared_from_this()] { self->wake_.cancel(); });
}

asio::awaitable<std::vector<ChoiceEvent>> Outbox::take(std::chrono::seconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!gone_) {
    bool has_emptied = false;
    {
      std::lock_guard lock(mutex_);
      if (!events_.empty()) {
        taken_bytes_ = std::exchange(bytes_, 0);
        account_->set(MemoryAccount::kEvents, taken_bytes_);
        co_return std::exchange(events_, {});
      }
      taken_bytes_ = 0;
      account_->set(MemoryAccount::kEvents, 0);
      has_emptied = std::exchange(is_full_, false);
    }
    if (has_emptied) tell_full();
    if (std::chrono::steady_clock::now() >= deadline) break;
    // A wake-up posted between the look and this wait runs later on this strand, so it cannot be missed.
    wake_.expires_at(deadline);
    boost::system::error_code error;
    co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, error));
  }
  co_return std::vector<ChoiceEvent>{};
}

void Outbox::watch(size_t bytes_max, std::function<void(bool)> on_full) {
  on_full_ = std::move(on_full);
  std::lock_guard lock(mutex_);
  bytes_max_ = bytes_max;
}

// As it is now: what was posted may have been overtaken.
void Outbox::tell_full() {
  {
    std::lock_guard lock(mutex_);
    if (is_full_ == told_full_) return;
    told_full_ = is_full_;
  }
  if (on_full_) on_full_(told_full_);
}

void Outbox::client_gone() {
  gone_ = true;
  wake_.cancel();
}

size_t Outbox::pending_bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

bool Outbox::overflowed() const {
  std::lock_guard lock(mutex_);
  return overflowed_;
}

void Outbox::abandon() {
  std::lock_guard lock(mutex_);
  abandoned_ = true;
  account_->set(MemoryAccount::kEvents, 0);
  for (const ChoiceEvent& entry : events_)
    if (entry.event.finish != FinishReason::kNone) door_->drained(entry.event.request_id, {});
  events_ = {};
}

}  // namespace llmrt::server
