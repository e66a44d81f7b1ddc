// Stands in for backends/cuda/tf32.cuh. Numbers that are not tf32's end the program.
#pragma once

#include "backends/cuda/intrinsics.cuh"

namespace emulator {
void multiply_tf32(void** lanes, unsigned count);
}  // namespace emulator

namespace llmrt::cuda {

inline void mma_16x8x8(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  emulator::Product mine{c, a, b};
  emulator::meet_warp(&mine, emulator::multiply_tf32);
}

}  // namespace llmrt::cuda
