#include "core/weights/hf_tokenizer.h"

#include <algorithm>

#include "core/base/keyed_hash.h"

namespace llmrt {
namespace {

// GGUF's numbers of token types.
constexpr uint8_t kTypeNormal = 1, kTypeControl = 3, kTypeUserDefined = 4, kTypeUnused = 5;
constexpr uint64_t kVocabularyMax = 1u << 22;

constexpr std::string_view kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

template <typename... Args>
Error refused_tokenizer(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kUnsupported, "unsupported tokenizer: tokenizer.json: {}",
                    fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Error bad_tokenizer(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kCorruptFile, "bad tokenizer.json: {}",
                    fmt::format(format, std::forward<Args>(args)...));
}

std::string_view text_of(const JsonTree* object, std::string_view name) {
  const JsonTree* found = object == nullptr ? nullptr : object->find(name);
  return found == nullptr || found->string() == nullptr ? std::string_view() : std::string_view(*found->string());
}
bool is_flag(const JsonTree* object, std::string_view name, bool wanted, bool otherwise) {
  const JsonTree* found = object == nullptr ? nullptr : object->find(name);
  if (found == nullptr) return wanted == otherwise;
  return found->boolean() != nullptr && *found->boolean() == wanted;
}
std::string shown(const JsonTree* found) {
  return found == nullptr ? "nothing" : found->describe();
}

// The steps of a normalizer, pre_tokenizer or post_processor: those of a Sequence under `list`, else itself.
std::vector<const JsonTree*> steps_of(const JsonTree* part, std::string_view list) {
  std::vector<const JsonTree*> steps;
  if (part == nullptr) return steps;
  if (text_of(part, "type") != "Sequence") return {part};
  const JsonTree* inner = part->find(list);
  if (inner == nullptr || inner->items() == nullptr) return {part};  // then its type is told
  for (const JsonTree& step : *inner->items()) steps.push_back(&step);
  return steps;
}
std::string types_of(const std::vector<const JsonTree*>& steps) {
  std::string types;
  for (const JsonTree* step : steps)
    types += fmt::format("{}{}", types.empty() ? "" : ", ", printable(text_of(step, "type")));
  return types.empty() ? "none" : types;
}

bool is_byte_level(const JsonTree* step, bool use_regex) {
  return text_of(step, "type") == "ByteLevel" && is_flag(step, "add_prefix_space", false, true) &&
         is_flag(step, "use_regex", use_regex, true);
}

// The name that core/text knows the steps by.
Result<std::string_view> find_pre_name(const JsonTree& tokenizer, const JsonTree& model) {
  const auto normal = steps_of(tokenizer.find("normalizer"), "normalizers");
  const bool has_nfc = normal.size() == 1 && text_of(normal[0], "type") == "NFC";
  if (!normal.empty() && !has_nfc)
    return refused_tokenizer("normalizer: expected none or NFC, found {}", types_of(normal));
  const bool ignores_merges = is_flag(&model, "ignore_merges", true, false);
  const auto steps = steps_of(tokenizer.find("pre_tokenizer"), "pretokenizers");
  std::string_view regex;
  std::string_view name;
  if (steps.size() == 1 && is_byte_level(steps[0], true)) {
    name = "gpt-2";
  } else if (steps.size() == 2 && text_of(steps[0], "type") == "Digits" &&
             is_flag(steps[0], "individual_digits", true, false) && is_byte_level(steps[1], true)) {
    name = "smollm";
  } else if (steps.size() == 2 && text_of(steps[0], "type") == "Split" && text_of(steps[0], "behavior") == "Isolated" &&
             is_flag(steps[0], "invert", false, false) && is_byte_level(steps[1], false)) {
    regex = text_of(steps[0]->find("pattern"), "Regex");
    if (regex == kLlama3Regex) name = ignores_merges ? "llama-bpe" : "smaug-bpe";
    if (regex == kQwen2Regex) name = "qwen2";
  }
  if (name.empty())
    return refused_tokenizer("pre_tokenizer: expected the steps of gpt-2, smollm, llama-bpe or qwen2, found {}{}",
                             types_of(steps), regex.empty() ? "" : " with the expression \"" + printable(regex) + "\"");
  if (has_nfc != (name == "qwen2"))
    return refused_tokenizer("normalizer: expected {} with the pre_tokenizer of {}, found {}",
                             name == "qwen2" ? "NFC" : "none", name, types_of(normal));
  if (ignores_merges != (name == "llama-bpe"))
    return refused_tokenizer("model.ignore_merges: expected {} with the pre_tokenizer of {}", name == "llama-bpe",
                             name);
  return name;
}

// What BPE models may have that this one does not do.
Status check_bpe(const JsonTree& model) {
  const std::string_view type = text_of(&model, "type");
  if (type != "BPE" && !(model.find("type") == nullptr && model.find("merges") != nullptr))
    return refused_tokenizer("model.type: expected BPE, found {}", shown(model.find("type")));
  if (is_flag(&model, "byte_fallback", true, false))
    return refused_tokenizer("model.byte_fallback: expected byte-level BPE, found SentencePiece's");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const JsonTree* affix = model.find(key); affix != nullptr && text_of(&model, key) != std::string_view())
      return refused_tokenizer("model.{}: expected none, found {}", key, affix->describe());
  double dropout = 0;
  if (const JsonTree* found = model.find("dropout"); found != nullptr && (!found->number(&dropout) || dropout != 0))
    return refused_tokenizer("model.dropout: expected none, found {}", found->describe());
  return {};
}

// Tokens by id, with their types.
class HfVocabulary {
 public:
  explicit HfVocabulary(uint64_t size) : tokens_(size), types_(size, kTypeUnused) {}

