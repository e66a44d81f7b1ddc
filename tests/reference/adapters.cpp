// adapter_shrink, adapter_expand: y = A x, out += B y, for the rows that have an adapter.
#include <cstring>

#include "tests/reference/machine.h"

namespace llmrt::reference {
namespace {

AdapterEntry entry_of(const Machine& m, uint32_t slot, int32_t group) {
  AdapterEntry entry;
  const size_t index = slot * m.weights.groups.size() + static_cast<size_t>(group);
  std::memcpy(&entry, m.adapter_pool.data() + index * sizeof(AdapterEntry), sizeof(AdapterEntry));
  return entry;
}

// Number `index` of what lies at an entry's offset.
double number_at(const Machine& m, uint32_t offset, uint64_t index) {
  const std::byte* from =
      m.adapter_pool.data() + uint64_t{offset} * kAdapterAlignment + index * dtype_bytes(m.adapter_dtype);
  if (m.adapter_dtype == DType::kF32) {
    float number;
    std::memcpy(&number, from, sizeof(number));
    return number;
  }
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return m.adapter_dtype == DType::kF16 ? f16_value(bits) : bf16_value(bits);
}

// run(item's slot, row) for each row that has an adapter, of tokens or of samples as `x` is.
template <class F>
void each_row(Machine& m, TensorId x, const F& run) {
  const bool samples = m.list->tensors[static_cast<size_t>(x)].rows == Rows::kSampled;
  const auto& items = samples ? m.sample.adapter_items : m.forward.adapter_items;
  const auto& rows = samples ? m.sample.adapter_rows : m.forward.adapter_rows;
  for (const AdapterItem& item : items)
    parallel_for(m.num_threads, item.num_rows, [&](uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; ++i) run(item.slot, rows[item.first + i]);
    });
}

}  // namespace

Status run(Machine& m, const AdapterShrink& op) {
  const Tensor& x = m.tensor(op.x);
  Tensor& y = m.tensor(op.y);
  each_row(m, op.x, [&](uint32_t slot, const AdapterRow& row) {
    const AdapterEntry entry = entry_of(m, slot, op.group);
    for (uint32_t j = 0; j < entry.rank; ++j) {
      double sum = 0;
      for (uint32_t k = 0; k < x.columns; ++k)
        sum += number_at(m, entry.a_offset, uint64_t{j} * x.columns + k) * x.row(row.row)[k];
      y.set(row.row, j, sum);
    }
  });
  return {};
}

Status run(Machine& m, const AdapterExpand& op) {
  const Tensor& y = m.tensor(op.y);
  Tensor& out = m.tensor(op.out);
  each_row(m, op.y, [&](uint32_t slot, const AdapterRow& row) {
    const AdapterEntry entry = entry_of(m, slot, op.group);
    uint32_t rank_begin = 0, n = 0;
    for (uint32_t p = 0; p < entry.num_parts && entry.rank > 0; ++p) {
      const uint32_t rank = entry.rank_end[p] - rank_begin;
      for (uint32_t in_part = 0; n < entry.row_end[p]; ++n, ++in_part) {
        double sum = 0;
        for (uint32_t j = 0; j < rank; ++j)
          sum += number_at(m, entry.b_offset[p], uint64_t{in_part} * rank + j) * y.row(row.row)[rank_begin + j];
        out.set(row.row, n, out.row(row.row)[n] + double{row.scale} * entry.scale[p] * sum);
      }
      rank_begin = entry.rank_end[p];
    }
  });
  return {};
}

}  // namespace llmrt::reference
