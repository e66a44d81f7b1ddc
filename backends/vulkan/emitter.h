// Turns the steps of a list into launches: which views a kernel is given, reads and writes. It keeps track of what
// earlier launches have touched and asks for a barrier only where ranges overlap, arena aliasing included.
#pragma once

#include <span>
#include <vector>

#include "backends/vulkan/choose_experts.h"
#include "backends/vulkan/choose_matmul.h"
#include "backends/vulkan/program.h"

namespace llmrt::vulkan {

// What launches since the last barrier have touched.
class Hazards {
 public:
  // Whether a barrier must stand before a launch, which is then the first one behind it.
  bool add(std::span<const View> reads, std::span<const View> writes);
  void clear();

 private:
  std::vector<View> read_, written_;
};

class Emitter {
 public:
  Emitter(const Resources& resources, const Setting& setting, Program* program)
      : resources_(resources), setting_(setting), program_(program) {}

  // The launches that follow are the step's.
  void begin_step(const Step& step);
  Launch& launch(const KernelChoice& choice, const PushBytes& push, std::span<const View> reads,
                 std::span<const View> writes);
  // A missing feature, for the first launch that the device does not take.
  const Status& status() const { return status_; }

  const Traits& traits() const { return setting_.traits(); }
  const Resources& resources() const { return resources_; }
  const Setting& setting() const { return setting_; }
  const WeightPieces& weights() const { return setting_.weights; }
  const OpList& list() const { return setting_.list; }
  const TensorDesc& desc(TensorId id) const { return setting_.list.tensors[id]; }
  template <class T>
  const T& op(uint32_t idx) const {
    return std::get<T>(setting_.list.ops[idx]);
  }
  View tensor(TensorId id) const;
  // The word that says how many of the tensor's rows are live; of a routed one, of the rows that are routed.
  View live_count(TensorId id) const;
  // Whether Resources::routes has these items of the ids, and x in f16 if it is given; from now on it has. Ids that are
  // made anew: forget_items().
  bool has_items(TensorId ids, const ExpertItems& items, TensorId x);
  void forget_items() { sorted_ids_ = kNoTensor; }

 private:
  const Resources& resources_;
  const Setting& setting_;
  Program* program_;
  Hazards hazards_, step_hazards_;
  TensorId sorted_ids_ = kNoTensor, rounded_x_ = kNoTensor;  // whose items and rows Resources::routes has
  ExpertItems sorted_items_;
  Status status_;
};

// One function an op that is a step by itself, in kernels/<shader>.cpp. Errors: unsupported, naming what is not done.
Status emit(Emitter& e, const UpdateRows& op);
Status emit(Emitter& e, const PrepareRows& op);
Status emit(Emitter& e, const Embed& op);
Status emit(Emitter& e, const JoinedQkNorm& op);
Status emit(Emitter& e, const PagedAttention& op);
Status emit(Emitter& e, const LatentRows& op);
Status emit(Emitter& e, const HeadMatmul& op);
Status emit(Emitter& e, const LatentAttention& op);
Status emit(Emitter& e, const ExpandLatent& op);
Status emit(Emitter& e, const AdapterShrink& op);
Status emit(Emitter& e, const AdapterExpand& op);
Status emit(Emitter& e, const ExpertShrink& op);
Status emit(Emitter& e, const ExpertTerm& op);
Status emit(Emitter& e, const ExpertExpand& op);
Status emit(Emitter& e, const RunningSum& op);
Status emit(Emitter& e, const CausalConv& op);
Status emit(Emitter& e, const GatedDelta& op);
Status emit(Emitter& e, const SelectiveScan& op);
Status emit(Emitter& e, const GatedNorm& op);
Status emit(Emitter& e, const GatedActivation& op);
Status emit(Emitter& e, const RouteExperts& op);
Status emit(Emitter& e, const ExpertGateUp& op);
Status emit(Emitter& e, const ExpertDown& op);
Status emit(Emitter& e, const Add& op);
Status emit(Emitter& e, const Scale& op);
Status emit(Emitter& e, const SoftCap& op);
Status emit(Emitter& e, const SigmoidGate& op);
Status emit(Emitter& e, const GatherRows& op);
Status emit(Emitter& e, const ApplyPenalties& op);
Status emit(Emitter& e, const ApplyBias& op);
Status emit(Emitter& e, const Filter& op);
Status emit(Emitter& e, const Sample& op);
Status emit(Emitter& e, const Logprobs& op);
Status emit(Emitter& e, const CopyBlocks& op);
Status emit(Emitter& e, const StoreBlocks& op);
Status emit(Emitter& e, const LoadBlocks& op);
// One function a step; those of matmuls in emit_matmul.cpp.
Status emit(Emitter& e, const PlainStep& step);
Status emit(Emitter& e, const NormStep& step);
Status emit(Emitter& e, const QkvHeadsStep& step);
Status emit(Emitter& e, const MatmulStep& step);
Status emit(Emitter& e, const GatedMatmulStep& step);
Status emit(Emitter& e, const QkvMatmulStep& step);
Status emit(Emitter& e, const NormedMatmulStep& step);
Status emit(Emitter& e, const PartsMatmulStep& step);

}  // namespace llmrt::vulkan
