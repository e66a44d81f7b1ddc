#include "core/router/model_registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace llmrt {
namespace {

uint32_t whole_seconds(TimeNs duration_ns) {
  return static_cast<uint32_t>(std::max<TimeNs>(1, (duration_ns + 999'999'999) / 1'000'000'000));
}

Error closed_error() {
  return make_error(ErrorCode::kCancelled, "the server is shutting down");
}

// The loader's own words, and when trying again makes sense.
Error failed_error(const ModelFigures& figures, TimeNs now) {
  Error error = *figures.error;
  error.message = fmt::format("model '{}' cannot be loaded: {}", figures.name, error.message);
  error.retry_after_s = whole_seconds(figures.retry_ns - now);
  return error;
}

TimeNs later(TimeNs begin, TimeNs duration) {
  return begin > kNever - duration ? kNever : begin + duration;
}

std::string mib_text(uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

const char* model_state_name(ModelState state) {
  switch (state) {
    case ModelState::kUnloaded:
      return "unloaded";
    case ModelState::kLoading:
      return "loading";
    case ModelState::kReady:
      return "ready";
    case ModelState::kUnloading:
      return "unloading";
    case ModelState::kFailed:
      return "failed";
  }
  return "unknown";
}

ModelRegistry::ModelRegistry(std::vector<ModelSpec> models, const RegistryLimits& limits, const MemoryBudget* budget,
                             TimeNs now)
    : limits_(limits), budget_(budget) {
  for (ModelSpec& spec : models) {
    Entry& entry = entries_.emplace_back();
    entry.figures.name = std::move(spec.name);
    entry.figures.is_pinned = spec.is_pinned;
    entry.figures.is_wanted = spec.is_pinned || spec.is_preloaded;
    entry.figures.since_ns = now;
    if (entry.figures.is_wanted && !spec.is_adopted) entry.wish_ns = now;
  }
}

// ---- requests ------------------------------------------------------------------------------------------------------

ModelRegistry::Asked ModelRegistry::acquire(ModelIdx model, TimeNs now) {
  Entry& entry = entries_[model];
  ModelFigures& figures = entry.figures;
  Asked asked;
  if (is_closed_) {
    asked.error = closed_error();
  } else if (figures.state == ModelState::kReady && !figures.is_closing) {
    ++figures.num_leases;
    figures.used_ns = now;
    asked.is_leased = true;
  } else if (figures.state == ModelState::kFailed && now < figures.retry_ns) {
    asked.error = failed_error(figures, now);
  } else if (entry.lost) {
    asked.error = *entry.lost;
  } else if (num_waiting_ >= limits_.waiters_max) {
    asked.error = make_error(ErrorCode::kOverloaded,
                             "model '{}' is not loaded: expected at most {} requests that wait for models, found {}",
                             figures.name, limits_.waiters_max, num_waiting_);
  } else {
    asked.waiter = ++last_waiter_;
    entry.waiters.push_back({asked.waiter, now});
    ++figures.num_waiting;
    ++num_waiting_;
  }
  return asked;
}

bool ModelRegistry::cancel(WaiterId waiter) {
  for (Entry& entry : entries_) {
    const auto found = std::ranges::find(entry.waiters, waiter, &Waiter::id);
    if (found == entry.waiters.end()) continue;
    entry.waiters.erase(found);
    --entry.figures.num_waiting;
    --num_waiting_;
    return true;
  }
  return false;
}

void ModelRegistry::release(ModelIdx model, TimeNs now) {
  ModelFigures& figures = entries_[model].figures;
  LLMRT_CHECK(figures.num_leases > 0, "a lease is released once");
  --figures.num_leases;
  figures.used_ns = std::max(figures.used_ns, now);
}

bool ModelRegistry::peek(ModelIdx model) {
  Entry& entry = entries_[model];
  if (entry.figures.state != ModelState::kReady) return false;
  ++entry.num_peeks;
  return true;
}

void ModelRegistry::unpeek(ModelIdx model) {
  LLMRT_CHECK(entries_[model].num_peeks > 0, "a look at a model ends once");
  --entries_[model].num_peeks;
}

std::vector<ModelRegistry::Outcome> ModelRegistry::take_outcomes() {
  return std::exchange(outcomes_, {});
}

void ModelRegistry::grant_all(ModelIdx model, TimeNs now) {
  Entry& entry = entries_[model];
  for (const Waiter& waiter : entry.waiters) {
    outcomes_.push_back({waiter.id, model, std::nullopt});
    ++entry.figures.num_leases;
    entry.figures.used_ns = now;
  }
  num_waiting_ -= entry.figures.num_waiting;
  entry.figures.num_waiting = 0;
  entry.waiters.clear();
}

void ModelRegistry::refuse_all(ModelIdx model, const Error& error) {
  Entry& entry = entries_[model];
  for (const Waiter& waiter : entry.waiters) outcomes_.push_back({waiter.id, model, error});
  num_waiting_ -= entry.figures.num_waiting;
  entry.figures.num_waiting = 0;
  entry.waiters.clear();
}

void ModelRegistry::end_waits(TimeNs now) {
  for (ModelIdx model = 0; model < entries_.size(); ++model) {
    Entry& entry = entries_[model];
    while (!entry.waiters.empty() && now >= later(entry.waiters.front().arrival_ns, limits_.wait_ns)) {
      Error error =
          make_error(ErrorCode::kOverloaded, "model '{}' is {}: it could not be had within {} s (--model-wait-s)",
                     entry.figures.name, entry.figures.is_closing ? "in use" : model_state_name(entry.figures.state),
                     limits_.wait_ns / 1'000'000'000);
      error.retry_after_s = whole_seconds(std::max<TimeNs>(entry.figures.load_ns, 5'000'000'000));
      outcomes_.push_back({entry.waiters.front().id, model, std::move(error)});
      entry.waiters.pop_front();
      --entry.figures.num_waiting;
      --num_waiting_;
    }
  }
}

// ---- memory --------------------------------------------------------------------------------------------------------

bool ModelRegistry::is_held(const Entry& entry) const {
  const ModelState state = entry.figures.state;
  return state == ModelState::kLoading || state == ModelState::kReady || state == ModelState::kUnloading;
}

uint64_t ModelRegistry::held_bytes() const {
  uint64_t bytes = 0;
  for (const Entry& entry : entries_)
    if (is_held(entry)) bytes += entry.figures.bytes;
  return bytes;
}

uint64_t ModelRegistry::need_of(ModelIdx model) const {
  const Entry& entry = entries_[model];
  const uint64_t bytes = entry.known_bytes ? *entry.known_bytes : budget_->need_bytes(model);
  return std::max(bytes, entry.least_bytes);
}

// With so much given back beside what is free now.
bool ModelRegistry::fits(uint64_t need_bytes, uint64_t freed_bytes, uint32_t num_freed) const {
  uint64_t held = 0;
  uint32_t num_held = 0;
  for (const Entry& entry : entries_) {
    if (!is_held(entry)) continue;
    held += entry.figures.bytes;
    ++num_held;
  }
  if (limits_.loaded_max > 0 && num_held - num_freed >= limits_.loaded_max) return false;
  return need_bytes <= budget_->free_bytes(held - std::min(held, freed_bytes));
}

bool ModelRegistry::could_ever_fit(ModelIdx model) const {
  uint64_t bytes = 0;
  uint32_t count = 0;
  for (const Entry& entry : entries_)
    if (is_held(entry) && (!entry.figures.is_pinned || entry.figures.is_closing)) bytes += entry.figures.bytes, ++count;
  return fits(need_of(model), bytes, count);
}

TimeNs ModelRegistry::asked_since(const Entry& entry) const {
  TimeNs since = entry.wish_ns.value_or(kNever);
  if (!entry.waiters.empty()) since = std::min(since, entry.waiters.front().arrival_ns);
  return since;
}

// `waited_ns`: how long the one that needs the room has been waiting.
bool ModelRegistry::may_yield(const Entry& entry, TimeNs waited_ns, TimeNs now) const {
  const ModelFigures& figures = entry.figures;
  if (figures.state != ModelState::kReady || figures.is_closing || figures.is_pinned) return false;
  const bool is_settled = now - figures.since_ns >= limits_.patience_ns;
  if (figures.num_leases == 0) return is_settled || now - figures.used_ns >= limits_.linger_ns;
  return is_settled && waited_ns >= limits_.patience_ns;
}

ModelRegistry::Freed ModelRegistry::freed_soon() const {
  Freed freed;
  for (const Entry& entry : entries_) {
    const bool goes = entry.figures.state == ModelState::kUnloading || entry.figures.is_closing;
    if (goes) freed.bytes += entry.figures.bytes, ++freed.count;
  }
  return freed;
}

// Closes models until there will be room, behind what is being unloaded; none where that would not do. True: there
// will.
bool ModelRegistry::make_room(ModelIdx model, TimeNs now) {
  const uint64_t need = need_of(model);
  auto [freed, num_freed] = freed_soon();
  if (fits(need, freed, num_freed)) return true;
  std::vector<ModelIdx> yielding;
  const TimeNs waited = now - std::min(now, asked_since(entries_[model]));
  for (ModelIdx other = 0; other < entries_.size(); ++other)
    if (may_yield(entries_[other], waited, now)) yielding.push_back(other);
  // Those that are not in use first, each by its last use.
  std::ranges::sort(yielding, {}, [this](ModelIdx other) {
    const ModelFigures& figures = entries_[other].figures;
    return std::make_tuple(figures.num_leases > 0, figures.num_leases > 0 ? figures.since_ns : figures.used_ns, other);
  });
  std::vector<ModelIdx> chosen;
  for (const ModelIdx other : yielding) {
    if (fits(need, freed, num_freed)) break;
    freed += entries_[other].figures.bytes, ++num_freed;
    chosen.push_back(other);
  }
  if (!fits(need, freed, num_freed)) return false;
  for (const ModelIdx other : chosen) {  // one that the others make needless stays
    const uint64_t bytes = entries_[other].figures.bytes;
    if (fits(need, freed - bytes, num_freed - 1)) {
      freed -= bytes, --num_freed;
      continue;
    }
    entries_[other].figures.is_closing = true;
  }
  return true;
}

// ---- what is next --------------------------------------------------------------------------------------------------

bool ModelRegistry::is_due_to_unload(const Entry& entry, TimeNs now) const {
  const ModelFigures& figures = entry.figures;
  if (figures.state != ModelState::kReady || figures.num_leases > 0 || entry.num_peeks > 0) return false;
  if (figures.is_closing) return true;
  return !figures.is_pinned && limits_.idle_unload_ns > 0 && now >= later(figures.used_ns, limits_.idle_unload_ns);
}

std::optional<ModelIdx> ModelRegistry::choose_load(TimeNs now) {
  if (is_loading_ || is_closed_) return std::nullopt;
  std::vector<ModelIdx> asked;
  for (ModelIdx model = 0; model < entries_.size(); ++model) {
    const Entry& entry = entries_[model];
    const bool can_load = entry.figures.state == ModelState::kUnloaded ||
                          (entry.figures.state == ModelState::kFailed && now >= entry.figures.retry_ns);
    if (can_load && asked_since(entry) != kNever) asked.push_back(model);
  }
  std::ranges::sort(asked, {}, [this](ModelIdx model) { return std::pair(asked_since(entries_[model]), model); });
  std::optional<uint64_t> awaited;  // what the first one that room is being made for needs
  for (const ModelIdx model : asked) {
    const uint64_t need = need_of(model);
    if (!could_ever_fit(model)) {
      fail(model,
           make_error(ErrorCode::kOutOfMemory, "expected {} of memory, found {} beside models that are pinned",
                      mib_text(need), mib_text(budget_->free_bytes(0))),
           now);
      continue;
    }
    const auto [freed, num_freed] = freed_soon();
    // What is awaited must be there all the same.
    const bool may_pass = !awaited || (num_freed > 0 && fits(need + *awaited, freed, num_freed - 1));
    if (may_pass && fits(need, 0, 0)) return model;
    if (awaited) continue;
    if (make_room(model, now))
      awaited = need;
    else if (now - asked_since(entries_[model]) >= limits_.patience_ns)
      return std::nullopt;  // it has let others pass for long enough
  }
  return std::nullopt;
}

std::optional<ModelRegistry::Action> ModelRegistry::next(TimeNs now) {
  end_waits(now);
  const auto unload_one = [&]() -> std::optional<Action> {
    for (ModelIdx model = 0; model < entries_.size(); ++model) {
      Entry& entry = entries_[model];
      if (!is_due_to_unload(entry, now)) continue;
      set_state(entry, ModelState::kUnloading, now);
      return Action{false, model};
    }
    return std::nullopt;
  };
  if (const auto action = unload_one()) return action;
  if (const std::optional<ModelIdx> model = choose_load(now)) {
    Entry& entry = entries_[*model];
    entry.free_at_load_bytes = budget_->free_bytes(held_bytes());
    entry.figures.bytes = need_of(*model);
    set_state(entry, ModelState::kLoading, now);
    is_loading_ = true;
    return Action{true, *model};
  }
  return unload_one();  // what was closed to make room
}

TimeNs ModelRegistry::next_time(TimeNs now) const {
  TimeNs at = kNever;
  const auto at_most = [&](TimeNs when) {
    if (when > now) at = std::min(at, when);
  };
  bool somebody_asks = false;
  for (const Entry& entry : entries_) {
    const ModelFigures& figures = entry.figures;
    if (!entry.waiters.empty()) at_most(later(entry.waiters.front().arrival_ns, limits_.wait_ns));
    if (asked_since(entry) != kNever && !is_held(entry)) {
      somebody_asks = true;
      at_most(later(asked_since(entry), limits_.patience_ns));
      if (figures.state == ModelState::kFailed) at_most(figures.retry_ns);
    }
    const bool is_idle = figures.state == ModelState::kReady && figures.num_leases == 0 && !figures.is_pinned;
    if (is_idle && limits_.idle_unload_ns > 0) at_most(later(figures.used_ns, limits_.idle_unload_ns));
  }
  for (const Entry& entry : entries_) {
    if (!somebody_asks || entry.figures.state != ModelState::kReady) continue;
    at_most(later(entry.figures.since_ns, limits_.patience_ns));
    at_most(later(entry.figures.used_ns, limits_.linger_ns));
  }
  return at;
}

// ---- how actions ended ---------------------------------------------------------------------------------------------

void ModelRegistry::set_state(Entry& entry, ModelState state, TimeNs now) {
  entry.figures.state = state;
  entry.figures.since_ns = now;
}

void ModelRegistry::fail(ModelIdx model, Error error, TimeNs now) {
  Entry& entry = entries_[model];
  ModelFigures& figures = entry.figures;
  ++figures.num_failures;
  const uint32_t doublings = std::min(entry.num_failures_in_row++, 20u);
  figures.retry_ns = later(now, std::min(limits_.cooldown_max_ns, limits_.cooldown_ns << doublings));
  figures.error = std::move(error);
  figures.bytes = 0;
  set_state(entry, ModelState::kFailed, now);
  // A pinned model is tried again by itself.
  entry.wish_ns = figures.is_pinned && !is_closed_ ? std::optional(figures.retry_ns) : std::nullopt;
  refuse_all(model, failed_error(figures, now));
}

void ModelRegistry::loaded(ModelIdx model, Result<uint64_t> bytes, TimeNs now) {
  Entry& entry = entries_[model];
  ModelFigures& figures = entry.figures;
  LLMRT_CHECK(figures.state == ModelState::kLoading, "a load is reported once");
  is_loading_ = false;
  if (bytes) {
    figures.load_ns = now - figures.since_ns;
    figures.bytes = *bytes;
    figures.used_ns = now;
    figures.error.reset();
    ++figures.num_loads;
    entry.known_bytes = *bytes;
    entry.least_bytes = 0;
    entry.num_failures_in_row = 0;
    entry.wish_ns.reset();
    set_state(entry, ModelState::kReady, now);
    figures.is_closing = is_closed_;
    grant_all(model, now);
    return;
  }
  figures.bytes = 0;
  const bool is_short = bytes.error().code == ErrorCode::kOutOfMemory;
  figures.num_loads_short += is_short;
  if (is_short && !is_closed_) {
    // More than was free: with another one unloaded it may do.
    entry.least_bytes = std::max(need_of(model), entry.free_at_load_bytes) + 1;
    figures.error.reset();
    set_state(entry, ModelState::kUnloaded, now);
    if (entry.least_bytes > 0 && could_ever_fit(model)) return;
    entry.least_bytes = 0;
  }
  fail(model, bytes.error(), now);
}

void ModelRegistry::unloaded(ModelIdx model, TimeNs now) {
  Entry& entry = entries_[model];
  ModelFigures& figures = entry.figures;
  LLMRT_CHECK(figures.state == ModelState::kUnloading, "an unload is reported once");
  ++figures.num_unloads;
  figures.bytes = 0;
  figures.is_closing = false;
  set_state(entry, ModelState::kUnloaded, now);
  if (entry.lost) fail(model, *std::exchange(entry.lost, std::nullopt), now);
}

void ModelRegistry::adopt(ModelIdx model, uint64_t bytes, TimeNs now) {
  Entry& entry = entries_[model];
  LLMRT_CHECK(entry.figures.state == ModelState::kUnloaded, "a model is adopted before its first load");
  entry.figures.bytes = bytes;
  entry.figures.used_ns = now;
  entry.known_bytes = bytes;
  entry.wish_ns.reset();
  ++entry.figures.num_loads;
  set_state(entry, ModelState::kReady, now);
  grant_all(model, now);
}

void ModelRegistry::lose(ModelIdx model, Error error, TimeNs now) {
  Entry& entry = entries_[model];
  if (entry.figures.state != ModelState::kReady || entry.lost) return;
  entry.figures.is_closing = true;
  entry.figures.num_losses_short += error.code == ErrorCode::kOutOfMemory;
  entry.lost = std::move(error);
  entry.figures.used_ns = now;
  refuse_all(model, *entry.lost);
}

Status ModelRegistry::unload(ModelIdx model, TimeNs now) {
  Entry& entry = entries_[model];
  if (entry.figures.state != ModelState::kReady)
    return make_error(ErrorCode::kInvalidArgument, "model '{}': expected one that is loaded, found it {}",
                      entry.figures.name, model_state_name(entry.figures.state));
  entry.figures.is_closing = true;
  entry.figures.used_ns = std::max(entry.figures.used_ns, now);
  return {};
}

void ModelRegistry::close(TimeNs) {
  is_closed_ = true;
  for (ModelIdx model = 0; model < entries_.size(); ++model) {
    Entry& entry = entries_[model];
    refuse_all(model, closed_error());
    entry.wish_ns.reset();
    if (entry.figures.state == ModelState::kReady) entry.figures.is_closing = true;
  }
}

bool ModelRegistry::is_over() const {
  return is_closed_ && std::ranges::none_of(entries_, [this](const Entry& entry) { return is_held(entry); });
}

std::string ModelRegistry::audit() const {
  uint32_t num_waiting = 0, num_loading = 0, num_held = 0;
  for (const Entry& entry : entries_) {
    const ModelFigures& figures = entry.figures;
    const auto problem = [&](std::string_view what) { return fmt::format("{}: {}", figures.name, what); };
    num_waiting += figures.num_waiting;
    num_loading += figures.state == ModelState::kLoading;
    num_held += is_held(entry);
    if (figures.num_waiting != entry.waiters.size()) return problem("waiters are miscounted");
    if (figures.num_leases > 0 && figures.state != ModelState::kReady)
      return problem("leases of a model that is not ready");
    if (entry.num_peeks > 0 && figures.state != ModelState::kReady)
      return problem("looks at a model that is not ready");
    if (figures.is_closing && figures.state != ModelState::kReady && figures.state != ModelState::kUnloading)
      return problem("closing, but not loaded");
    if (!is_held(entry) && figures.bytes > 0) return problem("bytes of a model that is not loaded");
    if (!entry.waiters.empty() && figures.state == ModelState::kReady && !figures.is_closing)
      return problem("waiters of a model that is ready");
    if ((figures.state == ModelState::kFailed) != figures.error.has_value() && figures.state != ModelState::kLoading)
      return problem("an error without a failure, or the other way round");
    if (!std::ranges::is_sorted(entry.waiters, {}, &Waiter::id)) return problem("waiters out of order");
  }
  if (num_waiting != num_waiting_) return "the sum of waiters is wrong";
  if (num_loading > 1 || (num_loading == 1) != is_loading_) return "models are loaded one after another";
  if (limits_.loaded_max > 0 && num_held > limits_.loaded_max) return "more models than may be loaded";
  return "";
}

}  // namespace llmrt
