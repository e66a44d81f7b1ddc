// The books of the adapters' pool: which adapter is in which slot of the device's table, which pages its numbers are
// in, who runs with it, who waits for it, and what is to be written next. No device: the engine copies what
// next_writes() gives, in the order of its queue. Time is a parameter. The engine's thread.
//
// The range on the device: a table of AdapterEntry [slots_max][num_groups], then pages. An adapter takes a slot and one
// run of pages for each group that it changes.
//
// The rules:
// - A request takes a ticket (want) when it could start if it had its adapter. Tickets are ordered by age, and an
//   adapter that is not in the pool waits with the age of its oldest ticket.
// - The adapter that has waited the longest gets room first: free pages, else those of adapters that nobody holds, the
//   longest unused first, and only as many as it takes. An adapter with a ticket that is older stays.
// - Others that find free pages without any eviction pass one that waits for room, until it has waited for `patience`.
//   From then on nobody passes, and no ticket that is younger than its oldest one gets a hold. So holds end, and it
//   gets room: the wait is at most `patience` and the longest hold.
// - A slot is written when nobody holds it: what ran with its former adapter is earlier in the device's queue. It may
// be
//   held once its bytes and its row of the table have been given out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/adapter/adapter_image.h"
#include "core/adapter/page_runs.h"
#include "core/base/checked_math.h"
#include "core/base/clock.h"
#include "core/base/status.h"

namespace llmrt {

inline constexpr uint64_t kAdapterPageBytes = 64u << 10;

using AdapterTicket = uint64_t;  // counts up from 1: a smaller one is older
using AdapterSlot = uint32_t;

struct AdapterPoolLimits {
  uint64_t bytes = 0;  // of the range: table and pages
  uint32_t slots_max = 0;
  uint32_t num_groups = 0;  // weight groups of the model
  TimeNs patience_ns = 1'000'000'000;
};

// Bytes for the pool. The span is valid until the next call of next_writes().
struct AdapterWrite {
  uint64_t pool_offset = 0;  // a multiple of kAdapterUnitBytes, as is the span's size
  std::span<const std::byte> bytes;
};

// Bytes in front of the pages: the table, in whole pages.
constexpr uint64_t adapter_pages_begin(uint64_t slots, uint64_t weight_groups) {
  return round_up(adapter_table_bytes(slots, weight_groups), kAdapterPageBytes);
}

struct AdapterPoolFigures {
  uint64_t num_hits = 0, num_misses = 0;  // tickets whose adapter was in the pool, or was not
  uint64_t num_loads = 0, num_evictions = 0, bytes_written = 0;
  uint32_t num_resident = 0, num_loading = 0, num_waiting = 0;  // adapters
  uint32_t num_holds = 0, num_tickets = 0;
  uint32_t num_pages = 0, num_free_pages = 0;
};

class AdapterPool {
 public:
  explicit AdapterPool(const AdapterPoolLimits& limits);
  AdapterPool(const AdapterPool&) = delete;
  AdapterPool& operator=(const AdapterPool&) = delete;

  // Error: never_fits, with the bytes that it takes and those that there are.
  Status check_fits(const AdapterImage& image) const;
  // A request asks for an adapter. Error: never_fits, likewise.
  Result<AdapterTicket> want(std::shared_ptr<const AdapterImage> image, TimeNs now);
  // True: the ticket holds its adapter, from now on in slot_of(). False: not yet. Error: never_fits, where it turned
  // out later that it does not.
  Result<bool> try_hold(AdapterTicket ticket, TimeNs now);
  // Of a ticket that holds.
  AdapterSlot slot_of(AdapterTicket ticket) const;
  // Gives the hold back and keeps the place in the queue: a request that yields.
  void pause(AdapterTicket ticket);
  // The end of a ticket, whether it holds or waits.
  void drop(AdapterTicket ticket);

  // Loads it and keeps it until unpin(). Error: never_fits, also where it would leave too little for one that waits.
  Status pin(std::shared_ptr<const AdapterImage> image, TimeNs now);
  void unpin(const Digest& digest);
  // Frees its slot, if nobody holds it or waits for it.
  void discard(const Digest& digest, TimeNs now);

