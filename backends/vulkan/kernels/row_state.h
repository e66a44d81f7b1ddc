// What kernels with a state are handed of its records. Shader side: shaders/row_state.glsl.
#pragma once

#include <algorithm>

#include "backends/vulkan/emitter.h"

namespace llmrt::vulkan {

struct StateViews {
  View records;                       // of the layer, all of them
  View first;                         // from the state's first number on
  View tables;                        // of the group
  uint32_t record_columns, rows_max;  // rows_max: rows that a step of the list may have
};

inline Result<StateViews> state_views(const Emitter& e, const StatePart& state) {
  const Resources& res = e.resources();
  const KvPool& pool = res.pools[state.kv_group];
  if (!pool.group.is_state())
    return make_error(ErrorCode::kInvalidArgument, "vulkan: kv group {}: expected one of states, found one of blocks",
                      state.kv_group);
  const View records = pool.device.data[state.layer];
  const uint64_t group_bytes = uint64_t{res.config.slots_max} * res.config.blocks_row_max * 4;
  return StateViews{records, records.part(state.first * 4ull, records.bytes - state.first * 4ull),
                    res.tables.part(state.kv_group * group_bytes, group_bytes), pool.group.state_columns,
                    std::min(e.list().num_tokens, res.config.slots_max)};
}

// The columns from the first on, and how many a row has.
struct ColumnsView {
  View all, first;
  uint32_t columns;
};
inline ColumnsView columns_view(const Emitter& e, const Columns& columns) {
  const View all = e.tensor(columns.tensor);
  return {all, all.part(columns.first * 4ull, all.bytes - columns.first * 4ull), e.desc(columns.tensor).columns};
}
// Whether rows are whole vec4s.
inline bool is_aligned(const Emitter& e, const Columns& columns) {
  return columns.first % 4 == 0 && e.desc(columns.tensor).columns % 4 == 0;
}

}  // namespace llmrt::vulkan
