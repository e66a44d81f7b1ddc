#include "core/kv_events/event_feed.h"

#include <algorithm>
#include <utility>

namespace llmrt {

// What one engine has told, so that it can be taken back as a whole.
class KvEventFeed::Member final : public PrefixListener {
 public:
  explicit Member(std::shared_ptr<KvEventFeed> feed) : feed_(std::move(feed)) {}
  ~Member() override;

  void kept(const PrefixBlock& block) override;
  void stored(const Digest& key) override;
  void gone(PrefixTier tier, const Digest& key) override;

 private:
  using Tiers = std::array<bool, kNumTiers>;
  const std::shared_ptr<KvEventFeed> feed_;
  std::unordered_map<uint64_t, Tiers> blocks_;  // by hash, guarded by the feed's mutex
};

std::shared_ptr<PrefixListener> KvEventFeed::join(const std::shared_ptr<KvEventFeed>& feed, const Digest& identity) {
  std::lock_guard lock(feed->mutex_);
  if (feed->is_over_ || feed->identity_ != identity) return nullptr;
  ++feed->num_members_;
  return std::make_shared<Member>(feed);
}

KvEventFeed::Member::~Member() {
  KvEventFeed& feed = *feed_;
  std::lock_guard lock(feed.mutex_);
  if (--feed.num_members_ > 0) {
    for (const auto& [hash, tiers] : blocks_)
      for (const PrefixTier tier : {PrefixTier::kDevice, PrefixTier::kHost})
        if (tiers[static_cast<size_t>(tier)]) feed.remove(tier, hash);
    return;
  }
  feed.is_over_ = true;
  feed.known_.clear();
  feed.wake_();
}

// A negative token is the mark of an adapter (prefix_mark): this block, and those behind it, are not the model's own.
void KvEventFeed::Member::kept(const PrefixBlock& block) {
  KvEventFeed& feed = *feed_;
  if (block.is_first && block.before != feed.identity_) return;
  if (std::ranges::any_of(block.tokens, [](int32_t token) { return token < 0; })) return;
  std::lock_guard lock(feed.mutex_);
  std::optional<uint64_t> parent;
  bool is_found = true;
  if (!block.is_first) {
    parent = short_key(block.before);
    const auto known = feed.known_.find(*parent);
    if (known == feed.known_.end()) return;
    is_found = known->second.is_told;
  }
  const uint64_t hash = short_key(block.key);
  Known& known = feed.known_[hash];
  if (!known.block)
    known.block =
        std::make_shared<const EventBlock>(EventBlock{hash, parent, {block.tokens.begin(), block.tokens.end()}});
  if (!known.is_told && is_found) {
    known.is_told = true;
    for (const PrefixTier tier : {PrefixTier::kDevice, PrefixTier::kHost})
      if (known.num_engines[static_cast<size_t>(tier)] > 0) feed.push({KvEvent::Kind::kStored, tier, known.block});
  }
  blocks_[hash][static_cast<size_t>(PrefixTier::kDevice)] = true;
  feed.add(PrefixTier::kDevice, known);
}

// What the host tier got from a disk is not known here until it is on the device.
void KvEventFeed::Member::stored(const Digest& key) {
  std::lock_guard lock(feed_->mutex_);
  const auto own = blocks_.find(short_key(key));
  if (own == blocks_.end()) return;
  own->second[static_cast<size_t>(PrefixTier::kHost)] = true;
  feed_->add(PrefixTier::kHost, feed_->known_.at(own->first));
}

void KvEventFeed::Member::gone(PrefixTier tier, const Digest& key) {
  std::lock_guard lock(feed_->mutex_);
  const auto own = blocks_.find(short_key(key));
  if (own == blocks_.end() || !own->second[static_cast<size_t>(tier)]) return;
  own->second[static_cast<size_t>(tier)] = false;
  feed_->remove(tier, own->first);
  if (own->second == Tiers{}) blocks_.erase(own);
}

void KvEventFeed::add(PrefixTier tier, Known& known) {  // locked
  if (++known.num_engines[static_cast<size_t>(tier)] == 1 && known.is_told)
    push({KvEvent::Kind::kStored, tier, known.block});
}

void KvEventFeed::remove(PrefixTier tier, uint64_t hash) {  // locked
  const auto it = known_.find(hash);
  Known& known = it->second;
  if (--known.num_engines[static_cast<size_t>(tier)] > 0) return;
  if (known.is_told) push({KvEvent::Kind::kRemoved, tier, known.block});
  if (known.num_engines == std::array<uint32_t, kNumTiers>{}) known_.erase(it);
}

void KvEventFeed::push(KvEvent event) {  // locked
  if (has_lost_) return;
  if (pending_.size() == events_max_) {
    pending_.clear();
    has_lost_ = true;
    return;
  }
  pending_.push_back(std::move(event));
  if (pending_.size() == 1) wake_();
}

KvEventFeed::Taken KvEventFeed::take() {
  std::lock_guard lock(mutex_);
  Taken taken;
  taken.has_lost = std::exchange(has_lost_, false);
  taken.is_over = is_over_;
  if (taken.has_lost)
    taken.events = all_events();
  else
    taken.events.swap(pending_);
  return taken;
}

// Parents first. What has lost its parent, as in the host tier a block may, is of no use to who begins here.
std::vector<KvEvent> KvEventFeed::all_events() {  // locked
  std::vector<KvEvent> events = {{KvEvent::Kind::kCleared}};
  std::unordered_map<uint64_t, bool> seen;  // whether its beginning is whole
  std::vector<Known*> path;
  for (auto& [hash, first] : known_) {
    path.clear();
    bool is_whole = true;
    for (Known* known = &first; known != nullptr;) {
      if (const auto before = seen.find(known->block->hash); before != seen.end()) {
        is_whole = before->second;
        break;
      }
      path.push_back(known);
      if (!known->block->parent) break;
      const auto parent = known_.find(*known->block->parent);
      is_whole = parent != known_.end();
      known = is_whole ? &parent->second : nullptr;
    }
    for (; !path.empty(); path.pop_back()) {
      Known& known = *path.back();
      seen[known.block->hash] = known.is_told = is_whole;
      for (const PrefixTier tier : {PrefixTier::kDevice, PrefixTier::kHost})
        if (is_whole && known.num_engines[static_cast<size_t>(tier)] > 0)
          events.push_back({KvEvent::Kind::kStored, tier, known.block});
    }
  }
  return events;
}

}  // namespace llmrt
