#include "core/weights/foreign_files.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "core/weights/safetensors.h"

namespace llmrt {
namespace {

constexpr const char* kConvert = "convert the model's folder with llama.cpp's convert_hf_to_gguf.py";

struct Magic {
  std::string_view bytes;
  const char* what;
};
using std::string_view_literals::operator""sv;
constexpr Magic kMagics[] = {
    {"tjgg"sv, "an old GGJT file, which GGUF replaced in 2023: get the model as GGUF"},
    {"fmgg"sv, "an old GGMF file, which GGUF replaced in 2023: get the model as GGUF"},
    {"lmgg"sv, "an old GGML file, which GGUF replaced in 2023: get the model as GGUF"},
    {"algg"sv, "an old GGLA adapter, which GGUF replaced: get a whole model as GGUF"},
    {"version https://git-lfs"sv, "a Git LFS pointer, not the file itself: fetch it with git lfs pull"},
    {"\x1f\x8b"sv, "a gzip archive: unpack it first"},
    {"BZh"sv, "a bzip2 archive: unpack it first"},
    {"\x28\xb5\x2f\xfd"sv, "a zstd archive: unpack it first"},
    {"\xfd"
     "7zXZ"sv,
     "an xz archive: unpack it first"},
    {"7z\xbc\xaf\x27\x1c"sv, "a 7z archive: unpack it first"},
    {"\x89HDF\r\n"sv, "an HDF5 (Keras) file: get the model as GGUF"},
    {"\x93NUMPY"sv, "a NumPy array: get the model as GGUF"},
};

// ONNX is a protobuf message that begins with the version of its format, then a string with its producer's name.
bool is_onnx(std::string_view head) {
  return head.size() > 4 && head[0] == 0x08 && static_cast<uint8_t>(head[1]) < 0x20 && head[2] == 0x12 &&
         static_cast<uint8_t>(head[3]) < 0x40;
}

// A zip archive of torch.save names its first member "<name>/data.pkl".
const char* describe_zip(std::string_view head) {
  return head.find("data.pkl") != std::string_view::npos || head.find("/version") != std::string_view::npos
             ? "a PyTorch file"
             : nullptr;
}

bool is_html(std::string_view head) {
  std::string text(head.substr(0, std::min<size_t>(head.size(), 64)));
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const size_t begin = text.find_first_not_of(" \t\r\n");
  const std::string_view rest = begin == std::string::npos ? "" : std::string_view(text).substr(begin);
  return rest.starts_with("<!doctype html") || rest.starts_with("<html") || rest.starts_with("<?xml");
}

}  // namespace

std::optional<std::string> describe_foreign_file(std::span<const std::byte> bytes) {
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 512));
  for (const Magic& magic : kMagics)
    if (head.starts_with(magic.bytes)) return magic.what;
  if (is_safetensors(bytes)) return "a safetensors file: name its folder, which has config.json too";
  if (head.starts_with("PK\x03\x04")) {
    if (const char* what = describe_zip(head)) return std::string(what) + ": " + kConvert;
    return "a zip archive: unpack it first";
  }
  if (head.starts_with("\x80\x02"sv) || head.starts_with("\x80\x04"sv))
    return std::string("a Python pickle (an old PyTorch file): ") + kConvert;
  if (is_onnx(head)) return "an ONNX file: get the model as GGUF";
  if (is_html(head)) return "a web page: a failed download; fetch the file itself (its URL has /resolve/, not /blob/)";
  if (head.starts_with('{')) return "a JSON file: name the model's folder";
  return std::nullopt;
}

std::string describe_folder(const std::string& path) {
  std::error_code ignored;
  bool has_gguf = false, has_safetensors = false;
  int num_seen = 0;
  for (auto entry = std::filesystem::directory_iterator(path, ignored);
       !ignored && entry != std::filesystem::directory_iterator() && num_seen < 10000; entry.increment(ignored)) {
    has_gguf = has_gguf || entry->path().extension() == ".gguf";
    has_safetensors = has_safetensors || entry->path().extension() == ".safetensors";
    ++num_seen;
  }
  if (has_gguf) return "a folder: name one of its .gguf files";
  const bool has_config = std::filesystem::exists(std::filesystem::path(path) / "config.json", ignored);
  if (has_safetensors)
    return has_config ? "a Hugging Face model folder without model.safetensors or model.safetensors.index.json"
                      : "safetensors files without a config.json";
  if (has_config) return std::string("a Hugging Face model folder without safetensors files: ") + kConvert;
  return "a folder";
}

}  // namespace llmrt
