// The functions of cuBLAS that the backend calls, in host memory: column-major, f16 in, f32 or f16 out. A library of
// its own, opened as the real one is (LLMRT_CUBLAS).
#include <bit>
#include <cstdint>

#include "cuda_runtime_api.h"

namespace {
struct Handle {
  cudaStream_t stream = nullptr;
};
float value(const void* data, int64_t index) {
  return static_cast<float>(std::bit_cast<_Float16>(static_cast<const uint16_t*>(data)[index]));
}
constexpr int kInvalid = 7;
}  // namespace

extern "C" {

int cublasCreate_v2(void** handle) {
  *handle = new Handle;
  return 0;
}
int cublasDestroy_v2(void* handle) {
  delete static_cast<Handle*>(handle);
  return 0;
}
int cublasSetStream_v2(void* handle, cudaStream_t stream) {
  static_cast<Handle*>(handle)->stream = stream;
  return 0;
}
int cublasSetWorkspace_v2(void*, void*, size_t) {
  return 0;
}
int cublasGemmEx(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha, const void* a,
                 int a_type, int lda, const void* b, int b_type, int ldb, const void* beta, void* c, int c_type,
                 int ldc, int compute_type, int) {
  const float kept = *static_cast<const float*>(beta);
  if (a_type != 2 || b_type != 2 || (c_type != 0 && c_type != 2) || compute_type != 68 || transpose_b != 0 ||
      transpose_a != 1 || lda < k || ldb < k || ldc < m || *static_cast<const float*>(alpha) != 1 ||
      (kept != 0 && kept != 1))
    return kInvalid;
  const std::function<void()> work = [=] {
    for (int64_t column = 0; column < n; ++column)
      for (int64_t row = 0; row < m; ++row) {
        float sum = 0;
        for (int64_t i = 0; i < k; ++i) sum += value(a, row * lda + i) * value(b, column * ldb + i);
        const int64_t at = column * ldc + row;
        if (kept == 1) sum += c_type == 2 ? value(c, at) : static_cast<float*>(c)[at];
        if (c_type == 2)
          static_cast<uint16_t*>(c)[at] = std::bit_cast<uint16_t>(static_cast<_Float16>(sum));
        else
          static_cast<float*>(c)[at] = sum;
      }
  };
  emulator_enqueue(static_cast<Handle*>(handle)->stream, &work);
  return 0;
}

}  // extern "C"
