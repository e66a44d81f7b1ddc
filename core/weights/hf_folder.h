// A Hugging Face model folder as a weight source: config.json, model.safetensors or the files that
// model.safetensors.index.json names, and where they are there tokenizer.json, tokenizer_config.json,
// generation_config.json and chat_template.jinja. Keys and tensors get GGUF's names, so nothing behind the source knows
// which container it was. Weights stay in the mapped files; what GGUF arranges otherwise is made while it is read;
// vectors (norms, biases) become f32.
// generation_config.json's sampling defaults are not taken: requests say how they sample.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "core/base/status.h"
#include "core/weights/weight_source.h"

namespace llmrt {

// A folder with a config.json and safetensors files; says nothing about what is in them.
bool is_hf_folder(const std::string& path);

// Errors: not_found, io_error, corrupt_file, unsupported.
Result<WeightSource> open_hf_folder(const std::string& path);

// The texts of such a folder, for tests and the fuzzer; absent: no such file.
struct HfTexts {
  std::string config;
  std::optional<std::string> tokenizer, tokenizer_config, generation_config, chat_template;
  std::optional<std::string> quantization = {};  // hf_quant_config.json
};
// Metadata, and the tensors of one safetensors file where bytes are given; these must outlive the source.
Result<WeightSource> read_hf_texts(const HfTexts& texts, std::span<const std::byte> weights = {});

}  // namespace llmrt
