// What chunk sizes and KV block sizes cost: counted by the scheduler alone, and measured on devices that hold a model.
//
// Chunks: streams decode, a long prompt arrives. A later chunk reads the keys and values of the earlier ones again, so
// small chunks cost bandwidth, and large ones let the streams wait. Blocks: a trace of requests, all at once on a
// device.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/kv/kv_format.h"
#include "core/model/model.h"
#include "core/study/dry_run.h"
#include "tools/llmrt_bench/record/record.h"
#include "tools/llmrt_bench/serving/loaded_device.h"

namespace llmrt::bench {

struct BatchSizes {
  std::vector<uint32_t> chunks{64, 512, 1024, 4096}, blocks{16, 32, 64};
  uint32_t num_streams = 8, prompt_tokens = 8192;  // of the scene with chunks
  uint32_t num_rows = 4, step_tokens = 2048;       // of the trace
  uint32_t num_repeats = 3;
  KvDType kv_dtype = KvDType::kF16;
};
struct SizedDevice {
  std::string id;
  LoadedDevice device;
};

// Each prints a table, the counted figures first, and adds a row for each size and device. `model` may be null where
// there are no devices: keys and values are then counted in tokens alone. Sizes that a device does not take are named
// under `missing`. Errors: invalid_argument: a chunk has no room beside the streams; those of engines.
Status compare_chunks(const BatchSizes& sizes, const Model* model, std::span<const SizedDevice> devices,
                      const Clock& clock, Record* record);
Status compare_blocks(const BatchSizes& sizes, std::span<const DryRequest> requests, const Model* model,
                      std::span<const SizedDevice> devices, const Clock& clock, Record* record);

// Room for all requests at once; what is waited for is a step, not memory.
SchedulerConfig dry_config(std::span<const DryRequest> requests, uint32_t num_rows, uint32_t step_tokens,
                           uint32_t block_tokens);

}  // namespace llmrt::bench
