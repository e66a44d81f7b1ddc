// The same (attention_decode_ring.cu) in lists whose decode items may have several tokens of a row.
#include "backends/cuda/ops/attention_decode_ring.cuh"

namespace llmrt::cuda {

void lay_out_decode_ring_runs(const AttentionShape& shape, const DeviceFacts& device, AttentionChoice* choice) {
  decode_ring::lay_out<true>(shape, device, choice);
}

Status attend_runs_by_ring(const AttentionChoice& choice, const AttentionArgs& args, KvDType dtype,
                           const OpContext& at) {
  return decode_ring::attend<true>(choice, args, dtype, at);
}

}  // namespace llmrt::cuda
