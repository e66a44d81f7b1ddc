// Lists as a few lines of text, over the shapes of an 8B model or narrower ones, and what a program is compiled for,
// without a device:
//   norm x d -> h      matmul h qkv -> q   qknorm q   rope q   write q   attend q -> a
//   gate u -> g        add a b -> c        scale a -> b
// A tensor has its columns from what makes it, or is as wide as the model; "d = -" is no delta. A name that ends with !
// is pinned.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backends/cuda/program.h"
#include "core/weights/weight_table.h"

namespace llmrt::cuda {

struct TextShape {
  uint32_t width = 4096, ffn = 14336, heads = 32, kv_heads = 8, dim = 128;
};

// "h100", "h100_plain" (without cuBLAS), "b200" (bulk copies, no warpgroups), "a100", "t4". `h100` has 132
// multiprocessors, and so on.
DeviceFacts device_facts(const std::string& device);

// Weights of one layer as a backend would lay them out, at addresses that are never read.
class FakeWeights {
 public:
  // "q4_k_m": q4_k with v and down in q6_k; else all in one encoding.
  FakeWeights(const std::string& encoding, const TextShape& shape, bool bias = false);

  const TextShape& shape() const { return shape_; }
  const WeightTable& table() const { return table_; }
  WeightId norm() const { return 0; }
  WeightId head_norm() const { return 1; }
  WeightId freqs() const { return 2; }
  WeightGroupId group(const std::string& name) const { return names_.at(name); }  // qkv, o, gu, down
  // Runs have copies in f16 from here on.
  void add_f16_copies();

  CompileInputs inputs(const std::string& device, KvDType kv_dtype = KvDType::kF16) const;

 private:
  WeightId add(Encoding encoding, uint64_t rows, uint64_t columns);
  void add_group(const std::string& name, const std::vector<WeightId>& tensors, bool bias);

  TextShape shape_;
  WeightTable table_;
  std::map<std::string, WeightGroupId> names_;
  std::vector<PackedMatrix> tensors_;
  std::vector<DeviceGroup> groups_;
  mutable std::vector<KvGroup> pools_;
};

OpList parse_list(const std::string& text, const FakeWeights& weights, uint32_t rows);

// A layer, from the norm before attention to the next layer's first matmul.
inline constexpr const char* kLayer =
    "norm x! - -> h\n"
    "matmul h qkv -> q\n"
    "rope q\n"
    "write q\n"
    "attend q -> a\n"
    "matmul a o -> y\n"
    "norm x! y -> h2\n"
    "matmul h2 gu -> u\n"
    "gate u -> g\n"
    "matmul g down -> z\n"
    "norm x! z -> h3\n"
    "matmul h3 qkv -> q2!\n";
// The text with the first `from` replaced; it must be there.
std::string replaced(std::string text, const std::string& from, const std::string& to);

// The program; there must be one.
Program compiled(const OpList& list, const CompileInputs& inputs);

}  // namespace llmrt::cuda
