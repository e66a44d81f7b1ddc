#include "core/adapter/adapter_pool.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace llmrt {
namespace {

constexpr size_t kPassesMax = 16;  // adapters that are tried behind one that waits for room

uint64_t pages_of(const AdapterImage& image) {
  uint64_t sum = 0;
  for (const AdapterRun& run : image.runs) sum += ceil_div(run.size, kAdapterPageBytes);
  return sum;
}
uint32_t pages_in(const AdapterPoolLimits& limits) {
  LLMRT_CHECK(limits.bytes / kAdapterUnitBytes <= UINT32_MAX, "offsets in the pool fit into 32 bits");
  const uint64_t begin = adapter_pages_begin(limits.slots_max, limits.num_groups);
  return limits.bytes < begin ? 0 : static_cast<uint32_t>((limits.bytes - begin) / kAdapterPageBytes);
}

}  // namespace

AdapterPool::AdapterPool(const AdapterPoolLimits& limits)
    : limits_(limits),
      pages_begin_(adapter_pages_begin(limits.slots_max, limits.num_groups)),
      pages_(pages_in(limits)),
      slots_(limits.slots_max) {}

AdapterPool::Known& AdapterPool::known_of(std::shared_ptr<const AdapterImage> image, TimeNs now) {
  const auto [at, is_new] = adapters_.try_emplace(image->digest);
  Known& adapter = at->second;
  if (!is_new) return adapter;
  adapter.absent_since_ns = now;
  for (const AdapterRun& run : image->runs) {
    LLMRT_CHECK(run.group >= 0 && static_cast<uint32_t>(run.group) < limits_.num_groups, "a group of the model");
    adapter.pages.push_back(static_cast<uint32_t>(ceil_div(run.size, kAdapterPageBytes)));
    adapter.num_pages += adapter.pages.back();
  }
  adapter.image = std::move(image);
  return adapter;
}

AdapterTicket AdapterPool::add_ticket(Known& adapter, TimeNs now) {
  const AdapterTicket id = ++last_ticket_;
  tickets_.emplace(id, Ticket{&adapter, now, false, {}});
  adapter.waiting.insert(id);
  may_place_ = true;
  return id;
}

bool AdapterPool::could_fit(uint64_t num_pages, uint64_t pinned_pages, uint32_t num_pinned) const {
  return num_pages + pinned_pages <= pages_.num_pages() && num_pinned < limits_.slots_max;
}

Error AdapterPool::never_fits(uint64_t num_pages) const {
  return make_error(
      ErrorCode::kNeverFits,
      "adapter too large: expected at most {} bytes in the adapters' pool (of {}, with {} pinned adapters "
      "in {} slots), found {}",
      (pages_.num_pages() - pinned_pages_) * kAdapterPageBytes, pages_.num_pages() * kAdapterPageBytes, num_pinned_,
      limits_.slots_max, num_pages * kAdapterPageBytes);
}

Status AdapterPool::check_fits(const AdapterImage& image) const {
  const auto found = adapters_.find(image.digest);
  if (found != adapters_.end() && (found->second.slot || found->second.pin)) return {};
  const uint64_t num_pages = pages_of(image);
  return could_fit(num_pages, pinned_pages_, num_pinned_) ? Status() : never_fits(num_pages);
}

Result<AdapterTicket> AdapterPool::want(std::shared_ptr<const AdapterImage> image, TimeNs now) {
  if (auto status = check_fits(*image); !status) return status.error();
  Known& adapter = known_of(std::move(image), now);
  const bool is_there = is_in(adapter, SlotState::kResident);
  ++(is_there ? num_hits_ : num_misses_);
  return add_ticket(adapter, now);
}

Result<bool> AdapterPool::try_hold(AdapterTicket id, TimeNs now) {
  Ticket& ticket = tickets_.at(id);
  if (ticket.holds) return true;
  if (ticket.refusal) return *ticket.refusal;
  const Known& adapter = *ticket.adapter;
  if (!is_in(adapter, SlotState::kResident)) return false;
  const Known* first = adapter.pin ? nullptr : head();  // whoever waits cannot have the room of a pinned one
  if (first != nullptr && id > *first->waiting.begin() && is_patience_over(*first, now)) return false;
  take_hold(id, ticket);
  return true;
}

