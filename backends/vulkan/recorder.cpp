#include "backends/vulkan/recorder.h"

#include <algorithm>

#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

bool overlap(const View& a, const View& b) {
  return a.buffer == b.buffer && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}
bool any_overlap(std::span<const View> a, const std::vector<View>& b) {
  return std::any_of(a.begin(), a.end(), [&](const View& x) {
    return std::any_of(b.begin(), b.end(), [&](const View& y) { return overlap(x, y); });
  });
}

void memory_barrier(const Device& device, VkCommandBuffer commands, VkPipelineStageFlags2 source) {
  VkMemoryBarrier2 barrier{VK_STRUCTURE_TYPE_MEMORY_BARRIER_2};
  barrier.srcStageMask = source;
  barrier.srcAccessMask = VK_ACCESS_2_MEMORY_WRITE_BIT;
  barrier.dstStageMask = VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT;
  barrier.dstAccessMask = VK_ACCESS_2_SHADER_STORAGE_READ_BIT | VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT;
  VkDependencyInfo dependency{VK_STRUCTURE_TYPE_DEPENDENCY_INFO};
  dependency.memoryBarrierCount = 1;
  dependency.pMemoryBarriers = &barrier;
  device.api().CmdPipelineBarrier2(commands, &dependency);
}

}  // namespace

void Recorder::begin() {
  if (commands_) memory_barrier(device_, commands_, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT);
}

void Recorder::barrier() {
  if (commands_) memory_barrier(device_, commands_, VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT);
  read_.clear();
  written_.clear();
}

bool Recorder::conflicts(std::span<const View> reads, std::span<const View> writes) const {
  return any_overlap(reads, written_) || any_overlap(writes, written_) || any_overlap(writes, read_);
}

Groups spread(const Traits& traits, uint64_t groups) {
  const uint64_t y = ceil_div<uint64_t>(groups, traits.groups_max[0]);
  return {static_cast<uint32_t>(y > 1 ? ceil_div(groups, y) : groups), static_cast<uint32_t>(y)};
}

void record_dispatch(const Device& device, const Pipelines& pipelines, VkCommandBuffer commands, const Kernel& kernel,
                     const Push& push, Groups groups) {
  const DeviceApi& api = device.api();
  const VkPipeline pipeline = pipelines.find(kernel);
  LLMRT_CHECK(pipeline != VK_NULL_HANDLE, kernel.shader);
  api.CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
  api.CmdPushConstants(commands, pipelines.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                       static_cast<uint32_t>(push.bytes().size()), push.bytes().data());
  api.CmdDispatch(commands, groups.x, groups.y, groups.z);
}

