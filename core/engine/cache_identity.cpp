#include "core/engine/cache_identity.h"

#include "core/model/model_digest.h"

namespace llmrt {

Digest cache_identity(const Model& model, const EngineConfig& config) {
  return Sha256().add(model_digest(model)).add_text(kv_dtype_name(config.kv_dtype)).finish();
}

}  // namespace llmrt
