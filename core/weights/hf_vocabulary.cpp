#include "core/weights/hf_vocabulary.h"

#include <algorithm>
#include <charconv>

#include "core/weights/hf_json.h"

namespace llmrt {
namespace {

// "<0x0A>" to 10; -1 where it is not of that form.
int byte_of_name(std::string_view name) {
  if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') return -1;
  int byte = -1;
  const auto [end, error] = std::from_chars(name.data() + 3, name.data() + 5, byte, 16);
  return error == std::errc() && end == name.data() + 5 ? byte : -1;
}

}  // namespace

Status HfVocabulary::add_vocab(const JsonTree* vocab) {
  if (vocab == nullptr || vocab->members() == nullptr)
    return bad_tokenizer("model.vocab: expected an object, found {}", shown(vocab));
  for (const JsonMember& member : *vocab->members()) {
    const int64_t* id = member.value.integer();
    if (auto status = check_id("model.vocab", member.name, id, member.value.describe()); !status) return status;
    const auto at = static_cast<size_t>(*id);
    if (types_[at] != kUnused)
      return bad_tokenizer("model.vocab: id {}: expected one token, found \"{}\" and \"{}\"", at,
                           printable(tokens_[at]), printable(member.name));
    tokens_[at] = member.name;
    types_[at] = kNormal;
  }
  return {};
}

Status HfVocabulary::add_added(const JsonTree* added, bool leaves_out_rest) {
  if (added == nullptr) return {};
  if (added->items() == nullptr) return bad_tokenizer("added_tokens: expected an array, found {}", added->describe());
  for (const JsonTree& token : *added->items())
    if (auto status = add_one(token, leaves_out_rest); !status) return status;
  return {};
}

Status HfVocabulary::check_id(const char* place, std::string_view token, const int64_t* id,
                              const std::string& found) const {
  if (id != nullptr && *id >= 0 && static_cast<uint64_t>(*id) < tokens_.size()) return {};
  return bad_tokenizer("{}: \"{}\": expected an id below the {} rows of the embedding, found {}", place,
                       printable(token), tokens_.size(), found);
}

Status HfVocabulary::add_one(const JsonTree& token, bool leaves_out_rest) {
  const std::string_view content = text_of(&token, "content");
  const JsonTree* id = token.find("id");
  if (content.empty()) return bad_tokenizer("added_tokens: expected a content, found {}", shown(token.find("content")));
  const int64_t* number = id == nullptr ? nullptr : id->integer();
  if (leaves_out_rest && number != nullptr && *number >= static_cast<int64_t>(tokens_.size())) return {};
  if (auto s = check_id("added_tokens", content, number, shown(id)); !s) return s;
  for (const char* flag : {"lstrip", "rstrip", "single_word"})
    if (!is_flag(&token, flag, false, false))
      return refused_tokenizer("added_tokens: \"{}\": {}: expected false, found {}", printable(content), flag,
                               shown(token.find(flag)));
  const auto at = static_cast<size_t>(*number);
  if (types_[at] != kUnused && tokens_[at] != content)
    return bad_tokenizer("added_tokens: id {}: expected one token, found \"{}\" and \"{}\"", at, printable(tokens_[at]),
                         printable(content));
  if (!added_.emplace(std::string(content), at).second)
    return bad_tokenizer("added_tokens: \"{}\": found twice", printable(content));
  tokens_[at] = content;
  types_[at] = is_flag(&token, "special", true, false) ? kControl : kUserDefined;
  return {};
}

Status HfVocabulary::set_piece_types(std::string_view unknown) {
  std::vector<bool> has_byte(256);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const int byte = types_[i] == kNormal ? byte_of_name(tokens_[i]) : -1;
    if (byte < 0) continue;
    types_[i] = kByte;
    has_byte[static_cast<size_t>(byte)] = true;
  }
  if (const auto missing = std::ranges::find(has_byte, false); missing != has_byte.end())
    return refused_tokenizer("model.byte_fallback: expected tokens of all 256 bytes, found none of byte {}",
                             missing - has_byte.begin());
  if (const int64_t id = find_added(unknown); id >= 0) types_[static_cast<size_t>(id)] = kUnknown;
  return {};
}

void HfVocabulary::add_scores(const std::vector<std::string>& merges, CanonicalMetadata& metadata) const {
  KeyedMap<float> made;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    std::string text = merges[rank];
    if (const size_t space = text.find(' ', 1); space != std::string::npos) text.erase(space, 1);
    made.emplace(std::move(text), -static_cast<float>(rank));  // the first one counts
  }
  std::vector<float> scores(tokens_.size());
  for (size_t i = 0; i < scores.size(); ++i)
    if (const auto found = made.find(tokens_[i]); found != made.end()) scores[i] = found->second;
  metadata.add_f32s("tokenizer.ggml.scores", scores);
}

int64_t HfVocabulary::find_added(std::string_view text) const {
  const auto found = added_.find(text);
  return found == added_.end() ? -1 : static_cast<int64_t>(found->second);
}

int64_t HfVocabulary::find(std::string_view text) const {
  if (const int64_t id = find_added(text); id >= 0) return id;
  const auto found = std::ranges::find(tokens_, text);
  return text.empty() || found == tokens_.end() ? -1 : found - tokens_.begin();
}

void HfVocabulary::write(CanonicalMetadata& metadata) && {
  for (size_t i = 0; i < tokens_.size(); ++i)
    if (types_[i] == kUnused) tokens_[i] = fmt::format("[PAD{}]", i);  // as GGUF's converter names them
  metadata.add_strings("tokenizer.ggml.tokens", std::move(tokens_));
  metadata.add_u8s("tokenizer.ggml.token_type", types_);
}

Status check_normalized_added(const JsonTree* added, bool adds_space) {
  if (added == nullptr || added->items() == nullptr) return {};
  for (const JsonTree& token : *added->items()) {
    const std::string_view content = text_of(&token, "content");
    if (is_flag(&token, "normalized", false, false)) continue;
    if (adds_space || content.find(' ') != std::string_view::npos)
      return refused_tokenizer("added_tokens: \"{}\": normalized: expected false with a normalizer that changes it",
                               printable(content));
  }
  return {};
}

}  // namespace llmrt
