#include "tools/llmrt_bench/serving/vocabulary.h"

#include <fmt/format.h>

#include <unordered_set>

#include "core/model/read_metadata.h"
#include "core/text/tokenizer.h"
#include "core/weights/weight_source.h"
#include "tools/llmrt_bench/serving/schemas.h"

namespace llmrt::bench {
namespace {

std::shared_ptr<const TokenVocabulary> resized(const Tokenizer& tokenizer, size_t num_tokens) {
  std::vector<std::string> bytes(num_tokens);
  const auto num_known = std::min(num_tokens, static_cast<size_t>(tokenizer.vocab_size()));
  for (size_t v = 0; v < num_known; ++v) bytes[v] = tokenizer.token_bytes(static_cast<TokenId>(v));
  std::vector<int32_t> ends;
  for (const TokenId end : tokenizer.end_of_generation_ids()) {
    if (static_cast<size_t>(end) >= num_tokens) continue;
    bytes[static_cast<size_t>(end)].clear();
    ends.push_back(end);
  }
  return std::make_shared<TokenVocabulary>(std::move(bytes), std::move(ends));
}

Result<std::shared_ptr<const TokenVocabulary>> read_words(const std::string& path, size_t num_tokens) {
  Result<WeightSource> source = open_weight_source(path);
  if (!source) return source.error();
  Result<std::span<const std::string_view>> tokens = source->metadata.strings("tokenizer.ggml.tokens");
  if (!tokens) return tokens.error();
  Result<std::optional<Vocabulary>> vocabulary =
      read_vocabulary(source->metadata, static_cast<uint32_t>(tokens->size()));
  if (!vocabulary) return vocabulary.error();
  if (!*vocabulary)
    return make_error(ErrorCode::kInvalidArgument, "--vocabulary: {}: expected a tokenizer, found none", path);
  Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::create(**std::move(vocabulary));
  if (!tokenizer) return tokenizer.error();
  return resized(**tokenizer, num_tokens);
}

class WordMaker {
 public:
  explicit WordMaker(size_t num_words) : num_words_(num_words) {}

  std::vector<std::string> make() {
    for (const char c : std::string_view("\"{}[]:,.-_ \n0123456789abcdefghijklmnopqrstuvwxyzTZ@#+")) add({c});
    for (int byte = 0; byte < 256; ++byte) add({static_cast<char>(byte)});
    for (const char* text : {"{\"",   "\":", "\": ", "\": \"", "\":\"", "\": [", "\": {", "\",",  "\", ", "\", \"",
                             "\",\"", "\"}", "\"]",  "},",     "],",    "}, {",  "[\"",   "\"],", "\"},", ", \"",
                             ",\"",   " \"", "null", "true",   "false", "\n\n",  "{}",    "[]",   "[]"})
      add(text);
    for (size_t count = 2; count <= 32; ++count) {
      add(std::string(count, ' '));
      add("\n" + std::string(count, ' '));
    }
    for (int digits = 2; digits <= 3; ++digits)
      for (int n = 0; n < (digits == 2 ? 100 : 1000); ++n) add(fmt::format("{:0{}}", n, digits));
    for (std::string word : schema_words()) {
      add(word);
      add("_" + word);
      add(" " + word);
      word[0] = static_cast<char>(word[0] - 'a' + 'A');
      add(word);
      add(" " + word);
    }
    for (Draws draws(1); words_.size() < num_words_;) add(letters(&draws));
    return std::move(words_);
  }

 private:
  static std::string letters(Draws* draws) {
    std::string word(draws->below(2), ' ');
    const uint32_t count = 2 + draws->below(9);
    for (uint32_t i = 0; i < count; ++i) word += static_cast<char>('a' + draws->below(26));
    return word;
  }
  void add(std::string word) {
    if (words_.size() < num_words_ && known_.insert(word).second) words_.push_back(std::move(word));
  }

  size_t num_words_;
  std::vector<std::string> words_;
  std::unordered_set<std::string> known_;
};

}  // namespace

std::shared_ptr<const TokenVocabulary> made_up_vocabulary(uint32_t num_tokens) {
  std::vector<std::string> bytes = WordMaker(num_tokens - 1).make();
  bytes.emplace_back();
  return std::make_shared<TokenVocabulary>(std::move(bytes),
                                           std::vector<int32_t>{static_cast<int32_t>(num_tokens) - 1});
}

Result<std::shared_ptr<const TokenVocabulary>> grammar_vocabulary(const Model& model, const std::string& path) {
  const uint32_t num_tokens = model.config.vocab_size;
  if (!path.empty()) return read_words(path, num_tokens);
  if (!model.vocabulary) return made_up_vocabulary(num_tokens);
  Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::create(*model.vocabulary);
  if (!tokenizer) return tokenizer.error();
  return resized(**tokenizer, num_tokens);
}

}  // namespace llmrt::bench
