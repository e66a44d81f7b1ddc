// Any bytes as text, through every kind of tokenizer: the first byte chooses the kind, the second cuts the text into
// pieces. What is encoded must decode to the text again, data must never become a control token, and a stream of
// token bytes must assemble to the same text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/check.h"
#include "core/base/utf8.h"
#include "core/text/byte_alphabet.h"
#include "core/text/detokenizer.h"
#include "core/text/nfc.h"
#include "core/text/tokenizer.h"

namespace {

using namespace llmrt;

constexpr const char* kKinds[] = {"gpt-2", "smollm", "llama-bpe", "qwen2", "llama", "llama-merges"};

bool is_sentencepiece(std::string_view kind) {
  return kind.starts_with("llama") && kind != "llama-bpe";
}

void add(Vocabulary& vocabulary, std::string token, TokenType type, float score = 0) {
  vocabulary.tokens.push_back(std::move(token));
  vocabulary.types.push_back(type);
  vocabulary.scores.push_back(score);
}

Vocabulary make_vocabulary(const std::string& kind) {
  Vocabulary vocabulary;
  const bool is_llama = is_sentencepiece(kind);
  vocabulary.model = is_llama ? "llama" : "gpt2";
  vocabulary.pre = is_llama ? "" : kind;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string name(byte_to_alphabet(static_cast<unsigned char>(byte)));
    add(vocabulary, is_llama ? fmt::format("<0x{:02X}>", byte) : name,
        is_llama ? TokenType::kByte : TokenType::kNormal);
  }
  const std::string space(is_llama ? "\u2581" : std::string(byte_to_alphabet(' ')));
  const std::pair<std::string, std::string> merges[] = {{space, space}, {"a", "a"},    {"aa", "aa"}, {"i", "m"},
                                                        {"h", "e"},     {space, "he"}, {"'", "s"},   {"1", "2"},
                                                        {"he", "he"},   {"<", "|"},    {"|", ">"},   {"aa", "a"}};
  for (const char* piece : {"\u2581", "a", "i", "m", "h", "e", "1", "2", "<", "|", ">", "'", "s"}) {
    if (is_llama) {
      add(vocabulary, piece, TokenType::kNormal, -100);
    }
  }
  float score = 0;
  for (const auto& [left, right] : merges) {
    if (kind != "llama") {  // those pieces are joined by their scores
      vocabulary.merges.push_back(left + " " + right);
    }
    add(vocabulary, left + right, TokenType::kNormal, score -= 1);
  }
  vocabulary.bos = static_cast<TokenId>(vocabulary.tokens.size());
  add(vocabulary, "<|im_start|>", TokenType::kControl);
  add(vocabulary, "<|im_end|>", TokenType::kControl);
  add(vocabulary, "<|im", TokenType::kControl);
  add(vocabulary, "<tool>", TokenType::kUserDefined);
  add(vocabulary, "heh", TokenType::kUserDefined);
  vocabulary.add_bos = true;
  return vocabulary;
}

const Tokenizer& tokenizer(size_t i) {
  static const std::vector<std::unique_ptr<Tokenizer>> all = [] {
    std::vector<std::unique_ptr<Tokenizer>> made;
    for (const char* kind : kKinds) {
      made.push_back(std::move(Tokenizer::create(make_vocabulary(kind))).value());
    }
    return made;
  }();
  return *all[i];
}

std::string with_blanks(std::string_view text) {
  std::string out;
  bool after_token = false;
  for (size_t pos = 0; pos < text.size();) {
    const std::string_view rest = text.substr(pos);
    const size_t size = rest.starts_with("<tool>") ? 6 : rest.starts_with("heh") ? 3 : 0;
    out += size == 0 && after_token ? " " : "";
    out += rest.substr(0, std::max<size_t>(size, 1));
    pos += std::max<size_t>(size, 1);
    after_token = size > 0;
  }
  return out;
}

// What must come back. SentencePiece writes a space as U+2581, and cannot tell the two apart afterwards; each piece of
// text behind a user defined token begins with a blank that stays.
std::string expected_text(size_t kind, std::string_view text) {
  std::string valid = replace_invalid_utf8(text);
  if (is_sentencepiece(kKinds[kind])) {
    for (size_t hit = valid.find("\u2581"); hit != std::string::npos; hit = valid.find("\u2581", hit)) {
      valid.replace(hit, 3, " ");
    }
    return with_blanks(valid);
  }
  return valid;
}

// Between user defined tokens the text was normalized piece by piece, which may leave something to compose.
std::string normalized(size_t kind, std::string text) {
  return std::string_view(kKinds[kind]) == "qwen2" ? normalize_nfc(text) : text;
}

void check_stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Utf8Assembler assembler;
  std::string streamed;
  std::string bytes;
  for (const TokenId id : ids) {
    bytes += tokenizer.token_bytes(id);
    streamed += assembler.push(tokenizer.token_bytes(id));
    LLMRT_CHECK(assembler.held_bytes() <= 3, "the assembler holds at most the begin of a character");
  }
  streamed += assembler.flush();
  LLMRT_CHECK(streamed == replace_invalid_utf8(bytes), "a stream assembles to the whole text");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) {
    return 0;
  }
  const size_t kind = data[0] % std::size(kKinds);
  const size_t cut = data[1] + 1;
  const std::string_view text(reinterpret_cast<const char*>(data + 2), size - 2);
  const Tokenizer& chosen = tokenizer(kind);

  const std::vector<TokenId> plain = chosen.encode(text, {.parse_special = false, .add_bos = false});
  LLMRT_CHECK(normalized(kind, chosen.decode(plain)) == normalized(kind, expected_text(kind, text)),
              "plain text comes back");
  check_stream(chosen, plain);

  const std::vector<TokenId> parsed = chosen.encode(text, {});
  const size_t most = 1 + data[1] % 37;
  const std::vector<TokenId> limited = chosen.encode(text, {.tokens_max = most});
  LLMRT_CHECK(parsed.size() <= most ? limited == parsed : limited.size() == most + 1,
              "a limit changes nothing but the end");
  LLMRT_CHECK(!parsed.empty() && parsed[0] == chosen.vocabulary().bos, "the text begins with bos");
  check_stream(chosen, parsed);

  std::vector<TextPiece> pieces;
  for (size_t pos = 0; pos < text.size(); pos += cut) {
    pieces.push_back({std::string(text.substr(pos, cut)), false});
  }
  for (const TokenId id : chosen.encode_pieces(pieces, false)) {
    LLMRT_CHECK(chosen.vocabulary().types[static_cast<size_t>(id)] != TokenType::kControl, "data made a control token");
  }
  for (size_t i = 0; i < pieces.size(); i += 2) {
    pieces[i].from_template = true;
  }
  check_stream(chosen, chosen.encode_pieces(pieces, true));
  return 0;
}
