#include "core/text/bpe.h"

#include <algorithm>
#include <utility>

#include "core/text/byte_alphabet.h"
#include "core/text/nfc.h"

namespace llmrt {
namespace {

constexpr size_t kLongWord = 1024;  // bytes; from here on it may be much longer than what still fits

}  // namespace

Result<std::unique_ptr<Tokenizer>> ByteBpeTokenizer::create(Vocabulary vocabulary) {
  auto pre_tokenizer = PreTokenizer::create(vocabulary.pre);
  if (!pre_tokenizer) {
    return pre_tokenizer.error();
  }
  std::unique_ptr<ByteBpeTokenizer> made(new ByteBpeTokenizer(std::move(vocabulary), std::move(pre_tokenizer).value()));
  if (const Status loaded = made->load_tokens(); !loaded) {
    return loaded.error();
  }
  if (const Status loaded = made->load_merges(&made->merges_); !loaded) {
    return loaded.error();
  }
  return std::unique_ptr<Tokenizer>(std::move(made));
}

ByteBpeTokenizer::ByteBpeTokenizer(Vocabulary vocabulary, std::unique_ptr<PreTokenizer> pre_tokenizer)
    : TokenizerBase(std::move(vocabulary)),
      pre_tokenizer_(std::move(pre_tokenizer)),
      merges_(vocabulary_.merges.size()) {}

Status ByteBpeTokenizer::load_tokens() {
  load_bytes();
  for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string& token = vocabulary_.tokens[i];
    const auto bytes = alphabet_to_bytes(token);
    switch (type(id)) {
      case TokenType::kUnused:
        append_token_bytes({});
        break;
      case TokenType::kControl:
      case TokenType::kUnknown:
      case TokenType::kUserDefined:
        append_token_bytes(token);
        specials_.add(token, id, is_special(id));
        cover_.add(token);
        break;
      case TokenType::kNormal:
      case TokenType::kByte:
        append_token_bytes(bytes ? *bytes : token);
        break;
    }
    if (bytes) {
      cover_.add(*bytes);  // of every type: a merge may lead to it
    }
  }
  if (pre_tokenizer_->ignore_merges()) {
    load_whole_words();
  }
  return specials_.build();
}

// The token of each single byte. A byte without one is dropped, but where a whole word or a special token holds it.
void ByteBpeTokenizer::load_bytes() {
  byte_ids_.fill(-1);
  for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const auto bytes = alphabet_to_bytes(vocabulary_.tokens[i]);
    if (bytes && bytes->size() == 1 && !is_special(id) && type(id) != TokenType::kUnused) {
      if (TokenId& byte_id = byte_ids_[static_cast<unsigned char>((*bytes)[0])]; byte_id < 0) {
        byte_id = id;
      }
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (byte_ids_[static_cast<size_t>(byte)] < 0) {
      cover_.add_dropped(static_cast<uint8_t>(byte));
    }
  }
}

// Once no more bytes are appended: the words are views of them.
void ByteBpeTokenizer::load_whole_words() {
  for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string_view bytes = token_bytes(id, false);
    if (bytes.empty() || alphabet_to_bytes(vocabulary_.tokens[i]) != bytes) {
      continue;
    }
    whole_words_.emplace(bytes, id);
    whole_word_bytes_max_ = std::max(whole_word_bytes_max_, bytes.size());
  }
}

size_t ByteBpeTokenizer::text_bytes_max(size_t tokens) const {
  // Nine bytes of a Hangul syllable in parts are three once they are composed; nothing shrinks more.
  const size_t bytes_max = cover_.bytes_max(tokens);
  const size_t shrink = pre_tokenizer_->normalizes_nfc() ? 3 : 1;
  return bytes_max > EncodeLimit::kNone / shrink ? EncodeLimit::kNone : bytes_max * shrink;
}

std::string_view ByteBpeTokenizer::within(std::string_view text, const EncodeLimit& limit, size_t num_tokens) const {
  return text.substr(0, cover_.cut(text, limit.tokens_left(num_tokens)));
}

void ByteBpeTokenizer::encode_plain(std::string_view text, bool /*is_first*/, const EncodeLimit& limit,
                                    std::vector<TokenId>& out) const {
  std::string normalized;
  if (pre_tokenizer_->normalizes_nfc() && !is_trivially_nfc(text)) {
    normalized = normalize_nfc(text, [&](std::string_view so_far) {
      return limit.is_cancelled() || within(so_far, limit, out.size()).size() < so_far.size();
    });
    text = normalized;
  }
  std::vector<TokenId> scratch;
  pre_tokenizer_->split(within(text, limit, out.size()), [&](std::string_view word) {
    encode_word(word, limit, scratch, out);
    return !limit.is_over(out.size());
  });
}

void ByteBpeTokenizer::encode_word(std::string_view bytes, const EncodeLimit& limit, std::vector<TokenId>& scratch,
                                   std::vector<TokenId>& out) const {
  if (bytes.size() <= whole_word_bytes_max_) {
    if (const auto whole = whole_words_.find(bytes); whole != whole_words_.end()) {
      out.push_back(whole->second);
      return;
    }
  }
  scratch.clear();
  if (bytes.size() > kLongWord) {
    bytes = within(bytes, limit, out.size());
  }
  for (const char c : bytes) {
    if (const TokenId id = byte_ids_[static_cast<unsigned char>(c)]; id >= 0) {
      scratch.push_back(id);
    }
  }
  merges_.merge(scratch, limit);
  out.insert(out.end(), scratch.begin(), scratch.end());
}

}  // namespace llmrt
