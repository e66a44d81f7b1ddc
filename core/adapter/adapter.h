// LoRA adapters as values: what an adapter adds to the products of a model's weight groups, read from a PEFT folder or
// a GGUF file and checked against the model. Immutable after load; shared by value of shared_ptr. It holds the file's
// bytes itself, so a file that is replaced later changes nothing; adapter_image.h makes the bytes that go to a device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/sha256.h"
#include "core/base/status.h"
#include "core/model/model.h"
#include "core/ops/adapter_ops.h"
#include "core/weights/weight_source.h"

namespace llmrt {

inline constexpr uint64_t kAdapterFileBytesMax = 8ull << 30;
inline constexpr size_t kAdapterTensorsMax = 1u << 18;  // two of each matrix of 256 experts in 60 layers are 92,160
inline constexpr size_t kInvocationTokensMax = 64;

// Rows of A and columns of B that a module adds to a part of a weight group, which is one of its segments. What lies in
// another order in the files than in the group is listed: element i of the group is element map[i] of the file. An
// empty list is the same order.
struct AdapterPart {
  uint32_t rank = 0;  // 0: the adapter leaves the part as it is, and only `rows` counts
  float scale = 0;
  uint64_t rows = 0;
  SourceTensor a;  // [columns of the group, rank] in f32, f16 or bf16
  SourceTensor b;  // [rank, rows of the module]
  std::vector<uint32_t> a_columns, b_rows;
  // Where tensors hold the matrices of many experts: numbers in front of this one's, and from a row of B (0: as b.dims
  // say), or a rank of it, to the next.
  uint64_t a_first = 0, b_first = 0, b_row_stride = 0, b_rank_stride = 1;
};

struct AdapterGroup {
  WeightGroupId group = -1;
  uint64_t columns = 0;
  uint32_t num_experts = 0;  // of a stack: all that it has; 0: one matrix
  // One for each segment of the group; of a stack the gate and the other half, or down, of one expert after the other.
  std::vector<AdapterPart> parts;

  size_t num_parts() const { return parts.size() / (num_experts == 0 ? 1 : num_experts); }  // of one expert
};

struct Adapter {
  std::string path;  // as given
  // The groups that it changes, in the order of their ids.
  std::vector<AdapterGroup> groups;
  // aLoRA: the adapter counts from the last place on where these tokens stand in a prompt. Empty: it always counts.
  std::vector<int32_t> invocation_tokens;
  // SHA-256 of all that changes what the model computes: names, ranks, scales, numbers as f32 in the model's order of
  // rows, invocation tokens. The same for a PEFT folder and a GGUF file with the same numbers.
  Digest digest = {};
  uint32_t rank_max = 0;                // of all parts
  std::shared_ptr<const void> storage;  // what the tensors' bytes lie in
};

// Row `row` of A, as the group has its columns, or of B, as f32. `out` has one number for each column.
void read_a_row(const AdapterPart& part, uint64_t row, std::span<float> out);
void read_b_row(const AdapterPart& part, uint64_t row, std::span<float> out);

// `path`: a folder with adapter_config.json and adapter_model.safetensors (PEFT), or a GGUF file. Reads all numbers
// once. Errors: not_found, io_error; corrupt_file for what breaks its format; unsupported, with the name of the field
// or tensor, for what llmrt does not compute; invalid_argument ("adapter mismatch") for what belongs to another model,
// with the tensor, what was expected and what was found.
Result<std::shared_ptr<const Adapter>> load_adapter(const std::string& path, const Model& model);

}  // namespace llmrt
