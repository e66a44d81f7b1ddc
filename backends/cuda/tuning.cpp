#include "backends/cuda/tuning.h"

namespace llmrt::cuda {

uint32_t Tuning::batch_warps_rows_max(Encoding encoding) const {
  switch (encoding) {
    case Encoding::kQ4_K:
      return 16;
    case Encoding::kQ4_0:
    case Encoding::kQ8_0:
      return 24;
    case Encoding::kQ6_K:
      return 40;
    default:
      return 32;  // not measured
  }
}

}  // namespace llmrt::cuda
