#include "core/kv_events/publisher.h"

#include <algorithm>
#include <array>
#include <chrono>

namespace llmrt {
namespace {

constexpr size_t kBatchEventsMax = 1024;
constexpr auto kReplayWait = std::chrono::milliseconds(20);  // until requests for old batches are looked for
constexpr auto kIdleWait = std::chrono::milliseconds(200);
constexpr size_t kReplaysAtOnce = 16;
constexpr int kQueueMessages = 100'000;
constexpr uint64_t kEndNumber = ~uint64_t{0};

using Number = std::array<char, 8>;
Number number_bytes(uint64_t number) {
  Number bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(number >> (8 * (7 - i)));
  return bytes;
}

std::string_view view(const Number& number) {
  return {number.data(), number.size()};
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

void KvEventPublisher::Waker::wake() {
  {
    std::lock_guard lock(mutex);
    is_woken = true;
  }
  woken.notify_one();
}

Result<std::unique_ptr<KvEventPublisher>> KvEventPublisher::open(const KvEventsConfig& config,
                                                                 std::shared_ptr<Log> log) {
  Result<std::shared_ptr<const ZmqCalls>> calls = open_zmq();
  if (!calls) return calls.error();
  auto out = ZmqSocket::open(*calls, ZmqKind::kPub, config.endpoint, /*binds=*/false, kQueueMessages);
  if (!out) return out.error();
  std::unique_ptr<ZmqSocket> replay;
  if (!config.replay_endpoint.empty()) {
    const int queue_max = static_cast<int>(config.batches_kept) + 1;
    auto opened = ZmqSocket::open(*calls, ZmqKind::kRouter, config.replay_endpoint, /*binds=*/true, queue_max);
    if (!opened) return opened.error();
    replay = *std::move(opened);
  }
  return std::unique_ptr<KvEventPublisher>(
      new KvEventPublisher(config, *std::move(out), std::move(replay), std::move(log)));
}

KvEventPublisher::KvEventPublisher(const KvEventsConfig& config, std::unique_ptr<ZmqSocket> out,
                                   std::unique_ptr<ZmqSocket> replay, std::shared_ptr<Log> log)
    : config_(config), out_(std::move(out)), replay_(std::move(replay)), log_(std::move(log)) {
  thread_ = std::thread([this] { run(); });
}

KvEventPublisher::~KvEventPublisher() {
  {
    std::lock_guard lock(waker_->mutex);
    waker_->is_ended = true;
  }
  waker_->woken.notify_one();
  thread_.join();
}

std::shared_ptr<PrefixListener> KvEventPublisher::listener(const std::string& topic, const Digest& identity) {
  std::lock_guard lock(mutex_);
  for (const Source& source : sources_)
    if (source.topic == topic)
      if (auto joined = KvEventFeed::join(source.feed, identity)) return joined;
  auto feed = std::make_shared<KvEventFeed>(identity, config_.queue_events_max, [waker = waker_] { waker->wake(); });
  sources_.push_back({topic, feed});
  return KvEventFeed::join(feed, identity);
}

void KvEventPublisher::run() {
  for (bool is_ended = false; !is_ended;) {
    {
      std::unique_lock lock(waker_->mutex);
      waker_->woken.wait_for(lock, replay_ ? kReplayWait : kIdleWait,
                             [this] { return waker_->is_woken || waker_->is_ended; });
      waker_->is_woken = false;
      is_ended = waker_->is_ended;
    }
    std::vector<Source> sources;
    {
      std::lock_guard lock(mutex_);
      sources = sources_;
    }
    for (const Source& source : sources) {
      if (publish(source)) continue;
      std::lock_guard lock(mutex_);
      std::erase_if(sources_, [&](const Source& other) { return other.feed == source.feed; });
    }
    if (replay_) answer_replays();
  }
}

// False: nothing comes from there any more.
bool KvEventPublisher::publish(const Source& source) {
  KvEventFeed::Taken taken = source.feed->take();
  if (taken.has_lost) {
    log_->warn("KV events: more than {} were waiting: a number is left out, and all blocks are told anew",
               config_.queue_events_max);
    ++next_number_;
  }
  if (taken.is_over) taken.events.push_back({KvEvent::Kind::kCleared});
  for (std::span<const KvEvent> rest = taken.events; !rest.empty();) {
    const std::span<const KvEvent> some = rest.first(std::min(rest.size(), kBatchEventsMax));
    send(source, some);
    rest = rest.subspan(some.size());
  }
  return !taken.is_over;
}

void KvEventPublisher::send(const Source& source, std::span<const KvEvent> events) {
  std::string batch = encode_events(seconds_since_1970(), events, config_.encoding);
  const uint64_t number = next_number_++;
  const Number bytes = number_bytes(number);
  out_->send({source.topic, view(bytes), batch});
  if (!replay_) return;
  kept_bytes_ += batch.size();
  kept_.push_back({number, std::move(batch)});
  for (; kept_.size() > config_.batches_kept || kept_bytes_ > config_.bytes_kept; kept_.pop_front())
    kept_bytes_ -= kept_.front().batch.size();
}

// A request is an identity, which the library adds, an empty frame and the first number that is wanted.
void KvEventPublisher::answer_replays() {
  for (size_t i = 0; i < kReplaysAtOnce; ++i) {
    const std::optional<std::vector<std::string>> request = replay_->receive(4);
    if (!request) return;
    if (request->size() != 3 || !(*request)[1].empty() || (*request)[2].size() != 8) {
      log_->warn("KV events: a request for old ones: expected a number of 8 bytes, found {} frames", request->size());
      continue;
    }
    uint64_t first = 0;
    for (const char byte : (*request)[2]) first = first << 8 | static_cast<uint8_t>(byte);
    const std::string& asker = (*request)[0];
    bool is_there = true;
    const auto tell = [&](uint64_t number, std::string_view batch) {
      const Number bytes = number_bytes(number);
      is_there = is_there && replay_->send({asker, "", view(bytes), batch});
    };
    for (const Kept& kept : kept_)
      if (kept.number >= first) tell(kept.number, kept.batch);
    tell(kEndNumber, "");
  }
}

}  // namespace llmrt
