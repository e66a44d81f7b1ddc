// By what the prefix cache knows a request's tokens: for the scheduler, and for whoever asks from outside what a cache
// has of a request. Pure. The request is as the scheduler gets it: its numeric mode and its adapter are final.
#pragma once

#include <optional>

#include "core/request/request.h"

namespace llmrt {

// What keys and values depend on beside the tokens: adapter, its factor, numeric mode and salt, and what
// `cache_identity`, the engine's, stands for.
Digest prefix_identity(const Digest& cache_identity, const Request& request);

// What stands among the tokens in place of the one at a position.
struct PrefixMark {
  uint32_t position;
  int32_t token;
};
// An adapter that counts from a position on stands there in place of the token, which is the first of its invocation:
// so blocks that end before it are the model's own, and those from there on belong to the adapter's content and to its
// start. Nothing for other requests.
std::optional<PrefixMark> prefix_mark(const Request& request);

}  // namespace llmrt
