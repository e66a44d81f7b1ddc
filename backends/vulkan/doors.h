// Bytes of tensors and KV blocks, read and written from outside of steps (tests, tools). No step is in flight.
#pragma once

#include <cstddef>
#include <span>

#include "backends/vulkan/resources.h"
#include "backends/vulkan/transfer.h"

namespace llmrt::vulkan {

Status write_tensor(Transfer* transfer, const Resources& resources, const OpList& list, TensorId tensor,
                    std::span<const std::byte> bytes);
Status read_tensor(Transfer* transfer, const Resources& resources, const OpList& list, TensorId tensor,
                   std::span<std::byte> bytes);

// One block of one layer: data, then scales. Blocks behind those of the device are the host's.
struct KvBlock {
  uint32_t kv_group, layer, block;
};
Status write_kv(Transfer* transfer, const Resources& resources, const KvBlock& where, std::span<const std::byte> bytes);
// Where a block of the host's pool lies in mapped memory (Backend::host_block).
std::vector<std::span<std::byte>> host_block(const Resources& resources, uint32_t kv_group, uint32_t block);
Status read_kv(Transfer* transfer, const Resources& resources, const KvBlock& where, std::span<std::byte> bytes);

}  // namespace llmrt::vulkan
