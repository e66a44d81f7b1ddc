// cuBLAS, opened at run time: half a gigabyte that not every machine has. Own prototypes of the few functions used.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "backends/cuda/memory.h"
#include "core/base/status.h"
#include "core/platform/dynamic_library.h"

namespace llmrt::cuda {

class Cublas {
 public:
  // Slow (it loads code): meant for a thread of its own at start-up. `path`: where it is; without, the usual
  // places are looked at. Errors: not_found, missing_feature.
  static Result<std::unique_ptr<Cublas>> open(int device, const std::optional<std::string>& path);
  ~Cublas();

  // What GEMMs may use as scratch; without it a graph could not be captured. Kept by the caller.
  Status set_workspace(void* data, uint64_t bytes);
  const std::string& library_name() const { return library_->name(); }

  struct Out {
    void* data = nullptr;  // [rows, n]
    uint32_t stride = 0;   // numbers from one row to the next
    bool is_f16 = false;   // else f32
    bool adds = false;     // to what is there
  };
  // out[r][n] = sum over k of x[r][k] * w[n][k], in f32: f16 x [rows, k], f16 w with rows of w_stride numbers.
  Status multiply(cudaStream_t stream, const void* w, uint32_t n, uint32_t k, uint32_t w_stride, const void* x,
                  uint32_t rows, const Out& out);

 private:
  struct Functions;
  Cublas();
  std::shared_ptr<const DynamicLibrary> library_;
  std::unique_ptr<Functions> functions_;
  void* handle_ = nullptr;
};

}  // namespace llmrt::cuda
