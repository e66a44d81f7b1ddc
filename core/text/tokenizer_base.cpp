#include "core/text/tokenizer_base.h"

#include <algorithm>
#include <utility>

#include "core/base/utf8.h"

namespace llmrt {
namespace {

constexpr size_t kLineShown = 96;  // a line of a hostile file may be as long as it likes
constexpr std::string_view kEndNames[] = {
    "<|eot_id|>",    "<|im_end|>", "<|end|>",    "<|return|>",   "<|call|>",        "<end_of_turn>",
    "<|endoftext|>", "<|eom_id|>", "<EOT>",      "_<EOT>",       "<|end_of_text|>", "<end_of_utterance>",
    "<|fim_pad|>",   "<fim-pad>",  "<fim_pad>",  "<PAD>",        "<|fim_repo|>",    "<|repo_name|>",
    "<fim-repo>",    "<REPO>",     "<reponame>", "<|file_sep|>",
};

}  // namespace

std::span<const std::string_view> end_of_turn_names() {
  return kEndNames;
}

TokenizerBase::TokenizerBase(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {
  byte_ends_.reserve(vocabulary_.tokens.size());
  find_end_of_generation();
}

void TokenizerBase::find_end_of_generation() {
  for (const TokenId id : {vocabulary_.eos, vocabulary_.eot}) {
    if (id >= 0) {
      end_ids_.push_back(id);
    }
  }
  end_ids_.insert(end_ids_.end(), vocabulary_.more_ends.begin(), vocabulary_.more_ends.end());
  for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const bool may_end = type(id) == TokenType::kControl || type(id) == TokenType::kUserDefined;
    if (may_end && std::ranges::find(kEndNames, vocabulary_.tokens[i]) != std::end(kEndNames)) {
      end_ids_.push_back(id);
    }
  }
  // gpt-oss writes messages one after another: <|end|> ends one of them, not the answer.
  const auto ends = [&](std::string_view name) {
    return std::ranges::any_of(end_ids_,
                               [&](TokenId id) { return vocabulary_.tokens[static_cast<size_t>(id)] == name; });
  };
  if (ends("<|return|>") && ends("<|call|>")) {
    std::erase_if(end_ids_, [&](TokenId id) { return vocabulary_.tokens[static_cast<size_t>(id)] == "<|end|>"; });
  }
  std::ranges::sort(end_ids_);
  end_ids_.erase(std::unique(end_ids_.begin(), end_ids_.end()), end_ids_.end());
}

TokenIds TokenizerBase::ids_by_text() const {
  TokenIds ids;
  ids.reserve(vocabulary_.tokens.size());
  for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
    ids.emplace(vocabulary_.tokens[i], static_cast<TokenId>(i));
  }
  return ids;
}

Status TokenizerBase::load_merges(MergeTable* out) const {
  MergeTable merges(vocabulary_.merges.size());
  const TokenIds ids = ids_by_text();
  std::string joined;
  for (size_t rank = 0; rank < vocabulary_.merges.size(); ++rank) {
    const std::string_view line = vocabulary_.merges[rank];
    const size_t space = line.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == line.size()) {
      return make_error(ErrorCode::kCorruptFile, "tokenizer.ggml.merges: element {}: expected two tokens, found \"{}\"",
                        rank, line.substr(0, kLineShown));
    }
    joined.assign(line.substr(0, space)).append(line.substr(space + 1));
    const auto left = ids.find(line.substr(0, space));
    const auto right = ids.find(line.substr(space + 1));
    const auto merged = ids.find(joined);
    if (left == ids.end() || right == ids.end() || merged == ids.end()) {
      return make_error(ErrorCode::kCorruptFile,
                        "tokenizer.ggml.merges: element {}: expected tokens of the vocabulary, found \"{}\"", rank,
                        line.substr(0, kLineShown));
    }
    if (!is_special(merged->second)) {  // plain text never becomes a special token
      merges.set(left->second, right->second, {static_cast<uint32_t>(rank), merged->second});
    }
  }
  merges.settle();
  *out = std::move(merges);
  return {};
}

