// Several engines of one model, on unlike devices, as one. A request goes to the engine that place() chooses. When an
// engine is lost, the answers that it was making go on elsewhere from the tokens that their clients have: noise is a
// function of place and seed, so the text is what it would have been, up to where two logits are as good as equal.
//
// Which answers go on: those that draw tokens, without beams, and without log-probabilities of prompt tokens once some
// were told. The others end with the engine's error, as do all when no other engine can take them.
//
// An engine that fails takes no more requests, until another one stands in its place (bring_back). One whose requests
// fail without it is left out for a while, twice as long each time (placement.h, "errors"). Either comes back on trial:
// one request at a time goes there, until one has ended well.
//
// With a HandOverRule one engine may compute the prompt and another go on behind the first token, from blocks that come
// through the engines' exchange. Not so for beams, log-probabilities of prompts, and requests that want numbers which
// do not depend on what runs beside them: another device would round otherwise.
//
// Thread-safe. Methods do not block, and may be called on an engine's thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/clock.h"
#include "core/engine/engine.h"
#include "core/log/log.h"
#include "core/router/fleet_figures.h"
#include "core/router/hand_over.h"
#include "core/router/placement.h"
#include "core/router/placement_log.h"
#include "core/router/prefix_hits.h"

namespace llmrt {

class Fleet {
 public:
  struct Worker {
    std::string name;                // of its device
    std::shared_ptr<Engine> engine;  // let go when it is lost: its owner keeps it until its thread has ended
  };
  // The engines share ids from here on (Engine::set_ids), and tell what their prefix caches have (Engine::listen).
  Fleet(std::vector<Worker> workers, const PlacementConfig& config, const Clock* clock,
        std::shared_ptr<Log> log = silent_log());
  ~Fleet();

  // As that of the engine that it goes to; unsupported, with each worker's reason, where none can serve the request,
  // and device_lost where none is left. A copy of the request is kept until all of its branches are drained or
  // cancelled.
  Result<RequestId> submit(Request request);
  void cancel(RequestId id, const SentTimes& sent = {}, FinishReason why = FinishReason::kCancelled);
  void set_paused(RequestId id, bool is_paused);
  void drained(RequestId id, const SentTimes& sent = {});

  // Told of each decision with all of its terms. Before the first submit; any thread, and it must not block.
  using Told = std::function<void(PlacementRecord)>;
  void on_choice(Told told) { told_ = std::move(told); }
  // Prompts are handed over from now on; the engines have one exchange. Before the first submit.
  void set_hand_over(HandOverRule rule) { rule_ = std::move(rule); }

  // The engine can serve no more; its thread has ended every request by now. How many are left.
  size_t lose(size_t worker);
  // Another engine of the same model on the device of one that was lost; it has not run yet.
  void bring_back(size_t worker, std::shared_ptr<Engine> engine);
  // Takes no new requests from now on; those that it has are answered.
  void drain(size_t worker, bool is_drained);

  size_t size() const { return names_.size(); }
  const std::vector<std::string>& names() const { return names_; }
  std::vector<FleetWorkerFigures> figures() const;

 private:
  class Flow;
  struct Place {  // of a branch that a client knows by its first id
    std::shared_ptr<Flow> flow;
    uint32_t branch;
  };
  enum class Trial : uint8_t { kNone, kReady, kUnderWay };
  struct State {
    std::shared_ptr<Engine> engine;  // null: lost
    WorkerFacts limits;
    PrefixView prefixes;
    FleetWorkerFigures figures;
    TimeNs out_until_ns = 0;  // failed lately
    TimeNs out_ns = 0;        // for so long the last time
    uint32_t num_failures = 0;
    TimeNs failure_ns = 0;  // the first of these
    Trial trial = Trial::kNone;
  };
  struct Chosen {
    uint32_t worker;
    std::shared_ptr<Engine> engine;
    bool gives = false;
  };
  enum class End : uint8_t { kWell, kFault, kNeither };

  WorkerFacts facts_of(const State& state) const;  // locked
  size_t lose_locked(size_t worker);
  std::vector<uint64_t> cached_tokens_of(const Request& request) const;
  // `but`: not that worker.
  Result<Chosen> choose(const Request& request, std::string_view why, std::optional<size_t> but = {});
  std::optional<Chosen> choose_next(const Request& rest, uint32_t from);
  std::vector<WorkerFacts> all_facts(TimeNs now);  // locked
  Chosen take(uint32_t worker, bool gives);        // locked
  void hand_on(Flow& flow, uint32_t branch);
  void note_end(size_t worker, End end);
  bool move(Flow& flow, uint32_t branch, const Error& error);
  // What could not be handed to a worker's engine; whether another one may take it.
  bool goes_elsewhere(const Chosen& chosen, const Error& error);
  void forget(RequestId id);
  std::optional<std::pair<std::shared_ptr<Engine>, RequestId>> find(RequestId id, bool cancels = false);

  const PlacementConfig config_;
  const Clock* const clock_;
  const std::shared_ptr<Log> log_;
  const std::shared_ptr<std::atomic<RequestId>> last_id_ = std::make_shared<std::atomic<RequestId>>(0);
  std::vector<std::string> names_;
  Told told_;
  HandOverRule rule_;
  mutable std::mutex mutex_;  // of what follows; no engine's submit is called under it
  uint64_t turn_ = 0;
  std::vector<State> states_;
  std::unordered_map<RequestId, Place> places_;  // by the first id
};

}  // namespace llmrt