  Status add_vocab(const JsonTree* vocab) {
    if (vocab == nullptr || vocab->members() == nullptr)
      return bad_tokenizer("model.vocab: expected an object, found {}", shown(vocab));
    for (const JsonMember& member : *vocab->members()) {
      const int64_t* id = member.value.integer();
      if (auto status = check_id("model.vocab", member.name, id, member.value.describe()); !status) return status;
      const auto at = static_cast<size_t>(*id);
      if (types_[at] != kTypeUnused)
        return bad_tokenizer("model.vocab: id {}: expected one token, found \"{}\" and \"{}\"", at,
                             printable(tokens_[at]), printable(member.name));
      tokens_[at] = member.name;
      types_[at] = kTypeNormal;
    }
    return {};
  }

  Status add_added(const JsonTree* added) {
    if (added == nullptr) return {};
    if (added->items() == nullptr) return bad_tokenizer("added_tokens: expected an array, found {}", added->describe());
    for (const JsonTree& token : *added->items())
      if (auto status = add_one(token); !status) return status;
    return {};
  }

  // -1: none.
  int64_t find_added(std::string_view text) const {
    const auto found = added_.find(text);
    return found == added_.end() ? -1 : static_cast<int64_t>(found->second);
  }
  int64_t find(std::string_view text) const {
    if (const int64_t id = find_added(text); id >= 0) return id;
    const auto found = std::ranges::find(tokens_, text);
    return text.empty() || found == tokens_.end() ? -1 : found - tokens_.begin();
  }

  void write(CanonicalMetadata& metadata) && {
    for (size_t i = 0; i < tokens_.size(); ++i)
      if (types_[i] == kTypeUnused) tokens_[i] = fmt::format("[PAD{}]", i);  // as GGUF's converter names them
    metadata.add_strings("tokenizer.ggml.tokens", std::move(tokens_));
    metadata.add_u8s("tokenizer.ggml.token_type", types_);
  }

 private:
  Status check_id(const char* place, std::string_view token, const int64_t* id, const std::string& found) const {
    if (id != nullptr && *id >= 0 && static_cast<uint64_t>(*id) < tokens_.size()) return {};
    return bad_tokenizer("{}: \"{}\": expected an id below the {} rows of the embedding, found {}", place,
                         printable(token), tokens_.size(), found);
  }

