#include "tests/server/scripted_backend.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

namespace llmrt::test {

ScriptedBackend::ScriptedBackend(const PacedConfig& config, const Script& script,
                                 std::shared_ptr<const Tokenizer> tokenizer)
    : PacedBackend(config), answer_mark_(script.answer_mark), tokenizer_(std::move(tokenizer)) {
  for (const std::string& answer : script.answers) {
    answers_.push_back(tokenizer_->encode(answer, {.parse_special = true, .add_bos = false}));
    answers_.back().push_back(config.end);
  }
}

uint64_t ScriptedBackend::cell_after(uint64_t, int32_t token) const {
  return static_cast<uint64_t>(token);
}

int32_t ScriptedBackend::draw(const Position& at, const RowSampling& row, uint32_t output_position) {
  const std::vector<uint64_t> cells = cells_until(at);
  const auto prompt_end = cells.end() - std::min<ptrdiff_t>(output_position, std::ssize(cells));
  const std::string text = tokenizer_->decode(std::vector<TokenId>(cells.begin(), prompt_end), true);
  size_t num_answers = 0;
  for (size_t found = text.find(answer_mark_); found != std::string::npos; found = text.find(answer_mark_, found + 1))
    ++num_answers;
  const std::vector<TokenId>& answer = answers_[std::clamp<size_t>(num_answers, 1, answers_.size()) - 1];
  const TokenId wanted = answer[std::min<size_t>(output_position, answer.size() - 1)];
  if (allows(wanted)) return wanted;
  fmt::print(stderr, "script: denied {:?} at token {} of answer {}\n", tokenizer_->token_bytes(wanted, true),
             output_position, num_answers);
  return PacedBackend::draw(at, row, output_position);
}

}  // namespace llmrt::test
