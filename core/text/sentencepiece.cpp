#include "core/text/sentencepiece.h"

#include <algorithm>
#include <charconv>
#include <functional>

#include "core/base/utf8.h"
#include "core/text/rank_queue.h"

namespace llmrt {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";
constexpr size_t kLongStretch = 4096;         // characters; from here on a list for each rank beats a heap
constexpr uint32_t kPopsBetweenLooks = 4096;  // at the flag that cancels

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  size_t pos = 0;
  for (size_t hit = text.find(from); hit != std::string_view::npos; hit = text.find(from, pos)) {
    out.append(text.substr(pos, hit - pos)).append(to);
    pos = hit + from.size();
  }
  return out.append(text.substr(pos));
}

// "<0x0A>" to 10; -1 where it is not of that form.
int byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') {
    return -1;
  }
  int byte = -1;
  const auto [end, error] = std::from_chars(piece.data() + 3, piece.data() + 5, byte, 16);
  return error == std::errc() && end == piece.data() + 5 && byte >= 0 ? byte : -1;
}

// Whether the piece goes on after a word: another character, then a space.
bool spans_words(std::string_view piece) {
  size_t pos = 0;
  while (piece.substr(pos).starts_with(kSpaceMark)) {
    pos += kSpaceMark.size();
  }
  return piece.find(kSpaceMark, pos) != std::string_view::npos;
}

// The end of the word that begins at `begin`: leading spaces, then everything up to the next space.
size_t word_end(std::string_view text, size_t begin) {
  while (text.substr(begin).starts_with(kSpaceMark)) {
    begin += kSpaceMark.size();
  }
  return std::min(text.find(kSpaceMark, begin), text.size());
}

struct Candidate {
  int32_t position;  // of the left one
  int32_t right;
  uint32_t num_bytes;
};

}  // namespace

struct SentencePieceTokenizer::Symbol {
  uint32_t begin;
  uint32_t num_bytes;  // 0: merged into its left neighbour
  int32_t previous;
  int32_t next;
};

Result<std::unique_ptr<Tokenizer>> SentencePieceTokenizer::create(Vocabulary vocabulary) {
  std::unique_ptr<SentencePieceTokenizer> made(new SentencePieceTokenizer(std::move(vocabulary)));
  if (const Status loaded = made->load_tokens(); !loaded) {
    return loaded.error();
  }
  return std::unique_ptr<Tokenizer>(std::move(made));
}

SentencePieceTokenizer::SentencePieceTokenizer(Vocabulary vocabulary) : TokenizerBase(std::move(vocabulary)) {
  byte_ids_.fill(-1);
}

Status SentencePieceTokenizer::load_tokens() {
  for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string& piece = vocabulary_.tokens[i];
    if (is_special(id)) {
      append_token_bytes(piece);
      specials_.add(piece, id, true);
      cover_.add(piece);
      continue;
    }
    if (type(id) == TokenType::kByte) {
      const int byte = byte_of_piece(piece);
      if (byte < 0) {
        return make_error(ErrorCode::kCorruptFile, "vocabulary: token {}: expected a byte such as <0x0A>, found \"{}\"",
                          i, piece);
      }
      const char as_char = static_cast<char>(byte);
      append_token_bytes({&as_char, 1});
      if (byte_ids_[byte] < 0) {
        byte_ids_[byte] = id;
      }
      continue;
    }
    append_token_bytes(type(id) == TokenType::kUnused ? "" : replace_all(piece, kSpaceMark, " "));
    pieces_.emplace(piece, id);
    cover_.add(piece);
    piece_bytes_max_ = std::max(piece_bytes_max_, piece.size());
    words_are_apart_ = words_are_apart_ && !spans_words(piece);
    if (type(id) == TokenType::kUserDefined) {
      specials_.add(piece, id, false);
    }
  }
  has_all_bytes_ = std::ranges::all_of(byte_ids_, [](TokenId id) { return id >= 0; });
  if (vocabulary_.merges.empty()) {
    rank_pieces();
  } else {
    if (!has_all_bytes_) {
      return make_error(ErrorCode::kUnsupported, "vocabulary: merges beside pieces: expected tokens of all 256 bytes");
    }
    if (const Status loaded = load_merges(&merges_); !loaded) {
      return loaded;
    }
  }
  return specials_.build();
}