void AdapterPool::take_hold(AdapterTicket id, Ticket& ticket) {
  Known& adapter = *ticket.adapter;
  ticket.holds = true;
  adapter.waiting.erase(id);
  ++adapter.num_holds;
  adapter.used = ++num_uses_;
}

AdapterSlot AdapterPool::slot_of(AdapterTicket id) const {
  const Ticket& ticket = tickets_.at(id);
  LLMRT_CHECK(ticket.holds, "a ticket that holds has a slot");
  return *ticket.adapter->slot;
}

void AdapterPool::end_hold(Ticket& ticket) {
  ticket.holds = false;
  --ticket.adapter->num_holds;
  ticket.adapter->used = ++num_uses_;
  may_place_ = true;
}

void AdapterPool::pause(AdapterTicket id) {
  Ticket& ticket = tickets_.at(id);
  LLMRT_CHECK(ticket.holds, "what is paused holds its adapter");
  end_hold(ticket);
  ticket.adapter->waiting.insert(id);
}

void AdapterPool::drop(AdapterTicket id) {
  const auto found = tickets_.find(id);
  LLMRT_CHECK(found != tickets_.end(), "a ticket is dropped once");
  Known* adapter = found->second.adapter;
  if (found->second.holds) end_hold(found->second);
  tickets_.erase(found);
  may_place_ = true;
  if (adapter == nullptr) return;  // refused
  adapter->waiting.erase(id);
  forget_if_unused(*adapter);
}

void AdapterPool::forget_if_unused(Known& adapter) {
  if (adapter.slot || adapter.pin || adapter.num_holds > 0 || !adapter.waiting.empty()) return;
  const Digest digest = adapter.image->digest;  // the key goes with the element
  adapters_.erase(digest);
}

Status AdapterPool::pin(std::shared_ptr<const AdapterImage> image, TimeNs now) {
  Known& adapter = known_of(std::move(image), now);
  if (adapter.pin) return {};
  const uint64_t pages = pinned_pages_ + adapter.num_pages;
  const bool leaves_room = std::ranges::all_of(adapters_, [&](const auto& entry) {
    const Known& other = entry.second;
    return &other == &adapter || other.pin || other.waiting.empty() ||
           could_fit(other.num_pages, pages, num_pinned_ + 1);
  });
  if (!could_fit(adapter.num_pages, pinned_pages_, num_pinned_) || !leaves_room) {
    Error error = never_fits(adapter.num_pages);
    forget_if_unused(adapter);
    return error;
  }
  pinned_pages_ = pages;
  ++num_pinned_;
  const AdapterTicket id = add_ticket(adapter, now);
  adapter.pin = id;
  if (is_in(adapter, SlotState::kResident)) take_hold(id, tickets_.at(id));
  return {};
}

void AdapterPool::unpin(const Digest& digest) {
  const auto found = adapters_.find(digest);
  if (found == adapters_.end() || !found->second.pin) return;
  Known& adapter = found->second;
  const AdapterTicket id = *adapter.pin;
  adapter.pin.reset();
  pinned_pages_ -= adapter.num_pages;
  --num_pinned_;
  drop(id);
}

void AdapterPool::discard(const Digest& digest, TimeNs now) {
  const auto found = adapters_.find(digest);
  if (found == adapters_.end()) return;
  const Known& adapter = found->second;
  const bool is_idle = is_in(adapter, SlotState::kResident) && adapter.num_holds == 0 && adapter.waiting.empty();
  if (is_idle) evict(*adapter.slot, now);
}

std::vector<AdapterPool::Known*> AdapterPool::queue() {
  std::vector<Known*> waiting;
  for (auto& [digest, adapter] : adapters_)
    if (!adapter.slot && !adapter.waiting.empty()) waiting.push_back(&adapter);
  std::ranges::sort(waiting, {}, [](const Known* adapter) { return *adapter->waiting.begin(); });
  return waiting;
}

