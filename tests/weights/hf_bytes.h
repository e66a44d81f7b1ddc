// Hugging Face folders in a temporary place, written tensor by tensor.
#pragma once

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/weights/hf_folder.h"
#include "tests/weights/gguf_bytes.h"

namespace llmrt::test {

struct HfBytes {
  std::string name, dtype;
  std::vector<uint64_t> shape;
  std::string data;
};

inline std::string safetensors_of(const std::vector<HfBytes>& tensors) {
  std::string header = "{", data;
  for (const HfBytes& tensor : tensors) {
    header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          header.size() > 1 ? "," : "", tensor.name, tensor.dtype, fmt::join(tensor.shape, ","),
                          data.size(), data.size() + tensor.data.size());
    data += tensor.data;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return raw<uint64_t>(header.size()) + header + data;
}

class HfTestFolder {
 public:
  HfTestFolder() : path_(std::filesystem::temp_directory_path() / fmt::format("llmrt_hf_families_{}", ::getpid())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~HfTestFolder() { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  std::string path() const { return path_.string(); }

  Result<WeightSource> open(const std::string& config, const std::vector<HfBytes>& tensors) const {
    write("config.json", config);
    write("model.safetensors", safetensors_of(tensors));
    return open_hf_folder(path());
  }
  std::string message(const std::string& config, const std::vector<HfBytes>& tensors) const {
    const auto source = open(config, tensors);
    REQUIRE_FALSE(source.ok());
    return source.error().message;
  }

 private:
  std::filesystem::path path_;
};

// All bytes of a tensor, made at once and, to be the same, in rows and runs of rows.
inline std::string bytes_of(const WeightSource& source, std::string_view name) {
  const SourceTensor* found = source.find(name);
  INFO(name);
  REQUIRE(found != nullptr);
  std::string all(found->num_bytes(), '\0');
  const auto span = [](std::string& text) { return std::as_writable_bytes(std::span(text)); };
  if (!found->generate) return std::string(reinterpret_cast<const char*>(found->bytes.data()), found->bytes.size());
  found->generate(0, span(all));
  const uint64_t row = row_bytes(*found->encoding, found->dims[0]), rows = all.size() / row;
  for (const uint64_t run : {uint64_t{1}, uint64_t{3}}) {
    for (uint64_t first = 0; first + run <= rows; first += run) {
      std::string part(run * row, '\0');
      found->generate(first * row, span(part));
      REQUIRE(part == all.substr(first * row, part.size()));
    }
  }
  return all;
}

}  // namespace llmrt::test
