#include "core/weights/gguf_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "core/base/checked_math.h"
#include "core/weights/gguf.h"
#include "core/weights/metadata.h"

namespace llmrt {

namespace {

template <typename T>
void append(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void append_string(std::string* out, std::string_view text) {
  append(out, uint64_t{text.size()});
  out->append(text);
}

void append_key(std::string* out, std::string_view key, ValueType type) {
  append_string(out, key);
  append(out, static_cast<uint32_t>(type));
}

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

Error write_failed(const std::string& path) {
  return make_error(ErrorCode::kIo, "cannot write file: {}: {}", path, std::strerror(errno));
}

bool put(std::FILE* file, std::span<const std::byte> bytes) {
  return bytes.empty() || std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
}

// In pieces of whole rows, so that generated tensors need no more memory than one piece.
bool put_tensor(std::FILE* file, const WeightTensor& tensor, const std::function<void(uint64_t)>& wrote) {
  constexpr uint64_t kPieceBytes = 4u << 20;
  const uint64_t rows_piece = std::max<uint64_t>(kPieceBytes / tensor.bytes_row(), 1);
  std::vector<std::byte> piece;
  for (uint64_t row = 0; row < tensor.rows; row += rows_piece) {
    const uint64_t offset = row * tensor.bytes_row();
    const uint64_t size = std::min(rows_piece, tensor.rows - row) * tensor.bytes_row();
    std::span<const std::byte> bytes(tensor.data + (tensor.data != nullptr ? offset : 0), size);
    if (tensor.data == nullptr) {
      piece.resize(size);
      tensor.generate(offset, piece);
      bytes = piece;
    }
    if (!put(file, bytes)) return false;
    wrote(size);
  }
  return true;
}

}  // namespace

void GgufWriter::add_u32(std::string_view key, uint32_t value) {
  append_key(&pairs_, key, ValueType::kU32);
  append(&pairs_, value);
  ++num_pairs_;
}

void GgufWriter::add_f32(std::string_view key, float value) {
  append_key(&pairs_, key, ValueType::kF32);
  append(&pairs_, value);
  ++num_pairs_;
}

void GgufWriter::add_bool(std::string_view key, bool value) {
  append_key(&pairs_, key, ValueType::kBool);
  append(&pairs_, uint8_t{value});
  ++num_pairs_;
}

void GgufWriter::add_string(std::string_view key, std::string_view value) {
  append_key(&pairs_, key, ValueType::kString);
  append_string(&pairs_, value);
  ++num_pairs_;
}

void GgufWriter::add_strings(std::string_view key, const std::vector<std::string>& values) {
  append_key(&pairs_, key, ValueType::kArray);
  append(&pairs_, static_cast<uint32_t>(ValueType::kString));
  append(&pairs_, uint64_t{values.size()});
  for (const auto& value : values) append_string(&pairs_, value);
  ++num_pairs_;
}

void GgufWriter::add_i32s(std::string_view key, const std::vector<int32_t>& values) {
  append_key(&pairs_, key, ValueType::kArray);
  append(&pairs_, static_cast<uint32_t>(ValueType::kI32));
  append(&pairs_, uint64_t{values.size()});
  for (const int32_t value : values) append(&pairs_, value);
  ++num_pairs_;
}

// Everything before the data, padded; `offsets` of the tensors and, last, the size of the data.
std::string GgufWriter::header(std::vector<uint64_t>* offsets) const {
  std::string out = "GGUF";
  append(&out, kGgufVersionMax);
  append(&out, uint64_t{tensors_.size()});
  append(&out, num_pairs_);
  out += pairs_;
  uint64_t offset = 0;
  for (const auto& [tensor, count] : tensors_) {
    append_string(&out, tensor->name);
    append(&out, uint32_t{count > 1 ? 3u : tensor->rows == 1 ? 1u : 2u});
    append(&out, tensor->columns);
    if (tensor->rows != 1) append(&out, tensor->rows / count);
    if (count > 1) append(&out, count);
    append(&out, *gguf_tensor_type(tensor->encoding));
    append(&out, offset);
    offsets->push_back(offset);
    offset = round_up(offset + tensor->bytes(), kGgufAlignment);
  }
  offsets->push_back(offset);
  out.resize(round_up<uint64_t>(out.size(), kGgufAlignment));
  return out;
}

Status GgufWriter::write(const std::string& path, const WriteProgress& progress) const {
  for (const auto& [tensor, count] : tensors_)
    if (!gguf_tensor_type(tensor->encoding))
      return make_error(ErrorCode::kUnsupported, "write GGUF: tensor {}: expected an encoding that GGUF has, found {}",
                        tensor->name, encoding_name(tensor->encoding));
  std::vector<uint64_t> offsets;
  const std::string head = header(&offsets);
  const uint64_t total = head.size() + offsets.back();
  File file(std::fopen(path.c_str(), "wb"));
  if (file == nullptr) return write_failed(path);

  uint64_t done = 0;
  const auto wrote = [&](uint64_t bytes) {
    done += bytes;
    if (progress) progress(done, total);
  };
  bool ok = put(file.get(), std::as_bytes(std::span(head)));
  wrote(head.size());
  const std::vector<std::byte> padding(kGgufAlignment);
  for (size_t i = 0; ok && i < tensors_.size(); ++i) {
    ok = put_tensor(file.get(), *tensors_[i].tensor, wrote);
    const uint64_t gap = offsets[i + 1] - offsets[i] - tensors_[i].tensor->bytes();
    ok = ok && put(file.get(), std::span(padding).first(gap));
    wrote(gap);
  }
  ok = ok && std::fflush(file.get()) == 0;
  if (ok) return {};
  const Error error = write_failed(path);
  std::remove(path.c_str());
  return error;
}

}  // namespace llmrt
