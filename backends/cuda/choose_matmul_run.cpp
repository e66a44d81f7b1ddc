#include "backends/cuda/choose_matmul_run.h"

#include <fmt/format.h>

#include <algorithm>

namespace llmrt::cuda {
namespace {

constexpr uint32_t kSliceMultiple = 128;  // rows of weights that cuBLAS gets at once

const char* result_name(MatmulResult result) {
  constexpr const char* kNames[] = {"f32", "f16", "added", "gated"};
  return kNames[static_cast<int>(result)];
}

// The variant that the kernel has for so many rows.
uint32_t tile_rows_for(MatmulKernel kernel, uint32_t rows) {
  switch (kernel) {
    case MatmulKernel::kSkinny:
      return rows <= 16 ? 16 : rows <= 32 ? 32 : 64;
    case MatmulKernel::kBatch:
      return std::max(16u, round_up(rows, 8u));
    case MatmulKernel::kDecoded:
      return rows <= 64 ? 64 : rows <= 128 ? 128 : 256;
    default:
      return 0;  // it has one
  }
}

const char* stream_x_name(StreamX x) {
  constexpr const char* kNames[] = {"kept",      "ahead",      "normed",    "one-kept", "one-shared",
                                    "more-kept", "more-ahead", "two-tiles", "normed"};
  return kNames[static_cast<int>(x)];
}

std::string describe(const MatmulChoice& choice, const MatmulShape& shape) {
  std::string text = encoding_name(shape.weight.encoding);
  if (choice.which == MatmulKernel::kStream) text += fmt::format(" x={}", stream_x_name(choice.stream_x));
  if (choice.which == MatmulKernel::kBatch) text += choice.by_warpgroups ? " by=warpgroups" : " by=warps";
  if (choice.tile_rows > 0) text += fmt::format(" rows={}", choice.tile_rows);
  if (choice.tile_outs > 0) text += fmt::format(" outs={}", choice.tile_outs);
  if (choice.splits > 1) text += fmt::format(" splits={}", choice.splits);
  return text + fmt::format(" -> {}", result_name(choice.result));
}

MatmulChoice choose_run(MatmulKernel kernel, MatmulResult result, const MatmulShape& shape,
                        const CompileInputs& inputs) {
  constexpr const char* kNames[] = {"matmul_exact", "matmul_vector",  "matmul_skinny", "matmul_stream",
                                    "matmul_batch", "matmul_decoded", "matmul_gated"};
  MatmulChoice choice;
  choice.kernel = kNames[static_cast<int>(kernel)];
  choice.which = kernel;
  choice.result = result;
  choice.by_warpgroups = kernel == MatmulKernel::kBatch && inputs.device.has_warpgroups &&
                         shape.num_rows > inputs.tuning.batch_warps_rows_max(shape.weight.encoding);
  choice.tile_rows = tile_rows_for(kernel, shape.num_rows);
  switch (kernel) {
    case MatmulKernel::kExact:
      lay_out_exact(shape, &choice);
      break;
    case MatmulKernel::kVector:
      lay_out_vector(shape, &choice);
      break;
    case MatmulKernel::kSkinny:
      lay_out_skinny(shape, inputs, &choice);
      break;
    case MatmulKernel::kStream:
      lay_out_stream(shape, inputs, &choice);
      break;
    case MatmulKernel::kBatch:
      lay_out_batch(shape, inputs, &choice);
      break;
    case MatmulKernel::kDecoded:
      lay_out_decoded(shape, inputs, &choice);
      break;
    case MatmulKernel::kGated:
      lay_out_gated(shape, inputs, &choice);
      break;
  }
  choice.variant = describe(choice, shape);
  return choice;
}

void add_cublas(const PackedMatrix& weight, MatmulResult result, const MatmulSource& source, uint32_t rows,
                Launches* out) {
  KernelChoice choice{"cublas",
                      fmt::format("f16 {}x{}x{} -> {}", rows, weight.rows, weight.columns, result_name(result))};
  add_launch(out, std::move(choice), [result, source](const KernelChoice&, const OpContext& at) {
    return matmul_cublas(result, args_of(source, result, at), at);
  });
}

// Rows [begin, + count) of quantised weights, written out in f16 to the workspace.
void add_slice(const PackedMatrix& slice, uint32_t begin, MatmulResult result, const MatmulSource& source,
               uint32_t rows, Launches* out) {
  KernelChoice written = choose_dequantize(slice);
  written.workspace_bytes = uint64_t{slice.rows} * slice.columns * 2;
  add_launch(out, std::move(written), [source, begin, count = slice.rows](const KernelChoice& c, const OpContext& at) {
    return dequantize(c, args_of(source, MatmulResult::kF32, at).weight.slice(begin, count), at.workspace.data, at);
  });
  KernelChoice choice{"cublas",
                      fmt::format("f16 {}x{}x{} -> {}", rows, slice.rows, slice.columns, result_name(result))};
  add_launch(out, std::move(choice),
             [result, source, begin, count = slice.rows](const KernelChoice&, const OpContext& at) {
               MatmulArgs args = args_of(source, result, at);
               const uint32_t columns = args.weight.columns;
               args.weight = {
                   {reinterpret_cast<const uint8_t*>(at.workspace.data)}, count, columns, columns * 2, Encoding::kF16};
               const uint64_t number_bytes = result == MatmulResult::kF16 ? 2 : 4;
               args.out = reinterpret_cast<float*>(reinterpret_cast<std::byte*>(args.out) + begin * number_bytes);
               return matmul_cublas(result, args, at);
             });
}

}  // namespace

Status add_wide(const MatmulShape& shape, MatmulResult result, const MatmulSource& source, bool has_bias,
                const CompileInputs& inputs, Launches* out) {
  LLMRT_CHECK(result != MatmulResult::kF16 || !has_bias, "matmul by cuBLAS: a bias of f16 results");
  const PackedMatrix& w = shape.weight;
  if (w.encoding == Encoding::kF16) {
    add_cublas(w, result, source, shape.num_rows, out);
  } else {
    const uint64_t row_bytes = uint64_t{w.columns} * 2;
    uint32_t slice_rows = static_cast<uint32_t>(std::min<uint64_t>(inputs.workspace_bytes / row_bytes, w.rows));
    // Whole tiles: an odd number took cuBLAS three times as long, as its results then lie at no multiple of 16 bytes.
    if (slice_rows < w.rows && slice_rows > kSliceMultiple) slice_rows -= slice_rows % kSliceMultiple;
    if (slice_rows == 0)
      return make_error(ErrorCode::kOutOfMemory, "matmul: a row of {} bytes in f16 passes the workspace of {}",
                        row_bytes, inputs.workspace_bytes);
    for (uint32_t row = 0; row < w.rows; row += slice_rows)
      add_slice(w.slice(row, std::min(slice_rows, w.rows - row)), row, result, source, shape.num_rows, out);
  }
  if (!has_bias) return {};
  add_launch(out, choose_bias(shape), [source, result](const KernelChoice& choice, const OpContext& at) {
    return add_bias(choice, args_of(source, result, at), at);
  });
  return {};
}

void add_kernel(MatmulKernel kernel, MatmulResult result, const MatmulShape& shape, const MatmulSource& source,
                const CompileInputs& inputs, Launches* out) {
  add_launch(out, choose_run(kernel, result, shape, inputs), [source](const MatmulChoice& choice, const OpContext& at) {
    return launch_matmul(choice, args_of(source, choice.result, at), at);
  });
}

}  // namespace llmrt::cuda
