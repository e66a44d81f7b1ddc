#include "core/weights/weight_source.h"

#include <filesystem>

#include "core/platform/mapped_file.h"
#include "core/weights/foreign_files.h"
#include "core/weights/gguf.h"
#include "core/weights/hf_folder.h"

namespace llmrt {

uint64_t SourceTensor::num_bytes() const {
  return generate ? dims[1] * dims[2] * dims[3] * row_bytes(*encoding, dims[0]) : bytes.size();
}

std::string describe(const SourceTensor& tensor) {
  std::string out = "[";
  for (int i = 0; i < tensor.num_dims; ++i) out += fmt::format("{}{}", i > 0 ? ", " : "", tensor.dims[i]);
  return out + "] " + tensor.encoding_name;
}

const SourceTensor* WeightSource::find(std::string_view name) const {
  const auto found = tensor_index.find(name);
  return found == tensor_index.end() ? nullptr : &tensors[found->second];
}

Result<WeightSource> parse_weight_source(std::span<const std::byte> bytes) {
  if (bytes.empty()) return make_error(ErrorCode::kCorruptFile, "not a model file: expected GGUF, found an empty file");
  if (is_gguf(bytes)) return parse_gguf(bytes);
  if (const auto what = describe_foreign_file(bytes))
    return make_error(ErrorCode::kUnsupported, "not a model file: expected GGUF, found {}", *what);
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 8));
  return make_error(ErrorCode::kUnsupported, "not a model file: expected \"GGUF\" as the first bytes, found \"{}\"",
                    printable(head));
}

Result<WeightSource> open_weight_source(const std::string& path) {
  if (is_hf_folder(path)) return open_hf_folder(path);
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: not a model: expected GGUF, or a Hugging Face folder with safetensors, found {}", path,
                      describe_folder(path));
  auto file = MappedFile::open(path);
  if (!file) return file.error();
  auto source = parse_weight_source((*file)->bytes());
  if (!source) return make_error(source.error().code, "{}: {}", path, source.error().message);
  source->owner = *file;
  return source;
}

}  // namespace llmrt
