// The engine: the only place where the circle closes (inbox -> plan -> lower -> submit -> wait -> stop -> commit ->
// events). One engine serves one backend with one model.
//
// Threads: run() or tick() belong to one thread, the engine's. submit, cancel, set_paused, drained, stats, stalled and
// stop are thread-safe. Sinks are called on the engine's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/engine/draft_parts.h"
#include "core/engine/engine_config.h"
#include "core/engine/engine_load.h"
#include "core/kv/prefix_listener.h"
#include "core/log/log.h"
#include "core/metrics/engine_stats.h"
#include "core/model/model.h"
#include "core/request/request.h"
#include "core/request/request_trace.h"
#include "core/schedule/prefix_identity.h"

namespace llmrt {

// What the blocks of a request's tokens have keys from (chain_key).
struct PrefixSource {
  Digest identity = {};
  std::optional<PrefixMark> mark = {};
};

// A step that the device does not come back from.
struct StalledStep {
  uint64_t step;   // counts up from 1
  double seconds;  // since it began
};

class Engine {
 public:
  // Loads the weights and sizes the KV pool (a measured run of the largest step). Slow; tells `progress` of the weight
  // bytes. `tokenizer` gives token bytes and the end-of-generation set; null for synthetic models (no stop strings, no
  // end of generation). `draft`: a smaller model that drafts for it (draft_model.h); null: there is none.
  static Result<std::unique_ptr<Engine>> create(const EngineConfig& config, std::shared_ptr<const Model> model,
                                                std::shared_ptr<const Tokenizer> tokenizer,
                                                std::unique_ptr<Backend> backend, const Clock* clock,
                                                const Progress& progress, DraftParts draft = {});
  ~Engine();

  // Checks the request against limits that never change (context, pool: never_fits with both numbers, vocabulary,
  // sampling ranges) and puts it into the inbox. After an error nothing else happens: the sink is not called.
  // overloaded when the bounded queue is full; after the engine's end (run) the error that ended it, or cancelled.
  // Returns the id of branch 0; those of the others follow.
  Result<RequestId> submit(Request request);
  // Ends the branch with `why` (kCancelled, kDisconnected, kHandedOver) if it is still there. Unknown ids are ignored. `sent`: when
  // parts of its answer have gone out, by the engine's clock; for its trace, here and below.
  void cancel(RequestId id, const SentTimes& sent = {}, FinishReason why = FinishReason::kCancelled);
  // The receiver can take no more of the branch (true), or again (false): meanwhile no step computes it, and it goes on
  // as if nothing had been. Some tokens that were under way still come. Unknown ids are ignored.
  void set_paused(RequestId id, bool is_paused);
  // The receiver has passed on everything of a finished branch: STREAMING becomes FINISHED.
  void drained(RequestId id, const SentTimes& sent = {});

  // Any thread, slow: reads an adapter, a PEFT folder or a GGUF file, as bytes for the device. A request takes `image`
  // and `id` into its `adapter` and `adapter_id`; the adapter comes to the device when it is asked for. Errors: those
  // of load_adapter and make_image (core/adapter); unsupported without slots for adapters, or for a rank above the
  // most.
  Result<ReadyAdapter> load_adapter(const std::string& path) const;

  // Ids are counted up here instead: unique over all engines that share it. Before the first submit.
  void set_ids(std::shared_ptr<std::atomic<RequestId>> last_id);
  // Where preemptions and the engine's own end are written; nowhere unless called. Before the first tick.
  void set_log(std::shared_ptr<Log> log);
  // Where the record of each branch goes once it is over (drained, cancelled, refused by the scheduler); nowhere unless
  // called. Before the first tick.
  void set_trace(std::shared_ptr<TraceSink> sink);

  // `listener` is told, on the engine's thread, of what the prefix cache has from now on. Before the first submit; any
  // thread. Nothing is told without a prefix cache.
  void listen(std::shared_ptr<PrefixListener> listener);
  // By what this engine's prefix cache knows the request's tokens (core/schedule/prefix_identity.h): identity and mark.
  // Any thread; hashes nothing of the prompt.
  PrefixSource prefix_source(const Request& request) const;

  // Runs ticks until stop(), sleeping while there is nothing to do. An error is the machine's (device lost) or says
  // that the scheduler's books do not balance (internal_error): every request has then been ended with it.
  Status run();
  // Lets run() return after the current tick; requests that are still there end as cancelled.
  void stop();
  // One pass of the loop: returns false when there was nothing to do. It waits for the device, and where a step is best
  // planned late for that time (Scheduler::plan_after_ms), but no longer than to `until`, when the caller has requests
  // to submit. For tests, tools and the CLI.
  Result<bool> tick(TimeNs until = kNever);
  // While there is nothing to do: lets the device prepare one more size of steps (code that is loaded, commands that
  // are recorded), which the first step of that size would wait for. False when all are; run() does it. Engine's
  // thread.
  Result<bool> prepare_next();

  // Any thread: the step that the device has been at for longer than EngineConfig::hang_s says; nothing while all is
  // well, and again once it has come back.
  std::optional<StalledStep> stalled() const;

  EngineStats stats() const;              // a consistent copy
  EngineLoad load() const;                // likewise, and small
  const MemoryPlan& memory_plan() const;  // every term of the KV pool's size
  const EngineConfig& config() const;
  const Model& model() const;
  const Model* draft_model() const;  // null: there is none
  Backend& backend();                // engine's thread only

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace llmrt
