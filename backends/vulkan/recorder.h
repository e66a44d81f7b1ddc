// Turns ops into dispatches. An op's file says which kernel, how many groups, which tensors are read and written;
// the recorder keeps track of what an earlier dispatch has touched and puts a barrier only where ranges overlap, arena
// aliasing included. The same walk runs twice: first it only collects the kernels, so that they compile in parallel.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "backends/vulkan/memory.h"
#include "backends/vulkan/pipelines.h"
#include "backends/vulkan/weights.h"
#include "core/backend/backend.h"
#include "core/kv/kv_format.h"
#include "core/ops/op_list.h"

namespace llmrt::vulkan {

// The dtype as kernels know it (shaders/kv_format.glsl): 0 is no pool.
constexpr uint32_t kv_constant(KvDType dtype) {
  return static_cast<uint32_t>(dtype) + 1;
}

// Pairing as kernels know it (shaders/rope.glsl): 0 is none.
constexpr uint32_t rope_constant(const Rope& rope) {
  return static_cast<uint32_t>(rope.pairing) + 1;
}

// The blocks of one pool, on the device or in the host's memory.
struct KvMemory {
  std::vector<View> data, scales;  // by layer; no scales: empty
};
struct KvPool {
  KvGroup group;
  KvMemory device, host;
};

// Everything on the device that ops may touch, beside the arena.
struct Resources {
  const Traits* traits = nullptr;
  const Weights* weights = nullptr;
  StateConfig config;
  View arena, hidden;
  View rows;        // [slots_max, kRowWords]: RowSampling, last token
  View tables;      // [num_kv_groups, slots_max, blocks_row_max] block ids
  View counts;      // [penalty_rows_max, vocab]: bit 31 in the prompt, below it how often in the output
  View partials;    // [partials_max, heads_max, head_dim_max + 2] f32: max, sum, values
  View merge_arrivals;  // [partials_max, heads_max] words: how many splits of a token are done
  View candidates;  // [sample_rows_max, 2 * kListMax]: keys and ids of the best tokens, from filter to sample
  View products;    // [num_cores, kSplitBytesCore]: sums that workgroups of a matmul hand to each other
  View arrivals;    // [num_cores, kArrivalsCore] words: how many have done so for a tile, or for a row that is sampled
  View norms;       // NormParts
  View halves;      // of up to kHalvesBytesMax: quantised weights written out in f16
  View results;     // [sample_rows_max] SampleResult, then [sample_rows_max] LogprobRow
  View forward_inputs, sample_inputs;
  std::vector<KvPool> pools;
};

// A norm of few rows that one matmul leaves for the next to end: shaders/matmul_fragment.comp.
struct NormParts {
  View all;
  View factors[2];  // [fragment.n] f32 each: this norm's and the one's before it in turn
  View squares;     // [fragment.n, groups] f32: a row's squares, summed by each group of the first
  View x;           // [fragment.n, columns] f16: the norm but for its factor
};
// Of the norms that a list has recorded.
struct NormState {
  int slot = -1;              // of NormParts::factors: the last norm's; -1: none has kept its factor
  TensorId left = kNoTensor;  // the last norm's result, while its reader has to end it
  float eps = 0;

  // All that read `x` is recorded.
  void end(TensorId x) {
    if (left == x) *this = {1 - slot, kNoTensor, 0};
  }
};
// Where the last matmul left its result in parts, each as large as it, which the norm behind adds up.
struct PartsState {
  TensorId of = kNoTensor;
  View parts;
  uint32_t count = 1;
};
inline constexpr uint32_t kRowWords = 20;   // twin: shaders/step_inputs.glsl
inline constexpr uint32_t kListMax = 1024;  // twin: shaders/logits_row.glsl
// Rows of x that matmul_vector multiplies without matrix units; more are multiplied by tiles, which with packed f16 and
// bytes are faster from fewer rows on (docs/performance.md).
inline uint32_t vector_rows_max(const Traits& traits, bool quantized) {
  if (quantized && traits.tier == Tier::kDots) return 4;
  return !traits.packed_f16 ? 8 : quantized ? 7 : 6;
}
inline constexpr uint32_t kSplitBytesCore = 256 << 10, kArrivalsCore = 16;
inline constexpr uint64_t kHalvesBytesMax = 128 << 20;

// Push constants in the order of the shader's block: addresses first, then words.
class Push {
 public:
  Push& add(const View& view) { return add_bytes(&view.address, 8); }
  Push& add(uint32_t value) { return add_bytes(&value, 4); }
  Push& add(float value) { return add_bytes(&value, 4); }
  // The next goes to that byte: what lies before it the kernel does not read.
  Push& to(uint32_t offset) {
    LLMRT_CHECK(size_ <= offset && offset <= sizeof(bytes_), "push constants");
    size_ = offset;
    return *this;
  }
  std::span<const std::byte> bytes() const { return {bytes_, size_}; }

 private:
  Push& add_bytes(const void* data, uint32_t size) {
    LLMRT_CHECK(size_ % size == 0 && size_ + size <= sizeof(bytes_), "push constants");
    std::memcpy(bytes_ + size_, data, size);
    size_ += size;
    return *this;
  }
  std::byte bytes_[128] = {};
  uint32_t size_ = 0;
};

struct Groups {
  uint32_t x = 1, y = 1, z = 1;
};

// In y as well where there are more than the device takes in x, and then a few too many. Twin: shaders/spread.glsl.
Groups spread(const Traits& traits, uint64_t groups);

// Outside of a list's recording; the pipeline is compiled, and barriers are the caller's.
void record_dispatch(const Device& device, const Pipelines& pipelines, VkCommandBuffer commands, const Kernel& kernel,
                     const Push& push, Groups groups);

class Recorder {
 public:
  // With `commands` null the walk only collects kernels.
  Recorder(const Device& device, const Pipelines& pipelines, const Resources& resources, const OpList& list,
           const ArenaPlan& plan, VkCommandBuffer commands)
      : device_(device), pipelines_(pipelines), resources_(resources), list_(list), plan_(plan), commands_(commands) {}

