// A step's sample inputs: every index inside its array, and one draw a slot.
#include <cmath>
#include <unordered_set>

#include "core/backend/validating_checks.h"

namespace llmrt::validating {
namespace {

constexpr uint32_t kRunMask = ~0u << kSampleRunShift;

struct SampleChecker {
  const Limits& limits;
  const OpList& list;
  const SampleInputs& in;
  uint32_t num_tokens;
  Report report = {};

  void check_bias(const std::string& where, const SampleRecord& record, const RowSampling& s) {
    if (record.num_bias == 0) return;
    if (!(s.flags & kRowBias)) report.fail(where, "num_bias", "0 for a row without kRowBias", record.num_bias);
    if (!report.at_most(where, "bias entries", uint64_t{record.bias_first} + record.num_bias, in.bias_entries.size()))
      return;
    std::unordered_set<int32_t> tokens;
    for (uint32_t i = record.bias_first; i < record.bias_first + record.num_bias; ++i) {
      const BiasEntry& entry = in.bias_entries[i];
      report.below(where, "bias token", entry.token, limits.state.vocab_size);
      if (!tokens.insert(entry.token).second) report.fail(where, "bias token", "one entry a token", entry.token);
      if (!(entry.bias < INFINITY)) report.fail(where, "bias", "a finite number or -inf", entry.bias);
    }
  }

  void check_masks() {
    for (size_t m = 0; m < in.mask_records.size(); ++m) {
      const MaskRecord& mask = in.mask_records[m];
      const std::string where = fmt::format("mask_records[{}]", m);
      if (mask.kind > MaskKind::kList) report.fail(where, "kind", "a known one", static_cast<uint32_t>(mask.kind));
      if (!report.at_most(where, "words", uint64_t{mask.first} + mask.count, in.mask_words.size())) return;
      const uint32_t vocab = limits.state.vocab_size;
      if (mask.kind == MaskKind::kBits) {
        report.at_most(where, "words of bits", mask.count, (vocab + 31) / 32);
        const bool is_whole = mask.count == (vocab + 31) / 32 && vocab % 32 != 0;
        if (is_whole && in.mask_words[mask.first + mask.count - 1] >> (vocab % 32) != 0)
          report.fail(where, "bits", "no token beyond the vocabulary", vocab);
        continue;
      }
      for (uint32_t i = mask.first; i < mask.first + mask.count; ++i) {
        report.below(where, "token", in.mask_words[i], vocab);
        if (i > mask.first && in.mask_words[i] <= in.mask_words[i - 1])
          report.fail(where, "tokens", "ascending ones", in.mask_words[i]);
      }
    }
  }

  // A record that others of its run stand before.
  void check_run(const std::string& where, size_t r) {
    const SampleRecord& record = in.records[r];
    const uint32_t idx = record.flags >> kSampleRunShift;
    if (!(record.flags & kSampleVerify))
      report.fail(where, "flags", "kSampleVerify for a record of a run", record.flags);
    if (!report.at_most(where, "records before it in its run", idx, std::min<size_t>(r, kDraftTokensMax))) return;
    const SampleRecord& before = in.records[r - 1];
    if (before.slot != record.slot || !(before.flags & kSampleVerify) || before.flags >> kSampleRunShift != idx - 1)
      report.fail(where, "run", "the record before it in its run right before it", idx);
    report.below(where, "draft of the record before", before.forced_token, limits.state.vocab_size);
  }

  void check_records() {
    std::unordered_set<uint32_t> slots;
    std::unordered_set<int32_t> penalty_slots;
    for (size_t r = 0; r < in.records.size() && report.ok(); ++r) {
      const SampleRecord& record = in.records[r];
      const std::string where = fmt::format("records[{}]", r);
      if (!report.below(where, "slot", record.slot, limits.slots.size())) return;
      const RowSampling& s = limits.slots[record.slot].sampling;
      report.below(where, "token_idx", record.token_idx, num_tokens);
      if (record.flags & ~uint32_t{kSampleForced | kSampleLogprobs | kSampleProcessed | kSampleVerify | kRunMask})
        report.fail(where, "flags", "known ones", record.flags);
      if (record.flags & kSampleForced) {
        report.below(where, "forced_token", record.forced_token, limits.state.vocab_size);
      } else if (record.flags >> kSampleRunShift) {
        check_run(where, r);
      } else if (has_op<Sample>(list)) {
        if (!slots.insert(record.slot).second) report.fail(where, "slot", "a slot that draws once", record.slot);
        if ((s.flags & kRowPenalties) && !penalty_slots.insert(s.penalty_slot).second)
          report.fail(where, "penalty_slot", "counts of one row", s.penalty_slot);
      }
      check_bias(where, record, s);
      if (record.mask < -1 || record.mask >= static_cast<int64_t>(in.mask_records.size()))
        report.fail(where, "mask", "-1 or one of the step's masks", record.mask);
      if (record.mask >= 0 && (record.flags & kSampleForced))
        report.fail(where, "mask", "-1 for a sample that is forced", record.mask);
    }
  }
};

}  // namespace

Status check_sample_inputs(const Limits& limits, const OpList& list, const SampleInputs& inputs, uint32_t num_tokens,
                           std::span<const uint32_t> token_slots) {
  SampleChecker checker{limits, list, inputs, num_tokens};
  checker.report.at_most("sample inputs", "records", inputs.records.size(), size_t{list.num_sampled});
  checker.check_masks();
  checker.check_records();
  if (!checker.report.ok()) return checker.report.status();
  std::vector<uint32_t> slots_of_records;
  if (!token_slots.empty())
    for (const SampleRecord& record : inputs.records) slots_of_records.push_back(token_slots[record.token_idx]);
  return check_adapters(limits, list, inputs.adapter_items, inputs.adapter_rows, inputs.records.size(),
                        slots_of_records);
}

}  // namespace llmrt::validating