const AdapterPool::Known* AdapterPool::head() const {
  const Known* first = nullptr;
  for (const auto& [digest, adapter] : adapters_)
    if (!adapter.slot && !adapter.waiting.empty() &&
        (first == nullptr || *adapter.waiting.begin() < *first->waiting.begin()))
      first = &adapter;
  return first;
}

bool AdapterPool::is_patience_over(const Known& head, TimeNs now) const {
  const TimeNs since = std::max(head.absent_since_ns, tickets_.at(*head.waiting.begin()).arrival_ns);
  return now - since >= limits_.patience_ns;
}

void AdapterPool::place_waiting(TimeNs now) {
  if (!may_place_) return;
  may_place_ = false;
  const Known* blocked = nullptr;  // the first that found no room
  size_t num_tried = 0;
  for (Known* adapter : queue()) {
    if (blocked == nullptr) {
      if (place(*adapter) || make_room(*adapter, now)) continue;
      if (is_hopeless(*adapter)) {
        refuse(*adapter);
        continue;
      }
      blocked = adapter;
    } else if (is_patience_over(*blocked, now) || ++num_tried > kPassesMax) {
      break;
    } else {
      place(*adapter);
    }
  }
}

// In free pages and a free slot, if there are.
bool AdapterPool::place(Known& adapter) {
  const auto slot = std::ranges::find(slots_, SlotState::kFree, &Slot::state);
  if (slot == slots_.end() || adapter.num_pages > pages_.num_free()) return false;
  auto runs = pages_.take_all(adapter.pages);
  if (!runs) return false;
  slot->state = SlotState::kLoading;
  slot->adapter = &adapter;
  slot->runs = *std::move(runs);
  slot->run_idx = 0;
  slot->num_bytes = 0;
  slot->entries.assign(limits_.num_groups, AdapterEntry{});
  for (size_t i = 0; i < slot->runs.size(); ++i) {
    const AdapterRun& run = adapter.image->runs[i];
    AdapterEntry& entry = slot->entries[static_cast<size_t>(run.group)];
    entry = run.entry;
    const auto begin = static_cast<uint32_t>(page_offset(slot->runs[i].first) / kAdapterUnitBytes);
    entry.a_offset += begin;
    for (uint32_t& offset : entry.b_offset) offset += begin;
  }
  adapter.slot = static_cast<AdapterSlot>(slot - slots_.begin());
  adapter.used = ++num_uses_;
  loading_.push_back(*adapter.slot);
  return true;
}

// Slots that the contender may have, the longest unused first.
std::vector<AdapterSlot> AdapterPool::evictable(const Known& contender) const {
  std::vector<AdapterSlot> found;
  for (AdapterSlot i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.state != SlotState::kResident || slot.adapter->num_holds > 0) continue;
    const std::set<AdapterTicket>& waiting = slot.adapter->waiting;
    if (waiting.empty() || *waiting.begin() > *contender.waiting.begin()) found.push_back(i);
  }
  std::ranges::sort(found, {}, [&](AdapterSlot slot) { return slots_[slot].adapter->used; });
  return found;
}

// Evicts as many adapters as it takes, or none, if all of them are too few.
bool AdapterPool::make_room(Known& adapter, TimeNs now) {
  const std::vector<AdapterSlot> victims = evictable(adapter);
  PageRuns left = pages_;
  for (size_t i = 0; i < victims.size(); ++i) {
    for (const PageRun& run : slots_[victims[i]].runs) left.give(run);
    if (left.num_free() < adapter.num_pages) continue;
    PageRuns tried = left;
    if (!tried.take_all(adapter.pages)) continue;
    for (size_t j = 0; j <= i; ++j) evict(victims[j], now);
    LLMRT_CHECK(place(adapter), "what fits into the pages that were tried fits");
    return true;
  }
  return false;
}

