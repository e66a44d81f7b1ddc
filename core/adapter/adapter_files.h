// The two kinds of files that hold an adapter, each as a reader of bytes: what load_adapter opens, and what tests and
// the fuzzer give directly.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/adapter/adapter.h"

namespace llmrt {

// A PEFT folder: its adapter_config.json and adapter_model.safetensors. The bytes are needed during the call alone.
Result<std::shared_ptr<const Adapter>> read_peft_adapter(std::string_view config, std::span<const std::byte> weights,
                                                         const Model& model, std::string path);

// A GGUF file. Likewise.
Result<std::shared_ptr<const Adapter>> read_gguf_adapter(std::span<const std::byte> bytes, const Model& model,
                                                         std::string path);

}  // namespace llmrt
