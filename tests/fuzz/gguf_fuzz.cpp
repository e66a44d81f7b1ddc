// Any bytes as a model file: the parser, the loader and the tokenizer's checks must answer with a model or an Error,
// and a model's weights must lie inside the bytes. What is no GGUF file is taken as a safetensors file, or, where it
// begins with a brace, as a tokenizer.json and a config.json; behind a zero byte such a text may have the folder's
// safetensors file. Corpus: corpus/gguf, written by make_gguf_corpus.py.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/model/load_file.h"
#include "core/text/tokenizer.h"
#include "core/weights/gguf.h"
#include "core/weights/hf_folder.h"
#include "core/weights/safetensors.h"
#include "core/weights/weight_source.h"

namespace {

using namespace llmrt;

// First and last byte of every weight: the sanitizer sees a pointer that left the file.
uint64_t touch(const Model& model) {
  uint64_t sum = 0;
  for (const WeightTensor& tensor : model.weights.tensors) {
    LLMRT_CHECK(tensor.bytes() > 0 && tensor.data != nullptr, "a loaded tensor has bytes");
    sum += static_cast<uint64_t>(tensor.data[0]) + static_cast<uint64_t>(tensor.data[tensor.bytes() - 1]);
  }
  for (const WeightGroup& group : model.weights.groups) {
    uint64_t rows = 0;
    for (const RowSegment& segment : group.segments) {
      const WeightTensor& tensor = model.weights.tensors.at(segment.tensor);
      LLMRT_CHECK(tensor.columns == group.columns, "segments of a group are equally wide");
      LLMRT_CHECK(segment.row_begin + segment.num_rows <= tensor.rows, "a segment lies in its tensor");
      rows += segment.num_rows;
    }
    LLMRT_CHECK(rows == group.rows, "segments add up to the group");
  }
  return sum;
}

void read_as_hugging_face(std::string_view text) {
  constexpr const char* kConfig =
      R"({"model_type":"llama","hidden_size":64,"num_hidden_layers":1,"num_attention_heads":1,"vocab_size":512,)"
      R"("intermediate_size":64,"rms_norm_eps":1e-5,"max_position_embeddings":64})";
  for (const auto& texts :
       {HfTexts{kConfig, std::string(text), {}, {}, {}}, HfTexts{std::string(text), {}, {}, {}, {}}})
    if (const auto source = read_hf_texts(texts))
      for (const auto& [key, value] : source->metadata.entries())
        LLMRT_CHECK(!key.empty() && describe(value).size() < 1000, "what inspect prints is short");
}

// A config.json, a zero byte, a model.safetensors: every row that is made of others can be.
void read_as_folder(std::string_view text, std::span<const std::byte> weights) {
  const auto source = read_hf_texts({std::string(text), {}, {}, {}, {}}, weights);
  if (!source) return;
  for (const SourceTensor& tensor : source->tensors) {
    LLMRT_CHECK(!describe(tensor).empty() && tensor.num_bytes() > 0, "a tensor has a text and bytes");
    if (!tensor.generate) continue;
    std::vector<std::byte> row(row_bytes(*tensor.encoding, tensor.dims[0]));
    const uint64_t rows = tensor.num_bytes() / row.size();
    for (uint64_t at = 0; at < rows; at += std::max<uint64_t>(rows / 64, 1)) tensor.generate(at * row.size(), row);
    tensor.generate((rows - 1) * row.size(), row);
  }
  (void)load_from_source(*source, "fuzz");
}

void read_as_safetensors(std::span<const std::byte> bytes) {
  const auto file = parse_safetensors(bytes);
  if (!file) return;
  for (const SourceTensor& tensor : file->tensors) {
    LLMRT_CHECK(!tensor.bytes.empty(), "a tensor has bytes");
    LLMRT_CHECK(
        tensor.bytes.data() >= bytes.data() && tensor.bytes.data() + tensor.bytes.size() <= bytes.data() + bytes.size(),
        "a tensor lies in its file");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  if (size > 0 && data[0] == '{') {
    const std::string_view all(reinterpret_cast<const char*>(data), size);
    const size_t zero = all.find('\0');
    if (zero == std::string_view::npos)
      read_as_hugging_face(all);
    else
      read_as_folder(all.substr(0, zero), bytes.subspan(zero + 1));
  }
  if (!is_gguf(bytes)) read_as_safetensors(bytes);
  const auto source = parse_weight_source(bytes);
  if (!source) return 0;
  for (const auto& [key, value] : source->metadata.entries())
    LLMRT_CHECK(!key.empty() && describe(value).size() < 1000, "what inspect prints is short");
  for (const SourceTensor& tensor : source->tensors) LLMRT_CHECK(!describe(tensor).empty(), "a tensor has a text");
  const auto model = load_from_source(*source, "fuzz");
  if (!model) return 0;
  volatile uint64_t sink = touch(**model);
  (void)sink;
  if ((*model)->vocabulary) (void)Tokenizer::create(*(*model)->vocabulary);
  return 0;
}
