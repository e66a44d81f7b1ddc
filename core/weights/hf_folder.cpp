#include "core/weights/hf_folder.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "core/platform/mapped_file.h"
#include "core/weights/hf_config.h"
#include "core/weights/hf_tensors.h"
#include "core/weights/hf_tokenizer.h"
#include "core/weights/safetensors.h"

namespace llmrt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOneFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr size_t kFilesMax = 1024;
constexpr uint64_t kTemplateBytesMax = 16u << 20;
constexpr JsonBounds kIndexBounds = {32u << 20, 2 * kSafetensorsTensorsMax, 8};

// Files in order of their names, each with the tensors that the index says it has; no index: one file, no list.
using Index = std::map<std::string, std::vector<std::string_view>, std::less<>>;

bool is_file_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name.ends_with(".safetensors") && name.front() != '.' &&
         std::ranges::all_of(name, [](char c) { return c > 0x20 && c < 0x7f && c != '/' && c != '\\'; });
}

Result<Index> read_index(const JsonTree& tree) {
  const JsonTree* map = tree.find("weight_map");
  if (map == nullptr || map->members() == nullptr || map->members()->empty())
    return make_error(ErrorCode::kCorruptFile, "{}: weight_map: expected an object of files by tensor, found {}",
                      kIndexFile, map == nullptr ? "nothing" : map->describe());
  Index index;
  for (const JsonMember& member : *map->members()) {
    const std::string* file = member.value.string();
    if (file == nullptr || !is_file_name(*file))
      return make_error(ErrorCode::kCorruptFile,
                        "{}: weight_map: {}: expected the name of a safetensors file, found {}", kIndexFile,
                        printable(member.name), member.value.describe());
    index[*file].push_back(member.name);
    if (index.size() > kFilesMax)
      return make_error(ErrorCode::kCorruptFile, "{}: weight_map: expected at most {} files, found more", kIndexFile,
                        kFilesMax);
  }
  return index;
}

Status expect_listed(const std::string& file, const std::vector<std::string_view>& listed,
                     const SafetensorsFile& found) {
  KeyedViewSet names(listed.begin(), listed.end());
  for (const SourceTensor& tensor : found.tensors)
    if (names.erase(tensor.name) == 0)
      return make_error(ErrorCode::kCorruptFile, "{}: tensor {}: expected one that {} lists there", file,
                        printable(tensor.name), kIndexFile);
  if (!names.empty())
    return make_error(ErrorCode::kCorruptFile, "{}: missing tensor: {}, which {} lists there", file,
                      printable(*names.begin()), kIndexFile);
  return {};
}

class FolderReader {
 public:
  explicit FolderReader(fs::path folder) : folder_(std::move(folder)), storage_(std::make_shared<HfStorage>()) {}

  Result<WeightSource> read();

 private:
  Result<std::shared_ptr<const MappedFile>> map(const std::string& name) const {
    return MappedFile::open((folder_ / name).string());
  }
  bool has(const char* name) const {
    std::error_code ignored;
    return fs::exists(folder_ / name, ignored);
  }
  // Absent where there is no such file.
  Status read_text(const char* name, uint64_t bytes_max, std::optional<std::string>* out) const;
  Status read_texts(HfTexts* texts) const;
  Status add_files(HfTensors& tensors);
  Status add_file(const std::string& name, const std::vector<std::string_view>* listed, HfTensors& tensors);

  fs::path folder_;
  std::shared_ptr<HfStorage> storage_;
  WeightSource source_;
};

