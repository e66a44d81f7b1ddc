#include "core/grammar/token_vocabulary.h"

#include <algorithm>

#include "core/base/utf8.h"
#include "core/sample/token_mask.h"
#include "core/text/tokenizer.h"

namespace llmrt {
namespace {

using Tokens = std::vector<std::pair<std::string_view, int32_t>>;

Tokens tokens_of(const std::vector<std::string>& bytes) {
  Tokens tokens;
  for (size_t v = 0; v < bytes.size(); ++v) {
    if (!bytes[v].empty() && bytes[v].size() <= TokenTrie::kTokenBytesMax) {
      tokens.emplace_back(bytes[v], static_cast<int32_t>(v));
    }
  }
  return tokens;
}

// How many plain characters a text has; 0: other things are in it.
uint32_t plain_chars(std::string_view text) {
  if (!is_valid_utf8(text)) return 0;
  uint32_t chars = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x20 || c == '"' || c == '\\') return 0;
    chars += (byte & 0xc0) != 0x80;
  }
  return chars;
}

}  // namespace

TokenVocabulary::TokenVocabulary(std::vector<std::string> bytes, std::vector<int32_t> end_tokens)
    : bytes_(std::move(bytes)),
      end_tokens_(std::move(end_tokens)),
      text_tokens_((bytes_.size() + 31) / 32, 0),
      trie_(tokens_of(bytes_)) {
  std::ranges::sort(end_tokens_);
  const Tokens all = tokens_of(bytes_);
  std::vector<uint32_t> chars;
  for (const auto& [text, token] : all) {
    allow_token(&text_tokens_, token);
    chars.push_back(plain_chars(text));
  }
  for (const uint32_t most : kSliceChars) {
    std::vector<uint32_t> bits(text_tokens_.size(), 0);
    Tokens rest;
    for (size_t i = 0; i < all.size(); ++i) {
      if (chars[i] > 0 && chars[i] <= most) {
        allow_token(&bits, all[i].second);
      } else {
        rest.push_back(all[i]);
      }
    }
    slices_.push_back({std::move(bits), TokenTrie(std::move(rest))});
  }
}

std::shared_ptr<const TokenVocabulary> TokenVocabulary::create(const Tokenizer& tokenizer) {
  std::vector<std::string> bytes;
  for (TokenId v = 0; v < tokenizer.vocab_size(); ++v) bytes.emplace_back(tokenizer.token_bytes(v));
  const auto ends = tokenizer.end_of_generation_ids();
  for (const TokenId end : ends) {
    if (static_cast<size_t>(end) < bytes.size()) bytes[static_cast<size_t>(end)].clear();
  }
  return std::make_shared<TokenVocabulary>(std::move(bytes), std::vector<int32_t>(ends.begin(), ends.end()));
}

bool TokenVocabulary::is_end(int32_t token) const {
  return std::ranges::binary_search(end_tokens_, token);
}

size_t TokenVocabulary::held_bytes() const {
  size_t held = trie_.held_bytes() + 4 * text_tokens_.capacity();
  for (const auto& bytes : bytes_) held += sizeof(bytes) + (bytes.size() > 15 ? bytes.capacity() : 0);
  for (const auto& slice : slices_) held += 4 * slice.bits.capacity() + slice.rest.held_bytes();
  return held;
}

}  // namespace llmrt
