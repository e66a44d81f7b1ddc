#include "core/engine/hidden_rows.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "core/base/half.h"
#include "core/model/decoder.h"

namespace llmrt {
namespace {

constexpr uint32_t kRowsMax = 64;  // one that is read at each step has a few

}  // namespace

void HiddenRows::put(uint32_t position, std::span<const float> row) {
  if (num_rows_ == kRowsMax) drop_before(end() - kRowsMax / 2);
  if (position < begin_ || position > end()) num_rows_ = 0;
  if (num_rows_ == 0) begin_ = position;
  num_rows_ = position - begin_;
  values_.resize(num_rows_ * row.size());
  values_.insert(values_.end(), row.begin(), row.end());
  ++num_rows_;
}

void HiddenRows::drop_before(uint32_t position) {
  if (num_rows_ == 0) return;
  const uint32_t count = std::clamp(position, begin_, end()) - begin_;
  values_.erase(values_.begin(), values_.begin() + static_cast<ptrdiff_t>(count * (values_.size() / num_rows_)));
  begin_ += count;
  num_rows_ -= count;
}

std::span<const float> HiddenRows::at(uint32_t position) const {
  LLMRT_CHECK(position >= begin_ && position < end(), "a hidden state that is there");
  const size_t width = values_.size() / num_rows_;
  return std::span(values_).subspan((position - begin_) * width, width);
}

Status read_final_hidden(const SealedList& sample, Backend* backend, std::vector<float>* rows) {
  const OpList& list = sample.list;
  const TensorId id = final_hidden(list);
  const DType dtype = list.tensors[static_cast<size_t>(id)].dtype;
  std::vector<std::byte> bytes(list.bytes_of(id));
  if (Status status = backend->read_tensor(sample, id, bytes); !status) return status;
  rows->resize(bytes.size() / dtype_bytes(dtype));
  if (dtype == DType::kF32) {
    std::memcpy(rows->data(), bytes.data(), bytes.size());
    return {};
  }
  for (size_t i = 0; i < rows->size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, bytes.data() + i * sizeof(bits), sizeof(bits));
    (*rows)[i] = dtype == DType::kF16 ? f16_value(bits) : bf16_value(bits);
  }
  return {};
}

}  // namespace llmrt
