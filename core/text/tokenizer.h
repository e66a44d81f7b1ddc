// Text to token ids and back. A Tokenizer is built once from a vocabulary (as a model file carries it) and is immutable
// afterwards: every method is const and may be called from any thread.
//
// Two kinds: byte-level BPE ("gpt2" in GGUF; pre-tokenizers as pre_tokenizer.cpp lists them) and SentencePiece
// ("llama" in GGUF; BPE over pieces by score or by merges, byte fallback). Both agree token for token with Hugging
// Face's `tokenizers` and with `sentencepiece` (tests/text).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/text/fim_tokens.h"

namespace llmrt {

using TokenId = int32_t;

// The values of GGUF's tokenizer.ggml.token_type.
enum class TokenType : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// Where SentencePiece puts a space in front of plain text that a special token or nothing precedes: as its own library
// and Hugging Face's older files do, in front of every piece; or as their Metaspace step does.
enum class SpacePrefix : uint8_t {
  kEveryPiece,        // whatever the piece begins with
  kUnlessBlank,       // where it does not begin with one
  kFirstUnlessBlank,  // likewise, and only where the whole text begins
};

// What a model file says of its vocabulary; owned, no pointer into the file.
struct Vocabulary {
  std::string model;                // "gpt2" or "llama"
  std::string pre;                  // "smollm", "gpt-2", "llama-bpe", "qwen2", ...; empty = default of the model
  std::vector<std::string> tokens;  // as stored: byte-level alphabet for gpt2, U+2581 for a space in llama
  std::vector<TokenType> types;     // as many as tokens, or empty (all normal)
  std::vector<float> scores;        // llama only, as many as tokens
  // "left right", best first. In llama they are optional: with them pairs merge by these alone, whatever the scores
  // say.
  std::vector<std::string> merges;
  TokenId bos = -1, eos = -1, unk = -1, pad = -1, eot = -1;  // -1: none
  std::vector<TokenId> more_ends;                            // that end an answer too
  bool add_bos = false;
  bool add_eos = false;
  bool add_space_prefix = true;                         // llama only
  SpacePrefix space_prefix = SpacePrefix::kEveryPiece;  // how, where it is added
  std::string chat_template;                            // Jinja source; empty = none
  FimTokens fim = {};                                   // as the file names them; find_fim_tokens() knows more
};

struct EncodeOptions {
  bool parse_special = true;  // text such as <|im_end|> becomes the special token, as Hugging Face does
  bool add_bos = true;        // only where the vocabulary asks for it
  // 0: no limit. A text that takes more is not encoded to its end: the answer then has exactly tokens_max + 1 ids,
  // which say nothing but that. What fits is encoded as without a limit. The work is bounded by what tokens_max tokens
  // can stand for, however long the text is.
  size_t tokens_max = 0;
  // Looked at now and then; when it is true, the encoder soon returns something that must not be used.
  const std::atomic<bool>* cancelled = nullptr;
};

// Text with its origin: only template text may become special tokens.
struct TextPiece {
  std::string text;
  bool from_template = false;
};

class Tokenizer {
 public:
  // Checks the whole vocabulary; a hostile or unsupported one is an Error (corrupt_file, unsupported).
  static Result<std::unique_ptr<Tokenizer>> create(Vocabulary vocabulary);
  virtual ~Tokenizer() = default;

  // `text` may be any bytes: invalid UTF-8 is treated as Hugging Face treats U+FFFD replacement; bytes that the
  // vocabulary lacks are dropped, as Hugging Face does. Linear (times log) in the length, also on one long run.
  virtual std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const = 0;
  // As encode over the concatenation, but a special token is parsed only inside pieces that come from a template.
  virtual std::vector<TokenId> encode_pieces(std::span<const TextPiece> pieces, bool add_bos) const = 0;
  // The same within limits; options.parse_special counts for nothing.
  virtual std::vector<TokenId> encode_pieces(std::span<const TextPiece> pieces, const EncodeOptions& options) const {
    return encode_pieces(pieces, options.add_bos);
  }

  // The special (control or unknown) token that `text` spells whole; -1: none. Such a token is not in the text of an
  // answer, so a stop string that spells it can only be met by its id. User-defined tokens are text: not found here.
  virtual TokenId find_special(std::string_view /*text*/) const { return -1; }

  // The bytes that a token stands for; empty for control tokens unless `special`, and for ids out of range. No
  // allocation: the view lives as long as the tokenizer.
  virtual std::string_view token_bytes(TokenId id, bool special = false) const = 0;
  // The bytes of a whole sequence (SentencePiece strips the leading space that its prefix added). Not checked UTF-8.
  virtual std::string decode(std::span<const TokenId> ids, bool special = false) const = 0;

  virtual const Vocabulary& vocabulary() const = 0;
  int vocab_size() const { return static_cast<int>(vocabulary().tokens.size()); }
  // End of generation: eos, eot and every control token that ends a turn (<|im_end|>, <|endoftext|>, <|eot_id|>, ...).
  virtual bool is_end_of_generation(TokenId id) const = 0;
  virtual std::span<const TokenId> end_of_generation_ids() const = 0;
};

}  // namespace llmrt
