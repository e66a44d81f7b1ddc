#include "core/model/synthetic_vocabulary.h"

#include "core/base/check.h"
#include "core/text/tokenizer.h"

namespace llmrt {

namespace {

// The byte-level alphabet: printable Latin-1 stands for itself, the rest for U+0100 and up, in order.
std::string byte_token(int byte, int* num_others) {
  const bool is_printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  const int code_point = is_printable ? byte : 0x100 + (*num_others)++;
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xc0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3f))};
}

}  // namespace

void add_placeholder_vocabulary(uint32_t vocab_size, GgufWriter* writer) {
  LLMRT_CHECK(vocab_size >= 258, "room for the bytes");
  std::vector<std::string> tokens;
  int num_others = 0;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(byte_token(byte, &num_others));
  const std::string space = tokens[' '];
  tokens.push_back(space + "t");
  while (tokens.size() + 1 < vocab_size) tokens.push_back(fmt::format("<unused_{}>", tokens.size()));
  tokens.push_back("<end>");

  std::vector<int32_t> types(vocab_size, static_cast<int32_t>(TokenType::kNormal));
  types.back() = static_cast<int32_t>(TokenType::kControl);
  writer->add_string("tokenizer.ggml.model", "gpt2");
  writer->add_string("tokenizer.ggml.pre", "gpt-2");
  writer->add_strings("tokenizer.ggml.tokens", tokens);
  writer->add_i32s("tokenizer.ggml.token_type", types);
  writer->add_strings("tokenizer.ggml.merges", {space + " t"});
  writer->add_u32("tokenizer.ggml.bos_token_id", vocab_size - 1);
  writer->add_u32("tokenizer.ggml.eos_token_id", vocab_size - 1);
  writer->add_bool("tokenizer.ggml.add_bos_token", false);
}

}  // namespace llmrt
