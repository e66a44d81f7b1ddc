// What the prefix caches of one model's engines tell, on its way to routers outside: a bounded queue from the engines'
// threads to the publisher's, and a picture of what the routers know. When the queue is full they are told everything
// anew.
//
// Routers see the engines behind one endpoint as one: a block is told when the first of them has it, and is gone when
// the last of them has lost it. Which engine a request goes to is the fleet's business (core/router).
//
// Only blocks of plain requests are told: those of requests with an adapter or a salt, or in another numeric mode than
// the engines' own, have names that no router could find from tokens.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/kv/prefix_listener.h"

namespace llmrt {

// What a router needs to know of a block.
struct EventBlock {
  uint64_t hash;                   // short_key
  std::optional<uint64_t> parent;  // nothing: it is a text's first
  std::vector<int32_t> tokens;
};

struct KvEvent {
  enum class Kind : uint8_t { kStored, kRemoved, kCleared };
  Kind kind;
  PrefixTier tier = PrefixTier::kDevice;
  std::shared_ptr<const EventBlock> block = {};  // null: kCleared
};

class KvEventFeed {
 public:
  // `identity`: of plain requests. `wake` is called when there is something to take, on an engine's thread.
  KvEventFeed(const Digest& identity, size_t events_max, std::function<void()> wake)
      : identity_(identity), events_max_(events_max), wake_(std::move(wake)) {}

  // For one more engine to listen with: when it lets go of it, its blocks are gone, and with the last engine's the feed
  // is over. Null: it is over already, or of another identity.
  static std::shared_ptr<PrefixListener> join(const std::shared_ptr<KvEventFeed>& feed, const Digest& identity);

  struct Taken {
    std::vector<KvEvent> events;
    bool has_lost = false;  // some before these; then they begin with kCleared and say everything
    bool is_over = false;   // nothing comes any more
  };
  // Any thread.
  Taken take();

 private:
  static constexpr size_t kNumTiers = 2;
  struct Known {
    std::shared_ptr<const EventBlock> block;
    std::array<uint32_t, kNumTiers> num_engines = {};  // that have it, by tier
    bool is_told = false;                              // else no beginning is known that it could be found by
  };
  class Member;  // an engine's

  void add(PrefixTier tier, Known& known);
  void remove(PrefixTier tier, uint64_t hash);
  void push(KvEvent event);
  std::vector<KvEvent> all_events();

  const Digest identity_;
  const size_t events_max_;
  const std::function<void()> wake_;
  std::mutex mutex_;  // of what follows
  std::unordered_map<uint64_t, Known> known_;
  std::vector<KvEvent> pending_;
  size_t num_members_ = 0;
  bool has_lost_ = false, is_over_ = false;
};

}  // namespace llmrt
