// How near to the reference a device's numbers must be.
#pragma once

#include "core/ops/tensor.h"

namespace llmrt::reference {

// What a compared number may be off by. Tensors are compared row by row against the reference's row, the unit being
// its root mean square: the norm of the difference, and its largest element.
struct Bound {
  double norm = 0;
  double max = 0;
};
enum class Tolerance {
  kAnything,      // judged elsewhere
  kExact,         // bit for bit: moved, not computed
  kElementwise,   // a few roundings
  kRotation,      // sines and cosines of a device
  kMatmul,        // a long sum of products with weights
  kMatmulHalves,  // the same with sums of a few products in f16 (Caps::half_sums_rows_min)
  kMatmulBytes,   // or numbers of x rounded to bytes (Caps::byte_inputs_rows_min)
  kAttention,     // two sums and an exponential
  kRecurrent,     // states in f32 over many tokens, in f32 throughout
};
// `math` is the dtype in which the device multiplies: that of the op's input, or its activation dtype in attention.
Bound bound_of(Tolerance tolerance, DType out, DType math);

// Of the result's own rounding: half a unit in the last place may fall either way.
constexpr double rounding_of(DType dtype) {
  return dtype == DType::kF16 ? 4e-4 : dtype == DType::kBF16 ? 3e-3 : 0;
}

}  // namespace llmrt::reference
