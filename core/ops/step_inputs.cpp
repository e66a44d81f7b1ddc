#include "core/ops/step_inputs.h"

#include <algorithm>
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
  state_places.clear();
  tokens.clear();
  token_rows.clear();
  adapter_items.clear();
  adapter_rows.clear();
  for (AttentionWork& work : attention) work.clear();
  num_absorbed = ~0u;
}

void AttentionWork::clear() {
  decode_items.clear();
  prompt_items.clear();
  merge_items.clear();
  expand_items.clear();
  num_partials = 0;
}

void SampleInputs::clear() {
  records.clear();
  bias_entries.clear();
  mask_records.clear();
  mask_words.clear();
  adapter_items.clear();
  adapter_rows.clear();
}

void pack(const ForwardInputs& in, std::vector<uint32_t>* out) {
  out->assign(kForwardHeadersWords, 0);
  const auto set = [out](ForwardHeader word, size_t value) { (*out)[word] = static_cast<uint32_t>(value); };
  set(kFwdNumUpdates, in.row_updates.size());
  set(kFwdUpdates, append(in.row_updates, out));
  set(kFwdPayload, append(in.row_payload, out));
  set(kFwdNumStores, in.block_stores.size());
  set(kFwdStores, append(in.block_stores, out));
  set(kFwdNumLoads, in.block_loads.size());
  set(kFwdLoads, append(in.block_loads, out));
  set(kFwdNumCopies, in.block_copies.size());
  set(kFwdCopies, append(in.block_copies, out));
  set(kFwdNumPlaces, in.state_places.size());
  set(kFwdPlaces, append(in.state_places, out));
  set(kFwdNumAdapterItems, in.adapter_items.size());
  set(kFwdAdapterItems, append(in.adapter_items, out));
  set(kFwdAdapterRows, append(in.adapter_rows, out));
  const uint32_t rows = append(in.rows, out), tokens = append(in.tokens, out), token_rows = append(in.token_rows, out);
  for (uint32_t g = 0; g < kKvGroupsMax; ++g) {
    const AttentionWork& work = in.attention[g];
    const uint32_t header = g * kForwardHeaderWords;
    const auto set_count = [&](ForwardHeader word, size_t count) {
      (*out)[header + word] = static_cast<uint32_t>(count);
    };
    const auto set_offset = [&](ForwardHeader word, uint32_t first) { (*out)[header + word] = first - header; };
    set_count(kFwdNumTokens, in.tokens.size());
    set_count(kFwdNumRows, in.rows.size());
    set_offset(kFwdRows, rows);
    set_offset(kFwdTokens, tokens);
    set_offset(kFwdTokenRows, token_rows);
    set_count(kFwdNumDecodeItems, work.decode_items.size());
    set_offset(kFwdDecodeItems, append(work.decode_items, out));
    set_count(kFwdNumPromptItems, work.prompt_items.size());
    set_offset(kFwdPromptItems, append(work.prompt_items, out));
    set_count(kFwdNumMerges, work.merge_items.size());
    set_offset(kFwdMerges, append(work.merge_items, out));
    set_count(kFwdNumExpands, work.expand_items.size());
    set_offset(kFwdExpands, append(work.expand_items, out));
  }
  set(kFwdNumAbsorbed, std::min<size_t>(in.num_absorbed, in.tokens.size()));
  set(kFwdTotalWords, out->size());
}

void pack(const SampleInputs& in, std::vector<uint32_t>* out) {
  out->assign(kSampleHeaderWords, 0);
  const auto set = [out](SampleHeader word, size_t value) { (*out)[word] = static_cast<uint32_t>(value); };
  set(kSmpNumRecords, in.records.size());
  set(kSmpNumBias, in.bias_entries.size());
  set(kSmpRecords, append(in.records, out));
  set(kSmpBias, append(in.bias_entries, out));
  set(kSmpNumMasks, in.mask_records.size());
  set(kSmpMasks, append(in.mask_records, out));
  set(kSmpMaskWords, append(in.mask_words, out));
  set(kSmpNumAdapterItems, in.adapter_items.size());
  set(kSmpAdapterItems, append(in.adapter_items, out));
  set(kSmpAdapterRows, append(in.adapter_rows, out));
  set(kSmpTotalWords, out->size());
}

}  // namespace llmrt
