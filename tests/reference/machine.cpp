#include "tests/reference/machine.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "tests/reference/dequant.h"

namespace llmrt::reference {

uint32_t Machine::live_rows(const OpList& of, TensorId id) const {
  return of.rows_of(id, static_cast<uint32_t>(forward.tokens.size()), static_cast<uint32_t>(sample.records.size()));
}

const std::vector<float>& Machine::values_of(WeightId id) {
  std::vector<float>& values = weight_values[static_cast<size_t>(id)];
  const WeightTensor& tensor = weights.tensors[static_cast<size_t>(id)];
  if (values.empty()) {
    values.resize(tensor.rows * tensor.columns);
    parallel_for(num_threads, tensor.rows, [&](uint64_t begin, uint64_t end) {
      for (uint64_t r = begin; r < end; ++r)
        dequantize_row(tensor.encoding, tensor.data + r * tensor.bytes_row(), tensor.columns,
                       values.data() + r * tensor.columns);
    });
  }
  return values;
}

void parallel_for(uint32_t num_threads, uint64_t count, const std::function<void(uint64_t, uint64_t)>& fn) {
  const uint64_t parts = std::min<uint64_t>(num_threads, count);
  std::vector<std::thread> threads;
  for (uint64_t part = 1; part < parts; ++part)
    threads.emplace_back([&, part] { fn(count * part / parts, count * (part + 1) / parts); });
  if (parts > 0) fn(0, count / parts);
  for (std::thread& thread : threads) thread.join();
}

void KvPool::load(uint32_t layer, uint32_t block, uint32_t which, uint32_t head, uint32_t token, float scale,
                  double* out) const {
  const uint64_t first = group.element_index(block, which, head, token);
  const std::byte* bytes = data[layer].data() + first * kv_element_bytes(group.dtype);
  for (uint32_t i = 0; i < group.head_dim; ++i) {
    if (kv_element_bytes(group.dtype) == 1) {
      if (group.scales_vector() > 0)
        scale = scales[layer][scale_index(block, which, head, token) + i * group.scales_vector() / group.head_dim];
      const double stored =
          kv_is_i8(group.dtype) ? static_cast<int8_t>(bytes[i]) : f8_value(std::to_integer<uint8_t>(bytes[i]));
      out[i] = stored * static_cast<double>(scale);
    } else {
      uint16_t bits;
      std::memcpy(&bits, bytes + i * 2, 2);
      out[i] = group.dtype == KvDType::kF16 ? f16_value(bits) : bf16_value(bits);
    }
  }
}

void KvPool::store(uint32_t layer, uint32_t block, uint32_t which, uint32_t head, uint32_t token, float scale,
                   const double* x) {
  const uint64_t first = group.element_index(block, which, head, token);
  std::byte* bytes = data[layer].data() + first * kv_element_bytes(group.dtype);
  if (kv_element_bytes(group.dtype) == 2) {
    for (uint32_t i = 0; i < group.head_dim; ++i) {
      const uint16_t bits = group.dtype == KvDType::kF16 ? f16_bits(x[i]) : bf16_bits(x[i]);
      std::memcpy(bytes + i * 2, &bits, 2);
    }
    return;
  }
  const uint32_t num_scales = group.scales_vector(), each = group.head_dim / std::max(num_scales, 1u);
  for (uint32_t part = 0; part < group.head_dim / each; ++part) {
    const double* values = x + part * each;
    if (num_scales > 0) {
      double amax = 0;
      for (uint32_t i = 0; i < each; ++i) amax = std::max(amax, std::abs(values[i]));
      scale = static_cast<float>(amax / (kv_is_i8(group.dtype) ? 127 : 448));
      scales[layer][scale_index(block, which, head, token) + part] = scale;
    }
    for (uint32_t i = 0; i < each; ++i) {
      const double q = scale == 0 ? 0 : values[i] / static_cast<double>(scale);
      const uint8_t bits = kv_is_i8(group.dtype)
                               ? static_cast<uint8_t>(static_cast<int8_t>(std::clamp(std::nearbyint(q), -127.0, 127.0)))
                               : f8_bits(q);
      bytes[part * each + i] = static_cast<std::byte>(bits);
    }
  }
}

std::vector<double> KvPool::load_state(uint32_t layer, uint32_t record) const {
  std::vector<float> numbers(group.state_columns);
  const uint64_t num_bytes = group.data_bytes_block_layer();
  std::memcpy(numbers.data(), data[layer].data() + record * num_bytes, num_bytes);
  return {numbers.begin(), numbers.end()};
}

void KvPool::store_state(uint32_t layer, uint32_t record, const std::vector<double>& state) {
  const std::vector<float> numbers(state.begin(), state.end());
  const uint64_t num_bytes = group.data_bytes_block_layer();
  std::memcpy(data[layer].data() + record * num_bytes, numbers.data(), num_bytes);
}

}  // namespace llmrt::reference