// Whether it found no room although nothing but pinned adapters kept it from having all.
bool AdapterPool::is_hopeless(const Known& adapter) const {
  const size_t num_evictable = evictable(adapter).size();
  const auto is_in_use = [](const Slot& slot) {
    return slot.state != SlotState::kFree && !(slot.state == SlotState::kResident && slot.adapter->pin);
  };
  return static_cast<size_t>(std::ranges::count_if(slots_, is_in_use)) == num_evictable;
}

void AdapterPool::refuse(Known& adapter) {
  if (adapter.pin) {
    pinned_pages_ -= adapter.num_pages;
    --num_pinned_;
    tickets_.erase(*adapter.pin);
    adapter.waiting.erase(*adapter.pin);
    adapter.pin.reset();
  }
  const Error error = never_fits(adapter.num_pages);
  for (const AdapterTicket id : adapter.waiting) {
    Ticket& ticket = tickets_.at(id);
    ticket.adapter = nullptr;
    ticket.refusal = error;
  }
  adapter.waiting.clear();
  forget_if_unused(adapter);
}

void AdapterPool::evict(AdapterSlot i, TimeNs now) {
  Slot& slot = slots_[i];
  LLMRT_CHECK(slot.state == SlotState::kResident && slot.adapter->num_holds == 0, "nobody holds what is evicted");
  for (const PageRun& run : slot.runs) pages_.give(run);
  slot.runs.clear();
  slot.state = SlotState::kFree;
  Known& adapter = *std::exchange(slot.adapter, nullptr);
  adapter.slot.reset();
  adapter.absent_since_ns = now;
  ++num_evictions_;
  may_place_ = true;
  forget_if_unused(adapter);
}

std::span<const AdapterWrite> AdapterPool::next_writes(uint64_t bytes_max, TimeNs now) {
  LLMRT_CHECK(bytes_max >= kAdapterUnitBytes, "a call writes at least one unit");
  writes_.clear();
  written_images_.clear();
  place_waiting(now);
  uint64_t bytes_left = bytes_max / kAdapterUnitBytes * kAdapterUnitBytes;
  while (!loading_.empty() && bytes_left > 0) {
    write_slot(loading_.front(), &bytes_left);
    if (slots_[loading_.front()].state == SlotState::kResident) loading_.pop_front();
  }
  return writes_;
}

// The next pieces of a slot: its runs, then its row of the table; with the last one it is resident.
void AdapterPool::write_slot(AdapterSlot i, uint64_t* bytes_left) {
  Slot& slot = slots_[i];
  Known& adapter = *slot.adapter;
  const AdapterImage& image = *adapter.image;
  written_images_.push_back(adapter.image);
  const auto write = [&](uint64_t begin, std::span<const std::byte> bytes) {
    const auto piece = bytes.subspan(slot.num_bytes, std::min<uint64_t>(*bytes_left, bytes.size() - slot.num_bytes));
    if (!piece.empty()) writes_.push_back({begin + slot.num_bytes, piece});
    *bytes_left -= piece.size();
    bytes_written_ += piece.size();
    slot.num_bytes += piece.size();
    return slot.num_bytes == bytes.size();
  };
  for (; slot.run_idx < slot.runs.size(); ++slot.run_idx, slot.num_bytes = 0)
    if (!write(page_offset(slot.runs[slot.run_idx].first), image.run_bytes(image.runs[slot.run_idx]))) return;
  if (!write(adapter_table_bytes(i, limits_.num_groups), std::as_bytes(std::span(slot.entries)))) return;
  slot.state = SlotState::kResident;
  ++num_loads_;
  may_place_ = true;
  if (adapter.pin) take_hold(*adapter.pin, tickets_.at(*adapter.pin));
}

