// How much of a request each of several engines has in its prefix cache already, exactly and without waiting for them:
// beside each stands a set of the keys of its blocks (core/kv/prefix_digests.h). Of a model with several KV groups the
// leading one alone is looked at, so an engine may have to compute more.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/engine/engine.h"
#include "core/kv/prefix_digests.h"

namespace llmrt {

struct PrefixView {
  std::shared_ptr<const Engine> engine;
  std::shared_ptr<const PrefixDigests> digests;  // null: it has no prefix cache
};

// Listens to an engine from now on: before its first submit.
PrefixView listen_to(const std::shared_ptr<Engine>& engine);

// By engine: how many of the first tokens of prompt and begun answer its cache has, without the last one, which is
// always computed. The keys of blocks are computed once for all engines that name them alike, up to the first that none
// of these has: about a microsecond a block. Any thread.
std::vector<uint64_t> cached_tokens(std::span<const PrefixView> views, const Request& request);

}  // namespace llmrt
