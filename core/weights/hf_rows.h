// Rows of tensors that a Hugging Face folder holds in another arrangement than GGUF: made from the mapped files while a
// backend reads them, so that no tensor is in memory twice. The bytes that a maker reads must outlive it. All sizes
// have been checked by the caller.
#pragma once

#include <cstdint>
#include <vector>

#include "core/weights/weight_source.h"

namespace llmrt {

// Number i of a tensor in f32, f16 or bf16.
float number_of(const SourceTensor& tensor, uint64_t i);

// Rows in f32 of a tensor in f32, f16 or bf16. Row r is row first + step * r of those of its part, as a part of
// `rows_part` rows made has step times as many: gates are the even rows and ups the odd ones where both are one tensor.
struct RowChoice {
  uint64_t rows_part = 0, first = 0, step = 1;
  uint64_t source(uint64_t row) const { return row / rows_part * rows_part * step + row % rows_part * step + first; }
};
MakeRows widened_rows(const SourceTensor& tensor);
// The same of the numbers within rows: one row a part.
MakeRows widened_choice(const SourceTensor& tensor, const RowChoice& choice);

// The rows of several tensors of equally many rows, one tensor after the other.
MakeRows stacked_rows(std::vector<SourceTensor> parts);

// fp8 (encoding.h) from numbers in e4m3 and their scales: one for all, one a row, or one a block of a grid.
struct Fp8Scales {
  SourceTensor tensor;
  uint64_t block_rows = 0, block_columns = 0;  // 0: no grid
};
MakeRows fp8_rows(const SourceTensor& weight, const Fp8Scales& scales);

// mxfp4 as in GGUF from blocks of 16 bytes, whose low nibbles are the even numbers, and their exponents.
MakeRows mxfp4_rows(const SourceTensor& blocks, const SourceTensor& exponents, const RowChoice& choice);

// Columns as rows, within each part, of numbers of 2 or 4 bytes: [columns of rows made][rows there] a part.
MakeRows transposed_rows(const SourceTensor& tensor, const RowChoice& choice);

}  // namespace llmrt
