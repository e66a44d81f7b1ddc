// Any files as a Hugging Face folder: opened, refused or loaded, never a crash, and no weight outside its file. An
// input is the folder's files behind each other, each begun by a byte 0x1f and a letter that names it (kFiles); what
// stands before the first one is left out. A capital letter is a safetensors file of which the input has the header
// alone: its length, padding and as many bytes as its offsets ask for, up to a bound, are made here, so that changed
// headers stay whole files. Seeds: corpus/hf_folder, written by make_folder_corpus.py.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/check.h"
#include "core/model/load_file.h"
#include "core/text/tokenizer.h"
#include "core/weights/hf_folder.h"
#include "tests/fuzz/safetensors_text.h"

namespace {

using namespace llmrt;
namespace fs = std::filesystem;

constexpr char kMark = '\x1f';

struct FileKind {
  char letter;
  const char* name;
};
constexpr FileKind kFiles[] = {
    {'c', "config.json"},
    {'t', "tokenizer.json"},
    {'k', "tokenizer_config.json"},
    {'g', "generation_config.json"},
    {'q', "hf_quant_config.json"},
    {'j', "chat_template.jinja"},
    {'i', "model.safetensors.index.json"},
    {'m', "model.safetensors"},
    {'M', "model.safetensors"},
    {'a', "a.safetensors"},
    {'A', "a.safetensors"},
    {'b', "b.safetensors"},
    {'B', "b.safetensors"},
};

std::map<std::string, std::string> files_of(std::string_view input) {
  std::map<std::string, std::string> files;
  for (size_t at = input.find(kMark); at != std::string_view::npos && at + 1 < input.size();) {
    const size_t end = input.find(kMark, at + 2);
    const std::string_view content = input.substr(at + 2, end == std::string_view::npos ? end : end - at - 2);
    if (const auto kind = std::ranges::find(kFiles, input[at + 1], &FileKind::letter); kind != std::end(kFiles))
      files[kind->name] = kind->letter < 'a' ? test::safetensors_of(content) : std::string(content);
    at = end;
  }
  return files;
}

// One folder of the process, which goes with it. What is alike in two inputs is not written again.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("llmrt_hf_folder_fuzz." + std::to_string(getpid()))) {
    fs::remove_all(path_);
    fs::create_directory(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  std::string path() const { return path_.string(); }

  void set(std::map<std::string, std::string> files) {
    for (const auto& [name, content] : files_)
      if (!files.contains(name)) fs::remove(path_ / name);
    for (const auto& [name, content] : files) {
      const auto old = files_.find(name);
      if (old != files_.end() && old->second == content) continue;
      std::ofstream file(path_ / name, std::ios::binary);
      file.write(content.data(), static_cast<std::streamsize>(content.size()));
      LLMRT_CHECK(file.good(), "the folder for fuzzing can be written");
    }
    files_ = std::move(files);
  }

 private:
  fs::path path_;
  std::map<std::string, std::string> files_;
};

// First and last rows, made or in the file: the sanitizer sees a pointer that left it.
uint64_t touch(const SourceTensor& tensor) {
  LLMRT_CHECK(!describe(tensor).empty() && tensor.num_bytes() > 0, "a tensor has a text and bytes");
  if (!tensor.generate) return static_cast<uint64_t>(tensor.bytes.front()) + static_cast<uint64_t>(tensor.bytes.back());
  std::vector<std::byte> row(row_bytes(*tensor.encoding, tensor.dims[0]));
  const uint64_t rows = tensor.num_bytes() / row.size();
  for (uint64_t at = 0; at < rows; at += std::max<uint64_t>(rows / 16, 1)) tensor.generate(at * row.size(), row);
  tensor.generate((rows - 1) * row.size(), row);
  return static_cast<uint64_t>(row.front());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Folder folder;
  folder.set(files_of({reinterpret_cast<const char*>(data), size}));
  (void)is_hf_folder(folder.path());
  const auto source = open_hf_folder(folder.path());
  if (!source) {
    LLMRT_CHECK(source.error().message.size() < 4000, "what a refusal says is short");
    return 0;
  }
  volatile uint64_t sink = 0;
  for (const auto& [key, value] : source->metadata.entries())
    LLMRT_CHECK(!key.empty() && describe(value).size() < 1000, "what inspect prints is short");
  for (const SourceTensor& tensor : source->tensors) sink = sink + touch(tensor);
  const auto model = load_from_source(*source, "fuzz");
  if (model && (*model)->vocabulary) (void)Tokenizer::create(*(*model)->vocabulary);
  return 0;
}
