// What a device can do, as the core needs to know it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/kv/kv_format.h"
#include "core/ops/tensor.h"

namespace llmrt {

struct Caps {
  std::string device_id;                 // "cuda:0", "vulkan:1", "reference:0"
  std::string device_name;               // as the driver calls it
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
  bool batch_invariant = false;      // a row's numbers do not depend on the other rows of the step
  uint32_t step_tokens_max = 2048;   // more is refused by create_state
  uint32_t prompt_tiles = 512;       // prompt items x query heads that paged_attention computes at a time
  // Rows, query tokens x query heads of a KV head, that a workgroup of it computes where splits of different lengths may
  // fill the device; 0: a round's items should take equally long. Workgroups begin one by one, or, with prompt_turns, each
  // has an item of each round, that of the same place from the list's end.
  uint32_t prompt_tile_rows = 0;
  bool prompt_turns = false;
  uint32_t f16_copies_rows_min = 0;  // Backend::add_f16_copies: steps of so many tokens read them; 0: none does
  // From so many rows on matmuls of f16 x add a few products in f16 before f32, or those of quantised weights round numbers
  // of x to bytes, by a scale of a few of them; 0: they do not.
  uint32_t half_sums_rows_min = 0, byte_inputs_rows_min = 0;
  uint32_t decode_works = 0;  // decode items x KV heads that it computes at a time; 0: rows are split by their length
};

}  // namespace llmrt