AdapterPoolFigures AdapterPool::figures() const {
  AdapterPoolFigures figures;
  figures.num_hits = num_hits_;
  figures.num_misses = num_misses_;
  figures.num_loads = num_loads_;
  figures.num_evictions = num_evictions_;
  figures.bytes_written = bytes_written_;
  for (const Slot& slot : slots_) {
    figures.num_resident += slot.state == SlotState::kResident;
    figures.num_loading += slot.state == SlotState::kLoading;
  }
  for (const auto& [digest, adapter] : adapters_) {
    figures.num_waiting += !adapter.slot && !adapter.waiting.empty();
    figures.num_holds += adapter.num_holds;
  }
  figures.num_tickets = static_cast<uint32_t>(tickets_.size());
  figures.num_pages = pages_.num_pages();
  figures.num_free_pages = pages_.num_free();
  return figures;
}

std::string AdapterPool::audit() const {
  std::vector<PageRun> taken;
  std::vector<AdapterSlot> loading;
  for (AdapterSlot i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if ((slot.state == SlotState::kFree) != (slot.adapter == nullptr))
      return fmt::format("slot {}: free, but with an adapter, or not free without one", i);
    if (slot.adapter == nullptr) {
      if (!slot.runs.empty()) return fmt::format("slot {}: free, but with {} runs", i, slot.runs.size());
      continue;
    }
    if (slot.adapter->slot != i) return fmt::format("slot {}: its adapter is not there", i);
    if (slot.runs.size() != slot.adapter->pages.size())
      return fmt::format("slot {}: expected {} runs, found {}", i, slot.adapter->pages.size(), slot.runs.size());
    for (size_t r = 0; r < slot.runs.size(); ++r)
      if (slot.runs[r].count != slot.adapter->pages[r])
        return fmt::format("slot {}: run {}: expected {} pages, found {}", i, r, slot.adapter->pages[r],
                           slot.runs[r].count);
    if (slot.state == SlotState::kLoading && slot.adapter->num_holds > 0)
      return fmt::format("slot {}: held before it is written", i);
    if (slot.state == SlotState::kLoading) loading.push_back(i);
    taken.insert(taken.end(), slot.runs.begin(), slot.runs.end());
  }
  if (const std::string pages = pages_.audit(taken); !pages.empty()) return "pages: " + pages;
  std::vector<AdapterSlot> written(loading_.begin(), loading_.end());
  std::ranges::sort(written);
  if (written != loading)
    return fmt::format("expected {} slots to be written, found {}", loading.size(), written.size());
  return audit_tickets();
}

std::string AdapterPool::audit_tickets() const {
  std::map<const Known*, uint32_t> holds, waiting;
  for (const auto& [id, ticket] : tickets_) {
    if (ticket.refusal) {
      if (ticket.adapter != nullptr || ticket.holds) return fmt::format("ticket {}: refused, and still counts", id);
      continue;
    }
    ++(ticket.holds ? holds : waiting)[ticket.adapter];
    if (ticket.holds == ticket.adapter->waiting.contains(id))
      return fmt::format("ticket {}: neither holds nor waits, or both", id);
  }
  uint64_t pinned_pages = 0;
  uint32_t num_pinned = 0;
  for (const auto& [digest, adapter] : adapters_) {
    if (adapter.num_holds != holds[&adapter] || adapter.waiting.size() != waiting[&adapter])
      return fmt::format("adapter {}: expected {} holds and {} that wait, found {} and {}", to_hex(digest),
                         holds[&adapter], waiting[&adapter], adapter.num_holds, adapter.waiting.size());
    if (adapter.num_holds > 0 && !is_in(adapter, SlotState::kResident))
      return fmt::format("adapter {}: held, but not in the pool", to_hex(digest));
    if (!adapter.slot && !adapter.pin && adapter.num_holds == 0 && adapter.waiting.empty())
      return fmt::format("adapter {}: kept for nobody", to_hex(digest));
    pinned_pages += adapter.pin ? adapter.num_pages : 0;
    num_pinned += adapter.pin.has_value();
  }
  if (pinned_pages != pinned_pages_ || num_pinned != num_pinned_)
    return fmt::format("expected {} pinned adapters of {} pages, found {} of {}", num_pinned, pinned_pages, num_pinned_,
                       pinned_pages_);
  return {};
}

}  // namespace llmrt
