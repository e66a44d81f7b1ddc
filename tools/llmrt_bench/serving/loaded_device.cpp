#include "tools/llmrt_bench/serving/loaded_device.h"

#include "core/backend/forwarding.h"
#include "core/engine/pool_shapes.h"

namespace llmrt::bench {
namespace {

// What an engine owns: the device with its weights in place, as if this engine had loaded them.
class LentBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  Status load_weights(const WeightTable&, const Progress&) override {
    has_begun_ = true;
    return {};
  }
  // What is ours is free before the engine begins, and the engine before has no part in the peak.
  MemoryReport memory() const override {
    MemoryReport report = inner().memory();
    const uint64_t ours =
        report.weight_bytes + report.kv_bytes + report.state_bytes + report.arena_bytes + report.other_bytes;
    report.peak_bytes = ours;
    if (!has_begun_) report.free_bytes += ours;
    return report;
  }

 private:
  bool has_begun_ = false;
};

}  // namespace

Result<LoadedDevice> LoadedDevice::load(std::unique_ptr<Backend> backend, std::shared_ptr<const Model> model,
                                        const Clock* clock) {
  LoadedDevice device;
  const TimeNs begin_ns = clock->now_ns();
  if (Status status = backend->load_weights(model->weights, {}); !status) return status.error();
  device.backend_ = std::move(backend);
  device.model_ = std::move(model);
  device.clock_ = clock;
  device.load_s_ = ms_between(begin_ns, clock->now_ns()) * 1e-3;
  return device;
}

Result<std::unique_ptr<Engine>> LoadedDevice::make_engine(const EngineConfig& config) const {
  return Engine::create(config, model_, nullptr, std::make_unique<LentBackend>(backend_), clock_, {});
}

Status LoadedDevice::free_pool() const {
  return backend_->create_kv_pools(PoolShapes(model_->config, EngineConfig()).groups(1, 0));  // the least that there is
}

}  // namespace llmrt::bench
