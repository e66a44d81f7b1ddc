// adapter_shrink, adapter_expand: y = A x, out += B y, for the rows that have an adapter; expert_shrink, expert_term,
// expert_expand: the same for the experts that such rows go to.
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

bool is_of_samples(const Machine& m, TensorId x) {
  return m.list->tensors[static_cast<size_t>(x)].rows == Rows::kSampled;
}

// run(item's slot, row) for each row that has an adapter, of tokens or of samples.
template <class F>
void each_row(Machine& m, bool samples, const F& run) {
  const auto& items = samples ? m.sample.adapter_items : m.forward.adapter_items;
  const auto& rows = samples ? m.sample.adapter_rows : m.forward.adapter_rows;
  for (const AdapterItem& item : items)
    parallel_for(m.num_threads, item.num_rows, [&](uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; ++i) run(item.slot, rows[item.first + i]);
    });
}

// What an entry adds to row n, before scales: of the matrices of `expert`, counted from the first that has any.
double expanded(const Machine& m, const AdapterEntry& entry, uint32_t expert, uint32_t n, const double* y,
                float* scale) {
  uint32_t p = 0;
  while (p + 1 < entry.num_parts && n >= entry.row_end[p]) ++p;
  const uint32_t rank_begin = p == 0 ? 0 : entry.rank_end[p - 1], row_begin = p == 0 ? 0 : entry.row_end[p - 1];
  const uint32_t rank = entry.rank_end[p] - rank_begin;
  double sum = 0;
  for (uint32_t j = 0; j < rank; ++j)
    sum += number_at(m, entry.b_offset[p] + expert * entry.b_stride[p], uint64_t{n - row_begin} * rank + j) *
           y[rank_begin + j];
  *scale = entry.scale[p];
  return sum;
}

// run(entry, row, routed row, expert) for each routed row whose expert an adapter changes; the expert counted from the
// first that the entry has.
template <class F>
void each_routed_row(Machine& m, TensorId ids, int32_t group, const F& run) {
  const uint32_t per_row = m.list->routed_per_row;
  each_row(m, m.list->num_sampled > 0, [&](uint32_t slot, const AdapterRow& row) {
    const AdapterEntry entry = entry_of(m, slot, group);
    if (entry.rank == 0) return;
    for (uint32_t k = row.row * per_row; k < (row.row + 1) * per_row; ++k) {
      const uint32_t expert = static_cast<uint32_t>(m.tensor(ids).row(k)[0]) - entry.expert_first;  // wraps below 0
      if (expert < entry.num_experts) run(entry, row, k, expert);
    }
  });
}

}  // namespace

Status run(Machine& m, const AdapterShrink& op) {
  const Tensor& x = m.tensor(op.x);
  Tensor& y = m.tensor(op.y);
  each_row(m, is_of_samples(m, op.x), [&](uint32_t slot, const AdapterRow& row) {
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
  each_row(m, is_of_samples(m, op.y), [&](uint32_t slot, const AdapterRow& row) {
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

Status run(Machine& m, const ExpertShrink& op) {
  const Tensor& x = m.tensor(op.x);
  const bool is_routed = m.list->tensors[static_cast<size_t>(op.x)].rows == Rows::kRouted;
  each_routed_row(m, op.ids, op.group, [&](const AdapterEntry& entry, const AdapterRow& row, uint32_t k, uint32_t e) {
    const double* from = x.row(is_routed ? k : row.row);
    for (uint32_t j = 0; j < entry.rank; ++j) {
      double sum = 0;
      for (uint32_t i = 0; i < x.columns; ++i)
        sum += number_at(m, entry.a_offset + e * entry.a_stride, uint64_t{j} * x.columns + i) * from[i];
      m.tensor(op.y).set(k, j, sum);
    }
  });
  return {};
}

Status run(Machine& m, const ExpertTerm& op) {
  Tensor& out = m.tensor(op.out);
  for (uint32_t k = 0; k < m.live(op.out); ++k)
    for (uint32_t n = 0; n < out.columns; ++n) out.set(k, n, 0);
  each_routed_row(m, op.ids, op.group, [&](const AdapterEntry& entry, const AdapterRow& row, uint32_t k, uint32_t e) {
    for (uint32_t n = 0; n < out.columns; ++n) {
      float scale;
      const double sum = expanded(m, entry, e, n, m.tensor(op.y).row(k), &scale);
      out.set(k, n, double{row.scale} * scale * sum);
    }
  });
  return {};
}

Status run(Machine& m, const ExpertExpand& op) {
  Tensor& out = m.tensor(op.out);
  each_routed_row(m, op.ids, op.group, [&](const AdapterEntry& entry, const AdapterRow& row, uint32_t k, uint32_t e) {
    const double weight = m.tensor(op.weights).row(k)[0] * row.scale;
    for (uint32_t n = 0; n < out.columns; ++n) {
      float scale;
      const double sum = expanded(m, entry, e, n, m.tensor(op.y).row(k), &scale);
      out.set(row.row, n, out.row(row.row)[n] + weight * scale * sum);
    }
  });
  return {};
}

}  // namespace llmrt::reference
