// The adapters of an engine: the books of the pool, and what is written to the device for them. The scheduler asks it
// for each request with an adapter; the engine lets it write in front of each step. The engine's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "core/adapter/adapter_pool.h"
#include "core/backend/backend.h"
#include "core/engine/engine.h"
#include "core/metrics/adapter_stats.h"
#include "core/schedule/adapter_books.h"

namespace llmrt {

// Bytes of the pool of adapters that the config asks for; 0 = none.
uint64_t adapter_pool_bytes(const AdapterConfig& config, const Model& model, DType dtype);
// Engine::load_adapter.
Result<ReadyAdapter> read_adapter(const std::string& path, const Model& model, const AdapterConfig& config,
                                  const Caps& caps);

// What the engine finds in a request's adapter. A request for an aLoRA (Greenewald and others 2025; as PEFT computes
// it): its adapter counts from where its invocation tokens stand last in the prompt; where they don't, it has none.
void read_adapter_of(Request* request);

class AdapterHost final : public AdapterBooks {
 public:
  // The backend has a pool of so many bytes and slots.
  AdapterHost(const AdapterPoolLimits& limits, Backend* backend)
      : pool_(limits), backend_(backend), num_slots_(limits.slots_max) {}

  Result<AdapterState> state_of(const Request& request, TimeNs now) override;
  uint32_t hold(const Request& request, TimeNs now) override;
  void release(RequestId request_id) override;
  void forget(RequestId request_id) override;
  bool holds(RequestId request_id) const override;
  uint32_t num_holds() const override { return num_holds_; }

  // Writes what has been asked for: all of it where nothing runs, else as much as a step hides. True: there was some.
  Result<bool> write(bool is_idle, TimeNs now);
  // Since the last write an adapter has been asked for that is not there: the next one may bring it in.
  bool is_asked() const { return is_asked_; }

  AdapterStats stats() const;
  Status check() const;

 private:
  struct Asked {
    AdapterTicket ticket = 0;
    bool holds = false;
  };

  AdapterPool pool_;
  Backend* const backend_;
  const uint32_t num_slots_;
  std::unordered_map<RequestId, Asked> asked_;
  uint32_t num_holds_ = 0;
  bool is_asked_ = false;
};

}  // namespace llmrt
