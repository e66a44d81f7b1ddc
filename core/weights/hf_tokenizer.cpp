#include "core/weights/hf_tokenizer.h"

#include <algorithm>

#include "core/weights/hf_json.h"
#include "core/weights/hf_steps.h"
#include "core/weights/hf_vocabulary.h"

namespace llmrt {
namespace {

constexpr uint64_t kVocabularyMax = 1u << 22;
constexpr size_t kEndsMax = 256;  // ids of one file

// What BPE models may have that this one does not do.
Status check_bpe(const JsonTree& model) {
  const std::string_view type = text_of(&model, "type");
  if (type != "BPE" && !(model.find("type") == nullptr && model.find("merges") != nullptr))
    return refused_tokenizer("model.type: expected BPE, found {}{}", shown(model.find("type")),
                             type == "Unigram" ? ", which takes the pieces of the best sum of scores" : "");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const JsonTree* affix = model.find(key); affix != nullptr && text_of(&model, key) != std::string_view())
      return refused_tokenizer("model.{}: expected none, found {}", key, affix->describe());
  double dropout = 0;
  if (const JsonTree* found = model.find("dropout"); found != nullptr && (!found->number(&dropout) || dropout != 0))
    return refused_tokenizer("model.dropout: expected none, found {}", found->describe());
  return {};
}

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
  const JsonTree* nested = texts.config == nullptr ? nullptr : texts.config->find("text_config");
  for (const JsonTree* file : {texts.generation_config, texts.config, nested}) {
    const JsonTree* found = file == nullptr ? nullptr : file->find(key);
    if (found == nullptr) continue;
    if (found->items() == nullptr) add(*found);
    for (size_t i = 0; found->items() != nullptr && i < std::min(found->items()->size(), kEndsMax); ++i)
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
  // One more end of an answer has a key in GGUF, those beyond it have one of our own.
  std::vector<uint32_t> more_ends;
  for (const uint64_t id : ends)
    if (static_cast<int64_t>(id) != eos) more_ends.push_back(static_cast<uint32_t>(id));
  if (!more_ends.empty()) metadata.add_u64("tokenizer.ggml.eot_token_id", more_ends.front());
  if (more_ends.size() > 1) metadata.add_u32s("llmrt.end_token_ids", more_ends);
  metadata.add_bool("tokenizer.ggml.add_bos_token", !around->begin.empty());
  metadata.add_bool("tokenizer.ggml.add_eos_token", !around->end.empty());
  return {};
}

// SentencePiece's: GGUF's scores, and the merges themselves, which say more.
Status add_pieces(const JsonTree& tokenizer, const JsonTree& model, std::vector<std::string> merges,
                  HfVocabulary* vocabulary, CanonicalMetadata& metadata) {
  auto steps = read_piece_steps(tokenizer, model);
  if (!steps) return steps.error();
  if (steps->is_normalized)
    if (auto status = check_normalized_added(tokenizer.find("added_tokens"), steps->adds_space); !status) return status;
  const std::string_view unknown = text_of(&model, "unk_token");
  if (auto status = vocabulary->set_piece_types(unknown); !status) return status;
  metadata.add_string("tokenizer.ggml.model", "llama");
  metadata.add_bool("tokenizer.ggml.add_space_prefix", steps->adds_space);
  if (steps->space_prefix != "every_piece") metadata.add_string("llmrt.space_prefix", steps->space_prefix);
  if (const int64_t id = vocabulary->find_added(unknown); id >= 0)
    metadata.add_u64("tokenizer.ggml.unknown_token_id", static_cast<uint64_t>(id));
  vocabulary->add_scores(merges, metadata);
  metadata.add_strings("llmrt.piece_merges", std::move(merges));
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
  HfVocabulary vocabulary(vocab_size);
  const JsonTree* added = texts.tokenizer->find("added_tokens");
  if (auto status = vocabulary.add_vocab(model->find("vocab")); !status) return status;
  if (auto status = vocabulary.add_added(added, texts.leaves_out_added_beyond_rows); !status) return status;
  auto merges = read_merges(model->find("merges"));
  if (!merges) return merges.error();
  if (has_byte_fallback(*model)) {
    if (auto status = add_pieces(*texts.tokenizer, *model, *std::move(merges), &vocabulary, metadata); !status)
      return status;
  } else {
    auto pre = find_pre_name(*texts.tokenizer, *model);
    if (!pre) return pre.error();
    metadata.add_string("tokenizer.ggml.model", "gpt2");
    metadata.add_string("tokenizer.ggml.pre", *pre);
    metadata.add_strings("tokenizer.ggml.merges", *std::move(merges));
  }
  if (auto status = add_special_ids(texts, vocabulary, vocab_size, metadata); !status) return status;
  std::move(vocabulary).write(metadata);
  return {};
}

}  // namespace llmrt