void Recorder::dispatch(const Kernel& kernel, const Push& push, Groups groups, std::span<const View> reads,
                        std::span<const View> writes) {
  ++num_dispatches_;
  const uint32_t* most = traits().groups_max;
  if (groups.x > most[0] || groups.y > most[1] || groups.z > most[2]) {
    if (status_)
      status_ =
          make_error(ErrorCode::kMissingFeature, "vulkan: {}: expected at most {} x {} x {} groups, found {} x {} x {}",
                     kernel.shader, most[0], most[1], most[2], groups.x, groups.y, groups.z);
    return;
  }
  if (!commands_) {
    kernels_.push_back(kernel);
    return;
  }
  if (conflicts(reads, writes)) barrier();
  read_.insert(read_.end(), reads.begin(), reads.end());
  written_.insert(written_.end(), writes.begin(), writes.end());
  const DeviceApi& api = device_.api();
  const VkPipeline pipeline = pipelines_.find(kernel);
  LLMRT_CHECK(pipeline != VK_NULL_HANDLE, kernel.shader);
  if (pipeline != bound_) api.CmdBindPipeline(commands_, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
  bound_ = pipeline;
  api.CmdPushConstants(commands_, pipelines_.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                       static_cast<uint32_t>(push.bytes().size()), push.bytes().data());
  api.CmdDispatch(commands_, groups.x, groups.y, groups.z);
}

View Recorder::tensor(TensorId id) const {
  const View& home = desc(id).storage == Storage::kHidden ? resources_.hidden : resources_.arena;
  const uint64_t offset = desc(id).storage == Storage::kHidden ? 0 : plan_.offsets[id];
  return home.part(offset, list_.bytes_of(id));
}

View Recorder::live_count(TensorId id) const {
  if (desc(id).rows == Rows::kTokens) return forward_word(kFwdNumTokens);
  return resources_.sample_inputs.part(kSmpNumRecords * 4ull, 4);
}

NormParts Recorder::norm_parts() const {
  const uint64_t rows = traits().fragment.n, columns = resources_.config.hidden_columns;
  const View& all = resources_.norms;
  const uint64_t squares = 2 * rows * 4, x = squares + rows * (columns / traits().fragment.m) * 4;
  return {all,
          {all.part(0, rows * 4), all.part(rows * 4, rows * 4)},
          all.part(squares, x - squares),
          all.part(x, rows * columns * 2)};
}

namespace {
// What record_ops is said to do.
Result<uint32_t> record_next(Recorder& recorder, uint32_t idx) {
  const std::vector<Op>& ops = recorder.list().ops;
  const auto at = [&](uint32_t i) { return i < ops.size() ? &ops[i] : nullptr; };
  // Neighbours that rotate, normalise and store one qkv tensor.
  const QkNorm* norm = nullptr;
  const Rope* rope = nullptr;
  const KvWrite* write = nullptr;
  uint32_t next = idx;
  TensorId qkv = kNoTensor;
  const auto take = [&]<class T>(const T** found) {
    const T* op = at(next) ? std::get_if<T>(at(next)) : nullptr;
    if (!op || (qkv != kNoTensor && op->qkv != qkv)) return;
    *found = op;
    qkv = op->qkv;
    ++next;
  };
  take(&norm);
  take(&rope);
  take(&write);
  if (next > idx) {
    if (Status status = record(recorder, norm, rope, write); !status) return status.error();
    return next - idx;
  }
  const Matmul* matmul = std::get_if<Matmul>(&ops[idx]);
  const GatedActivation* activation = at(idx + 1) ? std::get_if<GatedActivation>(at(idx + 1)) : nullptr;
  if (matmul && activation && recorder.last_op(matmul->out) == static_cast<int>(idx) + 1 &&
      can_fuse(recorder, *matmul, *activation)) {
    if (Status status = record_fused(recorder, *matmul, *activation); !status) return status.error();
    return 2;
  }
  if (can_leave_norm(recorder, idx)) {
    if (Status status = record_fused(recorder, *matmul, std::get<RmsNorm>(ops[idx + 1])); !status)
      return status.error();
    return 2;
  }
  if (can_leave_parts(recorder, idx)) {
    if (Status status = record_parts(recorder, *matmul); !status) return status.error();
    return 1;
  }
  // Nobody but attention reads what they leave of qkv, and of that q alone.
  const auto* turn = at(idx + 1) ? std::get_if<Rope>(at(idx + 1)) : nullptr;
  const auto* store = at(idx + 2) ? std::get_if<KvWrite>(at(idx + 2)) : nullptr;
  if (matmul && turn && store && at(idx + 3) && std::holds_alternative<PagedAttention>(*at(idx + 3)) &&
      recorder.last_op(matmul->out) == static_cast<int>(idx) + 3 && can_fuse(recorder, *matmul, *turn, *store)) {
    if (Status status = record_fused(recorder, *matmul, *turn, *store); !status) return status.error();
    return 3;
  }
  Status status = std::visit(
      [&]<class T>(const T& op) -> Status {
        if constexpr (std::is_same_v<T, QkNorm> || std::is_same_v<T, Rope> || std::is_same_v<T, KvWrite>)
          return {};  // taken above
        else
          return record(recorder, op);
      },
      ops[idx]);
  if (!status) return status.error();
  return 1;
}
}  // namespace

Result<uint32_t> record_ops(Recorder& recorder, uint32_t idx) {
  auto taken = record_next(recorder, idx);
  if (taken && !recorder.status()) return recorder.status().error();
  return taken;
}

}  // namespace llmrt::vulkan
