#include "backends/cuda/cublas.h"

#include "backends/cuda/check.h"

namespace llmrt::cuda {
namespace {

// From cublas_api.h and library_types.h, whose numbers are fixed.
constexpr int kSuccess = 0, kTransposeNo = 0, kTransposeYes = 1;
constexpr int kTypeF32 = 0, kTypeF16 = 2, kComputeF32 = 68, kAlgorithmDefault = -1;

Status cublas_status(int code, const char* what) {
  if (code == kSuccess) return {};
  return make_error(ErrorCode::kDeviceLost, "cuBLAS: {}: status {}", what, code);
}

}  // namespace

struct Cublas::Functions {
  int (*create)(void** handle);
  int (*destroy)(void* handle);
  int (*set_stream)(void* handle, cudaStream_t stream);
  int (*set_workspace)(void* handle, void* data, size_t bytes);
  int (*gemm_ex)(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha, const void* a,
                 int a_type, int lda, const void* b, int b_type, int ldb, const void* beta, void* c, int c_type,
                 int ldc, int compute_type, int algorithm);
};

Cublas::Cublas() = default;

Cublas::~Cublas() {
  if (handle_) functions_->destroy(handle_);
}

Result<std::unique_ptr<Cublas>> Cublas::open(int device, const std::optional<std::string>& path) {
  std::vector<std::string> names = {"libcublas.so.13", "libcublas.so.12", "/usr/local/cuda/lib64/libcublas.so.13",
                                    "/usr/local/cuda/lib64/libcublas.so.12"};
  if (path) names = {*path};
  auto library = DynamicLibrary::open(names);
  if (!library) return library.error();
  std::unique_ptr<Cublas> cublas(new Cublas);
  cublas->library_ = *library;
  cublas->functions_ = std::make_unique<Functions>();
  const auto find = [&](auto* function, const char* name) {
    *reinterpret_cast<void**>(function) = cublas->library_->symbol(name);
    return *function != nullptr;
  };
  Functions& f = *cublas->functions_;
  if (!find(&f.create, "cublasCreate_v2") || !find(&f.destroy, "cublasDestroy_v2") ||
      !find(&f.set_stream, "cublasSetStream_v2") || !find(&f.set_workspace, "cublasSetWorkspace_v2") ||
      !find(&f.gemm_ex, "cublasGemmEx"))
    return make_error(ErrorCode::kMissingFeature, "cuBLAS: {} lacks a function that is needed",
                      cublas->library_->name());
  CUDA_TRY(cudaSetDevice(device), "cuBLAS: device");
  if (Status status = cublas_status(f.create(&cublas->handle_), "create"); !status) return status.error();
  return cublas;
}

Status Cublas::set_workspace(void* data, uint64_t bytes) {
  return cublas_status(functions_->set_workspace(handle_, data, bytes), "set workspace");
}

Status Cublas::multiply(cudaStream_t stream, const void* w, uint32_t n, uint32_t k, uint32_t w_stride, const void* x,
                        uint32_t rows, const Out& out) {
  // cuBLAS counts by columns: what it sees of w is [k, n], of x [k, rows], of out [n, rows].
  const float one = 1, kept = out.adds ? 1 : 0;
  if (Status status = cublas_status(functions_->set_stream(handle_, stream), "set stream"); !status) return status;
  return cublas_status(
      functions_->gemm_ex(handle_, kTransposeYes, kTransposeNo, static_cast<int>(n), static_cast<int>(rows),
                          static_cast<int>(k), &one, w, kTypeF16, static_cast<int>(w_stride), x, kTypeF16,
                          static_cast<int>(k), &kept, out.data, out.is_f16 ? kTypeF16 : kTypeF32,
                          static_cast<int>(out.stride), kComputeF32, kAlgorithmDefault),
      "GemmEx");
}

}  // namespace llmrt::cuda
