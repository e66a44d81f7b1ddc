// Puts an adapter together, module by module, whatever file they come from: each is checked against the model as it is
// added, and the numbers are read once at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/adapter/adapter.h"
#include "core/adapter/adapter_sites.h"

namespace llmrt {

template <typename... Args>
Error refused_adapter(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kUnsupported, "unsupported adapter: {}",
                    fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Error bad_adapter(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kCorruptFile, "corrupt adapter: {}", fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Error adapter_mismatch(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kInvalidArgument, "adapter mismatch: {}",
                    fmt::format(format, std::forward<Args>(args)...));
}

// How a file has the matrices of a stack's experts.
enum class ExpertLayout : uint8_t {
  kOne,       // each pair has those of one expert
  kGguf,      // A [K, rank, experts], B [rank, N, experts]; either may be one matrix for all experts
  kFlattened  // A [K, experts * rank], an expert's ranks behind each other; B [rank * experts, N], those of a rank
};

// A module's two matrices, as a file has them; null: the file lacks it.
struct AdapterPair {
  std::string canonical;  // GGUF's name of the matrix that it changes
  const SourceTensor* a = nullptr;
  const SourceTensor* b = nullptr;
  // What follows is of experts.
  ExpertLayout layout = ExpertLayout::kGguf;
  uint64_t expert = 0;      // of kOne
  bool alternates = false;  // rows of gates and of other halves take turns
};

// Copies of the matrices of a file, which may be replaced while its adapter is used.
using AdapterBytes = std::deque<std::vector<std::byte>>;

class AdapterBuilder {
 public:
  // `model` outlives this.
  AdapterBuilder(const Model& model, AdapterRows order) : model_(model), sites_(model, order) {}

  // `rank` is what both matrices must have. Errors: those of load_adapter.
  Status add(const AdapterPair& pair, uint64_t rank, double scale);
  // After the last module. `tokens`: aLoRA's, or none. Errors: those of load_adapter.
  Result<std::shared_ptr<const Adapter>> finish(std::string path, std::vector<int32_t> tokens);

 private:
  Status add_parts(const AdapterPair& pair, const ModuleSites& found, uint64_t expert, const AdapterPart& made);
  AdapterGroup& group_of(WeightGroupId id, uint32_t num_parts);

  const Model& model_;
  AdapterSites sites_;
  std::map<WeightGroupId, AdapterGroup> groups_;
  std::shared_ptr<AdapterBytes> storage_ = std::make_shared<AdapterBytes>();
};

// aLoRA's tokens, checked against the vocabulary. `shown` names where they stand.
Status check_invocation_tokens(const std::vector<int64_t>& tokens, const Model& model, std::string_view shown);

}  // namespace llmrt
