// Sequences over a KvSpace of several groups, planned as the scheduler does: begin, take, write; then the step is
// complete.
#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "core/kv/kv_space.h"

namespace llmrt::test {

using Tokens = std::vector<int32_t>;
inline const Digest kIdentity = Sha256().add_text("one model").finish();

inline KvPoolSize blocks(uint32_t num_blocks, uint32_t block_tokens, uint32_t window = 0,
                         uint32_t num_host_blocks = 0) {
  return {num_blocks, block_tokens, CacheKind::kBlocks, window, num_host_blocks};
}
inline KvPoolSize states(uint32_t num_records, uint32_t interval, uint32_t num_host_blocks = 0) {
  return {num_records, interval, CacheKind::kState, 0, num_host_blocks};
}

struct Row {
  std::vector<BlockTable> tables;
  Tokens tokens;
  uint32_t computed = 0;
};

inline void begin(KvSpace& kv, Row& row, const Tokens& tokens) {
  row.tokens = tokens;
  row.tables = kv.make_tables(64);
  const PrefixMatch match = kv.match(kIdentity, std::span(tokens).first(tokens.size() - 1));
  kv.share(row.tables, match);
  if (!match.host_blocks.empty()) kv.load(row.tables, match);
  row.computed = match.num_tokens(kv.block_tokens());
  kv.keep(row.tables, kIdentity, std::span(tokens).first(row.computed));
}
using Places = std::vector<RecordPlace>;
// The row's next step, up to `end`, of which the first `known` tokens are known. It saves states at these positions.
inline Places write(KvSpace& kv, Row& row, uint32_t end, std::initializer_list<uint32_t> saves = {},
                    uint32_t known = ~0u, CheckpointKind kind = CheckpointKind::kPassage) {
  Places places;
  kv.begin_states(row.tables, row.computed, &places);
  row.computed = end;
  kv.keep(row.tables, kIdentity, std::span(row.tokens).first(std::min(known, end)));
  for (const uint32_t position : saves) kv.save_states(row.tables, position, kind, &places);
  kv.advance(row.tables, end);
  return places;
}
inline Places step(KvSpace& kv, Row& row, uint32_t end, std::initializer_list<uint32_t> saves = {},
                   uint32_t known = ~0u, CheckpointKind kind = CheckpointKind::kPassage) {
  REQUIRE(kv.grow(row.tables, end));
  const Places places = write(kv, row, end, saves, known, kind);
  kv.forget_moves();
  return places;
}
inline std::string books(const KvSpace& kv, std::initializer_list<const Row*> rows) {
  std::vector<KvSpace::Holder> holders;
  for (const Row* row : rows)
    if (!row->tables.empty()) holders.push_back({row->tables, row->computed});
  const Status status = kv.check_books(holders);
  return status ? "" : status.error().message;
}
inline Tokens text(uint32_t size, int32_t first = 1) {
  Tokens tokens(size);
  for (uint32_t i = 0; i < size; ++i) tokens[i] = first + static_cast<int32_t>(i);
  return tokens;
}

}  // namespace llmrt::test
