// Tells routers outside (llm-d, Dynamo, AIBrix and others that read vLLM's KV events) which blocks of prompts the
// engines here have, over ZeroMQ. A message has three frames: topic, number (8 bytes, big-endian, from 0) and a batch
// (event_batch.h). All models share one stream and its numbers; a batch is of one model.
//
// Who has missed some, as its numbers show, asks for them at the second endpoint, with the number of the first (a
// request with one frame of 8 bytes), and gets those that are still kept: a reply with number and batch each, and one
// with the number -1 at the end. When an engine was faster than its queue, a number is left out, and the next batch
// begins with AllBlocksCleared and tells all blocks anew.
//
// One thread of its own. Methods are thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/kv_events/event_batch.h"
#include "core/kv_events/zmq.h"
#include "core/log/log.h"

namespace llmrt {

struct KvEventsConfig {
  std::string endpoint;         // tcp://*:5557, ipc://PATH, or tcp://HOST:PORT to connect to
  std::string replay_endpoint;  // empty: nothing is kept
  KvEventEncoding encoding = KvEventEncoding::kArray;
  size_t queue_events_max = 100'000;  // that wait, of each engine
  size_t batches_kept = 10'000, bytes_kept = 64u << 20;
};

class KvEventPublisher {
 public:
  // Errors: not_found without libzmq, invalid_argument for an endpoint.
  static Result<std::unique_ptr<KvEventPublisher>> open(const KvEventsConfig& config, std::shared_ptr<Log> log);
  // Publishes what is there, then ends. Listeners may outlive it.
  ~KvEventPublisher();

  // For an engine to listen with. When it lets go of it, its blocks are gone; those of a topic's last engine are
  // cleared. `topic`: of its messages; engines of one topic and identity are told as one. `identity`: of its plain
  // requests (Engine::prefix_source).
  std::shared_ptr<PrefixListener> listener(const std::string& topic, const Digest& identity);

  // As they turned out to be: with the port where the system chose it.
  const std::string& endpoint() const { return out_->endpoint(); }
  std::string replay_endpoint() const { return replay_ ? replay_->endpoint() : ""; }

 private:
  struct Source {
    std::string topic;
    std::shared_ptr<KvEventFeed> feed;
  };
  struct Kept {
    uint64_t number;
    std::string batch;
  };
  struct Waker {  // of feeds, which may outlive the publisher
    std::mutex mutex;
    std::condition_variable woken;
    bool is_woken = false, is_ended = false;
    void wake();
  };

  KvEventPublisher(const KvEventsConfig& config, std::unique_ptr<ZmqSocket> out, std::unique_ptr<ZmqSocket> replay,
                   std::shared_ptr<Log> log);
  void run();
  bool publish(const Source& source);
  void send(const Source& source, std::span<const KvEvent> events);
  void answer_replays();

  const KvEventsConfig config_;
  const std::unique_ptr<ZmqSocket> out_, replay_;
  const std::shared_ptr<Log> log_;
  const std::shared_ptr<Waker> waker_ = std::make_shared<Waker>();
  uint64_t next_number_ = 0;
  std::deque<Kept> kept_;
  size_t kept_bytes_ = 0;
  std::mutex mutex_;  // of sources_
  std::vector<Source> sources_;
  std::thread thread_;
};

}  // namespace llmrt
