#include "core/text/sentencepiece.h"

#include <algorithm>
#include <charconv>
#include <queue>

#include "core/text/utf8.h"

namespace llmrt {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";

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
    piece_bytes_max_ = std::max(piece_bytes_max_, piece.size());
    if (type(id) == TokenType::kUserDefined) {
      user_defined_.add(piece, id, false);
    } else {
      words_are_apart_ = words_are_apart_ && !spans_words(piece);
    }
  }
  return {};
}

const TokenId* SentencePieceTokenizer::find_piece(std::string_view piece) const {
  if (piece.size() > piece_bytes_max_) {
    return nullptr;
  }
  const auto found = pieces_.find(piece);
  return found == pieces_.end() ? nullptr : &found->second;
}

void SentencePieceTokenizer::encode_plain(std::string_view text, bool after_special, std::vector<TokenId>& out) const {
  std::string escaped(vocabulary_.add_space_prefix && after_special ? kSpaceMark : "");
  escaped += replace_all(text, " ", kSpaceMark);
  std::vector<Symbol> symbols;
  for (const SpecialTokens::Segment& segment : user_defined_.split(escaped, {})) {
    if (segment.id >= 0) {
      out.push_back(segment.id);
      continue;
    }
    const std::string_view stretch = std::string_view(escaped).substr(segment.begin, segment.end - segment.begin);
    for (size_t begin = 0; begin < stretch.size();) {
      const size_t end = words_are_apart_ ? word_end(stretch, begin) : stretch.size();
      encode_stretch(stretch.substr(begin, end - begin), symbols, out);
      begin = end;
    }
  }
}

void SentencePieceTokenizer::encode_stretch(std::string_view text, std::vector<Symbol>& symbols,
                                            std::vector<TokenId>& out) const {
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
  merge(text, symbols, splits);
  for (int32_t i = 0; i >= 0; i = symbols[i].next) {
    append_piece(text.substr(symbols[i].begin, symbols[i].num_bytes), splits, out);
  }
}

void SentencePieceTokenizer::merge(std::string_view text, std::vector<Symbol>& symbols, Splits& splits) const {
  struct Candidate {
    float score;
    int32_t left;
    int32_t right;
    uint32_t num_bytes;
    bool operator<(const Candidate& other) const {  // the queue gives the greatest first
      return score != other.score ? score < other.score : left > other.left;
    }
  };
  std::priority_queue<Candidate> queue;
  const auto offer = [&](int32_t left) {
    const int32_t right = left >= 0 ? symbols[left].next : -1;
    if (right < 0) {
      return;
    }
    const uint32_t num_bytes = symbols[left].num_bytes + symbols[right].num_bytes;
    const std::string_view piece = text.substr(symbols[left].begin, num_bytes);
    if (const TokenId* id = find_piece(piece)) {
      queue.push({vocabulary_.scores[static_cast<size_t>(*id)], left, right, num_bytes});
      if (type(*id) == TokenType::kUnused) {
        splits[piece] = {piece.substr(0, symbols[left].num_bytes), piece.substr(symbols[left].num_bytes)};
      }
    }
  };
  for (size_t i = 0; i < symbols.size(); ++i) {
    offer(static_cast<int32_t>(i));
  }
  while (!queue.empty()) {
    const Candidate candidate = queue.top();
    queue.pop();
    Symbol& left = symbols[candidate.left];
    Symbol& right = symbols[candidate.right];
    if (left.num_bytes == 0 || right.num_bytes == 0 || left.num_bytes + right.num_bytes != candidate.num_bytes) {
      continue;  // one of the two has merged since
    }
    left.num_bytes = candidate.num_bytes;
    right.num_bytes = 0;
    left.next = right.next;
    if (left.next >= 0) {
      symbols[left.next].previous = candidate.left;
    }
    offer(left.previous);
    offer(candidate.left);
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
