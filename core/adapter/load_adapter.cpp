#include <filesystem>
#include <memory>

#include "core/adapter/adapter_builder.h"
#include "core/adapter/adapter_files.h"
#include "core/platform/mapped_file.h"
#include "core/weights/gguf.h"
#include "core/weights/json_tree.h"

namespace llmrt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPeftConfigFile = "adapter_config.json";
constexpr const char* kPeftWeightsFile = "adapter_model.safetensors";

Result<std::shared_ptr<const MappedFile>> map_file(const std::string& path, uint64_t bytes_max) {
  auto file = MappedFile::open(path);
  if (!file) return file.error();
  if ((*file)->bytes().size() > bytes_max)
    return bad_adapter("{}: expected at most {} bytes, found {}", path, bytes_max, (*file)->bytes().size());
  return file;
}

Result<std::shared_ptr<const Adapter>> load_folder(const fs::path& folder, const Model& model,
                                                   const std::string& path) {
  auto config = map_file((folder / kPeftConfigFile).string(), JsonBounds().bytes);
  if (!config) return config.error();
  std::error_code ignored;
  if (!fs::exists(folder / kPeftWeightsFile, ignored) && fs::exists(folder / "adapter_model.bin", ignored))
    return refused_adapter("expected {}, found adapter_model.bin", kPeftWeightsFile);
  auto weights = map_file((folder / kPeftWeightsFile).string(), kAdapterFileBytesMax);
  if (!weights) return weights.error();
  const auto text = (*config)->bytes();
  return read_peft_adapter({reinterpret_cast<const char*>(text.data()), text.size()}, (*weights)->bytes(), model, path);
}

Result<std::shared_ptr<const Adapter>> load_any(const std::string& path, const Model& model) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return load_folder(path, model, path);
  auto file = map_file(path, kAdapterFileBytesMax);
  if (!file) return file.error();
  if (!is_gguf((*file)->bytes()))
    return refused_adapter("expected a folder with {} or a GGUF file, found another file", kPeftConfigFile);
  return read_gguf_adapter((*file)->bytes(), model, path);
}

}  // namespace

Result<std::shared_ptr<const Adapter>> load_adapter(const std::string& path, const Model& model) {
  auto adapter = load_any(path, model);
  if (!adapter) return make_error(adapter.error().code, "{}: {}", path, adapter.error().message);
  return adapter;
}

}  // namespace llmrt
