// How config.json (quantization_config) or modelopt's hf_quant_config.json says that the weights are stored. Which
// tensors are fp8, and how their scales lie, the tensors themselves tell; here it is decided whether the scheme is one
// that is read, and how large its blocks are.
#pragma once

#include <cstdint>

#include "core/base/status.h"
#include "core/weights/json_tree.h"

namespace llmrt {

struct HfQuantization {
  uint32_t block_rows = 0, block_columns = 0;  // of a grid of fp8 scales; 0: there are no grids
};

// Either may be null. Error: unsupported.
Result<HfQuantization> read_hf_quantization(const JsonTree* quantization_config, const JsonTree* hf_quant_config);

}  // namespace llmrt
