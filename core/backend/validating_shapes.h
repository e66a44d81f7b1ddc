// What checks of an op's shapes are made of, and those of latent and recurrent ops.
#pragma once

#include <algorithm>
#include <string>

#include "core/backend/validating_checks.h"

namespace llmrt::validating {

inline constexpr uint32_t kAnyColumns = ~0u;

inline std::string shape_text(Rows rows, uint32_t columns, const std::string& dtype) {
  return fmt::format("[{}, {}] {}", rows_name(rows), columns == kAnyColumns ? "any" : std::to_string(columns), dtype);
}

// Visits an op whose ids are in range.
struct ShapeHelpers {
  const Limits& limits;
  const OpList& list;
  const std::string& where;
  Report& report;

  const TensorDesc& desc(TensorId id) const { return list.tensors[static_cast<size_t>(id)]; }

  void tensor(const char* field, TensorId id, Rows rows, uint32_t columns, bool dtype_ok, const char* dtypes) {
    const TensorDesc& t = desc(id);
    if (t.rows != rows || (columns != kAnyColumns && t.columns != columns) || !dtype_ok)
      report.fail(where, field, shape_text(rows, columns, dtypes), shape_text(t.rows, t.columns, dtype_name(t.dtype)));
  }
  void f32(const char* field, TensorId id, Rows rows, uint32_t columns) {
    tensor(field, id, rows, columns, desc(id).dtype == DType::kF32, "f32");
  }
  void i32(const char* field, TensorId id, Rows rows, uint32_t columns) {
    tensor(field, id, rows, columns, desc(id).dtype == DType::kI32, "i32");
  }
  void any_float(const char* field, TensorId id, Rows rows, uint32_t columns) {
    tensor(field, id, rows, columns, desc(id).dtype != DType::kI32, "f32, f16 or bf16");
  }
  // For ops that take rows T or R: their kernels find the live count by the kind of the rows.
  void unrouted(const char* field, TensorId id) {
    if (desc(id).rows == Rows::kRouted) report.fail(where, field, "rows T or R", rows_name(Rows::kRouted));
  }
  void f32_vector(const char* field, int32_t weight, uint64_t columns) {
    const WeightTensor& w = limits.weights.tensors[static_cast<size_t>(weight)];
    if (w.encoding != Encoding::kF32 || w.rows != 1 || w.columns != columns)
      report.fail(where, field, fmt::format("[1, {}] f32", columns),
                  fmt::format("[{}, {}] {}", w.rows, w.columns, encoding_name(w.encoding)));
  }
};

void check(ShapeHelpers& shapes, const LatentRows& op);
void check(ShapeHelpers& shapes, const HeadMatmul& op);
void check(ShapeHelpers& shapes, const LatentAttention& op);
void check(ShapeHelpers& shapes, const ExpandLatent& op);
void check(ShapeHelpers& shapes, const CausalConv& op);
void check(ShapeHelpers& shapes, const GatedDelta& op);
void check(ShapeHelpers& shapes, const SelectiveScan& op);
void check(ShapeHelpers& shapes, const GatedNorm& op);

}  // namespace llmrt::validating
