#include "backends/vulkan/doors.h"

#include <utility>

#include "backends/vulkan/program.h"

namespace llmrt::vulkan {
namespace {

// No bytes: no op touches the tensor.
View tensor_view(const Resources& resources, const OpList& list, TensorId tensor) {
  LLMRT_CHECK(list.tensors[tensor].storage != Storage::kArena, "only pinned and hidden tensors have doors");
  if (list.tensors[tensor].storage == Storage::kHidden) return resources.hidden.part(0, list.bytes_of(tensor));
  const ArenaPlan plan = plan_arena(list);
  LLMRT_CHECK(plan.bytes <= resources.arena.bytes, "a list larger than the arena");
  if (plan.offsets[tensor] == ArenaPlan::kNoOffset) return {};
  return resources.arena.part(plan.offsets[tensor], list.bytes_of(tensor));
}

// Data and scales.
std::pair<View, View> kv_block(const Resources& resources, const KvBlock& where, size_t num_bytes) {
  LLMRT_CHECK(where.kv_group < resources.pools.size(), "kv group");
  const KvPool& pool = resources.pools[where.kv_group];
  const KvGroup& group = pool.group;
  const bool on_host = where.block >= group.num_blocks;
  const KvMemory& memory = on_host ? pool.host : pool.device;
  const uint32_t block = on_host ? where.block - group.num_blocks : where.block;
  LLMRT_CHECK(where.layer < group.num_layers && block < (on_host ? group.num_host_blocks : group.num_blocks),
              "kv layer and block");
  const uint64_t data = group.data_bytes_block_layer(), scale = group.scale_bytes_block_layer();
  LLMRT_CHECK(num_bytes == data + scale, "bytes of a kv block");
  return {memory.data[where.layer].part(block * data, data),
          scale ? memory.scales[where.layer].part(block * scale, scale) : View{}};
}

}  // namespace

Status write_tensor(Transfer* transfer, const Resources& resources, const OpList& list, TensorId tensor,
                    std::span<const std::byte> bytes) {
  LLMRT_CHECK(bytes.size() == list.bytes_of(tensor), "bytes of a tensor");
  const View view = tensor_view(resources, list, tensor);
  return view.bytes ? transfer->write(view, bytes) : Status();
}

Status read_tensor(Transfer* transfer, const Resources& resources, const OpList& list, TensorId tensor,
                   std::span<std::byte> bytes) {
  LLMRT_CHECK(bytes.size() == list.bytes_of(tensor), "bytes of a tensor");
  const View view = tensor_view(resources, list, tensor);
  return view.bytes ? transfer->read(view, bytes) : Status();
}

Status write_kv(Transfer* transfer, const Resources& resources, const KvBlock& where,
                std::span<const std::byte> bytes) {
  const auto [data, scales] = kv_block(resources, where, bytes.size());
  if (Status s = transfer->write(data, bytes.first(data.bytes)); !s) return s;
  return scales.bytes ? transfer->write(scales, bytes.subspan(data.bytes)) : Status();
}

Status read_kv(Transfer* transfer, const Resources& resources, const KvBlock& where, std::span<std::byte> bytes) {
  const auto [data, scales] = kv_block(resources, where, bytes.size());
  if (Status s = transfer->read(data, bytes.first(data.bytes)); !s) return s;
  return scales.bytes ? transfer->read(scales, bytes.subspan(data.bytes)) : Status();
}

std::vector<std::span<std::byte>> host_block(const Resources& resources, uint32_t kv_group, uint32_t block) {
  LLMRT_CHECK(kv_group < resources.pools.size() && block < resources.pools[kv_group].group.num_host_blocks,
              "host block");
  const auto& [group, device, host] = resources.pools[kv_group];
  std::vector<std::span<std::byte>> parts;
  const auto add = [&](const View& layer, uint64_t bytes) {
    parts.push_back({layer.buffer->mapped() + layer.offset + block * bytes, bytes});
  };
  for (uint32_t layer = 0; layer < group.num_layers; ++layer) {
    add(host.data[layer], group.data_bytes_block_layer());
    if (group.scales_vector() > 0) add(host.scales[layer], group.scale_bytes_block_layer());
  }
  return parts;
}

}  // namespace llmrt::vulkan
