// The tensors of latent attention.
#include <bit>
#include <cstring>

#include "core/base/half.h"
#include "core/model/assembler.h"
#include "core/weights/gathered_rows.h"
#include "core/weights/row_codec.h"
#include "core/weights/weight_bytes.h"

namespace llmrt {

using namespace tensor_names;

namespace {

// One tensor holds, of each head, `keys` rows that make a latent its keys, then `values` rows for its values.
struct JoinedHeads {
  WeightTensor tensor;
  uint64_t heads, keys, values;

  uint64_t rows_head() const { return keys + values; }
};

// Numbers of 16 bits keep their form; what is quantised becomes f16, as its blocks lie along the other side.
Encoding transposed_encoding(Encoding encoding) {
  return is_quantized(encoding) ? Encoding::kF16 : encoding;
}

void store_number(Encoding encoding, float value, std::byte* out) {
  if (encoding == Encoding::kF32) {
    std::memcpy(out, &value, sizeof(value));
    return;
  }
  const uint16_t bits =
      encoding == Encoding::kBF16 ? static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16) : f16_bits(value);
  std::memcpy(out, &bits, sizeof(bits));
}

// The key rows of each head, transposed: [heads * columns, keys]. Made while a backend reads them, head by head.
WeightTensor transposed_keys(const std::string& name, const JoinedHeads& joined) {
  WeightTensor out;
  out.name = name;
  out.encoding = transposed_encoding(joined.tensor.encoding);
  out.rows = joined.heads * joined.tensor.columns;
  out.columns = joined.keys;
  out.generate = [joined, encoding = out.encoding, row_bytes = out.bytes_row()](uint64_t offset,
                                                                                std::span<std::byte> bytes) {
    const WeightTensor& from = joined.tensor;
    const uint64_t number_bytes = row_bytes / joined.keys;
    std::vector<std::byte> encoded(from.bytes_row());
    std::vector<float> head_rows(joined.keys * from.columns);
    uint64_t head_at = joined.heads;  // none
    for (uint64_t row = offset / row_bytes; !bytes.empty(); ++row) {
      const uint64_t head = row / from.columns, column = row % from.columns;
      if (head != head_at) {
        for (uint64_t i = 0; i < joined.keys; ++i) {
          copy_weight_bytes(from, (head * joined.rows_head() + i) * encoded.size(), encoded);
          decode_row(from.encoding, encoded.data(), std::span(head_rows).subspan(i * from.columns, from.columns));
        }
        head_at = head;
      }
      for (uint64_t i = 0; i < joined.keys; ++i)
        store_number(encoding, head_rows[i * from.columns + column], bytes.data() + i * number_bytes);
      bytes = bytes.subspan(row_bytes);
    }
  };
  return out;
}

// The key rows of each head, as they are.
WeightTensor key_rows(const std::string& name, const JoinedHeads& joined) {
  return gathered_rows(name, joined.tensor, ranges_of_each(joined.tensor.rows, joined.rows_head(), 0, joined.keys));
}

// The value rows of each head, as they are.
WeightTensor value_rows(const std::string& name, const JoinedHeads& joined) {
  return gathered_rows(name, joined.tensor,
                       ranges_of_each(joined.tensor.rows, joined.rows_head(), joined.keys, joined.values));
}

}  // namespace

WeightGroupId Assembler::add_heads(std::string name, uint32_t num_heads, WeightTensor tensor) {
  WeightGroup group;
  group.name = std::move(name);
  group.rows = tensor.rows;
  group.columns = tensor.columns;
  group.by_head = true;
  group.num_experts = num_heads;  // a stack of matrices, of which no kernel for one matrix reads anything
  group.segments.push_back({add(std::move(tensor)), 0, group.rows});
  model_->weights.groups.push_back(std::move(group));
  return static_cast<WeightGroupId>(model_->weights.groups.size() - 1);
}

Status Assembler::add_head_matrices(const std::string& prefix, const LayerSpec& spec, LatentWeights* weights) {
  const LatentSpec& latent = spec.latent;
  const std::string keys_name = prefix + kLatentKeys, values_name = prefix + kLatentValues;
  const std::string rows_name = keys_name + " (rows)";
  if (source_.has(prefix + kLatentKeysValues)) {
    const uint64_t rows = uint64_t{spec.num_heads} * (latent.nope_dim + latent.value_dim);
    auto tensor = source_.take(prefix + kLatentKeysValues, rows, latent.rank, false);
    if (!tensor) return tensor.error();
    const JoinedHeads joined{*std::move(tensor), spec.num_heads, latent.nope_dim, latent.value_dim};
    weights->key = add_heads(prefix + "latent_keys", spec.num_heads, transposed_keys(keys_name, joined));
    weights->value = add_heads(prefix + "latent_values", spec.num_heads, value_rows(values_name, joined));
    if (latent.can_expand())
      weights->key_rows = add_heads(prefix + "latent_key_rows", spec.num_heads, key_rows(rows_name, joined));
    return {};
  }
  auto keys = source_.take_stack(keys_name, spec.num_heads, latent.rank, latent.nope_dim);
  if (!keys) return keys.error();
  // A tensor whose rows are the latent's numbers, transposed, has the keys' as rows.
  if (latent.can_expand())
    weights->key_rows = add_heads(prefix + "latent_key_rows", spec.num_heads,
                                  transposed_keys(rows_name, {*keys, spec.num_heads, latent.rank, 0}));
  weights->key = add_heads(prefix + "latent_keys", spec.num_heads, *std::move(keys));
  auto values = source_.take_stack(values_name, spec.num_heads, latent.value_dim, latent.rank);
  if (!values) return values.error();
  weights->value = add_heads(prefix + "latent_values", spec.num_heads, *std::move(values));
  return {};
}

Status Assembler::add_latent_queries(const std::string& prefix, const LayerSpec& spec, LatentWeights* weights) {
  const uint64_t width = model_->config.width, rows = uint64_t{spec.num_heads} * spec.latent.key_dim();
  const uint64_t rank = spec.latent.query_rank;
  if (rank == 0) return add_group(prefix, "query", {{kQ, rows}}, width, Presence::kNever, &weights->query);
  if (auto s =
          add_group(prefix, "query_latent", {{kQueryLatent, rank}}, width, Presence::kNever, &weights->query_latent);
      !s)
    return s;
  if (auto s = add_vector(prefix + kQueryLatentNorm, rank, &weights->query_norm); !s) return s;
  return add_group(prefix, "query", {{kQueryOfLatent, rows}}, rank, Presence::kNever, &weights->query);
}

Status Assembler::add_latent(const std::string& prefix, const LayerSpec& spec, LayerWeights* weights) {
  const uint64_t width = model_->config.width;
  const LatentSpec& latent = spec.latent;
  LatentWeights* mine = &weights->latent;
  if (auto s = add_vector(prefix + kAttentionNorm, width, &weights->attention_norm); !s) return s;
  if (auto s = add_latent_queries(prefix, spec, mine); !s) return s;
  if (auto s = add_group(prefix, "latent", {{kLatent, latent.row_dim()}}, width, Presence::kNever, &mine->keys_values);
      !s)
    return s;
  if (auto s = add_vector(prefix + kLatentNorm, latent.rank, &mine->norm); !s) return s;
  if (auto s = add_head_matrices(prefix, spec, mine); !s) return s;
  return add_group(prefix, kOutput, {{kOutput, width}}, uint64_t{spec.num_heads} * latent.value_dim, Presence::kNever,
                   &weights->output);
}

}  // namespace llmrt
