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
      trie_(tokens_of(bytes_)),
      other_({}) {
  std::ranges::sort(end_tokens_);
  std::vector<std::pair<uint32_t, Tokens::value_type>> plain;  // by their characters
  Tokens other;
  for (const auto& [text, token] : tokens_of(bytes_)) {
    allow_token(&text_tokens_, token);
    if (const uint32_t chars = plain_chars(text); chars > 0) {
      plain.emplace_back(chars, std::pair(text, token));
    } else {
      other.emplace_back(text, token);
    }
  }
  other_ = TokenTrie(std::move(other));
  std::ranges::sort(plain);
  for (uint32_t chars = 0; chars <= kCharsCounted; ++chars) slice_chars_.push_back(chars);
  for (const uint32_t most : kSliceChars) {
    if (most > kCharsCounted) slice_chars_.push_back(most);
    Tokens longer;
    for (const auto& [chars, token] : plain) {
      if (chars > most) longer.push_back(token);
    }
    longer_.emplace_back(most, TokenTrie(std::move(longer)));
  }
  std::vector<uint32_t> bits(text_tokens_.size(), 0);
  auto next = plain.begin();
  for (const uint32_t most : slice_chars_) {
    for (; next != plain.end() && next->first <= most; ++next) allow_token(&bits, next->second.second);
    slice_bits_.push_back(bits);
  }
}

TokenVocabulary::Slice TokenVocabulary::plain_tokens(uint32_t chars_max) const {
  const size_t slice = std::ranges::upper_bound(slice_chars_, chars_max) - slice_chars_.begin() - 1;
  const auto longer = std::ranges::upper_bound(longer_, slice_chars_[slice], {}, [](const auto& l) { return l.first; });
  return {slice_chars_[slice], &slice_bits_[slice], longer == longer_.begin() ? nullptr : &std::prev(longer)->second};
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
  size_t held = trie_.held_bytes() + other_.held_bytes() + 4 * text_tokens_.capacity();
  for (const auto& bytes : bytes_) held += sizeof(bytes) + (bytes.size() > 15 ? bytes.capacity() : 0);
  for (const auto& bits : slice_bits_) held += 4 * bits.capacity();
  for (const auto& [chars, trie] : longer_) held += trie.held_bytes();
  return held;
}

}  // namespace llmrt
