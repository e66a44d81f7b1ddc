#include "tools/llmrt_bench/kv/recoded_model.h"

#include <cstring>
#include <vector>

#include "core/model/assemble.h"
#include "core/weights/row_codec.h"
#include "core/weights/weight_bytes.h"

namespace llmrt::bench {
namespace {

void read_row(const WeightTensor& tensor, uint64_t row, std::span<std::byte> out) {
  copy_weight_bytes(tensor, row * tensor.bytes_row(), out);
}

// `source` lives as long as the table that holds the result (WeightTable::storage).
WeightTensor recoded(const WeightTensor* source, Encoding encoding) {
  WeightTensor tensor = *source;
  if (encoding == source->encoding) return tensor;
  tensor.encoding = encoding;
  tensor.data = nullptr;
  const uint64_t bytes_row = tensor.bytes_row();
  tensor.generate = [source, encoding, bytes_row](uint64_t byte_offset, std::span<std::byte> out) {
    std::vector<std::byte> encoded(source->bytes_row());
    std::vector<float> numbers(source->columns);
    for (uint64_t done = 0; done < out.size(); done += bytes_row) {
      read_row(*source, (byte_offset + done) / bytes_row, encoded);
      decode_row(source->encoding, encoded.data(), numbers);
      encode_row(encoding, numbers, out.data() + done);
    }
  };
  return tensor;
}

// `encodings`: by tensor.
std::shared_ptr<const Model> with_encodings(std::shared_ptr<const Model> model, std::span<const Encoding> encodings) {
  auto out = std::make_shared<Model>(*model);
  for (size_t i = 0; i < encodings.size(); ++i)
    out->weights.tensors[i] = recoded(&model->weights.tensors[i], encodings[i]);
  out->weights.storage = std::move(model);
  out->encoding = main_encoding(out->weights);
  return out;
}

std::vector<Encoding> encodings_of(const Model& model) {
  std::vector<Encoding> encodings;
  for (const WeightTensor& tensor : model.weights.tensors) encodings.push_back(tensor.encoding);
  return encodings;
}

}  // namespace

std::shared_ptr<const Model> as_floats(std::shared_ptr<const Model> model) {
  std::vector<Encoding> encodings = encodings_of(*model);
  for (Encoding& encoding : encodings)
    if (is_quantized(encoding)) encoding = Encoding::kF16;
  return with_encodings(std::move(model), encodings);
}

Result<std::shared_ptr<const Model>> quantise(std::shared_ptr<const Model> model, Encoding encoding) {
  if (!is_quantized(encoding) || !can_encode(encoding))
    return make_error(
        ErrorCode::kUnsupported,
        "quantise: expected an encoding that llmrt encodes to (q4_0, q4_1, q5_0, q5_1, q8_0, mxfp4, fp8), "
        "found {}",
        encoding_name(encoding));
  std::vector<Encoding> encodings = encodings_of(*model);
  for (const WeightGroup& group : model->weights.groups)
    for (const RowSegment& segment : group.segments) encodings[segment.tensor] = encoding;
  encodings[model->embedding] = Encoding::kQ8_0;
  for (const RowSegment& segment : model->weights.groups[model->head].segments)
    encodings[segment.tensor] = Encoding::kQ8_0;
  for (size_t i = 0; i < encodings.size(); ++i) {
    const WeightTensor& tensor = model->weights.tensors[i];
    const uint32_t block = geometry(encodings[i]).elements_block;
    if (tensor.columns % block != 0)
      return make_error(ErrorCode::kUnsupported, "quantise: {}: expected rows of a multiple of {} numbers, found {}",
                        tensor.name, block, tensor.columns);
  }
  return with_encodings(std::move(model), encodings);
}

}  // namespace llmrt::bench
