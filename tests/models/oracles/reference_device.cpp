// The program on the float64 reference backend instead of a GPU: what it answers has the rounding of a float16 KV cache
// and no other that matters, so oracle_test.py can tell a wrong graph or a wrong tensor from rounding. Beside it two
// devices that are wrong about recurrent states, which the test must tell: all rows in one record, and steps that begin
// with empty states.
#include <algorithm>

#include "backends/backends.h"
#include "core/backend/forwarding.h"
#include "core/ops/step_inputs.h"
#include "tests/reference/backend.h"

namespace llmrt {

namespace {

constexpr const char* kRight = "reference:0";
constexpr const char* kSharedStates = "reference:shared-states";
constexpr const char* kLostStates = "reference:lost-states";

class WrongStates final : public ForwardingBackend {
 public:
  WrongStates(std::unique_ptr<Backend> inner, bool loses) : ForwardingBackend(std::move(inner)), loses_(loses) {}

  // With a record behind the others that nothing is ever written to.
  Status create_kv_pools(std::span<const KvGroup> groups) override {
    groups_.assign(groups.begin(), groups.end());
    std::vector<KvGroup> own = groups_;
    for (KvGroup& group : own) group.num_blocks += group.is_state() ? 1 : 0;
    return inner().create_kv_pools(own);
  }

  Result<Ticket> submit(const StepSubmission& step) override {
    if (!step.forward) return inner().submit(step);
    Result<ForwardInputs> inputs = unpack_forward(step.forward_inputs);
    if (!inputs) return inputs.error();
    if (loses_)
      lose(&*inputs);
    else
      share(&*inputs);
    pack(*inputs, &words_);
    StepSubmission own = step;
    own.forward_inputs = words_;
    return inner().submit(own);
  }

 private:
  void share(ForwardInputs* inputs) const {
    for (const RowUpdate& update : inputs->row_updates)
      if (update.kind == RowUpdateKind::kPatchTable && groups_[update.arg1].is_state())
        std::fill_n(inputs->row_payload.begin() + update.payload_first, update.payload_words, 0u);
  }
  void lose(ForwardInputs* inputs) const {
    for (RowRecord& row : inputs->rows) {
      row.places_first = static_cast<uint32_t>(inputs->state_places.size());
      for (uint32_t g = 0; g < groups_.size() && row.start > 0; ++g)
        if (groups_[g].is_state()) inputs->state_places.push_back({g, groups_[g].num_blocks, row.start});
      row.num_places = static_cast<uint32_t>(inputs->state_places.size()) - row.places_first;
    }
  }

  const bool loses_;
  std::vector<KvGroup> groups_;
  std::vector<uint32_t> words_;
};

}  // namespace

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> devices;
  for (const char* id : {kRight, kSharedStates, kLostStates}) {
    DeviceInfo& device = devices.emplace_back();
    device.id = id;
    device.name = "float64 reference";
    device.is_cpu = true;
    device.usable = true;
  }
  return devices;
}

Result<std::unique_ptr<Backend>> open_device(const std::string& id) {
  std::unique_ptr<Backend> right = make_reference_backend();
  if (id == kSharedStates || id == kLostStates)
    return std::unique_ptr<Backend>(std::make_unique<WrongStates>(std::move(right), id == kLostStates));
  return right;
}

}  // namespace llmrt
