#include "core/ops/step_inputs.h"

#include <cstring>

#include "core/base/checked_math.h"

namespace llmrt {
namespace {

template <class T>
uint32_t append(const std::vector<T>& items, std::vector<uint32_t>* out) {
  static_assert(sizeof(T) % 4 == 0);
  const uint32_t first = static_cast<uint32_t>(out->size());
  const size_t words = items.size() * (sizeof(T) / 4);
  out->resize(first + round_up<size_t>(words, 4));
  if (words) std::memcpy(out->data() + first, items.data(), words * 4);
  return first;
}

}  // namespace

void ForwardInputs::clear() {
  row_updates.clear();
  row_payload.clear();
  block_stores.clear();
  block_loads.clear();
  block_copies.clear();
  rows.clear();
  tokens.clear();
  token_rows.clear();
  clear_attention();
}

void ForwardInputs::clear_attention() {
  decode_items.clear();
  prompt_items.clear();
  merge_items.clear();
  num_partials = 0;
}

void SampleInputs::clear() {
  records.clear();
  bias_entries.clear();
}

void pack(const ForwardInputs& in, std::vector<uint32_t>* out) {
  out->assign(kForwardHeaderWords, 0);
  const auto set = [out](ForwardHeader word, size_t value) { (*out)[word] = static_cast<uint32_t>(value); };
  set(kFwdNumTokens, in.tokens.size());
  set(kFwdNumRows, in.rows.size());
  set(kFwdNumUpdates, in.row_updates.size());
  set(kFwdNumCopies, in.block_copies.size());
  set(kFwdNumDecodeItems, in.decode_items.size());
  set(kFwdNumPromptItems, in.prompt_items.size());
  set(kFwdNumMerges, in.merge_items.size());
  set(kFwdUpdates, append(in.row_updates, out));
  set(kFwdPayload, append(in.row_payload, out));
  set(kFwdCopies, append(in.block_copies, out));
  set(kFwdRows, append(in.rows, out));
  set(kFwdTokens, append(in.tokens, out));
  set(kFwdTokenRows, append(in.token_rows, out));
  set(kFwdDecodeItems, append(in.decode_items, out));
  set(kFwdPromptItems, append(in.prompt_items, out));
  set(kFwdMerges, append(in.merge_items, out));
  set(kFwdNumStores, in.block_stores.size());
  set(kFwdStores, append(in.block_stores, out));
  set(kFwdNumLoads, in.block_loads.size());
  set(kFwdLoads, append(in.block_loads, out));
  set(kFwdTotalWords, out->size());
}

void pack(const SampleInputs& in, std::vector<uint32_t>* out) {
  out->assign(kSampleHeaderWords, 0);
  const auto set = [out](SampleHeader word, size_t value) { (*out)[word] = static_cast<uint32_t>(value); };
  set(kSmpNumRecords, in.records.size());
  set(kSmpNumBias, in.bias_entries.size());
  set(kSmpRecords, append(in.records, out));
  set(kSmpBias, append(in.bias_entries, out));
  set(kSmpTotalWords, out->size());
}

}  // namespace llmrt
