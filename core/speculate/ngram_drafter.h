// Drafts from the branch's own text: what followed its last tokens where they stood before, in the prompt, in the
// answer, or in a text that the client expects (a prediction). Good where an answer repeats what is there: edits of
// code, quotes, tables.
//
// An index says where each three tokens stood last. A match is followed token by token while the text goes on as it did
// there, so a token costs one look-up. A draft is never longer than its match.
#pragma once

#include "core/speculate/drafter.h"

namespace llmrt {

class NgramDrafts final : public DraftSource {
 public:
  // `prediction`: read as if it stood before the prompt; an answer that has begun with its first tokens, or comes upon
  // three of them, goes on with it.
  explicit NgramDrafts(std::vector<int32_t> prediction = {});
  std::unique_ptr<Drafter> begin(uint32_t num_prompt) const override;
  size_t held_bytes() const override { return prediction_->capacity() * sizeof(int32_t); }

 private:
  std::shared_ptr<const std::vector<int32_t>> prediction_;
};

// The index of a branch holds 8 bytes a token, at most kIndexBytesMax: in longer texts new places take those of old
// ones.
inline constexpr size_t kIndexBytesMax = 512 << 10;

class NgramDrafter final : public Drafter {
 public:
  static constexpr uint32_t kMatchMin = 3;          // tokens
  static constexpr uint32_t kTokensPerCall = 8192;  // that are read at once: a long prompt is read in several steps

  NgramDrafter(std::shared_ptr<const std::vector<int32_t>> prediction, uint32_t num_prompt);
  void propose(std::span<const int32_t> tokens, uint32_t most, std::vector<int32_t>* drafts) override;
  bool expects_more(std::span<const int32_t> tokens) override { return catch_up(tokens) && match_tokens_ > 0; }

 private:
  int32_t at(std::span<const int32_t> tokens, uint32_t position) const;
  bool same_three(std::span<const int32_t> tokens, uint32_t end, uint32_t other_end) const;
  uint32_t common_before(std::span<const int32_t> tokens, uint32_t end, uint32_t other_end) const;
  uint32_t place_of(std::span<const int32_t> tokens, uint32_t end) const;
  bool catch_up(std::span<const int32_t> tokens);
  void read(std::span<const int32_t> tokens);
  void grow(std::span<const int32_t> tokens, uint32_t num_known);

  // Positions count from the prediction's first token.
  const std::shared_ptr<const std::vector<int32_t>> prediction_;
  const uint32_t answer_first_;
  std::vector<uint32_t> index_;  // by hash of three tokens: the position behind the newest such three, 0 = none
  uint32_t num_read_ = 0;
  uint32_t match_next_ = 0, match_tokens_ = 0;  // where the match goes on, and how long it is; 0 = none
};

}  // namespace llmrt
