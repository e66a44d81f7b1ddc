// The mask that a sample record names, read from the packed inputs as a device reads it, however it is written.
#pragma once

#include <span>
#include <vector>

#include "core/ops/step_inputs.h"
#include "core/sample/token_mask.h"

namespace llmrt::test {

// Null: every token may be drawn.
inline TokenMaskPtr mask_of(const SampleInputs& in, const SampleRecord& record, uint32_t vocab_size) {
  if (record.mask < 0) return nullptr;
  const MaskRecord& mask = in.mask_records.at(static_cast<size_t>(record.mask));
  const auto words = std::span(in.mask_words).subspan(mask.first, mask.count);
  if (mask.kind == MaskKind::kBits)
    return std::make_shared<TokenMask>(std::vector<uint32_t>(words.begin(), words.end()));
  std::vector<uint32_t> bits((vocab_size + 31) / 32, 0);
  for (const uint32_t token : words) allow_token(&bits, static_cast<int32_t>(token));
  return std::make_shared<TokenMask>(std::move(bits));
}

}  // namespace llmrt::test
