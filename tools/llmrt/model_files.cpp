#include "tools/llmrt/model_files.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>

#include "core/base/utf8.h"
#include "core/model/architectures.h"
#include "core/model/model.h"
#include "core/weights/weight_source.h"

namespace llmrt::cli {
namespace {

namespace fs = std::filesystem;
constexpr size_t kEntriesMax = 10'000;

// The entries of a folder by name; none where it cannot be read.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end && entries.size() < kEntriesMax;
       it.increment(error))
    entries.push_back(it->path());
  std::ranges::sort(entries);
  return entries;
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// "-00002-of-00003.gguf": only the first part is a model.
bool is_later_part(const std::string& name) {
  const size_t at = name.rfind("-of-");
  return at != std::string::npos && at >= 6 && name[at - 6] == '-' && name.compare(at - 5, 5, "00001") != 0 &&
         std::all_of(name.begin() + static_cast<ptrdiff_t>(at) - 5, name.begin() + static_cast<ptrdiff_t>(at),
                     [](char c) { return c >= '0' && c <= '9'; });
}

bool is_gguf(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.size() > 5 && name.ends_with(".gguf") && name[0] != '.' && !is_later_part(name) && !is_folder(path);
}

bool is_hf_folder(const fs::path& path) {
  std::error_code ignored;
  if (!is_folder(path) || !fs::exists(path / "config.json", ignored)) return false;
  return std::ranges::any_of(entries_of(path), [](const fs::path& each) { return each.extension() == ".safetensors"; });
}

std::optional<fs::path> newest_snapshot(const fs::path& folder) {
  std::optional<fs::path> newest;
  fs::file_time_type when;
  for (const fs::path& snapshot : entries_of(folder / "snapshots")) {
    std::error_code error;
    const fs::file_time_type its = fs::last_write_time(snapshot, error);
    if (error || !is_folder(snapshot) || (newest && its <= when)) continue;
    newest = snapshot;
    when = its;
  }
  return newest;
}

// "models--org--name" to "org/name".
std::string repository_name(const std::string& folder) {
  std::string name = folder.substr(std::string_view("models--").size());
  for (size_t at = 0; (at = name.find("--", at)) != std::string::npos; ++at) name.replace(at, 2, "/");
  return name;
}

void add_models(const fs::path& folder, const std::string& prefix, std::map<std::string, std::string>* found) {
  for (const fs::path& file : entries_of(folder))
    if (is_gguf(file)) found->emplace(replace_invalid_utf8(prefix + file.stem().string()), file.string());
}

}  // namespace

std::string model_name(const std::string& path) {
  std::error_code ignored;
  const fs::path given(path);
  if (!fs::is_directory(given, ignored)) return given.stem().string();
  return fs::weakly_canonical(given, ignored).filename().string();
}

std::string cache_folder() {
  const auto setting = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (const std::string hub = setting("HF_HUB_CACHE"); !hub.empty()) return hub;
  if (const std::string home = setting("HF_HOME"); !home.empty()) return home + "/hub";
  const std::string cache = setting("XDG_CACHE_HOME"), home = setting("HOME");
  return (cache.empty() ? home + "/.cache" : cache) + "/huggingface/hub";
}

Result<std::vector<ModelFile>> find_models(const std::string& folder) {
  std::error_code error;
  if (!fs::exists(folder, error))
    return make_error(ErrorCode::kNotFound, "{}: expected a folder, found nothing", folder);
  if (!is_folder(folder)) return make_error(ErrorCode::kIo, "{}: expected a folder, found a file", folder);
  if (fs::directory_iterator(folder, error); error)
    return make_error(ErrorCode::kIo, "{}: expected a folder that can be read, found: {}", folder, error.message());
  std::map<std::string, std::string> found;  // name to path
  add_models(folder, "", &found);
  for (const fs::path& entry : entries_of(folder)) {
    const std::string name = entry.filename().string();
    if (!is_folder(entry) || name[0] == '.') continue;
    if (name.starts_with("models--")) {
      const std::optional<fs::path> snapshot = newest_snapshot(entry);
      if (snapshot && is_hf_folder(*snapshot))
        found.emplace(replace_invalid_utf8(repository_name(name)), snapshot->string());
      if (snapshot) add_models(*snapshot, repository_name(name) + "/", &found);
    } else if (is_hf_folder(entry)) {
      found.emplace(replace_invalid_utf8(name), entry.string());
    } else {
      add_models(entry, "", &found);
    }
  }
  std::vector<ModelFile> models;
  for (auto& [name, path] : found) models.push_back({name, path});
  return models;
}

uint64_t weight_bytes(const std::string& path) {
  std::error_code error;
  if (path.starts_with("synthetic:")) {
    const auto model = load_model(path);
    return model ? (*model)->weights.bytes() : 0;
  }
  if (!is_folder(path)) {
    const uint64_t bytes = fs::file_size(path, error);
    return error ? 0 : bytes;
  }
  uint64_t bytes = 0;
  for (const fs::path& file : entries_of(path)) {
    if (file.extension() != ".safetensors") continue;
    const uint64_t its = fs::file_size(file, error);
    bytes += error ? 0 : its;
  }
  return bytes;
}

ModelSummary summarize_model(const std::string& path) {
  ModelSummary summary;
  const Result<WeightSource> source = open_weight_source(path);
  if (!source) {
    summary.problem = source.error().message;
    summary.bytes = weight_bytes(path);
    return summary;
  }
  std::map<std::string, uint64_t> by_encoding;
  for (const SourceTensor& tensor : source->tensors) {
    by_encoding[tensor.encoding_name] += tensor.num_bytes();
    summary.bytes += tensor.num_bytes();
  }
  const auto most = std::ranges::max_element(by_encoding, {}, [](const auto& entry) { return entry.second; });
  if (most != by_encoding.end()) summary.encoding = most->first;
  const auto architecture = source->metadata.string("general.architecture", "");
  if (!architecture || architecture->empty()) {
    summary.problem = "expected general.architecture, found none";
    return summary;
  }
  summary.architecture = printable(*architecture);
  const auto context = source->metadata.integer(fmt::format("{}.context_length", *architecture), 0, ~uint64_t{0}, 0);
  summary.context = context ? *context : 0;
  if (!find_architecture(*architecture))
    summary.problem = fmt::format("architecture {}: not known to llmrt", summary.architecture);
  return summary;
}

}  // namespace llmrt::cli