  Status add_one(const JsonTree& token) {
    const std::string_view content = text_of(&token, "content");
    const JsonTree* id = token.find("id");
    if (content.empty())
      return bad_tokenizer("added_tokens: expected a content, found {}", shown(token.find("content")));
    if (auto s = check_id("added_tokens", content, id == nullptr ? nullptr : id->integer(), shown(id)); !s) return s;
    for (const char* flag : {"lstrip", "rstrip", "single_word"})
      if (!is_flag(&token, flag, false, false))
        return refused_tokenizer("added_tokens: \"{}\": {}: expected false, found {}", printable(content), flag,
                                 shown(token.find(flag)));
    const auto at = static_cast<size_t>(*id->integer());
    if (types_[at] != kTypeUnused && tokens_[at] != content)
      return bad_tokenizer("added_tokens: id {}: expected one token, found \"{}\" and \"{}\"", at,
                           printable(tokens_[at]), printable(content));
    if (!added_.emplace(std::string(content), at).second)
      return bad_tokenizer("added_tokens: \"{}\": found twice", printable(content));
    tokens_[at] = content;
    types_[at] = is_flag(&token, "special", true, false) ? kTypeControl : kTypeUserDefined;
    return {};
  }

  std::vector<std::string> tokens_;
  std::vector<uint8_t> types_;
  KeyedMap<size_t> added_;
};

// "left right" each, best first; later versions write pairs.
Result<std::vector<std::string>> read_merges(const JsonTree* merges) {
  if (merges == nullptr || merges->items() == nullptr)
    return bad_tokenizer("model.merges: expected an array, found {}", shown(merges));
  std::vector<std::string> out;
  out.reserve(merges->items()->size());
  for (const JsonTree& merge : *merges->items()) {
    if (merge.string() != nullptr) {
      out.push_back(*merge.string());
      continue;
    }
    const JsonTree::Items* pair = merge.items();
    const bool is_pair = pair != nullptr && pair->size() == 2 && (*pair)[0].string() != nullptr &&
                         (*pair)[1].string() != nullptr &&
                         ((*pair)[0].string()->find(' ') & (*pair)[1].string()->find(' ')) == std::string::npos;
    if (!is_pair)
      return bad_tokenizer("model.merges: element {}: expected two texts without spaces, found {}", out.size(),
                           merge.describe());
    out.push_back(*(*pair)[0].string() + " " + *(*pair)[1].string());
  }
  return out;
}

// The tokens that the post-processor puts around one text.
struct Surroundings {
  std::string_view begin, end;
};

Result<Surroundings> read_post_processor(const JsonTree& tokenizer) {
  Surroundings around;
  const auto steps = steps_of(tokenizer.find("post_processor"), "processors");
  bool has_template = false;
  for (const JsonTree* step : steps) {
    if (text_of(step, "type") == "ByteLevel") continue;  // only moves offsets
    const JsonTree* single = step->find("single");
    if (text_of(step, "type") != "TemplateProcessing" || has_template || single == nullptr ||
        single->items() == nullptr)
      return refused_tokenizer("post_processor: expected ByteLevel and one TemplateProcessing, found {}",
                               types_of(steps));
    has_template = true;
    bool has_text = false;
    for (const JsonTree& item : *single->items()) {
      const JsonTree* special = item.find("SpecialToken");
      std::string_view& place = has_text ? around.end : around.begin;
      const std::string_view name = text_of(special, "id");
      if (special == nullptr ? has_text || item.find("Sequence") == nullptr : name.empty() || !place.empty())
        return refused_tokenizer("post_processor: expected at most one token before the text and one behind it");
      if (special == nullptr) {
        has_text = true;
      } else {
        place = name;
      }
    }
  }
  return around;
}

// A name of tokenizer_config.json is a string, or an added token as an object.
std::string_view special_name(const JsonTree* config, std::string_view key) {
  const JsonTree* found = config == nullptr ? nullptr : config->find(key);
  if (found == nullptr) return {};
  return found->string() != nullptr ? std::string_view(*found->string()) : text_of(found, "content");
}

// Ids under `key`: one, or an array of them; the first file that has the key counts.
std::vector<uint64_t> ids_of(const HfTokenizerTexts& texts, std::string_view key, uint64_t vocab_size) {
  std::vector<uint64_t> ids;
  const auto add = [&](const JsonTree& id) {
    if (id.integer() != nullptr && *id.integer() >= 0 && static_cast<uint64_t>(*id.integer()) < vocab_size)
      ids.push_back(static_cast<uint64_t>(*id.integer()));
  };
  for (const JsonTree* file : {texts.generation_config, texts.config}) {
    const JsonTree* found = file == nullptr ? nullptr : file->find(key);
    if (found == nullptr) continue;
    if (found->items() == nullptr) add(*found);
    for (size_t i = 0; found->items() != nullptr && i < std::min<size_t>(found->items()->size(), 256); ++i)
      add((*found->items())[i]);
    break;
  }
  return ids;
}

Status add_special_ids(const HfTokenizerTexts& texts, const HfVocabulary& vocabulary, uint64_t vocab_size,
                       CanonicalMetadata& metadata) {
  auto around = read_post_processor(*texts.tokenizer);
  if (!around) return around.error();
  int64_t bos = vocabulary.find(special_name(texts.tokenizer_config, "bos_token"));
  int64_t eos = vocabulary.find(special_name(texts.tokenizer_config, "eos_token"));
  for (const auto& [name, id, what] :
       {std::tuple(around->begin, &bos, "bos_token"), std::tuple(around->end, &eos, "eos_token")}) {
    if (name.empty()) continue;
    const int64_t found = vocabulary.find_added(name);
    if (found < 0 || (*id >= 0 && *id != found))
      return refused_tokenizer("post_processor: expected {}, found \"{}\"", what, printable(name));
    *id = found;
  }
  const auto ends = ids_of(texts, "eos_token_id", vocab_size);
  if (eos < 0 && !ends.empty()) eos = static_cast<int64_t>(ends.front());
  if (bos < 0 && texts.tokenizer_config == nullptr)
    if (const auto ids = ids_of(texts, "bos_token_id", vocab_size); !ids.empty()) bos = static_cast<int64_t>(ids[0]);
  const int64_t pad = vocabulary.find(special_name(texts.tokenizer_config, "pad_token"));
  for (const auto& [key, id] : {std::pair{"tokenizer.ggml.bos_token_id", bos},
                                {"tokenizer.ggml.eos_token_id", eos},
                                {"tokenizer.ggml.padding_token_id", pad}})
    if (id >= 0) metadata.add_u64(key, static_cast<uint64_t>(id));
  // One more end of an answer has a key; those beyond it are ends by their names, if they are any.
  for (const uint64_t id : ends) {
    if (static_cast<int64_t>(id) == eos) continue;
    metadata.add_u64("tokenizer.ggml.eot_token_id", id);
    break;
  }
  metadata.add_bool("tokenizer.ggml.add_bos_token", !around->begin.empty());
  metadata.add_bool("tokenizer.ggml.add_eos_token", !around->end.empty());
  return {};
}

}  // namespace

