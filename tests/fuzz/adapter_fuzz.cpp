// Any bytes as an adapter of a small model: read, refused, never a crash, and an adapter that is read has an image
// whose runs lie inside its bytes. A GGUF file is taken as it is. Else an input is an adapter_config.json, a zero byte,
// and the header of an adapter_model.safetensors: its length, padding and as many bytes as its offsets ask for, up to a
// bound, are made here, so that changed headers stay whole files. Seeds: corpus/adapter, written by
// make_adapter_corpus.py.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/adapter/adapter_files.h"
#include "core/adapter/adapter_image.h"
#include "core/base/check.h"
#include "core/model/load_file.h"
#include "core/weights/gguf.h"
#include "tests/fuzz/safetensors_text.h"
#include "tests/weights/gguf_bytes.h"

namespace {

using namespace llmrt;

std::shared_ptr<const Model> tiny_llama() {
  static const std::string bytes = test::tiny_model().build();
  auto source = parse_weight_source(test::as_span(bytes));
  LLMRT_CHECK(source.ok(), "the model for fuzzing is whole");
  auto model = load_from_source(*source, "tiny");
  LLMRT_CHECK(model.ok(), "the model for fuzzing is whole");
  return *model;
}

void use(const Model& model, const Adapter& adapter) {
  LLMRT_CHECK(!adapter.groups.empty() && adapter.rank_max <= kAdapterRankMax, "an adapter changes something");
  const auto image = make_image(adapter, DType::kBF16);
  if (!image) return;
  uint64_t end = 0;
  for (const AdapterRun& run : image->runs) {
    const WeightGroup& group = model.weights.groups.at(static_cast<size_t>(run.group));
    LLMRT_CHECK(run.offset == end && run.size > 0, "runs lie behind each other");
    LLMRT_CHECK(run.entry.num_parts == group.segments.size(), "a part is a segment");
    LLMRT_CHECK(run.entry.row_end[run.entry.num_parts - 1] == group.rows, "parts have the group's rows");
    for (uint32_t p = 0; p < run.entry.num_parts; ++p) {
      LLMRT_CHECK(std::isfinite(run.entry.scale[p]), "a scale is a number");
      LLMRT_CHECK(run.entry.b_offset[p] * kAdapterUnitBytes < run.size, "B lies in its run");
    }
    end = run.offset + run.size;
  }
  LLMRT_CHECK(end == image->bytes.size(), "runs are all of an image");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::shared_ptr<const Model> model = tiny_llama();
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto read = [&] {
    if (is_gguf(bytes)) return read_gguf_adapter(bytes, *model, "fuzz");
    const std::string_view all(reinterpret_cast<const char*>(data), size);
    const size_t zero = std::min(all.find('\0'), all.size());
    const std::string weights = test::safetensors_of(all.substr(std::min(zero + 1, all.size())));
    return read_peft_adapter(all.substr(0, zero), test::as_span(weights), *model, "fuzz");
  };
  const auto adapter = read();
  if (adapter)
    use(*model, **adapter);
  else
    LLMRT_CHECK(adapter.error().message.size() < 4000, "what a refusal says is short");
  return 0;
}
