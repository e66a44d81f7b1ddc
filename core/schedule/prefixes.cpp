#include "core/schedule/prefixes.h"

#include <algorithm>
#include <utility>

#include "core/schedule/prefix_identity.h"

namespace llmrt {
namespace {

constexpr double kDiskWaitTimes = 3, kDiskWaitMsMin = 100, kDiskWaitMsMax = 10000;

uint32_t common_tokens(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<uint32_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

// While it lives, the sequence's tokens are what the prefix cache knows them by.
class CachedTokens {
 public:
  explicit CachedTokens(Sequence& sequence) {
    const std::optional<PrefixMark> mark = prefix_mark(sequence.request);
    if (!mark || mark->position >= sequence.tokens.size()) return;
    place_ = &sequence.tokens[mark->position];
    token_ = std::exchange(*place_, mark->token);
  }
  ~CachedTokens() {
    if (place_) *place_ = token_;
  }
  CachedTokens(const CachedTokens&) = delete;
  CachedTokens& operator=(const CachedTokens&) = delete;

 private:
  int32_t* place_ = nullptr;
  int32_t token_ = 0;
};

}  // namespace

void Prefixes::set_origin(Sequence& sequence) const {
  if (kv_.has_cache()) {
    Digest& identity = sequence.origin.identity;
    identity = prefix_identity(config_.cache_identity, sequence.request);
    // Without a prefix cache (but with a host tier, which needs its books) a request's blocks are its own alone.
    if (config_.prefix_cache == PrefixCacheKind::kOff)
      identity = Sha256().add(identity).add(sequence.request.id - sequence.branch).finish();
  }
  sequence.origin.has_salt = !sequence.request.cache_salt.empty();
  if (kv_.has_disk() && config_.prefix_cache != PrefixCacheKind::kOff) {
    const bool is_lasting = kv_.is_disk_lasting();
    // A guessed salt could be checked by a key in a file; an adapter's id means nothing after a restart.
    const bool may_last = !sequence.origin.has_salt && sequence.request.adapter_id == 0;
    sequence.origin.may_last = is_lasting ? may_last : sequence.request.hand_over == HandOver::kGive;
    sequence.origin.reads_below = is_lasting ? may_last : sequence.request.hand_over == HandOver::kTake;
  }
  sequence.request.cache_salt = {};
}

PrefixMatch Prefixes::look_up(Sequence& sequence, std::span<Sequence* const> running) const {
  const uint32_t with_running = common_with(sequence, running);
  const CachedTokens cached(sequence);
  const auto wanted = std::span(sequence.tokens).first(sequence.reusable());
  PrefixMatch match = kv_.match(sequence.origin.identity, wanted);
  const uint32_t path = match.num_path * kv_.block_tokens();
  const uint32_t split = place_before(std::max(path, with_running));
  sequence.found.is_split_shared =
      with_running > path || match.path_end == PathEnd::kParts || match.path_end == PathEnd::kUnknown;
  if (!sequence.origin.has_salt) match.drop_partial();
  for (Sequence* other : running) {
    if (sequence.request.n == 1 || match.num_tokens(kv_.block_tokens()) == wanted.size()) break;
    if (!other->is_branch_of_same(sequence)) continue;
    const CachedTokens others(*other);
    const uint32_t common = std::min(common_tokens(other->tokens, wanted), other->progress.computed);
    if (common <= match.num_tokens(kv_.block_tokens())) continue;
    PrefixMatch held = kv_.match(other->residency.tables, common);
    if (held.num_tokens(kv_.block_tokens()) > 0) match = std::move(held);
  }
  sequence.found.split = split > match.num_tokens(kv_.block_tokens()) ? split : 0;
  sequence.found.prefix_blocks = match.num_full();
  sequence.found.host_blocks = match.num_loads();
  sequence.found.is_known = true;
  sequence.found.blocks_needed = 0;
  return match;
}

bool Prefixes::waits_for_disk(Sequence& sequence, TimeNs now) const {
  DiskWait& disk = sequence.disk;
  if (!sequence.origin.reads_below || disk.is_over) return false;
  const CachedTokens cached(sequence);
  const auto wanted = std::span(sequence.tokens).first(sequence.reusable());
  if (disk.until_ns == 0) {
    const double known_ms = kDiskWaitTimes * config_.cost_prior.token_ms * static_cast<double>(wanted.size());
    const double ms = known_ms > 0 ? std::clamp(known_ms, kDiskWaitMsMin, kDiskWaitMsMax) : kDiskWaitMsMax;
    disk.until_ns = now + static_cast<TimeNs>(ms * 1e6);
  }
  bool is_done = false;
  if (disk.batch == 0) {
    const std::optional<DiskBatch> batch = kv_.read_from_disk(sequence.origin.identity, wanted);
    is_done = batch == DiskBatch{0} && (kv_.is_disk_lasting() || kv_.knows(sequence.origin.identity, wanted));
    disk.batch = batch.value_or(0);
  } else if (!kv_.is_reading(disk.batch)) {
    is_done = kv_.is_disk_lasting();
    disk.batch = 0;  // more may have come meanwhile
  }
  disk.is_over = is_done || now >= disk.until_ns;
  return !disk.is_over;
}

// Tokens that it begins with as one does whose prompt is being computed: they are not in the cache yet.
uint32_t Prefixes::common_with(const Sequence& sequence, std::span<Sequence* const> running) const {
  if (kv_.place_tokens() == 0) return 0;
  const auto wanted = std::span(sequence.tokens).first(sequence.reusable());
  uint32_t most = 0;
  for (const Sequence* other : running) {
    if (other->gap() <= 1 || other->origin.identity != sequence.origin.identity) continue;
    most = std::max(most, std::min(common_tokens(wanted, other->tokens), sequence.same_adapter_until(*other)));
  }
  return most;
}

void Prefixes::take_over(Sequence& sequence, const PrefixMatch& match) {
  Residency& residency = sequence.residency;
  kv_.share(residency.tables, match);
  if (!match.host_blocks.empty()) {
    kv_.load(residency.tables, match);
    keep_filled(sequence);  // for those that are admitted in the same plan
  }
  if (sequence.request.hand_over == HandOver::kGive && sequence.origin.may_last) kv_.save_known(residency.tables);
  if (match.partial_tokens == 0) return;
  kv_.pin(match.partial_block);
  if (match.num_full() == 0) sequence.origin.copied_root = kv_.root(match.partial_block);
  residency.copy_source = match.partial_block;
  residency.copy_tokens = match.partial_tokens;
}

void Prefixes::keep_filled(Sequence& sequence) {
  const CachedTokens cached(sequence);
  const size_t known = std::min<size_t>(sequence.progress.computed, sequence.tokens.size());
  kv_.keep(sequence.residency.tables, sequence.origin.identity, std::span(sequence.tokens).first(known),
           sequence.origin.may_last);
  if (const uint64_t root = kv_.root(sequence.residency.tables); root != 0) sequence.origin.root = root;
}

void Prefixes::settle(Sequence& sequence) {
  keep_filled(sequence);
  kv_.settle(sequence.residency.tables, sequence.progress.computed);
}

void Prefixes::give_back(Sequence& sequence, bool forget, bool is_worth_storing) {
  // A first block that the token in flight fills stands behind no plan's root yet, so nothing would forget it.
  forget |= sequence.origin.root == 0 && !sequence.progress.in_flight.is_empty();
  if (!forget) {
    keep_filled(sequence);
    kv_.set_worth_storing(sequence.residency.tables, is_worth_storing);
  }
  kv_.release(sequence.residency.tables, forget);
}

void Prefixes::forget_spoilt(const Sequence* sequence, uint64_t root) {
  kv_.forget(root);
  if (sequence == nullptr) return;
  if (sequence->origin.root != root) kv_.forget(sequence->origin.root);
  kv_.forget(sequence->origin.copied_root);
}

}  // namespace llmrt
