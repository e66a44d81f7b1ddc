#include "core/engine/cache_identity.h"

#include "core/model/model_digest.h"

namespace llmrt {

Digest cache_identity(const Model& model, const EngineConfig& config) {
  return Sha256().add(model_digest(model)).add_text(kv_dtype_name(config.kv_dtype)).finish();
}

Digest exchange_layout(const Digest& cache_identity, std::span<const KvGroup> groups) {
  Sha256 hash;
  hash.add(cache_identity);
  for (const KvGroup& group : groups) {
    hash.add(group.dtype).add(group.keys_only);
    for (const uint32_t value :
         {group.num_layers, group.num_kv_heads, group.head_dim, group.block_tokens, group.state_columns})
      hash.add(value);
  }
  return hash.finish();
}

Digest disk_identity(const Digest& cache_identity, const Caps& caps, std::span<const KvGroup> groups) {
  Sha256 hash;
  hash.add(exchange_layout(cache_identity, groups));
  hash.add_text(LLMRT_VERSION).add_text(caps.device_name).add_text(caps.driver);
  hash.add_text(caps.device_id.substr(0, caps.device_id.find(':')));
  return hash.finish();
}

}  // namespace llmrt