void SentencePieceTokenizer::rank_pieces() {
  std::vector<float> scores = vocabulary_.scores;
  std::ranges::sort(scores, std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  num_ranks_ = static_cast<uint32_t>(scores.size());
  ranks_.reserve(vocabulary_.scores.size());
  for (const float score : vocabulary_.scores) {
    ranks_.push_back(static_cast<uint32_t>(std::ranges::lower_bound(scores, score, std::greater<>()) - scores.begin()));
  }
}

const TokenId* SentencePieceTokenizer::find_piece(std::string_view piece) const {
  if (piece.size() > piece_bytes_max_) {
    return nullptr;
  }
  const auto found = pieces_.find(piece);
  return found == pieces_.end() ? nullptr : &found->second;
}

size_t SentencePieceTokenizer::text_bytes_max(size_t tokens) const {
  // A run of unknown characters is one token, however long, where there are no bytes to fall back to. A space of the
  // text is one byte and three in a piece: more text than this never fits.
  return has_all_bytes_ ? cover_.bytes_max(tokens) : EncodeLimit::kNone;
}

std::string_view SentencePieceTokenizer::within(std::string_view text, const EncodeLimit& limit,
                                                size_t num_tokens) const {
  return has_all_bytes_ ? text.substr(0, cover_.cut(text, limit.tokens_left(num_tokens))) : text;
}

bool SentencePieceTokenizer::has_space_prefix(std::string_view text, bool is_first) const {
  if (!vocabulary_.add_space_prefix || vocabulary_.space_prefix == SpacePrefix::kEveryPiece) {
    return vocabulary_.add_space_prefix;
  }
  const bool is_blank = text.starts_with(' ') || text.starts_with(kSpaceMark);
  return !is_blank && (is_first || vocabulary_.space_prefix == SpacePrefix::kUnlessBlank);
}

void SentencePieceTokenizer::encode_plain(std::string_view text, bool is_first, const EncodeLimit& limit,
                                          std::vector<TokenId>& out) const {
  if (const size_t bytes_max = text_bytes_max(limit.tokens_left(out.size())); text.size() > bytes_max) {
    text = text.substr(0, bytes_max + 1);
  }
  std::string escaped(has_space_prefix(text, is_first) ? kSpaceMark : "");
  escaped += replace_all(text, " ", kSpaceMark);
  const std::string_view plain = within(escaped, limit, out.size());
  std::vector<Symbol> symbols;
  std::vector<TokenId> scratch;
  for (size_t begin = 0; begin < plain.size() && !limit.is_over(out.size());) {
    const size_t end = words_are_apart_ ? word_end(plain, begin) : plain.size();
    const std::string_view stretch = within(plain.substr(begin, end - begin), limit, out.size());
    if (vocabulary_.merges.empty()) {
      encode_stretch(stretch, limit, symbols, out);
    } else {
      encode_by_merges(stretch, limit, scratch, out);
    }
    begin = end;
  }
}

void SentencePieceTokenizer::encode_stretch(std::string_view text, const EncodeLimit& limit,
                                            std::vector<Symbol>& symbols, std::vector<TokenId>& out) const {
  if (const TokenId* whole = find_piece(text); whole && text.size() <= kSpaceMark.size()) {
    return append_piece(text, {}, out);
  }
  symbols.clear();
  for (size_t pos = 0; pos < text.size();) {
    const size_t length = decode_utf8(text, pos).num_bytes;
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back({static_cast<uint32_t>(pos), static_cast<uint32_t>(length), index - 1, index + 1});
    pos += length;
  }
  symbols.back().next = -1;
  Splits splits;
  if (symbols.size() < std::max<size_t>(kLongStretch, num_ranks_ / 64)) {
    HeapQueue<Candidate> queue;
    merge(text, symbols, splits, queue, limit);
  } else {
    RankQueue<Candidate> queue(num_ranks_);
    merge(text, symbols, splits, queue, limit);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) {
    append_piece(text.substr(symbols[i].begin, symbols[i].num_bytes), splits, out);
  }
}

void SentencePieceTokenizer::encode_by_merges(std::string_view text, const EncodeLimit& limit,
                                              std::vector<TokenId>& scratch, std::vector<TokenId>& out) const {
  scratch.clear();
  for (size_t pos = 0; pos < text.size();) {
    const std::string_view character = text.substr(pos, decode_utf8(text, pos).num_bytes);
    if (const TokenId* id = find_piece(character)) {
      scratch.push_back(*id);
    } else {
      append_unknown(character, scratch);
    }
    pos += character.size();
  }
  merges_.merge(scratch, limit);
  out.insert(out.end(), scratch.begin(), scratch.end());
}

template <typename Queue>
void SentencePieceTokenizer::merge(std::string_view text, std::vector<Symbol>& symbols, Splits& splits, Queue& queue,
                                   const EncodeLimit& limit) const {
  const auto offer = [&](int32_t left) {
    const int32_t right = left >= 0 ? symbols[left].next : -1;
    if (right < 0) {
      return;
    }
    const uint32_t num_bytes = symbols[left].num_bytes + symbols[right].num_bytes;
    const std::string_view piece = text.substr(symbols[left].begin, num_bytes);
    if (const TokenId* id = find_piece(piece)) {
      queue.push(ranks_[static_cast<size_t>(*id)], {left, right, num_bytes});
      if (type(*id) == TokenType::kUnused) {
        splits[piece] = {piece.substr(0, symbols[left].num_bytes), piece.substr(symbols[left].num_bytes)};
      }
    }
  };
  for (size_t i = 0; i < symbols.size(); ++i) {
    offer(static_cast<int32_t>(i));
  }
  uint32_t num_pops = 0;
  for (Candidate candidate; queue.pop(&candidate);) {
    if (++num_pops % kPopsBetweenLooks == 0 && limit.is_cancelled()) {
      return;
    }
    Symbol& left = symbols[candidate.position];
    Symbol& right = symbols[candidate.right];
    if (left.num_bytes == 0 || right.num_bytes == 0 || left.num_bytes + right.num_bytes != candidate.num_bytes) {
      continue;  // one of the two has merged since
    }
    left.num_bytes = candidate.num_bytes;
    right.num_bytes = 0;
    left.next = right.next;
    if (left.next >= 0) {
      symbols[left.next].previous = candidate.position;
    }
    offer(left.previous);
    offer(candidate.position);
  }
}

void SentencePieceTokenizer::append_piece(std::string_view piece, const Splits& splits,
                                          std::vector<TokenId>& out) const {
  const TokenId* id = find_piece(piece);
  if (!id) {
    return append_unknown(piece, out);
  }
  if (type(*id) == TokenType::kUnused) {
    if (const auto split = splits.find(piece); split != splits.end()) {
      append_piece(split->second.first, splits, out);
      append_piece(split->second.second, splits, out);
      return;
    }
  }
  out.push_back(*id);
}

void SentencePieceTokenizer::append_unknown(std::string_view piece, std::vector<TokenId>& out) const {
  const bool has_bytes =
      std::ranges::all_of(piece, [&](char c) { return byte_ids_[static_cast<unsigned char>(c)] >= 0; });
  if (has_bytes) {
    for (const char c : piece) {
      out.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    }
  } else if (vocabulary_.unk >= 0 && (out.empty() || out.back() != vocabulary_.unk)) {
    out.push_back(vocabulary_.unk);  // one for a run of unknown characters
  }
}

std::string SentencePieceTokenizer::decode(std::span<const TokenId> ids, bool special) const {
  std::string out;
  bool strip = vocabulary_.add_space_prefix;
  for (const TokenId id : ids) {
    std::string_view bytes = token_bytes(id, special);
    if (bytes.empty()) {
      continue;
    }
    if (strip && bytes[0] == ' ' && type(id) != TokenType::kByte) {
      bytes.remove_prefix(1);
    }
    strip = false;
    out += bytes;
  }
  return out;
}

}  // namespace llmrt
