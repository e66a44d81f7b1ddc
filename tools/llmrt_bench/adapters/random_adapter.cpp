#include "tools/llmrt_bench/adapters/random_adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <map>
#include <random>
#include <system_error>

#include "core/base/check.h"
#include "core/base/half.h"
#include "core/weights/gguf_writer.h"

namespace llmrt::bench {
namespace {

constexpr double kStrength = 0.02;  // of what an adapter adds, beside the size of a matrix's input

using RandomBytes = std::deque<std::vector<std::byte>>;

// Numbers in f16, evenly distributed about zero.
SourceTensor random_matrix(uint64_t rows, uint64_t columns, double deviation, std::mt19937_64* random,
                           RandomBytes* storage) {
  std::vector<std::byte>& bytes = storage->emplace_back(rows * columns * 2);
  const auto step = static_cast<float>(deviation * std::sqrt(12.0) / 65536);
  uint64_t bits = 0;
  for (uint64_t i = 0; i < rows * columns; ++i, bits >>= 16) {
    if (i % 4 == 0) bits = (*random)();
    const uint16_t number = f16_bits((static_cast<float>(bits & 0xffff) - 32767.5f) * step);
    bytes[2 * i] = static_cast<std::byte>(number);
    bytes[2 * i + 1] = static_cast<std::byte>(number >> 8);
  }
  SourceTensor tensor;
  tensor.encoding = Encoding::kF16;
  tensor.num_dims = 2;
  tensor.dims = {columns, rows, 1, 1};
  tensor.bytes = bytes;
  return tensor;
}

// Adapters in files change matrices whole.
bool is_whole(const RowSegment& segment, const WeightTable& weights) {
  return segment.row_begin == 0 && segment.num_rows == weights.tensors[static_cast<size_t>(segment.tensor)].rows;
}

// The two matrices of an adapter as a file names them, beside that of the model which they change.
WeightTensor named_matrix(const SourceTensor& matrix, std::string name) {
  WeightTensor tensor;
  tensor.name = std::move(name);
  tensor.encoding = *matrix.encoding;
  tensor.rows = matrix.dims[1];
  tensor.columns = matrix.dims[0];
  tensor.data = matrix.bytes.data();
  return tensor;
}

Status write_gguf(const Adapter& adapter, const Model& model, uint32_t rank, const std::string& path) {
  GgufWriter writer;
  writer.add_string("general.type", "adapter");
  writer.add_string("general.architecture", model.config.architecture);
  writer.add_string("adapter.type", "lora");
  writer.add_f32("adapter.lora.alpha", static_cast<float>(rank));
  std::map<std::string, const AdapterPart*> parts;  // by the matrix: two segments may share one
  for (const AdapterGroup& group : adapter.groups) {
    const WeightGroup& weights = model.weights.groups[static_cast<size_t>(group.group)];
    for (size_t p = 0; p < group.parts.size(); ++p)
      if (group.parts[p].rank > 0)
        parts.emplace(model.weights.tensors[static_cast<size_t>(weights.segments[p].tensor)].name, &group.parts[p]);
  }
  std::deque<WeightTensor> tensors;
  for (const auto& [name, part] : parts) {
    writer.add_tensor(tensors.emplace_back(named_matrix(part->a, name + ".lora_a")));
    writer.add_tensor(tensors.emplace_back(named_matrix(part->b, name + ".lora_b")));
  }
  return writer.write(path, [](uint64_t, uint64_t) {});
}

}  // namespace

Adapter make_random_adapter(const Model& model, uint32_t rank, uint64_t seed) {
  LLMRT_CHECK(rank >= 1 && rank <= kAdapterRankMax, "a rank that adapters may have");
  const auto storage = std::make_shared<RandomBytes>();
  std::mt19937_64 random(seed);
  Adapter adapter;
  std::map<WeightId, AdapterPart> made;
  for (size_t g = 0; g < model.weights.groups.size(); ++g) {
    const WeightGroup& group = model.weights.groups[g];
    const auto id = static_cast<WeightGroupId>(g);
    if (!takes_adapters(group) || id == model.head) continue;
    AdapterGroup changed{id, group.columns, 0, {}};
    for (const RowSegment& segment : group.segments) {
      AdapterPart& part = changed.parts.emplace_back();
      part.rows = segment.num_rows;
      if (!is_whole(segment, model.weights)) continue;
      const auto [at, is_new] = made.try_emplace(segment.tensor);
      if (is_new) {
        at->second = {
            .rank = rank, .scale = 1, .rows = segment.num_rows, .a = {}, .b = {}, .a_columns = {}, .b_rows = {}};
        at->second.a = random_matrix(rank, group.columns, 1 / std::sqrt(static_cast<double>(group.columns)), &random,
                                     storage.get());
        at->second.b = random_matrix(segment.num_rows, rank, kStrength / std::sqrt(rank), &random, storage.get());
      }
      part = at->second;
      adapter.rank_max = rank;
    }
    if (std::ranges::any_of(changed.parts, [](const AdapterPart& part) { return part.rank > 0; }))
      adapter.groups.push_back(std::move(changed));
  }
  adapter.path = fmt::format("random adapter {}", seed);
  adapter.digest = Sha256().add_text(adapter.path).add(rank).add_text(model.path).finish();
  adapter.storage = storage;
  return adapter;
}

std::vector<ReadyAdapter> make_ready_adapters(const Model& model, uint32_t count, uint32_t rank, DType dtype,
                                              uint64_t seed) {
  std::vector<ReadyAdapter> out;
  for (uint32_t i = 0; i < count; ++i) {
    const Adapter adapter = make_random_adapter(model, rank, seed + i);
    Result<AdapterImage> image = make_image(adapter, dtype);
    LLMRT_CHECK(image.ok(), "small numbers have a form in every dtype");
    out.push_back({std::make_shared<const AdapterImage>(*std::move(image)), i + 1, rank, adapter.digest});
  }
  return out;
}

std::string adapter_name(uint32_t number) {
  return fmt::format("adapter_{:04}", number);
}

Status write_random_adapters(const Model& model, uint32_t count, uint32_t rank, uint64_t seed,
                             const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return make_error(ErrorCode::kIo, "cannot make folder: {}: {}", folder, error.message());
  for (uint32_t i = 0; i < count; ++i) {
    const std::string path = fmt::format("{}/{}.gguf", folder, adapter_name(i + 1));
    if (Status status = write_gguf(make_random_adapter(model, rank, seed + i), model, rank, path); !status)
      return status;
  }
  return {};
}

}  // namespace llmrt::bench
