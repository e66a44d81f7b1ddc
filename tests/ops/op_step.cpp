// Building steps: tensors with guards, rows, row updates and attention work lists.
#include <algorithm>
#include <array>
#include <cstring>

#include "core/base/checked_math.h"
#include "tests/ops/op_harness.h"

namespace llmrt::optest {

uint32_t Step::live_rows(TensorId id) const {
  return tensor_list().rows_of(id, static_cast<uint32_t>(forward_inputs.tokens.size()),
                               static_cast<uint32_t>(sample_inputs.records.size()));
}

TensorId Step::input(Rows rows, std::string name, uint32_t columns, DType dtype, std::vector<double> values) {
  return input_in(rows == Rows::kTokens ? forward : sample, rows, std::move(name), columns, dtype, std::move(values));
}

TensorId Step::input_in(OpList& list, Rows rows, std::string name, uint32_t columns, DType dtype,
                        std::vector<double> values) {
  const TensorId id = list.add_tensor({std::move(name), rows, columns, dtype, Storage::kPinned});
  fills.push_back({id, std::move(values)});
  return id;
}

TensorId Step::output(Rows rows, std::string name, uint32_t columns, DType dtype, Tolerance tolerance, DType math,
                      double scale) {
  return output_in(rows == Rows::kTokens ? forward : sample, rows, std::move(name), columns, dtype, tolerance, math,
                   scale);
}

TensorId Step::output_in(OpList& list, Rows rows, std::string name, uint32_t columns, DType dtype, Tolerance tolerance,
                         DType math, double scale) {
  const TensorId id = list.add_tensor({name, rows, columns, dtype, Storage::kPinned});
  outputs.push_back({id, tolerance, math, scale});
  // Of the same size, so that the arena plan lays it right behind.
  list.add_tensor({name + ".guard", rows, columns, dtype, Storage::kPinned});
  return id;
}

TensorId Step::inout(Rows rows, std::string name, uint32_t columns, DType dtype, std::vector<double> values,
                     Tolerance tolerance) {
  const TensorId id = output(rows, std::move(name), columns, dtype, tolerance);
  fills.push_back({id, std::move(values)});
  return id;
}

OpList& Step::set_rows(Rows rows, uint32_t live, uint32_t bucket) {
  if (rows == Rows::kTokens) {
    if (live > 0) add_row(0, 0, live);
    set_bucket(bucket);
    return forward;
  }
  add_row(0, 0, 1);
  set_bucket(1, bucket);
  for (uint32_t r = 0; r < live; ++r) sample_inputs.records.push_back({0, 0, 0});
  return sample;
}

uint32_t Step::add_row(uint32_t slot, uint32_t start, uint32_t num_tokens, const std::vector<int32_t>& tokens) {
  const uint32_t row_idx = static_cast<uint32_t>(forward_inputs.rows.size());
  forward_inputs.rows.push_back({slot, start, num_tokens, static_cast<uint32_t>(forward_inputs.tokens.size())});
  for (uint32_t i = 0; i < num_tokens; ++i) {
    forward_inputs.tokens.push_back(i < tokens.size() ? tokens[i] : 0);
    forward_inputs.token_rows.push_back(row_idx);
  }
  forward.num_tokens = std::max<uint32_t>(forward.num_tokens, static_cast<uint32_t>(forward_inputs.tokens.size()));
  return row_idx;
}

void Step::set_bucket(uint32_t num_tokens, uint32_t num_sampled) {
  forward.num_tokens = std::max(forward.num_tokens, num_tokens);
  sample.num_sampled = std::max({sample.num_sampled, num_sampled, static_cast<uint32_t>(sample_inputs.records.size())});
}

void Step::add_update(RowUpdateKind kind, uint32_t slot, uint32_t arg0, uint32_t arg1,
                      const std::vector<uint32_t>& payload) {
  const uint32_t first = static_cast<uint32_t>(forward_inputs.row_payload.size());
  forward_inputs.row_updates.push_back({kind, slot, arg0, arg1, first, static_cast<uint32_t>(payload.size())});
  forward_inputs.row_payload.insert(forward_inputs.row_payload.end(), payload.begin(), payload.end());
}

void Step::set_sampling(uint32_t slot, const RowSampling& sampling) {
  std::vector<uint32_t> words(sizeof(sampling) / 4);
  std::memcpy(words.data(), &sampling, sizeof(sampling));
  add_update(RowUpdateKind::kSet, slot, 0, 0, words);
}

void Step::patch_table(uint32_t slot, uint32_t first, const std::vector<uint32_t>& blocks, uint32_t kv_group) {
  add_update(RowUpdateKind::kPatchTable, slot, first, kv_group, blocks);
}

void Step::add_decode_items(uint32_t row_idx, uint32_t split_keys, uint32_t window, uint32_t kv_group,
                            uint32_t item_tokens) {
  const RowRecord& row = forward_inputs.rows[row_idx];
  AttentionWork& work = forward_inputs.attention[kv_group];
  const auto visible_at = [&](uint32_t position) {
    return window > 0 && position + 1 > window ? position + 1 - window : 0;
  };
  constexpr uint32_t kTileKeys = 16;
  const auto cut_at = [&](uint32_t position) {
    const uint32_t visible = visible_at(position);
    return std::array{visible / split_keys, position / split_keys, visible / kTileKeys};
  };
  for (uint32_t i = 0, count; i < row.num_tokens; i += count) {
    const uint32_t token = row.token_first + i, position = row.start + i, visible = visible_at(position);
    count = std::min(item_tokens, row.num_tokens - i);
    while (forward.batch_invariant && cut_at(position + count - 1) != cut_at(position)) --count;
    forward.has_runs |= count > 1;
    const uint32_t position_last = position + count - 1;
    const uint32_t split_first = visible / split_keys, num_splits = position_last / split_keys + 1 - split_first;
    const uint32_t merge_idx = static_cast<uint32_t>(work.merge_items.size());
    for (uint32_t split = 0; split < num_splits; ++split) {
      const uint32_t from = (split_first + split) * split_keys;
      work.decode_items.push_back({row.slot, token, count, position, std::max(from, visible),
                                   std::min(from + split_keys, position_last + 1),
                                   num_splits == 1 ? -1 : static_cast<int32_t>(work.num_partials + split), merge_idx});
    }
    for (uint32_t t = 0; num_splits > 1 && t < count; ++t) {
      work.merge_items.push_back({token + t, work.num_partials, num_splits});
      work.num_partials += num_splits;
    }
  }
}

void Step::add_prompt_items(uint32_t row_idx, uint32_t window, uint32_t splits, uint32_t kv_group) {
  const RowRecord& row = forward_inputs.rows[row_idx];
  AttentionWork& work = forward_inputs.attention[kv_group];
  for (uint32_t i = 0; i < row.num_tokens; i += kPromptItemTokens) {
    const uint32_t count = std::min(kPromptItemTokens, row.num_tokens - i), position = row.start + i;
    const uint32_t visible = window > 0 && position + 1 > window ? position + 1 - window : 0;
    // Lengths as they come, not in whole tiles; the last tokens' splits may hold keys that the first tokens don't see.
    const uint32_t end = position + count, length = ceil_div(end - visible, splits);
    const uint32_t num_splits = ceil_div(end - visible, length), partial = work.num_partials;
    for (uint32_t split = 0; split < num_splits; ++split)
      work.prompt_items.push_back({row.slot, row.token_first + i, count, position, visible + split * length,
                                   std::min(visible + (split + 1) * length, end),
                                   num_splits > 1 ? static_cast<int32_t>(partial + split) : -1, num_splits});
    if (num_splits == 1) continue;
    for (uint32_t j = 0; j < count; ++j)
      work.merge_items.push_back({row.token_first + i + j, partial + j * num_splits, num_splits, 1});
    work.num_partials += count * num_splits;
  }
}

}  // namespace llmrt::optest
