// Whole logits of scored positions in a file beside a record: [position, vocab_size] in f16 or f32, little-endian, with
// no header: the record has their shape and digest. Each position's are less its greatest, so that f16 keeps what is
// likely exactly enough: numbers near 0.
#pragma once

#include <boost/json.hpp>

#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "core/base/sha256.h"
#include "core/base/status.h"
#include "core/ops/tensor.h"

namespace llmrt::bench {

struct LogitsFile {
  std::string path;
  DType dtype = DType::kF16;  // or kF32
  uint64_t num_positions = 0;
  uint32_t vocab_size = 0;
  std::string digest;

  uint64_t position_bytes() const { return uint64_t{vocab_size} * dtype_bytes(dtype); }
  // What a record beside the file says of it.
  boost::json::object to_json() const;
};
// `record_path`: of the record that says so. Throws what Boost.JSON throws where the form is wrong. Errors:
// corrupt_file.
Result<LogitsFile> logits_file_of(const boost::json::object& json, const std::string& record_path);

class LogitsWriter {
 public:
  LogitsWriter(std::string path, DType dtype, uint32_t vocab_size);

  // Adds the logits of one position.
  void add(std::span<const float> logits);
  // Errors: io.
  Result<LogitsFile> finish();

 private:
  LogitsFile said_;
  Sha256 digest_;
  std::ofstream file_;
  std::vector<uint16_t> halves_;
  std::vector<float> floats_;
};

class LogitsReader {
 public:
  // Reads the whole file once for its digest. Errors: not_found; corrupt_file: another size or digest than was said.
  static Result<LogitsReader> open(const LogitsFile& said);

  // The logits of the next position.
  Result<std::span<const float>> next();

 private:
  explicit LogitsReader(const LogitsFile& said) : said_(said), file_(said.path, std::ios::binary) {}

  LogitsFile said_;
  std::ifstream file_;
  std::vector<std::byte> bytes_;
  std::vector<float> logits_;
};

}  // namespace llmrt::bench
