// Stored keys as numbers: the bytes of read_kv (core/backend/backend.h), laid out as core/kv/kv_format.h says, decoded
// on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/kv/kv_format.h"

namespace llmrt::bench {

// Keys of `head` for the first out.size() / head_dim tokens of a block: `layer_block` is one layer of that block, data
// and scales; `tensor_scale` is that of an fp8-tensor pool; `out` is [token][dim].
void decode_keys(const KvGroup& group, std::span<const std::byte> layer_block, uint32_t head, float tensor_scale,
                 std::span<float> out);

}  // namespace llmrt::bench