Status FolderReader::read_text(const char* name, uint64_t bytes_max, std::optional<std::string>* out) const {
  if (!has(name)) return {};
  auto file = map(name);
  if (!file) return file.error();
  const auto bytes = (*file)->bytes();
  if (bytes.size() > bytes_max)
    return make_error(ErrorCode::kCorruptFile, "{}: expected at most {} bytes, found {}", name, bytes_max,
                      bytes.size());
  out->emplace(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return {};
}

Status FolderReader::read_texts(HfTexts* texts) const {
  const JsonBounds usual;
  std::optional<std::string> config;
  if (auto s = read_text("config.json", usual.bytes, &config); !s) return s;
  texts->config = config.value_or("");
  if (auto s = read_text("tokenizer.json", kTokenizerJsonBounds.bytes, &texts->tokenizer); !s) return s;
  if (auto s = read_text("tokenizer_config.json", usual.bytes, &texts->tokenizer_config); !s) return s;
  if (auto s = read_text("generation_config.json", usual.bytes, &texts->generation_config); !s) return s;
  if (auto s = read_text("hf_quant_config.json", usual.bytes, &texts->quantization); !s) return s;
  if (auto s = read_text("chat_template.jinja", kTemplateBytesMax, &texts->chat_template); !s) return s;
  for (const char* other : {"tokenizer.model", "vocab.json", "vocab.txt"})
    if (!texts->tokenizer && has(other))
      return make_error(ErrorCode::kUnsupported,
                        "unsupported tokenizer: expected tokenizer.json, found {}: save it with transformers' "
                        "AutoTokenizer",
                        other);
  return {};
}

Status FolderReader::add_file(const std::string& name, const std::vector<std::string_view>* listed,
                              HfTensors& tensors) {
  auto file = map(name);
  if (!file) return file.error();
  auto parsed = parse_safetensors((*file)->bytes());
  if (!parsed) return make_error(parsed.error().code, "{}: {}", name, parsed.error().message);
  storage_->files.push_back(*file);
  if (listed != nullptr)
    if (auto status = expect_listed(name, *listed, *parsed); !status) return status;
  for (const SourceTensor& tensor : parsed->tensors)
    if (auto status = tensors.add(tensor); !status) return status;
  return {};
}

Status FolderReader::add_files(HfTensors& tensors) {
  if (has(kOneFile)) return add_file(kOneFile, nullptr, tensors);
  std::optional<std::string> text;
  if (auto status = read_text(kIndexFile, kIndexBounds.bytes, &text); !status) return status;
  if (!text) return make_error(ErrorCode::kCorruptFile, "expected {} or {}, found neither", kOneFile, kIndexFile);
  auto tree = parse_json_tree(*text, kIndexFile, kIndexBounds);
  if (!tree) return tree.error();
  auto index = read_index(*tree);
  if (!index) return index.error();
  for (const auto& [file, listed] : *index)
    if (auto status = add_file(file, &listed, tensors); !status) return status;
  return {};
}

// The template: a file of its own, else tokenizer_config.json's, where it may be one of several with names.
Status add_chat_template(const HfTexts& texts, const JsonTree* tokenizer_config, CanonicalMetadata& metadata) {
  const JsonTree* found = tokenizer_config == nullptr ? nullptr : tokenizer_config->find("chat_template");
  const std::string* text = texts.chat_template ? &*texts.chat_template : found != nullptr ? found->string() : nullptr;
  if (text == nullptr && found != nullptr && found->items() != nullptr) {
    for (const JsonTree& named : *found->items()) {
      const JsonTree* name = named.find("name");
      const JsonTree* source = named.find("template");
      if (name != nullptr && source != nullptr && name->string() != nullptr && *name->string() == "default")
        text = source->string();
    }
  }
  if (text == nullptr && found != nullptr)
    return make_error(ErrorCode::kUnsupported,
                      "unsupported chat template: tokenizer_config.json: chat_template: expected a text, or a list "
                      "with one named default, found {}",
                      found->describe());
  if (text != nullptr) metadata.add_string("tokenizer.chat_template", *text);
  return {};
}

Result<HfConfig> read_all_texts(const HfTexts& texts, CanonicalMetadata& metadata) {
  auto config = parse_json_tree(texts.config, "config.json", {.may_be_infinite = true});
  if (!config) return config.error();
  std::optional<JsonTree> trees[4];
  struct Part {
    const char* name;
    const std::optional<std::string>& text;
    JsonBounds bounds;
  };
  const Part parts[] = {{"tokenizer.json", texts.tokenizer, kTokenizerJsonBounds},
                        {"tokenizer_config.json", texts.tokenizer_config, {}},
                        {"generation_config.json", texts.generation_config, {}},
                        {"hf_quant_config.json", texts.quantization, {}}};
  for (size_t i = 0; i < std::size(parts); ++i) {
    if (!parts[i].text) continue;
    auto tree = parse_json_tree(*parts[i].text, parts[i].name, parts[i].bounds);
    if (!tree) return tree.error();
    trees[i] = *std::move(tree);
  }
  const auto tree = [&](size_t i) { return trees[i] ? &*trees[i] : nullptr; };
  auto read = read_hf_config(*config, tree(3), metadata);
  if (!read) return read.error();
  if (auto status = add_chat_template(texts, tree(1), metadata); !status) return status.error();
  if (tree(0) != nullptr) {
    const HfTokenizerTexts parsed = {tree(0), tree(1), tree(2), &*config, read->family->is_gemma};
    if (auto status = read_hf_tokenizer(parsed, read->vocab_size, metadata); !status) return status.error();
  }
  return read;
}

Result<WeightSource> FolderReader::read() {
  source_.container = "Hugging Face folder";
  source_.owner = storage_;
  HfTexts texts;
  if (auto status = read_texts(&texts); !status) return status.error();
  CanonicalMetadata metadata(&source_.metadata, &storage_->texts);
  std::error_code ignored;
  metadata.add_string("general.name", fs::weakly_canonical(folder_, ignored).filename().string());
  auto config = read_all_texts(texts, metadata);
  if (!config) return config.error();
  HfTensors tensors(*config, storage_.get());
  if (auto status = add_files(tensors); !status) return status.error();
  if (auto status = tensors.build(&source_); !status) return status.error();
  if (const uint64_t drafts = tensors.num_draft_layers(); drafts > 0) metadata.add_u64("llmrt.draft_layers", drafts);
  if (!config->is_tied && source_.find("output.weight") == nullptr)
    return make_error(ErrorCode::kCorruptFile,
                      "missing tensor: lm_head.weight: config.json's tie_word_embeddings asks for it");
  return std::move(source_);
}

}  // namespace

