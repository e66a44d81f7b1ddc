// Sequences over a KvSpace of several groups, planned as the scheduler does: begin, take, write; then the step is
// complete.
#pragma once

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
inline void write(KvSpace& kv, Row& row, uint32_t end) {
  kv.snapshot(row.tables);
  row.computed = end;
  kv.keep(row.tables, kIdentity, std::span(row.tokens).first(end));
  kv.advance(row.tables, end);
}
inline void step(KvSpace& kv, Row& row, uint32_t end) {
  REQUIRE(kv.grow(row.tables, end));
  write(kv, row, end);
  kv.forget_moves();
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
