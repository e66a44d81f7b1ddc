// Low-rank adapters of random numbers, for load and for kernels: their answers mean nothing. The same seed makes the
// same numbers on any machine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/adapter/adapter.h"
#include "core/adapter/adapter_image.h"
#include "core/request/request.h"

namespace llmrt::bench {

// Changes every matrix of the layers that adapters may change whole (not the head), by about a fiftieth of its input's
// size. `rank`: 1 to kAdapterRankMax.
Adapter make_random_adapter(const Model& model, uint32_t rank, uint64_t seed);
// `count` of them in the form of the device, with the ids 1 to `count`, from seeds that follow each other.
std::vector<ReadyAdapter> make_ready_adapters(const Model& model, uint32_t count, uint32_t rank, DType dtype,
                                              uint64_t seed);

// "adapter_0007", from 1 on: in the order of their numbers when sorted by name.
std::string adapter_name(uint32_t number);
// Writes `count` GGUF adapters of the model to adapter_0001.gguf and so on in `folder`, which is made where it is not
// there. Errors: io_error.
Status write_random_adapters(const Model& model, uint32_t count, uint32_t rank, uint64_t seed,
                             const std::string& folder);

}  // namespace llmrt::bench
