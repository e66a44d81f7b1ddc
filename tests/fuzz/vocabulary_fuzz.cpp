// Any bytes as a vocabulary: lines of "<type byte><token>", then, behind an empty line, lines of merges; the first line
// chooses the kind. Refused or accepted, never a crash; what is accepted must encode and decode a text.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/check.h"
#include "core/text/tokenizer.h"

namespace {

using namespace llmrt;

std::string_view take_line(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

Vocabulary read_vocabulary(std::string_view text) {
  Vocabulary vocabulary;
  const std::string_view kind = take_line(text);
  vocabulary.model = kind == "llama" ? "llama" : "gpt2";
  vocabulary.pre = kind == "llama" ? "" : std::string(kind);
  for (std::string_view line = take_line(text); !line.empty(); line = take_line(text)) {
    vocabulary.types.push_back(static_cast<TokenType>(line[0] - '0'));
    vocabulary.tokens.emplace_back(line.substr(1));
    vocabulary.scores.push_back(static_cast<float>(vocabulary.scores.size() % 7));
  }
  while (!text.empty()) {
    vocabulary.merges.emplace_back(take_line(text));
  }
  vocabulary.unk = vocabulary.tokens.empty() ? -1 : 0;
  return vocabulary;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = Tokenizer::create(read_vocabulary(text));
  if (!tokenizer) {
    return 0;
  }
  std::vector<TokenId> ids = (*tokenizer)->encode(text, {});
  for (const TokenId id : ids) {
    LLMRT_CHECK(id >= 0 && id < (*tokenizer)->vocab_size(), "an id outside the vocabulary");
  }
  const size_t most = 1 + size % 29;
  const std::vector<TokenId> cut = (*tokenizer)->encode(text, {.tokens_max = most});
  LLMRT_CHECK(ids.size() <= most ? cut == ids : cut.size() == most + 1, "a limit changes nothing but the end");
  ids.push_back(-1);
  ids.push_back((*tokenizer)->vocab_size());
  static_cast<void>((*tokenizer)->decode(ids, true));
  static_cast<void>((*tokenizer)->decode(ids, false));
  return 0;
}
