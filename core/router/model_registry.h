// The books of a process that serves several models: which are loaded, who holds them, who waits, what is loaded or
// unloaded next. It decides and carries nothing out: next() hands out actions, and the caller reports how they ended
// (ModelHost does, on threads). Time is a parameter. Not thread-safe.
//
// The rules:
// - Models are loaded one after another, that of the oldest waiter first. One that has to wait for room lets others
//   pass that need none of it, until it has waited for `patience`.
// - Room is made by unloading models that are not pinned and not in use, the least recently used first; one must have
//   been unused for `linger`, or loaded for `patience`, so that two clients in turn do not load at each request.
// - Where those are too few, a model in use is closed once it has been loaded and the waiter has waited for `patience`:
//   its requests end in peace, new ones wait. So nobody waits for ever for a model that is always busy.
// - A load that fails refuses its waiters with the loader's error, and so do new requests until a cooldown is over. Out
//   of memory is taken for a wrong estimate as long as unloading another model may help.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/status.h"

namespace llmrt {

using ModelIdx = uint32_t;  // in the order in which they were named
using WaiterId = uint64_t;  // counts up from 1

enum class ModelState { kUnloaded, kLoading, kReady, kUnloading, kFailed };
inline constexpr size_t kNumModelStates = 5;
const char* model_state_name(ModelState state);  // "unloaded", ...

// What the registry asks about memory. Bytes.
class MemoryBudget {
 public:
  virtual ~MemoryBudget() = default;
  // What the model will take, as far as it is known before its first load; later its last load is asked for no more.
  virtual uint64_t need_bytes(ModelIdx model) const = 0;
  // What there is for more models while those that are loaded hold `held_bytes`.
  virtual uint64_t free_bytes(uint64_t held_bytes) const = 0;
};

struct ModelSpec {
  std::string name;
  bool is_pinned = false;     // loaded from the start on, and only unloaded by unload()
  bool is_preloaded = false;  // loaded from the start on
  bool is_adopted = false;    // it is there, or will be soon: adopt() tells, and nothing is loaded before
};

struct RegistryLimits {
  uint32_t loaded_max = 0;          // those being loaded and unloaded among them; 0 = what memory allows
  TimeNs idle_unload_ns = 0;        // unused for so long: unloaded; 0 = never
  TimeNs wait_ns = 60'000'000'000;  // of a request, for its model
  uint32_t waiters_max = 1024;      // of all models
  TimeNs linger_ns = 1'000'000'000, patience_ns = 5'000'000'000;
  TimeNs cooldown_ns = 10'000'000'000, cooldown_max_ns = 300'000'000'000;  // behind a failed load, doubled by each
};

// What is known of a model, for reports.
struct ModelFigures {
  std::string name;
  ModelState state = ModelState::kUnloaded;
  bool is_pinned = false;
  bool is_wanted = false;   // pinned or preloaded
  bool is_closing = false;  // takes no more requests, and is unloaded when the last has ended
  uint32_t num_leases = 0, num_waiting = 0;
  uint64_t bytes = 0;   // held, or expected while it is being loaded; 0 when it is not loaded
  TimeNs since_ns = 0;  // when the state began
  TimeNs used_ns = 0;   // when the last lease began or ended
  TimeNs load_ns = 0;   // what the last load took
  uint64_t num_loads = 0, num_failures = 0, num_unloads = 0;
  // Loads that found too little memory, also where another model was unloaded for it then; engines lost for that
  // reason.
  uint64_t num_loads_short = 0, num_losses_short = 0;
  std::optional<Error> error = {};  // of the last load, while the state is failed
  TimeNs retry_ns = 0;              // when a request may try again
};

class ModelRegistry {
 public:
  // `budget` outlives this.
  ModelRegistry(std::vector<ModelSpec> models, const RegistryLimits& limits, const MemoryBudget* budget, TimeNs now);