Status read_hf_tokenizer(const HfTokenizerTexts& texts, uint64_t vocab_size, CanonicalMetadata& metadata) {
  const JsonTree* model = texts.tokenizer->find("model");
  if (model == nullptr || model->members() == nullptr)
    return bad_tokenizer("model: expected an object, found {}", shown(model));
  if (vocab_size > kVocabularyMax)
    return bad_tokenizer("expected at most {} tokens, found {}", kVocabularyMax, vocab_size);
  if (auto status = check_bpe(*model); !status) return status;
  for (const char* key : {"truncation", "padding"})
    if (const JsonTree* found = texts.tokenizer->find(key))
      return refused_tokenizer("{}: expected none, found {}", key, found->describe());
  auto pre = find_pre_name(*texts.tokenizer, *model);
  if (!pre) return pre.error();
  HfVocabulary vocabulary(vocab_size);
  if (auto status = vocabulary.add_vocab(model->find("vocab")); !status) return status;
  if (auto status = vocabulary.add_added(texts.tokenizer->find("added_tokens")); !status) return status;
  auto merges = read_merges(model->find("merges"));
  if (!merges) return merges.error();
  metadata.add_string("tokenizer.ggml.model", "gpt2");
  metadata.add_string("tokenizer.ggml.pre", *pre);
  metadata.add_strings("tokenizer.ggml.merges", *std::move(merges));
  if (auto status = add_special_ids(texts, vocabulary, vocab_size, metadata); !status) return status;
  std::move(vocabulary).write(metadata);
  return {};
}

}  // namespace llmrt
