#include "core/adapter/base_copies.h"

#include <cmath>
#include <vector>

#include "core/adapter/adapter_builder.h"
#include "core/weights/hf_rows.h"
#include "core/weights/row_codec.h"
#include "core/weights/weight_bytes.h"

namespace llmrt {
namespace {

// How far a row may be from the model's, as a part of its length: rounding to 16 bits, or to 4 bits in blocks. A row
// that was trained, or made for a new token, is further away.
constexpr double kRoundingOfFloats = 0.01, kRoundingOfBlocks = 0.3;

// What the model has by that name; null: not one that is compared.
const WeightTensor* find_own(const std::string& canonical, const Model& model) {
  const auto tensor = [&](WeightId id) { return &model.weights.tensors[static_cast<size_t>(id)]; };
  if (canonical == "token_embd.weight") return tensor(model.embedding);
  if (canonical != "output.weight") return nullptr;
  return tensor(model.weights.groups[static_cast<size_t>(model.head)].segments.front().tensor);
}

}  // namespace

Status check_base_copy(const SourceTensor& tensor, const std::string& canonical, const Model& model) {
  const WeightTensor* own = find_own(canonical, model);
  if (own == nullptr || !tensor.encoding || is_quantized(*tensor.encoding))
    return refused_adapter("tensor {}: expected no weights of the model itself, found {}", printable(tensor.name),
                           describe(tensor));
  if (tensor.dims != std::array<uint64_t, 4>{own->columns, own->rows, 1, 1})
    return adapter_mismatch("tensor {}: expected [{}, {}], found {}", printable(tensor.name), own->columns, own->rows,
                            describe(tensor));
  const double rounding = is_quantized(own->encoding) ? kRoundingOfBlocks : kRoundingOfFloats;
  std::vector<std::byte> encoded(own->bytes_row());
  std::vector<float> row(own->columns);
  for (uint64_t r = 0; r < own->rows; ++r) {
    copy_weight_bytes(*own, r * encoded.size(), encoded);
    decode_row(own->encoding, encoded.data(), row);
    double length = 0, distance = 0;
    for (uint64_t c = 0; c < own->columns; ++c) {
      const double difference = double{number_of(tensor, r * own->columns + c)} - row[c];
      length += double{row[c]} * row[c];
      distance += difference * difference;
    }
    if (!(std::sqrt(distance) <= rounding * std::sqrt(length) + 1e-6))
      return refused_adapter("tensor {}: row {}: expected the model's own numbers, found others",
                             printable(tensor.name), r);
  }
  return {};
}

}  // namespace llmrt
