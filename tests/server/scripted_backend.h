// A PacedBackend whose answers are a script's, so that clients meet a model that calls tools, thinks and is wrong when the
// test wants it to. What it says goes the real path: draws behind masks, batches, preemption, the format's parser.
//
// The script's n-th line answers a conversation with n earlier answers of the assistant in it (the last line also those
// with more). A conversation is read back from the KV pool, as attention would; so a wrong block is a wrong answer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/text/tokenizer.h"
#include "tests/server/paced_backend.h"

namespace llmrt::test {

struct Script {
  // Stands before each answer in a prompt, e.g. "<|im_start|>assistant".
  std::string answer_mark;
  std::vector<std::string> answers;  // with marks as the format's templates write them
};

class ScriptedBackend final : public PacedBackend {
 public:
  ScriptedBackend(const PacedConfig& config, const Script& script, std::shared_ptr<const Tokenizer> tokenizer);

 private:
  // The token itself.
  uint64_t cell_after(uint64_t before, int32_t token) const override;
  // The script's next token. Where a mask denies it, says so on standard error and draws as its parent does.
  int32_t draw(const Position& at, const RowSampling& row, uint32_t output_position) override;

  const std::string answer_mark_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<std::vector<TokenId>> answers_;
};

}  // namespace llmrt::test
