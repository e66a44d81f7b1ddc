#include "tests/reference/tolerance.h"

namespace llmrt::reference {

Bound bound_of(Tolerance tolerance, DType out, DType math) {
  const auto with_rounding = [&](double norm, double max) { return Bound{norm + rounding_of(out), max}; };
  switch (tolerance) {
    case Tolerance::kAnything:
    case Tolerance::kExact:
      return {};
    case Tolerance::kElementwise:
      return with_rounding(2e-6, 2e-5);
    case Tolerance::kRotation:
      return with_rounding(1e-5, 1e-4);
    case Tolerance::kMatmul:
      // f32: products and sums in f32. f16, bf16: weights may be rounded to the inputs' dtype before they are
      // multiplied.
      if (math == DType::kF16) return with_rounding(5e-4, 4e-3);
      if (math == DType::kBF16) return with_rounding(4e-3, 3e-2);
      return with_rounding(1e-5, 1e-4);
    case Tolerance::kMatmulHalves:
      // A product's share of a sum is rounded 9.5 times (shaders/matmul_pairs.comp), by 0.02 % each: 0.062 % in all.
      return with_rounding(1.2e-3, 1e-2);
    case Tolerance::kMatmulBytes:
      // A byte of 32 normally distributed numbers is off by 2.1 / 127 / sqrt(12) of their deviation, 0.5 %; results of
      // weights whose mean is not 0 are smaller than their products, and gates multiply two.
      return with_rounding(1.5e-2, 1e-1);
    case Tolerance::kAttention:
      // q and the softmax weights may be rounded to the device's activation dtype.
      if (math == DType::kF16) return with_rounding(2e-3, 2e-2);
      if (math == DType::kBF16) return with_rounding(1e-2, 1e-1);
      return with_rounding(2e-5, 2e-4);
    case Tolerance::kRecurrent:
      return with_rounding(1e-5, 1e-4);
  }
  return {};
}

}  // namespace llmrt::reference
