// Products of small matrices of tf32. The emulator of tests/cuda_emulator has a twin of this file.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace llmrt::cuda {

// c += a * b, 16x8 by 8x8, numbers of tf32 (f32 whose last 13 bits are 0), f32 sums. Lane = 4 * g + t holds
//   a[0] (row g, k t)  a[1] (row g+8, k t)  a[2] (row g, k t+4)  a[3] (row g+8, k t+4)
//   b[0] (k t, column g)  b[1] (k t+4, column g), and of c what it has above.
// Compute capability 8 and later: for kernels that no other device is given.
__device__ inline void mma_16x8x8(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

}  // namespace llmrt::cuda