  // A request asks for its model: it holds a lease at once, or waits under a number (take_outcomes tells its end), or
  // is refused.
  struct Asked {
    bool is_leased = false;
    WaiterId waiter = 0;
    std::optional<Error> error;
  };
  Asked acquire(ModelIdx model, TimeNs now);
  // The waiter needs it no more. False when its outcome has been told already: a lease must then be released.
  bool cancel(WaiterId waiter);
  void release(ModelIdx model, TimeNs now);
  // A lease of a model that can be looked at, closing ones too; it does not count as use. False: not ready.
  bool peek(ModelIdx model);
  void unpeek(ModelIdx model);

  // Waiters whose waiting is over: each has a lease, or an error. Each is told once.
  struct Outcome {
    WaiterId waiter;
    ModelIdx model;
    std::optional<Error> error;
  };
  std::vector<Outcome> take_outcomes();

  struct Action {
    bool is_load;  // else unload
    ModelIdx model;
  };
  // Ends waits that are over, and says what is to be done now; to be called until there is nothing, after every other
  // call and at next_time(). Each action is reported by loaded() or unloaded() once.
  std::optional<Action> next(TimeNs now);
  TimeNs next_time(TimeNs now) const;  // kNever: nothing changes by itself

  // `bytes`: what it holds.
  void loaded(ModelIdx model, Result<uint64_t> bytes, TimeNs now);
  void unloaded(ModelIdx model, TimeNs now);
  // It is there from the beginning, without a load.
  void adopt(ModelIdx model, uint64_t bytes, TimeNs now);
  // A ready model can serve no more (its device is lost): it is unloaded when its requests have ended, and counts as
  // failed.
  void lose(ModelIdx model, Error error, TimeNs now);
  // Unloads it when its requests have ended, pinned or not; later requests load it again. An error when it is not
  // ready.
  Status unload(ModelIdx model, TimeNs now);
  // Ends everything: waiters and new requests are refused, models unloaded when their requests have ended.
  void close(TimeNs now);
  bool is_over() const;  // closed, and nothing is loaded any more

  size_t size() const { return entries_.size(); }
  const ModelFigures& figures(ModelIdx model) const { return entries_[model].figures; }
  uint64_t held_bytes() const;
  uint32_t num_waiting() const { return num_waiting_; }
  const RegistryLimits& limits() const { return limits_; }
  // Empty when the books balance.
  std::string audit() const;

 private:
  struct Waiter {
    WaiterId id;
    TimeNs arrival_ns;
  };
  struct Entry {
    ModelFigures figures;
    std::deque<Waiter> waiters;  // by arrival
    uint32_t num_peeks = 0;
    std::optional<TimeNs> wish_ns;        // since when it is to be loaded without a request
    std::optional<Error> lost;            // why it can serve no more
    std::optional<uint64_t> known_bytes;  // what its last load took
    uint64_t least_bytes = 0;             // more than this was not enough
    uint64_t free_at_load_bytes = 0;
    uint32_t num_failures_in_row = 0;
  };
  struct Freed {
    uint64_t bytes = 0;
    uint32_t count = 0;
  };

  bool is_held(const Entry& entry) const;  // takes memory
  bool is_due_to_unload(const Entry& entry, TimeNs now) const;
  uint64_t need_of(ModelIdx model) const;
  TimeNs asked_since(const Entry& entry) const;  // kNever: nobody asks
  bool may_yield(const Entry& entry, TimeNs waited_ns, TimeNs now) const;
  bool fits(uint64_t need_bytes, uint64_t freed_bytes, uint32_t num_freed) const;
  Freed freed_soon() const;
  bool make_room(ModelIdx model, TimeNs now);
  std::optional<ModelIdx> choose_load(TimeNs now);
  bool could_ever_fit(ModelIdx model) const;
  void end_waits(TimeNs now);
  void grant_all(ModelIdx model, TimeNs now);
  void refuse_all(ModelIdx model, const Error& error);
  void fail(ModelIdx model, Error error, TimeNs now);
  void set_state(Entry& entry, ModelState state, TimeNs now);

  RegistryLimits limits_;
  const MemoryBudget* budget_;
  std::vector<Entry> entries_;
  std::vector<Outcome> outcomes_;
  WaiterId last_waiter_ = 0;
  uint32_t num_waiting_ = 0;
  bool is_loading_ = false, is_closed_ = false;
};

}  // namespace llmrt
