// What a program depends on beside its list: facts of the device, shapes of weights and pools, and the tuning. Plain
// numbers; pointers are looked at for their alignment alone. A test makes one without a device.
#pragma once

#include <cstdint>
#include <span>

#include "backends/cuda/tuning.h"
#include "backends/cuda/weight_layout.h"
#include "core/kv/kv_format.h"

namespace llmrt::cuda {

struct DeviceFacts {
  uint32_t num_sms = 0;
  uint32_t shared_bytes_max = 0;  // of a block
  bool has_clusters = false;      // compute capability 9, of the device and of the code that is loaded
  bool has_bulk_copies = false;   // from there on too
  bool has_warpgroups = false;    // the device is of compute capability 9.0 and the build has code for sm_90a
  bool has_cublas = false;
  bool has_state_products = false;  // prompts of matrix states by products of tf32: from compute capability 8 on
};

struct CompileInputs {
  DeviceFacts device;
  std::span<const PackedMatrix> tensors;  // by WeightId
  std::span<const DeviceGroup> groups;    // by WeightGroupId
  std::span<const KvGroup> pools;
  uint32_t hidden_rows = 0;      // of the tensor between forward and sample list
  uint64_t workspace_bytes = 0;  // memory that lives inside one op
  uint32_t num_counters = 0;
  Tuning tuning = kTuning;
};

}  // namespace llmrt::cuda
