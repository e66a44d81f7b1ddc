// The same (attention_decode.cu) in lists whose decode items may have several tokens of a row.
#include "backends/cuda/ops/attention_decode.cuh"

namespace llmrt::cuda {

void lay_out_decode_runs(const AttentionShape& shape, const DeviceFacts& device, AttentionChoice* choice) {
  decode_tiles::lay_out<true>(shape, device, choice);
}

Status attend_runs(const AttentionChoice& choice, const AttentionArgs& args, KvDType dtype, const OpContext& at) {
  return decode_tiles::attend<true>(choice, args, dtype, at);
}

}  // namespace llmrt::cuda
