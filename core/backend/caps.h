// What a device can do, as the core needs to know it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/attention/tuning.h"
#include "core/kv/kv_format.h"
#include "core/ops/tensor.h"

namespace llmrt {

struct Caps {
  std::string device_id;                 // "cuda:0", "vulkan:1", "reference:0"
  std::string device_name;               // as the driver calls it
  std::string pci_address;               // "0000:65:00.0"; empty: the driver does not say
  std::string driver;                    // its name and versions; may be empty
  std::string tier;                      // "T1 subgroup", "sm_90a", ...
  bool is_cpu = false;                   // the "device" is the host's processor (lavapipe)
  bool unified_memory = false;           // device memory is the host's memory
  uint64_t memory_bytes = 0;             // in all
  uint64_t memory_free_bytes = 0;        // when the device was opened
  uint64_t range_bytes_max = 0;          // largest single tensor, logits or KV layer range that kernels can address
  DType activation_dtype = DType::kF32;  // what lower asks for as input of matmuls
  std::vector<KvDType> kv_dtypes;
  uint32_t head_dim_max = 256;
  uint32_t latent_row_max = 0;       // numbers of a token in the cache of latent attention; 0: no kernels for it
  bool batch_invariant = false;      // a row's numbers do not depend on the other rows of the step
  uint32_t step_tokens_max = 2048;   // more is refused by create_state
  AttentionTuning attention;         // what its attention kernels need to be given
  uint32_t f16_copies_rows_min = 0;  // Backend::add_f16_copies: steps of so many tokens read them; 0: none does
  // From so many rows on matmuls of f16 x add a few products in f16 before f32, or those of quantised weights round
  // numbers of x to bytes, by a scale of a few of them; 0: they do not.
  uint32_t half_sums_rows_min = 0, byte_inputs_rows_min = 0;
};

}  // namespace llmrt
