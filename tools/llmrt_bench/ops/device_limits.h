// What a device reaches with the simplest work there is, through the backend's own kernels, timed on the device:
//   copy    the scale op over tensors far larger than any cache, bytes read plus bytes written
//   read    a product of one row with an f16 matrix of kRangeBytes: nothing but reading
//   write   the same token embedded again and again: one row read, from a cache, and nothing but writing
//   matrix  a product of two matrices of kMatrixSize, for each pair of dtypes that the backend multiplies
// A limit is the best of several runs; a processor that plays the device gets smaller work.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "tools/llmrt_bench/record/record.h"

namespace llmrt::bench {

inline constexpr uint32_t kMatrixSize = 8192;
inline constexpr uint64_t kRangeBytes = 2ull << 30;

struct Limit {
  std::string name, unit;       // "read", "GB/s"
  double best = 0;              // in that unit
  std::vector<double> samples;  // of all runs, in their order
};

struct DeviceLimits {
  Caps caps;
  Limit copy, read, write;
  std::vector<Limit> matrix;  // "f16 x f16": dtype of the rows, encoding of the matrix

  double matrix_tflop_s() const;  // of the fastest pair
};

// A row for each limit: "limit: read", "limit: f16 x f16". The value is the best of the samples.
void record_limits(const DeviceLimits& limits, Record* record);

// Takes the device, whose memory is free again afterwards. Errors: those of the backend.
Result<DeviceLimits> measure_limits(std::unique_ptr<Backend> backend);

}  // namespace llmrt::bench
