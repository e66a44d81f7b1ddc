#include "core/text/tokenizer.h"

#include <cmath>
#include <utility>

#include "core/text/bpe.h"
#include "core/text/sentencepiece.h"

namespace llmrt {
namespace {

constexpr size_t kTokensMax = 1 << 24;
constexpr size_t kTokenBytesMax = 16384;  // the longest known are runs of a few hundred blanks
// Of tokens that raw text is searched for: each of its bytes may be compared with that many.
constexpr size_t kSpecialBytesMax = 1024;

Status check_counts(const Vocabulary& vocabulary) {
  const size_t num_tokens = vocabulary.tokens.size();
  if (num_tokens == 0 || num_tokens > kTokensMax) {
    return make_error(ErrorCode::kCorruptFile, "vocabulary: tokens: expected 1 to {}, found {}", kTokensMax,
                      num_tokens);
  }
  if (!vocabulary.types.empty() && vocabulary.types.size() != num_tokens) {
    return make_error(ErrorCode::kCorruptFile, "vocabulary: token types: expected {}, found {}", num_tokens,
                      vocabulary.types.size());
  }
  for (const std::string& token : vocabulary.tokens) {
    if (token.size() > kTokenBytesMax) {
      return make_error(ErrorCode::kCorruptFile, "vocabulary: token: expected at most {} bytes, found {}",
                        kTokenBytesMax, token.size());
    }
  }
  for (const TokenType type : vocabulary.types) {
    if (type < TokenType::kNormal || type > TokenType::kByte) {
      return make_error(ErrorCode::kCorruptFile, "vocabulary: token types: expected 1 to 6, found {}",
                        static_cast<int>(type));
    }
  }
  return {};
}

Status check_special_sizes(const Vocabulary& vocabulary) {
  for (size_t i = 0; i < vocabulary.types.size(); ++i) {
    const TokenType type = vocabulary.types[i];
    const bool is_searched =
        type == TokenType::kControl || type == TokenType::kUnknown || type == TokenType::kUserDefined;
    if (is_searched && vocabulary.tokens[i].size() > kSpecialBytesMax) {
      return make_error(ErrorCode::kCorruptFile,
                        "vocabulary: token {}: expected at most {} bytes of a special or user-defined token, found {}",
                        i, kSpecialBytesMax, vocabulary.tokens[i].size());
    }
  }
  return {};
}

Status check_special_ids(const Vocabulary& vocabulary) {
  const std::pair<const char*, TokenId> named[] = {{"bos", vocabulary.bos},
                                                   {"eos", vocabulary.eos},
                                                   {"unk", vocabulary.unk},
                                                   {"pad", vocabulary.pad},
                                                   {"eot", vocabulary.eot}};
  for (const auto& [name, id] : named) {
    if (id < -1 || id >= static_cast<TokenId>(vocabulary.tokens.size())) {
      return make_error(ErrorCode::kCorruptFile, "vocabulary: {} token: expected an id below {}, found {}", name,
                        vocabulary.tokens.size(), id);
    }
  }
  for (const TokenId id : vocabulary.more_ends) {
    if (id < 0 || id >= static_cast<TokenId>(vocabulary.tokens.size())) {
      return make_error(ErrorCode::kCorruptFile, "vocabulary: end tokens: expected ids below {}, found {}",
                        vocabulary.tokens.size(), id);
    }
  }
  return {};
}

Status check_scores(const Vocabulary& vocabulary) {
  if (vocabulary.scores.size() != vocabulary.tokens.size()) {
    return make_error(ErrorCode::kCorruptFile, "vocabulary: scores: expected {}, found {}", vocabulary.tokens.size(),
                      vocabulary.scores.size());
  }
  for (const float score : vocabulary.scores) {
    if (std::isnan(score)) {  // no order among pieces
      return make_error(ErrorCode::kCorruptFile, "vocabulary: scores: expected numbers, found NaN");
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::create(Vocabulary vocabulary) {
  if (const Status status = check_counts(vocabulary); !status) {
    return status.error();
  }
  if (const Status status = check_special_sizes(vocabulary); !status) {
    return status.error();
  }
  if (const Status status = check_special_ids(vocabulary); !status) {
    return status.error();
  }
  if (vocabulary.model == "gpt2") {
    return ByteBpeTokenizer::create(std::move(vocabulary));
  }
  if (vocabulary.model == "llama") {
    if (const Status status = check_scores(vocabulary); !status) {
      return status.error();
    }
    return SentencePieceTokenizer::create(std::move(vocabulary));
  }
  return make_error(ErrorCode::kUnsupported, "tokenizer model: expected gpt2 or llama, found {}", vocabulary.model);
}

}  // namespace llmrt
