// What a sequence may begin with instead of computing it, and what is kept of it for others.
//
// Branches of one request share its prompt, with a prefix cache and without. The first one that is admitted computes
// it; the others wait for that, and then begin with its full blocks and a copy of the filled slots of the next one, but
// for the last token of the prompt: what comes out of it is what they draw from.
//
// Other requests share whole blocks. The common part of one block more is shared only among requests of one cache salt:
// a client is told how much of its prompt was known, and sees it in the time that it takes, so with parts of blocks a
// client that knows the beginning of another's text could try the next token, and the one after it. A whole block it
// must know but for what it tries.
//
// Owns nothing: the books of blocks are KvSpace's. Writes the tables and the copy in Residency, KvOrigin and
// PrefixFound. No errors. The engine's thread.
#pragma once

#include <span>

#include "core/kv/kv_space.h"
#include "core/request/sequence.h"
#include "core/schedule/scheduler_config.h"

namespace llmrt {

class Prefixes {
 public:
  // Both outlive it.
  Prefixes(const SchedulerConfig& config, KvSpace& kv) : config_(config), kv_(kv) {}

  // The sequence has come: what its keys and values depend on.
  void set_origin(Sequence& sequence) const;
  // The longest beginning that is there: in the cache, or in the table of a running branch of the same request. (One
  // that was admitted in this plan has nothing more to give than what it was made from, which was asked before it. So
  // no block is copied to and from in one step.)
  PrefixMatch look_up(Sequence& sequence, std::span<Sequence* const> running) const;

  // Whether the sequence is better looked up later, because a disk reads what it begins with. It waits for a bounded
  // time alone: three times what computing it is expected to take, where that is known.
  bool waits_for_disk(Sequence& sequence, TimeNs now) const;

  // The sequence starts: its empty tables begin with `match`.
  void take_over(Sequence& sequence, const PrefixMatch& match);
  // Blocks that are full of known tokens go into the cache. Their positions may be in flight: whatever reads them is
  // queued behind.
  void keep_filled(Sequence& sequence);
  // Drafts that were right moved its window on: what is behind goes at once, as the next step may need it.
  void settle(Sequence& sequence);
  // It runs no longer. With `forget` its keys and values are not kept for others; else `is_worth_storing` says whether
  // they go to the host tier when their blocks are handed out.
  void give_back(Sequence& sequence, bool forget, bool is_worth_storing);
  // Numbers of a row are not what the model says, and which of its keys and values are bad is not known: they may be
  // those that it has found, and others may have begun behind them. `root`: of its blocks when it was planned;
  // `sequence`: null when it is gone.
  void forget_spoilt(const Sequence* sequence, uint64_t root);

 private:
  uint32_t common_with(const Sequence& sequence, std::span<Sequence* const> running) const;
  // The last place of a checkpoint that is not behind so many tokens; 0 where there are no states.
  uint32_t place_before(uint32_t num_tokens) const {
    const uint32_t place_tokens = kv_.place_tokens();
    return place_tokens == 0 ? 0 : num_tokens - num_tokens % place_tokens;
  }

  const SchedulerConfig& config_;
  KvSpace& kv_;
};

}  // namespace llmrt
