#include "core/model/read_metadata.h"
#include "core/text/pre_tokenizer.h"

namespace llmrt {

namespace {

constexpr const char* kTokensKey = "tokenizer.ggml.tokens";

Error count_differs(std::string_view key, uint64_t expected, uint64_t found) {
  return make_error(ErrorCode::kCorruptFile, "bad metadata: {}: expected {} elements, one a token, found {}", key,
                    expected, found);
}

std::vector<std::string> copy(std::span<const std::string_view> views) {
  return {views.begin(), views.end()};
}

Status read_types(const Metadata& metadata, Vocabulary* vocabulary) {
  constexpr const char* kKey = "tokenizer.ggml.token_type";
  if (!metadata.has(kKey)) return {};
  auto types = metadata.integers(kKey, 0, static_cast<int64_t>(TokenType::kByte));
  if (!types) return types.error();
  if (types->size() != vocabulary->tokens.size()) return count_differs(kKey, vocabulary->tokens.size(), types->size());
  vocabulary->types.reserve(types->size());
  for (const int64_t type : *types)  // 0 is "undefined", which readers of GGUF take as normal
    vocabulary->types.push_back(type == 0 ? TokenType::kNormal : static_cast<TokenType>(type));
  return {};
}

Status read_scores(const Metadata& metadata, Vocabulary* vocabulary) {
  constexpr const char* kKey = "tokenizer.ggml.scores";
  auto scores = metadata.floats(kKey);
  if (!scores) return scores.error();
  if (scores->size() != vocabulary->tokens.size())
    return count_differs(kKey, vocabulary->tokens.size(), scores->size());
  vocabulary->scores = *std::move(scores);
  return {};
}

Status read_special_ids(const Metadata& metadata, Vocabulary* vocabulary) {
  struct SpecialKey {
    const char* key;
    TokenId* id;
  };
  const auto size = static_cast<uint64_t>(vocabulary->tokens.size());
  for (const auto& [key, id] : {SpecialKey{"tokenizer.ggml.bos_token_id", &vocabulary->bos},
                                {"tokenizer.ggml.eos_token_id", &vocabulary->eos},
                                {"tokenizer.ggml.unknown_token_id", &vocabulary->unk},
                                {"tokenizer.ggml.eot_token_id", &vocabulary->eot}}) {
    if (!metadata.has(key)) continue;
    auto value = metadata.integer(key, 0, size - 1);
    if (!value) return value.error();
    *id = static_cast<TokenId>(*value);
  }
  // Files in circulation name paddings one past the end, and marks likewise: that is none. The older names come last.
  for (const auto& [key, id] : {SpecialKey{"tokenizer.ggml.padding_token_id", &vocabulary->pad},
                                {"tokenizer.ggml.fim_pre_token_id", &vocabulary->fim.prefix},
                                {"tokenizer.ggml.fim_suf_token_id", &vocabulary->fim.suffix},
                                {"tokenizer.ggml.fim_mid_token_id", &vocabulary->fim.middle},
                                {"tokenizer.ggml.fim_rep_token_id", &vocabulary->fim.repo},
                                {"tokenizer.ggml.fim_sep_token_id", &vocabulary->fim.file},
                                {"tokenizer.ggml.prefix_token_id", &vocabulary->fim.prefix},
                                {"tokenizer.ggml.suffix_token_id", &vocabulary->fim.suffix},
                                {"tokenizer.ggml.middle_token_id", &vocabulary->fim.middle}}) {
    if (!metadata.has(key) || *id >= 0) continue;
    auto value = metadata.integer(key, 0, UINT32_MAX);
    if (!value) return value.error();
    if (*value < size) *id = static_cast<TokenId>(*value);
  }
  return {};
}

Status read_flags(const Metadata& metadata, Vocabulary* vocabulary) {
  // SentencePiece files and Llama 3 begin with bos unless they say otherwise.
  const bool usually_bos = vocabulary->model == "llama" || PreTokenizer::usually_adds_bos(vocabulary->pre);
  auto add_bos = metadata.boolean("tokenizer.ggml.add_bos_token", usually_bos && vocabulary->bos >= 0);
  if (!add_bos) return add_bos.error();
  auto add_eos = metadata.boolean("tokenizer.ggml.add_eos_token", false);
  if (!add_eos) return add_eos.error();
  auto space_prefix = metadata.boolean("tokenizer.ggml.add_space_prefix", true);
  if (!space_prefix) return space_prefix.error();
  vocabulary->add_bos = *add_bos;
  vocabulary->add_eos = *add_eos;
  vocabulary->add_space_prefix = *space_prefix;
  if (vocabulary->add_bos && vocabulary->bos < 0)
    return make_error(ErrorCode::kCorruptFile,
                      "missing metadata: tokenizer.ggml.bos_token_id: add_bos_token asks for it");
  if (vocabulary->add_eos && vocabulary->eos < 0)
    return make_error(ErrorCode::kCorruptFile,
                      "missing metadata: tokenizer.ggml.eos_token_id: add_eos_token asks for it");
  return {};
}

// Keys of our own, for what Hugging Face folders say and GGUF has no name for.
Status read_own_keys(const Metadata& metadata, Vocabulary* vocabulary) {
  constexpr const char* kMerges = "llmrt.piece_merges";
  constexpr const char* kPrefix = "llmrt.space_prefix";
  constexpr const char* kEnds = "llmrt.end_token_ids";
  if (vocabulary->model == "llama" && metadata.has(kMerges)) {
    auto merges = metadata.strings(kMerges);
    if (!merges) return merges.error();
    vocabulary->merges = copy(*merges);
  }
  auto prefix = metadata.string(kPrefix, "every_piece");
  if (!prefix) return prefix.error();
  if (*prefix == "unless_blank") {
    vocabulary->space_prefix = SpacePrefix::kUnlessBlank;
  } else if (*prefix == "first_unless_blank") {
    vocabulary->space_prefix = SpacePrefix::kFirstUnlessBlank;
  } else if (*prefix != "every_piece") {
    return make_error(ErrorCode::kUnsupported,
                      "unsupported tokenizer: {}: expected every_piece, unless_blank or first_unless_blank, found "
                      "\"{}\"",
                      kPrefix, printable(*prefix));
  }
  if (!metadata.has(kEnds)) return {};
  auto ends = metadata.integers(kEnds, 0, static_cast<int64_t>(vocabulary->tokens.size()) - 1);
  if (!ends) return ends.error();
  for (const int64_t id : *ends) vocabulary->more_ends.push_back(static_cast<TokenId>(id));
  return {};
}

Status read_strings(const Metadata& metadata, Vocabulary* vocabulary) {
  auto pre = metadata.string("tokenizer.ggml.pre", "");
  if (!pre) return pre.error();
  auto chat_template = metadata.string("tokenizer.chat_template", "");
  if (!chat_template) return chat_template.error();
  auto tokens = metadata.strings(kTokensKey);
  if (!tokens) return tokens.error();
  vocabulary->pre = *pre;
  vocabulary->chat_template = *chat_template;
  vocabulary->tokens = copy(*tokens);
  return {};
}

}  // namespace

Result<std::optional<Vocabulary>> read_vocabulary(const Metadata& metadata, uint32_t vocab_size) {
  constexpr const char* kModelKey = "tokenizer.ggml.model";
  auto model = metadata.string(kModelKey, "none");
  if (!model) return model.error();
  if (*model == "none" || *model == "no_vocab") {
    if (metadata.has(kTokensKey))
      return make_error(ErrorCode::kCorruptFile, "missing metadata: {}: {} asks for it", kModelKey, kTokensKey);
    return std::optional<Vocabulary>();
  }
  if (*model != "gpt2" && *model != "llama")
    return make_error(ErrorCode::kUnsupported, "unsupported tokenizer: {}: expected gpt2 or llama, found \"{}\"",
                      kModelKey, printable(*model));

  Vocabulary vocabulary;
  vocabulary.model = *model;
  if (auto status = read_strings(metadata, &vocabulary); !status) return status.error();
  if (vocabulary.tokens.size() != vocab_size)
    return make_error(ErrorCode::kCorruptFile,
                      "bad metadata: {}: expected {} tokens, one a row of the embedding, found {}", kTokensKey,
                      vocab_size, vocabulary.tokens.size());
  if (auto status = read_types(metadata, &vocabulary); !status) return status.error();
  if (vocabulary.model == "llama") {
    if (auto status = read_scores(metadata, &vocabulary); !status) return status.error();
  } else {
    auto merges = metadata.strings("tokenizer.ggml.merges");
    if (!merges) return merges.error();
    vocabulary.merges = copy(*merges);
  }
  if (auto status = read_own_keys(metadata, &vocabulary); !status) return status.error();
  if (auto status = read_special_ids(metadata, &vocabulary); !status) return status.error();
  if (auto status = read_flags(metadata, &vocabulary); !status) return status.error();
  return std::optional<Vocabulary>(std::move(vocabulary));
}

}  // namespace llmrt
