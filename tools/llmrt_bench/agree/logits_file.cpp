#include "tools/llmrt_bench/agree/logits_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "core/base/check.h"
#include "core/base/half.h"

namespace llmrt::bench {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

constexpr uint32_t kVocabMax = 1u << 24;

}  // namespace

json::object LogitsFile::to_json() const {
  return {{"file", fs::path(path).filename().string()},
          {"dtype", dtype_name(dtype)},
          {"positions", num_positions},
          {"vocab_size", vocab_size},
          {"digest", digest}};
}

Result<LogitsFile> logits_file_of(const json::object& json, const std::string& record_path) {
  LogitsFile said;
  const auto name = json::value_to<std::string>(json.at("file"));
  if (name.empty() || fs::path(name).filename() != name)
    return make_error(ErrorCode::kCorruptFile, "logits.file: expected a name without folders, found {}",
                      json::serialize(json.at("file")));
  said.path = (fs::path(record_path).parent_path() / name).string();
  const auto dtype = json::value_to<std::string>(json.at("dtype"));
  if (dtype != "f16" && dtype != "f32")
    return make_error(ErrorCode::kCorruptFile, "logits.dtype: expected f16 or f32, found {}", dtype);
  said.dtype = dtype == "f16" ? DType::kF16 : DType::kF32;
  said.num_positions = json.at("positions").to_number<uint64_t>();
  said.vocab_size = json.at("vocab_size").to_number<uint32_t>();
  if (said.vocab_size == 0 || said.vocab_size > kVocabMax)
    return make_error(ErrorCode::kCorruptFile, "logits.vocab_size: expected 1 to {}, found {}", kVocabMax,
                      said.vocab_size);
  said.digest = json::value_to<std::string>(json.at("digest"));
  return said;
}

LogitsWriter::LogitsWriter(std::string path, DType dtype, uint32_t vocab_size)
    : said_{std::move(path), dtype, 0, vocab_size, {}}, file_(said_.path, std::ios::binary) {}

void LogitsWriter::add(std::span<const float> logits) {
  LLMRT_CHECK(logits.size() == said_.vocab_size, "a logit for each token");
  const float greatest = *std::ranges::max_element(logits);
  floats_.assign(logits.begin(), logits.end());
  for (float& logit : floats_) logit -= greatest;
  std::span<const std::byte> bytes = std::as_bytes(std::span(floats_));
  if (said_.dtype == DType::kF16) {
    halves_.resize(floats_.size());
    std::ranges::transform(floats_, halves_.begin(), f16_bits);
    bytes = std::as_bytes(std::span(halves_));
  }
  digest_.add_bytes(bytes);
  file_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  ++said_.num_positions;
}

Result<LogitsFile> LogitsWriter::finish() {
  file_.close();
  if (!file_) return make_error(ErrorCode::kIo, "--logits: expected a file that can be written, found {}", said_.path);
  said_.digest = to_hex(digest_.finish());
  return said_;
}

Result<LogitsReader> LogitsReader::open(const LogitsFile& said) {
  std::error_code failure;
  const uint64_t found_bytes = fs::file_size(said.path, failure);
  if (failure) return make_error(ErrorCode::kNotFound, "logits: {}: {}", said.path, failure.message());
  if (found_bytes % said.position_bytes() != 0 || found_bytes / said.position_bytes() != said.num_positions)
    return make_error(ErrorCode::kCorruptFile, "logits: {}: expected {} positions of {} bytes, found {} bytes",
                      said.path, said.num_positions, said.position_bytes(), found_bytes);
  LogitsReader reader(said);
  reader.bytes_.resize(said.position_bytes());
  reader.logits_.resize(said.vocab_size);
  Sha256 digest;
  while (reader.file_.read(reinterpret_cast<char*>(reader.bytes_.data()),
                           static_cast<std::streamsize>(reader.bytes_.size())))
    digest.add_bytes(reader.bytes_);
  if (const std::string found = to_hex(digest.finish()); found != said.digest)
    return make_error(ErrorCode::kCorruptFile, "logits: {}: expected the digest {}, found {}", said.path, said.digest,
                      found);
  reader.file_.clear();
  reader.file_.seekg(0);
  return reader;
}

Result<std::span<const float>> LogitsReader::next() {
  if (!file_.read(reinterpret_cast<char*>(bytes_.data()), static_cast<std::streamsize>(bytes_.size())))
    return make_error(ErrorCode::kIo, "logits: {}: expected {} more bytes, found fewer", said_.path, bytes_.size());
  if (said_.dtype == DType::kF32) {
    std::memcpy(logits_.data(), bytes_.data(), bytes_.size());
  } else {
    for (size_t i = 0; i < logits_.size(); ++i) {
      uint16_t bits = 0;
      std::memcpy(&bits, bytes_.data() + 2 * i, sizeof bits);
      logits_[i] = f16_value(bits);
    }
  }
  if (!std::ranges::all_of(logits_, [](float logit) { return logit <= 0 && std::isfinite(logit); }))
    return make_error(ErrorCode::kCorruptFile, "logits: {}: expected finite numbers of at most 0, found others",
                      said_.path);
  return std::span<const float>(logits_);
}

}  // namespace llmrt::bench
