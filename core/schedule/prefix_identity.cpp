#include "core/schedule/prefix_identity.h"

#include <bit>

namespace llmrt {

// An adapter's id stands for its content: ids are not given twice. One that counts from a position on is among the
// tokens (prefix_mark), unless the request has a factor of its own on it.
Digest prefix_identity(const Digest& cache_identity, const Request& request) {
  const bool is_in_tokens = request.adapter_start && request.adapter_scale == 1;
  return Sha256()
      .add(cache_identity)
      .add(is_in_tokens ? 0 : request.adapter_id)
      .add(std::bit_cast<uint32_t>(request.adapter_scale))
      .add(uint32_t{request.batch_invariant})
      .add_text(request.cache_salt)
      .finish();
}

std::optional<PrefixMark> prefix_mark(const Request& request) {
  if (request.adapter_id == 0 || !request.adapter_start) return std::nullopt;
  return PrefixMark{*request.adapter_start, INT32_MIN + static_cast<int32_t>(request.adapter_id)};
}

}  // namespace llmrt
