// The way back from packed words to inputs, every count and offset checked against the run: for the validating wrapper,
// the reference and replay. Allocates; not for the serving path.
#include <algorithm>
#include <cstring>

#include "core/ops/step_inputs.h"

namespace llmrt {
namespace {

class Reader {
 public:
  Reader(std::span<const uint32_t> words, uint32_t header_words, uint32_t total_word) : words_(words) {
    ok_ = words.size() >= header_words && words[total_word] <= words.size() && words[total_word] >= header_words;
    if (ok_) words_ = words.first(words[total_word]);
  }

  // `count` items at the offset, counted from `header`, that its word `offset_word` gives.
  template <class T>
  void read(uint64_t count, uint32_t offset_word, std::vector<T>* out, uint32_t header = 0) {
    if (!ok_) return;
    const uint64_t first = uint64_t{header} + words_[header + offset_word], num_words = count * (sizeof(T) / 4);
    ok_ = first % 4 == 0 && first + num_words <= words_.size();
    if (!ok_) return;
    out->resize(count);
    if (count > 0) std::memcpy(static_cast<void*>(out->data()), words_.data() + first, count * sizeof(T));
  }
  uint32_t word(uint32_t index) const { return ok_ ? words_[index] : 0; }
  bool ok() const { return ok_; }

 private:
  std::span<const uint32_t> words_;
  bool ok_ = false;
};

// The rows that the items point to.
uint64_t rows_of_items(const std::vector<AdapterItem>& items) {
  uint64_t rows = 0;
  for (const AdapterItem& item : items) rows = std::max(rows, uint64_t{item.first} + item.num_rows);
  return rows;
}

Error malformed(const char* what, size_t num_words) {
  return make_error(ErrorCode::kInvalidArgument, "{} inputs: {} words are not a packed run", what, num_words);
}

}  // namespace

Result<ForwardInputs> unpack_forward(std::span<const uint32_t> words) {
  Reader reader(words, kForwardHeadersWords, kFwdTotalWords);
  ForwardInputs in;
  reader.read(reader.word(kFwdNumUpdates), kFwdUpdates, &in.row_updates);
  uint64_t payload_words = 0;
  for (const RowUpdate& update : in.row_updates)
    payload_words = std::max(payload_words, uint64_t{update.payload_first} + update.payload_words);
  reader.read(payload_words, kFwdPayload, &in.row_payload);
  reader.read(reader.word(kFwdNumStores), kFwdStores, &in.block_stores);
  reader.read(reader.word(kFwdNumLoads), kFwdLoads, &in.block_loads);
  reader.read(reader.word(kFwdNumCopies), kFwdCopies, &in.block_copies);
  reader.read(reader.word(kFwdNumRows), kFwdRows, &in.rows);
  reader.read(reader.word(kFwdNumPlaces), kFwdPlaces, &in.state_places);
  reader.read(reader.word(kFwdNumAdapterItems), kFwdAdapterItems, &in.adapter_items);
  reader.read(rows_of_items(in.adapter_items), kFwdAdapterRows, &in.adapter_rows);
  reader.read(reader.word(kFwdNumTokens), kFwdTokens, &in.tokens);
  reader.read(reader.word(kFwdNumTokens), kFwdTokenRows, &in.token_rows);
  for (uint32_t g = 0; g < kKvGroupsMax; ++g) {
    AttentionWork& work = in.attention[g];
    const uint32_t header = g * kForwardHeaderWords;
    reader.read(reader.word(header + kFwdNumDecodeItems), kFwdDecodeItems, &work.decode_items, header);
    reader.read(reader.word(header + kFwdNumPromptItems), kFwdPromptItems, &work.prompt_items, header);
    reader.read(reader.word(header + kFwdNumMerges), kFwdMerges, &work.merge_items, header);
    reader.read(reader.word(header + kFwdNumExpands), kFwdExpands, &work.expand_items, header);
    for (const MergeItem& merge : work.merge_items)
      work.num_partials = std::max(work.num_partials, merge.partial_first + merge.num_partials);
  }
  if (!reader.ok()) return malformed("forward", words.size());
  if (reader.word(kFwdNumAbsorbed) < in.tokens.size()) in.num_absorbed = reader.word(kFwdNumAbsorbed);
  return in;
}

Result<SampleInputs> unpack_sample(std::span<const uint32_t> words) {
  Reader reader(words, kSampleHeaderWords, kSmpTotalWords);
  SampleInputs in;
  reader.read(reader.word(kSmpNumRecords), kSmpRecords, &in.records);
  reader.read(reader.word(kSmpNumBias), kSmpBias, &in.bias_entries);
  reader.read(reader.word(kSmpNumMasks), kSmpMasks, &in.mask_records);
  uint64_t mask_words = 0;
  for (const MaskRecord& mask : in.mask_records) mask_words = std::max(mask_words, uint64_t{mask.first} + mask.count);
  reader.read(mask_words, kSmpMaskWords, &in.mask_words);
  reader.read(reader.word(kSmpNumAdapterItems), kSmpAdapterItems, &in.adapter_items);
  reader.read(rows_of_items(in.adapter_items), kSmpAdapterRows, &in.adapter_rows);
  if (!reader.ok()) return malformed("sample", words.size());
  return in;
}

}  // namespace llmrt
