#include "core/adapter/adapter_builder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/weights/hf_rows.h"

namespace llmrt {
namespace {

constexpr std::string_view kDigestVersion = "llmrt adapter 1";
constexpr size_t kNumbersTogether = 1u << 14;

Status check_numbers(const SourceTensor& tensor) {
  if (!tensor.encoding || is_quantized(*tensor.encoding))
    return refused_adapter("tensor {}: expected f32, f16 or bf16, found {}", printable(tensor.name), describe(tensor));
  return {};
}

Status check_matrix(const SourceTensor& tensor, uint64_t columns, uint64_t rows) {
  if (auto s = check_numbers(tensor); !s) return s;
  if (tensor.dims != std::array<uint64_t, 4>{columns, rows, 1, 1})
    return adapter_mismatch("tensor {}: expected [{}, {}], found {}", printable(tensor.name), columns, rows,
                            describe(tensor));
  return {};
}

// A matrix of each expert, or one for all.
Status check_stack(const SourceTensor& tensor, uint64_t columns, uint64_t rows, uint64_t num_experts) {
  if (auto s = check_numbers(tensor); !s) return s;
  using Dims = std::array<uint64_t, 4>;
  if (tensor.dims != Dims{columns, rows, num_experts, 1} && tensor.dims != Dims{columns, rows, 1, 1})
    return adapter_mismatch("tensor {}: expected [{}, {}, {}] or [{}, {}], found {}", printable(tensor.name), columns,
                            rows, num_experts, columns, rows, describe(tensor));
  return {};
}

Status check_plain(const AdapterPair& pair, const ModuleSites& found, uint64_t rank) {
  if (auto s = check_matrix(*pair.a, found.columns, rank); !s) return s;
  return check_matrix(*pair.b, rank, found.rows);
}

Status check_experts(const AdapterPair& pair, const ModuleSites& found, uint64_t rank) {
  const uint64_t experts = found.num_experts;
  switch (pair.layout) {
    case ExpertLayout::kOne:
      if (pair.expert >= experts)
        return adapter_mismatch("tensor {}: expected one of {} experts, found number {}", printable(pair.a->name),
                                experts, pair.expert);
      return check_plain(pair, found, rank);
    case ExpertLayout::kFlattened:
      if (auto s = check_matrix(*pair.a, found.columns, rank * experts); !s) return s;
      return check_matrix(*pair.b, rank * experts, found.rows);
    case ExpertLayout::kGguf:
      break;
  }
  if (auto s = check_stack(*pair.a, found.columns, rank, experts); !s) return s;
  return check_stack(*pair.b, rank, found.rows, experts);
}

// Reads all rows of one matrix of a part: hashed, and checked to be finite.
template <typename ReadRow>
Status hash_rows(const SourceTensor& tensor, uint64_t columns, uint64_t rows, ReadRow read, Sha256* hash) {
  const uint64_t rows_together = std::max<uint64_t>(1, kNumbersTogether / columns);
  std::vector<float> numbers(rows_together * columns);
  for (uint64_t first = 0; first < rows; first += rows_together) {
    const uint64_t count = std::min(rows_together, rows - first);
    const auto made = std::span(numbers).first(count * columns);
    for (uint64_t i = 0; i < count; ++i) read(first + i, made.subspan(i * columns, columns));
    for (const float number : made)
      if (!std::isfinite(number))
        return bad_adapter("tensor {}: expected finite numbers, found {}", printable(tensor.name), number);
    hash->add_all(std::span<const float>(made));
  }
  return {};
}

Status hash_part(const AdapterPart& part, uint64_t columns, Sha256* hash) {
  hash->add(part.rank).add(part.rows);
  if (part.rank == 0) return {};
  hash->add(part.scale);
  const auto read_a = [&](uint64_t row, std::span<float> out) { read_a_row(part, row, out); };
  const auto read_b = [&](uint64_t row, std::span<float> out) { read_b_row(part, row, out); };
  if (auto s = hash_rows(part.a, columns, part.rank, read_a, hash); !s) return s;
  return hash_rows(part.b, part.rank, part.rows, read_b, hash);
}

}  // namespace

void read_a_row(const AdapterPart& part, uint64_t row, std::span<float> out) {
  const uint64_t begin = part.a_first + row * part.a.dims[0];
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = number_of(part.a, begin + (part.a_columns.empty() ? i : part.a_columns[i]));
}

void read_b_row(const AdapterPart& part, uint64_t row, std::span<float> out) {
  const uint64_t begin = part.b_first + (part.b_rows.empty() ? row : part.b_rows[row]) *
                                            (part.b_row_stride == 0 ? part.b.dims[0] : part.b_row_stride);
  for (size_t i = 0; i < out.size(); ++i) out[i] = number_of(part.b, begin + i * part.b_rank_stride);
}

Status AdapterBuilder::add(const AdapterPair& pair, uint64_t rank, double scale) {
  const SourceTensor& shown = pair.a != nullptr ? *pair.a : *pair.b;
  auto found = sites_.find(pair.canonical, shown.name);
  if (!found) return found.error();
  if (pair.a == nullptr || pair.b == nullptr)
    return bad_adapter("tensor {}: expected {} beside it, found nothing", printable(shown.name),
                       pair.a == nullptr ? "the module's A" : "the module's B");
  if (rank < 1 || rank > kAdapterRankMax)
    return refused_adapter("tensor {}: expected a rank in [1, {}], found {}", printable(shown.name), kAdapterRankMax,
                           rank);
  if (found->columns % kAdapterRankStep != 0)  // kernels read so many at once
    return refused_adapter("tensor {}: expected a matrix of a multiple of {} columns, found {}", printable(shown.name),
                           kAdapterRankStep, found->columns);
  const auto as_float = static_cast<float>(scale);
  if (!std::isfinite(as_float))
    return bad_adapter("tensor {}: expected a finite scale, found {}", printable(shown.name), scale);
  if (auto s = found->num_experts > 0 ? check_experts(pair, *found, rank) : check_plain(pair, *found, rank); !s)
    return s;
  SourceTensor a = *pair.a, b = *pair.b;
  for (SourceTensor* half : {&a, &b}) half->bytes = storage_->emplace_back(half->bytes.begin(), half->bytes.end());
  if (pair.alternates && found->sites.size() > 1)
    for (AdapterSite& site : found->sites) {
      site.row_first = site.part;
      site.row_step = found->sites.size();
    }
  const bool is_one = found->num_experts == 0 || pair.layout == ExpertLayout::kOne;
  for (uint64_t e = 0; e < (is_one ? 1 : found->num_experts); ++e) {
    AdapterPart made;
    made.rank = static_cast<uint32_t>(rank);
    made.scale = as_float;
    made.a = a;
    made.b = b;
    if (!is_one && pair.layout == ExpertLayout::kFlattened) {
      made.a_first = e * rank * found->columns;
      made.b_first = e;
      made.b_row_stride = rank * found->num_experts;
      made.b_rank_stride = found->num_experts;
    } else if (!is_one) {
      made.a_first = a.dims[2] == 1 ? 0 : e * rank * found->columns;
      made.b_first = b.dims[2] == 1 ? 0 : e * rank * found->rows;
    }
    const bool is_numbered = found->num_experts > 0 && pair.layout == ExpertLayout::kOne;
    const uint64_t expert = found->expert_first + (is_numbered ? pair.expert : e);
    if (auto s = add_parts(pair, *found, expert, made); !s) return s;
  }
  return {};
}

// The parts of an expert, or of one matrix, that a module changes.
Status AdapterBuilder::add_parts(const AdapterPair& pair, const ModuleSites& found, uint64_t expert,
                                 const AdapterPart& made) {
  for (const AdapterSite& site : found.sites) {
    AdapterGroup& group = group_of(site.group, found.num_parts);
    AdapterPart& part = group.parts[expert * group.num_parts() + site.part];
    if (part.rank != 0)
      return bad_adapter("tensor {}: expected one adapter on {}, found {} too", printable(made.a.name), pair.canonical,
                         printable(part.a.name));
    const uint64_t rows = part.rows, row_stride = made.b_row_stride == 0 ? made.b.dims[0] : made.b_row_stride;
    part = made;
    part.rows = rows;
    part.b_first += site.row_first * row_stride;
    part.b_row_stride = site.row_step * row_stride;
    part.a_columns = site.a_columns;
    part.b_rows = site.b_rows;
  }
  return {};
}

// `num_parts`: of an expert of a stack.
AdapterGroup& AdapterBuilder::group_of(WeightGroupId id, uint32_t num_parts) {
  const WeightGroup& weights = model_.weights.groups[static_cast<size_t>(id)];
  AdapterGroup& group = groups_[id];
  if (group.group >= 0) return group;
  group.group = id;
  group.columns = weights.columns;
  group.num_experts = weights.num_experts;
  if (weights.num_experts > 0) {
    group.parts.resize(size_t{weights.num_experts} * num_parts);
    for (AdapterPart& part : group.parts) part.rows = weights.rows / weights.num_experts / num_parts;
  } else {
    for (const RowSegment& segment : weights.segments) group.parts.emplace_back().rows = segment.num_rows;
  }
  return group;
}

Result<std::shared_ptr<const Adapter>> AdapterBuilder::finish(std::string path, std::vector<int32_t> tokens) {
  if (groups_.empty()) return bad_adapter("expected a matrix that it changes, found none");
  auto adapter = std::make_shared<Adapter>();
  Sha256 hash;
  hash.add_text(kDigestVersion);
  for (auto& [id, group] : groups_) {
    hash.add_text(model_.weights.groups[static_cast<size_t>(id)].name).add(group.columns);
    hash.add(uint64_t{group.parts.size()});  // of a stack: those of all experts
    for (const AdapterPart& part : group.parts) {
      if (auto s = hash_part(part, group.columns, &hash); !s) return s.error();
      adapter->rank_max = std::max(adapter->rank_max, part.rank);
    }
    for (AdapterPart& part : group.parts) part.a.name = part.b.name = {};  // they may lie in what the reader drops
    adapter->groups.push_back(std::move(group));
  }
  hash.add_all(std::span<const int32_t>(tokens));
  adapter->digest = hash.finish();
  adapter->path = std::move(path);
  adapter->invocation_tokens = std::move(tokens);
  adapter->storage = std::move(storage_);
  return std::shared_ptr<const Adapter>(std::move(adapter));
}

Status check_invocation_tokens(const std::vector<int64_t>& tokens, const Model& model, std::string_view shown) {
  if (tokens.empty() || tokens.size() > kInvocationTokensMax)
    return refused_adapter("{}: expected 1 to {} tokens, found {}", shown, kInvocationTokensMax, tokens.size());
  for (const int64_t token : tokens)
    if (token < 0 || token >= int64_t{model.config.vocab_size})
      return adapter_mismatch("{}: expected tokens below {}, found {}", shown, model.config.vocab_size, token);
  return {};
}

}  // namespace llmrt