bool is_hf_folder(const std::string& path) {
  std::error_code ignored;
  const fs::path folder(path);
  return fs::is_directory(folder, ignored) && fs::exists(folder / "config.json", ignored) &&
         (fs::exists(folder / kOneFile, ignored) || fs::exists(folder / kIndexFile, ignored));
}

Result<WeightSource> open_hf_folder(const std::string& path) {
  auto source = FolderReader(path).read();
  if (!source) return make_error(source.error().code, "{}: {}", path, source.error().message);
  return source;
}

Result<WeightSource> read_hf_texts(const HfTexts& texts, std::span<const std::byte> weights) {
  auto storage = std::make_shared<HfStorage>();
  WeightSource source;
  source.container = "Hugging Face texts";
  source.owner = storage;
  CanonicalMetadata metadata(&source.metadata, &storage->texts);
  auto config = read_all_texts(texts, metadata);
  if (!config) return config.error();
  if (weights.empty()) return source;
  auto parsed = parse_safetensors(weights);
  if (!parsed) return parsed.error();
  HfTensors tensors(*config, storage.get());
  for (const SourceTensor& tensor : parsed->tensors)
    if (auto status = tensors.add(tensor); !status) return status.error();
  if (auto status = tensors.build(&source); !status) return status.error();
  if (const uint64_t drafts = tensors.num_draft_layers(); drafts > 0) metadata.add_u64("llmrt.draft_layers", drafts);
  return source;
}

}  // namespace llmrt
