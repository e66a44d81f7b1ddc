// Several models in one process: a ModelRegistry with threads that carry out what it decides. A clerk thread keeps the
// time and starts a thread for each load and unload, so that neither delays the other, nor any request; loads come one
// after another. All methods but the constructor and the destructor are thread-safe and do not block, but for stop().
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/log/log.h"
#include "core/router/model_registry.h"

namespace llmrt {

// What a loader makes: whatever serves requests. Its destructor gives everything back.
class LoadedModel {
 public:
  virtual ~LoadedModel() = default;
  virtual uint64_t held_bytes() const = 0;
};

class ModelLoader : public MemoryBudget {
 public:
  // On a thread of its own; may take minutes. `on_lost` may be called once the model is loaded, on any thread, when it
  // can serve no more; it does not block.
  virtual Result<std::shared_ptr<LoadedModel>> load(ModelIdx model, std::function<void(Error)> on_lost) = 0;
  // On a thread of its own, with the last reference.
  virtual void unload(ModelIdx, std::shared_ptr<LoadedModel> loaded) { loaded.reset(); }
};

// A model that a request holds: it is not unloaded before the last copy is gone.
using ModelLease = std::shared_ptr<LoadedModel>;

class ModelHost {
 public:
  // `clock` outlives this and every lease.
  ModelHost(std::vector<ModelSpec> models, const RegistryLimits& limits, std::shared_ptr<ModelLoader> loader,
            const Clock* clock, std::shared_ptr<Log> log = silent_log());
  ~ModelHost();
  ModelHost(const ModelHost&) = delete;
  ModelHost& operator=(const ModelHost&) = delete;

  // `done` is called once, unless cancelled before: at once on this thread (0 is returned then), or later on another
  // one. It must not block.
  using Done = std::function<void(Result<ModelLease>)>;
  WaiterId acquire(ModelIdx model, Done done);
  void cancel(WaiterId waiter);
  // Null where acquire() would have to wait or would be refused.
  ModelLease acquire_now(ModelIdx model) const;

  // Ready ones, by model; null: not ready. To look at them: it does not count as use.
  std::vector<ModelLease> look() const;
  ModelLease look(ModelIdx model) const;
  std::vector<ModelFigures> figures() const;
  ModelFigures figures(ModelIdx model) const;
  std::optional<ModelIdx> find(std::string_view name) const;
  // Further names, as those of adapters: the name of the model that each stands for, or nothing. find() asks it last.
  // Thread-safe; before the first find().
  void set_aliases(std::function<std::optional<std::string>(std::string_view)> aliases);
  size_t size() const;
  TimeNs now_ns() const;

  // From outside: a loaded model that is not the loader's, or one that was loaded before this began.
  void adopt(ModelIdx model, std::shared_ptr<LoadedModel> loaded);
  void lose(ModelIdx model, Error error);
  // ModelRegistry::unload.
  Status unload(ModelIdx model);
  // Refuses waiters and new requests from now on.
  void close();
  // Closes, and waits until every lease is back and every model unloaded.
  void stop();

 private:
  struct Books;
  std::shared_ptr<Books> books_;
  std::thread clerk_;
};

}  // namespace llmrt
