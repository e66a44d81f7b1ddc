// Models on disk: which a folder or Hugging Face's cache holds, and what is in them. Reads headers, no weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace llmrt::cli {

struct ModelFile {
  std::string name;  // as clients would call it
  std::string path;
};

// What a model is called: a file without its ending, a folder as it is.
std::string model_name(const std::string& path);

// By name, each once: GGUF files (the first of several parts), Hugging Face folders, GGUF files one folder below, and
// the newest snapshots of a cache ("models--ORG--NAME", called ORG/NAME). Entries beyond 10,000 are not looked at.
// Errors: not_found, io_error.
Result<std::vector<ModelFile>> find_models(const std::string& folder);
// Where Hugging Face's tools keep what they download (HF_HUB_CACHE, HF_HOME); it need not exist.
std::string cache_folder();

// Bytes of weights, about: of files on disk, or of a synthetic model's tensors. 0: not known.
uint64_t weight_bytes(const std::string& path);

struct ModelSummary {
  std::string architecture, encoding;  // of most bytes
  uint64_t bytes = 0, context = 0;
  std::string problem;  // why it cannot be read, or that the architecture is not known; empty: none
};
ModelSummary summarize_model(const std::string& path);

}  // namespace llmrt::cli
