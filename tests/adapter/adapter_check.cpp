// adapter_check MODEL ADAPTER [MERGED]: whether a model's weights with the adapter's products added are those of
// MERGED, group by group. Prints the adapter's digest, its groups and the largest difference as one JSON line; 1 where
// they differ, and 2 with the reason where something cannot be loaded. For adapter_weights.py.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "core/adapter/adapter.h"
#include "core/weights/row_codec.h"
#include "core/weights/weight_bytes.h"

namespace {

using namespace llmrt;

constexpr double kDifferenceMax = 2e-6;  // of the largest number of a group: float32 of both sides

std::vector<double> rows_of(const Model& model, const WeightGroup& group) {
  std::vector<double> rows;
  for (const RowSegment& segment : group.segments) {
    const WeightTensor& tensor = model.weights.tensors[static_cast<size_t>(segment.tensor)];
    std::vector<std::byte> encoded(tensor.bytes_row());
    std::vector<float> row(tensor.columns);
    for (uint64_t r = 0; r < segment.num_rows; ++r) {
      copy_weight_bytes(tensor, (segment.row_begin + r) * encoded.size(), encoded);
      decode_row(tensor.encoding, encoded.data(), row);
      rows.insert(rows.end(), row.begin(), row.end());
    }
  }
  return rows;
}

// Where the rows of a part lie in its group: an expert's follow each other (by_expert), or those of all experts do.
size_t row_of(const AdapterGroup& group, size_t index, bool by_expert) {
  size_t first = 0;
  if (group.num_experts == 0 || by_expert) {
    for (size_t i = 0; i < index; ++i) first += group.parts[i].rows;
    return first;
  }
  const size_t expert = index / group.num_parts(), part = index % group.num_parts();
  for (size_t p = 0; p < part; ++p) first += group.parts[p].rows * group.num_experts;
  return first + expert * group.parts[part].rows;
}

void add_products(const AdapterGroup& group, bool by_expert, std::vector<double>* rows) {
  for (size_t index = 0; index < group.parts.size(); ++index) {
    const AdapterPart& part = group.parts[index];
    const size_t first = row_of(group, index, by_expert);
    std::vector<std::vector<float>> a(part.rank, std::vector<float>(group.columns));
    for (uint32_t j = 0; j < part.rank; ++j) read_a_row(part, j, a[j]);
    std::vector<float> b(part.rank);
    for (uint64_t row = 0; row < part.rows; ++row) {
      if (part.rank > 0) read_b_row(part, row, b);
      double* out = rows->data() + (first + row) * group.columns;
      for (uint32_t j = 0; j < part.rank; ++j)
        for (uint64_t k = 0; k < group.columns; ++k) out[k] += double{part.scale} * b[j] * a[j][k];
    }
  }
}

int fail(const std::string& what, const Error& error) {
  std::fprintf(stderr, "%s: %s: %s\n", what.c_str(), error_code_name(error.code), error.message.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) return std::fprintf(stderr, "usage: adapter_check MODEL ADAPTER [MERGED]\n"), 2;
  const auto model = load_model(argv[1]);
  if (!model) return fail("model", model.error());
  const auto adapter = load_adapter(argv[2], **model);
  if (!adapter) return fail("adapter", adapter.error());
  double largest = 0;
  std::string worst;
  if (argc == 4) {
    const auto merged = load_model(argv[3]);
    if (!merged) return fail("merged model", merged.error());
    if ((*merged)->weights.groups.size() != (*model)->weights.groups.size())
      return std::fprintf(stderr, "expected two models of one kind\n"), 2;
    auto changed = (*adapter)->groups.begin();
    for (size_t g = 0; g < (*model)->weights.groups.size(); ++g) {
      std::vector<double> rows = rows_of(**model, (*model)->weights.groups[g]);
      const std::vector<double> expected = rows_of(**merged, (*merged)->weights.groups[g]);
      if (changed != (*adapter)->groups.end() && changed->group == static_cast<WeightGroupId>(g)) {
        const WeightGroup& weights = (*model)->weights.groups[g];
        add_products(*changed, weights.segments.size() == 1, &rows);
        ++changed;
      }
      double most = 1e-30, difference = rows.size() == expected.size() ? 0 : INFINITY;
      for (size_t i = 0; i < std::min(rows.size(), expected.size()); ++i) {
        most = std::max(most, std::abs(expected[i]));
        difference = std::max(difference, std::abs(rows[i] - expected[i]));
      }
      if (!(difference / most <= largest)) {
        largest = difference / most;
        worst = (*model)->weights.groups[g].name;
      }
    }
  }
  fmt::print("{{\"digest\":\"{}\",\"groups\":{},\"rank_max\":{},\"difference\":{},\"worst\":\"{}\"}}\n",
             to_hex((*adapter)->digest), (*adapter)->groups.size(), (*adapter)->rank_max, largest, worst);
  return largest <= kDifferenceMax ? 0 : 1;
}