  // Everything that earlier submissions wrote becomes visible.
  void begin();
  // A hazard against anything so far is resolved by a barrier first. More groups than the device takes: status().
  void dispatch(const Kernel& kernel, const Push& push, Groups groups, std::span<const View> reads,
                std::span<const View> writes);
  // Forgets what was touched: the next dispatch starts after a barrier. For timing ops apart.
  void barrier();

  const Traits& traits() const { return *resources_.traits; }
  const Resources& resources() const { return resources_; }
  const Weights& weights() const { return *resources_.weights; }
  const OpList& list() const { return list_; }
  const TensorDesc& desc(TensorId id) const { return list_.tensors[id]; }
  View tensor(TensorId id) const;
  int last_op(TensorId id) const { return plan_.last_ops[id]; }
  // The word that says how many of the tensor's rows are live.
  View live_count(TensorId id) const;
  NormParts norm_parts() const;
  const NormState& norm_state() const { return norm_state_; }
  NormState& norm_state() { return norm_state_; }
  PartsState& parts_state() { return parts_state_; }
  View forward_word(uint32_t word) const { return resources_.forward_inputs.part(word * 4ull, 4); }

  // A missing feature, for the first dispatch that the device does not take.
  const Status& status() const { return status_; }
  const std::vector<Kernel>& kernels() const { return kernels_; }
  uint32_t num_dispatches() const { return num_dispatches_; }

 private:
  bool conflicts(std::span<const View> reads, std::span<const View> writes) const;

  const Device& device_;
  const Pipelines& pipelines_;
  const Resources& resources_;
  const OpList& list_;
  const ArenaPlan& plan_;
  VkCommandBuffer commands_;
  std::vector<View> read_, written_;  // since the last barrier
  std::vector<Kernel> kernels_;
  VkPipeline bound_ = VK_NULL_HANDLE;
  uint32_t num_dispatches_ = 0;
  Status status_;
  NormState norm_state_;
  PartsState parts_state_;
};

// Records op `idx` of the list, and any neighbours that it is fused with; returns how many ops that were.
Result<uint32_t> record_ops(Recorder& recorder, uint32_t idx);

// Caps::decode_works.
uint32_t decode_works(const Traits& traits);
// Caps::prompt_tiles and prompt_tile_rows, where they are known.
void set_prompt_tiles(const Traits& traits, Caps* caps);

// One function an op, in ops/<op>.cpp. Errors: unsupported, naming what is not done.
Status record(Recorder& r, const UpdateRows& op);
Status record(Recorder& r, const PrepareRows& op);
Status record(Recorder& r, const Embed& op);
Status record(Recorder& r, const RmsNorm& op);
Status record(Recorder& r, const Matmul& op);
Status record(Recorder& r, const PagedAttention& op);
Status record(Recorder& r, const GatedActivation& op);
Status record(Recorder& r, const Add& op);
Status record(Recorder& r, const Scale& op);
Status record(Recorder& r, const GatherRows& op);
Status record(Recorder& r, const ApplyPenalties& op);
Status record(Recorder& r, const ApplyBias& op);
Status record(Recorder& r, const Filter& op);
Status record(Recorder& r, const Sample& op);
Status record(Recorder& r, const Logprobs& op);
Status record(Recorder& r, const CopyBlocks& op);
Status record(Recorder& r, const StoreBlocks& op);
Status record(Recorder& r, const LoadBlocks& op);
// Both in one kernel that leaves out the matmul's own result.
bool can_fuse(const Recorder& r, const Matmul& matmul, const GatedActivation& activation);
Status record_fused(Recorder& r, const Matmul& matmul, const GatedActivation& activation);
// Op `idx` and the two behind it are a matmul, the norm of what it is added to, and a matmul of that norm. The first
// one's kernel makes the norm but for its factor, which is known once all of it is done, and the second one's
// multiplies by that.
bool can_leave_norm(const Recorder& r, uint32_t idx);
Status record_fused(Recorder& r, const Matmul& matmul, const RmsNorm& norm);
// Op `idx` is a matmul whose workgroups share tiles, and what is behind it adds its result to a residual: that one's kernel
// adds up what each workgroup has, in place of the last workgroup of each tile.
bool can_leave_parts(const Recorder& r, uint32_t idx);
Status record_parts(Recorder& r, const Matmul& matmul);
// How many vec4s of a row an invocation of rms_norm's kernel keeps; 0: none, and it adds no parts up.
uint32_t norm_quads(const Traits& traits, uint32_t columns);
// All in one kernel that leaves k and v out of the matmul's own result.
bool can_fuse(const Recorder& r, const Matmul& matmul, const Rope& rope, const KvWrite& write);
Status record_fused(Recorder& r, const Matmul& matmul, const Rope& rope, const KvWrite& write);
// Any run of these over one qkv tensor is one kernel; null ones are left out.
Status record(Recorder& r, const QkNorm* norm, const Rope* rope, const KvWrite* write);

}  // namespace llmrt::vulkan
