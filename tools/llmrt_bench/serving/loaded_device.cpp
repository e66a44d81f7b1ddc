#include "tools/llmrt_bench/serving/loaded_device.h"

#include "core/engine/pool_sizing.h"

namespace llmrt::bench {
namespace {

// What an engine owns: the device with its weights in place, as if this engine had loaded them.
class LentBackend final : public Backend {
 public:
  explicit LentBackend(std::shared_ptr<Backend> lender) : lender_(std::move(lender)) {}

  const Caps& caps() const override { return lender_->caps(); }
  std::vector<std::string> unsupported() const override { return lender_->unsupported(); }
  Status load_weights(const WeightTable&, const Progress&) override {
    has_begun_ = true;
    return {};
  }
  Status create_state(const StateConfig& config) override { return lender_->create_state(config); }
  Status create_kv_pools(std::span<const KvGroup> groups) override { return lender_->create_kv_pools(groups); }
  Status prepare(const OpList& list) override { return lender_->prepare(list); }
  Result<Ticket> submit(const StepSubmission& step) override { return lender_->submit(step); }
  Result<StepOutput> wait(Ticket ticket) override { return lender_->wait(ticket); }
  Result<std::vector<double>> profile(const StepSubmission& step) override { return lender_->profile(step); }
  // What is ours is free before the engine begins, and the engine before has no part in the peak.
  MemoryReport memory() const override {
    MemoryReport report = lender_->memory();
    const uint64_t ours =
        report.weight_bytes + report.kv_bytes + report.state_bytes + report.arena_bytes + report.other_bytes;
    report.peak_bytes = ours;
    if (!has_begun_) report.free_bytes += ours;
    return report;
  }
  Status write_tensor(const OpList& list, TensorId tensor, std::span<const std::byte> bytes) override {
    return lender_->write_tensor(list, tensor, bytes);
  }
  Status read_tensor(const OpList& list, TensorId tensor, std::span<std::byte> bytes) override {
    return lender_->read_tensor(list, tensor, bytes);
  }
  Status write_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<const std::byte> bytes) override {
    return lender_->write_kv(kv_group, layer, block, bytes);
  }
  Status read_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<std::byte> bytes) override {
    return lender_->read_kv(kv_group, layer, block, bytes);
  }

 private:
  std::shared_ptr<Backend> lender_;
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
  KvGroup group = kv_group_of(model_->config, EngineConfig());
  group.num_blocks = 1;  // the least that there is
  return backend_->create_kv_pools({&group, 1});
}

}  // namespace llmrt::bench