  // What is to be written now, in this order, at most `bytes_max` bytes (at least kAdapterUnitBytes). To be called
  // before each submission; all that it gives is in the pool when the submission's work runs.
  std::span<const AdapterWrite> next_writes(uint64_t bytes_max, TimeNs now);

  bool is_resident(const Digest& digest) const { return is_in(digest, SlotState::kResident); }
  bool is_loading(const Digest& digest) const { return is_in(digest, SlotState::kLoading); }
  AdapterPoolFigures figures() const;
  // Empty when the books balance. O(pages + tickets).
  std::string audit() const;

 private:
  enum class SlotState : uint8_t { kFree, kLoading, kResident };
  struct Known;
  struct Slot {
    SlotState state = SlotState::kFree;
    Known* adapter = nullptr;
    std::vector<PageRun> runs;          // one for each run of the image
    std::vector<AdapterEntry> entries;  // its row of the table
    size_t run_idx = 0;                 // what has been given out: runs before this one, and so many bytes of it;
    uint64_t num_bytes = 0;             // behind the last run, bytes of the row
  };
  // An adapter that is in the pool, is pinned, or has tickets.
  struct Known {
    std::shared_ptr<const AdapterImage> image;
    std::vector<uint32_t> pages;  // of each run
    uint64_t num_pages = 0;
    std::optional<AdapterSlot> slot;
    std::optional<AdapterTicket> pin;  // holds as soon as it can
    std::set<AdapterTicket> waiting;
    uint32_t num_holds = 0;
    uint64_t used = 0;           // of the pool's count of uses
    TimeNs absent_since_ns = 0;  // when it had no slot first
  };
  struct Ticket {
    Known* adapter;
    TimeNs arrival_ns;
    bool holds = false;
    std::optional<Error> refusal;
  };

  bool is_in(const Known& adapter, SlotState state) const {
    return adapter.slot && slots_[*adapter.slot].state == state;
  }
  bool is_in(const Digest& digest, SlotState state) const {
    const auto found = adapters_.find(digest);
    return found != adapters_.end() && is_in(found->second, state);
  }
  Known& known_of(std::shared_ptr<const AdapterImage> image, TimeNs now);
  AdapterTicket add_ticket(Known& adapter, TimeNs now);
  Error never_fits(uint64_t num_pages) const;
  bool could_fit(uint64_t num_pages, uint64_t pinned_pages, uint32_t num_pinned) const;
  void forget_if_unused(Known& adapter);
  void end_hold(Ticket& ticket);
  void take_hold(AdapterTicket id, Ticket& ticket);
  // Adapters that wait for room, by the age of their oldest tickets.
  std::vector<Known*> queue();
  const Known* head() const;  // the first of them, or null
  bool is_patience_over(const Known& head, TimeNs now) const;
  void place_waiting(TimeNs now);
  bool place(Known& adapter);
  std::vector<AdapterSlot> evictable(const Known& contender) const;
  bool make_room(Known& adapter, TimeNs now);
  bool is_hopeless(const Known& adapter) const;
  void refuse(Known& adapter);
  void evict(AdapterSlot slot, TimeNs now);
  void write_slot(AdapterSlot slot, uint64_t* bytes_left);
  std::string audit_tickets() const;
  uint64_t page_offset(uint32_t page) const { return pages_begin_ + page * kAdapterPageBytes; }

  AdapterPoolLimits limits_;
  uint64_t pages_begin_;
  PageRuns pages_;
  std::vector<Slot> slots_;
  std::map<Digest, Known> adapters_;
  std::map<AdapterTicket, Ticket> tickets_;
  std::deque<AdapterSlot> loading_;  // in the order in which they are written
  AdapterTicket last_ticket_ = 0;
  uint64_t num_uses_ = 0;
  uint64_t pinned_pages_ = 0;
  uint32_t num_pinned_ = 0;
  bool may_place_ = false;  // something changed since adapters were last placed
  std::vector<AdapterWrite> writes_;
  std::vector<std::shared_ptr<const AdapterImage>> written_images_;  // that writes_ points into
  uint64_t num_hits_ = 0, num_misses_ = 0, num_loads_ = 0, num_evictions_ = 0, bytes_written_ = 0;
};

}  // namespace llmrt