void TokenizerBase::append_token_bytes(std::string_view bytes) {
  bytes_.append(bytes);
  byte_ends_.push_back(bytes_.size());
}

std::vector<TokenId> TokenizerBase::encode_valid(std::string_view text, const TextRanges& control_ranges,
                                                 const EncodeOptions& options) const {
  const EncodeLimit limit(options);
  std::vector<TokenId> ids;
  ids.reserve(std::min(text.size() / 3 + 2, limit.tokens_max()));
  if (options.add_bos && vocabulary_.add_bos && vocabulary_.bos >= 0) {
    ids.push_back(vocabulary_.bos);
  }
  SpecialTokens::Search search(specials_, text, control_ranges);
  for (size_t pos = 0; pos < text.size() && !limit.is_over(ids.size());) {
    const SpecialTokens::Match match = search.next(pos);
    if (pos < match.begin) {
      encode_plain(text.substr(pos, match.begin - pos), pos == 0, limit, ids);
    }
    if (match.id >= 0) {
      ids.push_back(match.id);
    }
    pos = match.end;
  }
  if (options.add_bos && vocabulary_.add_eos && vocabulary_.eos >= 0) {
    ids.push_back(vocabulary_.eos);
  }
  if (ids.size() > limit.tokens_max()) {
    ids.resize(limit.tokens_max() + 1);
  }
  return ids;
}

size_t TokenizerBase::text_bytes_max(const EncodeOptions& options) const {
  return options.tokens_max == 0 ? EncodeLimit::kNone : text_bytes_max(options.tokens_max);
}

std::vector<TokenId> TokenizerBase::encode(std::string_view text, const EncodeOptions& options) const {
  // What is behind the bound is not even looked at: the text in front of it takes too many tokens already. The end of a
  // character that is cut through there makes them no fewer.
  if (const size_t bytes_max = text_bytes_max(options); text.size() > bytes_max) {
    text = text.substr(0, bytes_max + 1);
  }
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = replace_invalid_utf8(text);
    text = repaired;
  }
  TextRanges control_ranges;
  if (options.parse_special) {
    control_ranges.emplace_back(0, text.size());
  }
  return encode_valid(text, control_ranges, options);
}

std::vector<TokenId> TokenizerBase::encode_pieces(std::span<const TextPiece> pieces, bool add_bos) const {
  return encode_pieces(pieces, EncodeOptions{.add_bos = add_bos});
}

std::vector<TokenId> TokenizerBase::encode_pieces(std::span<const TextPiece> pieces,
                                                  const EncodeOptions& options) const {
  const size_t bytes_max = text_bytes_max(options);
  std::string text;
  TextRanges control_ranges;
  for (const TextPiece& piece : pieces) {
    const size_t begin = text.size();
    if (begin > bytes_max) {
      break;
    }
    std::string_view added = piece.text;
    if (added.size() > bytes_max - begin) {
      added = added.substr(0, bytes_max - begin + 1);
    }
    // Piece by piece, so that the ranges stay true.
    is_valid_utf8(added) ? text.append(added) : text.append(replace_invalid_utf8(added));
    if (!piece.from_template || text.size() == begin) {
      continue;
    }
    if (!control_ranges.empty() && control_ranges.back().second == begin) {
      control_ranges.back().second = text.size();
    } else {
      control_ranges.emplace_back(begin, text.size());
    }
  }
  return encode_valid(text, control_ranges, options);
}

std::string_view TokenizerBase::token_bytes(TokenId id, bool special) const {
  if (!in_vocabulary(id) || (is_special(id) && !special)) {
    return {};
  }
  const size_t begin = id == 0 ? 0 : byte_ends_[static_cast<size_t>(id) - 1];
  return std::string_view(bytes_).substr(begin, byte_ends_[static_cast<size_t>(id)] - begin);
}

std::string TokenizerBase::decode(std::span<const TokenId> ids, bool special) const {
  std::string out;
  for (const TokenId id : ids) {
    out += token_bytes(id, special);
  }
  return out;
}

bool TokenizerBase::is_end_of_generation(TokenId id) const {
  return std::ranges::binary_search(end_ids_, id);
}

}  // namespace llmrt
