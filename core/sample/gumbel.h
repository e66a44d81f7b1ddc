// C++ door of the noise source (gumbel.inc); compiled with contraction off everywhere.
#pragma once

#include <bit>
#include <cstdint>

namespace llmrt {

#define LLMRT_FN inline
#define LLMRT_UINT uint32_t
#define LLMRT_MUL(a, b) ((a) * (b))
#define LLMRT_ADD(a, b) ((a) + (b))
#define LLMRT_BITS_TO_FLOAT(u) std::bit_cast<float>(static_cast<uint32_t>(u))
#define LLMRT_FLOAT_TO_BITS(f) std::bit_cast<uint32_t>(static_cast<float>(f))
#define LLMRT_UINT_TO_FLOAT(u) static_cast<float>(u)
#define LLMRT_MSB(u) (31 - std::countl_zero(static_cast<uint32_t>(u)))
#include "core/sample/gumbel.inc"
#undef LLMRT_FN
#undef LLMRT_UINT
#undef LLMRT_MUL
#undef LLMRT_ADD
#undef LLMRT_BITS_TO_FLOAT
#undef LLMRT_FLOAT_TO_BITS
#undef LLMRT_UINT_TO_FLOAT
#undef LLMRT_MSB

}  // namespace llmrt
