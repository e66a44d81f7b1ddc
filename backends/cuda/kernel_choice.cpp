#include "backends/cuda/kernel_choice.h"

#include <fmt/format.h>

namespace llmrt::cuda {

std::string print(const KernelChoice& choice) {
  std::string text = choice.kernel;
  if (!choice.variant.empty()) text += fmt::format(" [{}]", choice.variant);
  if (choice.threads == 0) return text;
  text += fmt::format(" grid={}x{}x{} threads={}", choice.grid.x, choice.grid.y, choice.grid.z, choice.threads);
  if (choice.shared_bytes > 0) text += fmt::format(" shared={}", choice.shared_bytes);
  if (choice.cluster > 1) text += fmt::format(" cluster={}", choice.cluster);
  if (choice.stages > 0) text += fmt::format(" stages={}", choice.stages);
  if (choice.workspace_bytes > 0) text += fmt::format(" workspace={}", choice.workspace_bytes);
  return text;
}

}  // namespace llmrt::cuda
