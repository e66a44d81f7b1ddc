// The pools of a model's cache groups beside each other: how many blocks each one has when the first has N, and what
// they take together. Pure arithmetic.
//
// Pools of groups that see all positions have N blocks each. A pool of window layers has fewer where N is large: what
// all running rows and one step's chunks hold inside their windows, and a quarter of N, so that a prefix hit finds the
// blocks inside its window.
//
// A pool of states has a record where others have a block: one for each running sequence, and one for the checkpoint
// from which its conversation goes on. Where memory is scarce it has as many as take what the first N blocks take: a
// sequence of few tokens needs a record as a long one does. So both run out together where conversations have as many
// tokens as take two records: 4,700 in Qwen3.6-27B (64 KiB a token, 154 MB a record), 6,300 in Qwen3.6-35B-A3B.
#pragma once

#include <span>
#include <vector>

#include "core/backend/caps.h"
#include "core/engine/engine_config.h"
#include "core/kv/block_pool.h"
#include "core/kv/kv_format.h"
#include "core/model/model_config.h"

namespace llmrt {

class PoolShapes {
 public:
  PoolShapes(const ModelConfig& model, const EngineConfig& config);
  // The pool of a model with one group.
  explicit PoolShapes(const KvGroup& group) : shapes_{{group, 0, 0}} {}

  size_t size() const { return shapes_.size(); }
  const KvGroup& first() const { return shapes_.front().group; }  // its numbers of blocks are 0
  uint64_t bytes_block() const;                                   // of one block in every group of blocks
  // The blocks (records) of group g, and the bytes of all pools, where the first pool has num_blocks.
  uint64_t blocks_of(size_t g, uint64_t num_blocks) const;
  uint64_t bytes_of(uint64_t num_blocks) const;
  // The most blocks of the first pool whose pools fit in so many bytes, where each takes some beside them; at most
  // 2^31 - 1.
  uint64_t blocks_in(uint64_t bytes, uint64_t block_bytes_beside = 0) const;
  // The most that the device addresses: a layer of a pool is one range.
  uint64_t blocks_by_range(const Caps& caps) const;

  // What the backend makes of it (Backend::create_kv_pools), and what the scheduler keeps books of.
  std::vector<KvGroup> groups(uint32_t num_blocks, uint32_t num_host_blocks) const;
  std::vector<KvPoolSize> books(uint32_t num_blocks, uint32_t num_host_blocks) const;

 private:
  struct Shape {
    KvGroup group;
    uint32_t window;         // 0 = all positions
    uint64_t blocks_inside;  // the windows of all rows that may run, and a step's chunks; or records that suffice
  };
  std::vector<Shape> shapes_;
};

}  // namespace llmrt
