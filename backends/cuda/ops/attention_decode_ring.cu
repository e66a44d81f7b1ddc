// paged_attention of decode items on compute capability 9.0 (attention_decode_ring.cuh), where each has one token.
#include "backends/cuda/ops/attention_decode_ring.cuh"

namespace llmrt::cuda {
namespace {

// Rows of a RowMap are counted in int32.
constexpr uint64_t kVectorsMax = 0x7fffffff;

}  // namespace

bool can_attend_by_ring(const AttentionShape& shape, const DeviceFacts& device) {
  return device.has_warpgroups && shape.num_vectors() <= kVectorsMax;
}

void lay_out_decode_ring(const AttentionShape& shape, const DeviceFacts& device, AttentionChoice* choice) {
  decode_ring::lay_out<false>(shape, device, choice);
}

Status attend_decode_by_ring(const AttentionChoice& choice, const AttentionArgs& args, KvDType dtype,
                             const OpContext& at) {
  return decode_ring::attend<false>(choice, args, dtype, at);
}

}  // namespace llmrt::cuda
