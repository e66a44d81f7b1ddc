#include "tools/llmrt_bench/ops/step_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace llmrt::bench {
namespace {

// The window of the layers whose keys and values the op writes or reads; 0: it does neither, or they see all positions.
uint32_t window_of(const Op& op, const Model& model) {
  if (const auto* attention = std::get_if<PagedAttention>(&op)) return attention->window;
  const auto* write = std::get_if<KvWrite>(&op);
  return write ? cache_groups(model.config.layers).at(write->kv_group).window : 0;
}

std::string name_of(const Op& op, const Model& model) {
  if (const auto* norm = std::get_if<RmsNorm>(&op); norm && norm->delta != kNoTensor) return "rms_norm with residual";
  if (const uint32_t window = window_of(op, model); window > 0)
    return fmt::format("{}, window {}", op_name(op), window);
  const auto* matmul = std::get_if<Matmul>(&op);
  const auto* heads = std::get_if<HeadMatmul>(&op);
  const auto* shrink = std::get_if<AdapterShrink>(&op);
  const auto* expand = std::get_if<AdapterExpand>(&op);
  if (!matmul && !heads && !shrink && !expand) return op_name(op);
  const WeightGroupId id = matmul ? matmul->group : heads ? heads->group : shrink ? shrink->group : expand->group;
  const std::string& group = model.weights.groups[static_cast<size_t>(id)].name;  // "blk.7.qkv"
  return fmt::format("{} {}", op_name(op), group.substr(group.find_last_of('.') + 1));
}

// Of the run of ops [first, end) of one list.
struct Run {
  const OpList& list;
  uint32_t first, end;
  const Model& model;
  const CostSizes& sizes;

  uint32_t live_rows(TensorId id) const { return list.rows_of(id, sizes.num_tokens, sizes.num_sampled); }

  std::string name() const {
    std::string text;
    for (uint32_t i = first; i < end; ++i) text += (i > first ? " + " : "") + name_of(list.ops[i], model);
    return text;
  }

  std::string shape() const {
    for (uint32_t i = first; i < end; ++i)
      if (const auto* matmul = std::get_if<Matmul>(&list.ops[i])) {
        const WeightGroup& group = model.weights.groups[matmul->group];
        return fmt::format("[{}, {}] x [{}, {}]", live_rows(matmul->x), group.columns, group.rows, group.columns);
      }
    for (uint32_t i = first; i < end; ++i)
      if (const auto* heads = std::get_if<HeadMatmul>(&list.ops[i])) {
        const WeightGroup& group = model.weights.groups[heads->group];
        return fmt::format("[{}, {}] x {} heads of [{}, {}]", live_rows(heads->x), group.columns, heads->num_heads,
                           group.rows / heads->num_heads, group.columns);
      }
    for (uint32_t i = first; i < end; ++i)
      if (const WeightGroup* group = group_of(list.ops[i])) {
        const TensorId ids = std::holds_alternative<ExpertGateUp>(list.ops[i]) ? std::get<ExpertGateUp>(list.ops[i]).ids
                                                                               : std::get<ExpertDown>(list.ops[i]).ids;
        const std::string distinct =
            sizes.distinct_experts.empty() ? "" : fmt::format("{:.0f} of ", sizes.distinct_experts[ids]);
        return fmt::format("[{}, {}] x {}{} experts", live_rows(ids), group->columns, distinct, group->num_experts);
      }
    if (const auto* expand = std::get_if<ExpandLatent>(&list.ops[end - 1]))
      return fmt::format("{} heads of {} and {} from {} keys", expand->num_heads, expand->key_dim(), expand->value_dim,
                         sizes.kv.at(expand->expanded_group).tokens);
    const OpAccess touched = access(list.ops[end - 1]);
    if (touched.writes.empty() && touched.reads.empty()) return "";
    const TensorId id = touched.writes.empty() ? touched.reads.front() : touched.writes.back();
    const TensorDesc& tensor = list.tensors[id];
    std::string text = fmt::format("[{}, {}] {}", live_rows(id), tensor.columns, dtype_name(tensor.dtype));
    if (const auto* attention = std::get_if<PagedAttention>(&list.ops[end - 1]))
      text += fmt::format(" over {} keys", sizes.kv.at(attention->kv_group).tokens);
    if (const auto* latent = std::get_if<LatentAttention>(&list.ops[end - 1]))
      text += fmt::format(" over {} keys", sizes.kv.at(latent->kv_group).tokens);
    return text;
  }

  // The group that an op multiplies by, or null.
  const WeightGroup* group_of(const Op& op) const {
    if (const auto* matmul = std::get_if<Matmul>(&op)) return &model.weights.groups[matmul->group];
    if (const auto* heads = std::get_if<HeadMatmul>(&op)) return &model.weights.groups[heads->group];
    if (const auto* product = std::get_if<ExpertGateUp>(&op)) return &model.weights.groups[product->group];
    if (const auto* sum = std::get_if<ExpertDown>(&op)) return &model.weights.groups[sum->group];
    return nullptr;
  }

  std::string encoding(KvDType kv_dtype) const {
    std::set<std::string> names;
    for (uint32_t i = first; i < end; ++i) {
      const Op& op = list.ops[i];
      if (const WeightGroup* group = group_of(op))
        for (const RowSegment& segment : group->segments)
          names.insert(encoding_name(model.weights.tensors[segment.tensor].encoding));
      if (const auto* embed = std::get_if<Embed>(&op))
        names.insert(encoding_name(model.weights.tensors[embed->weight].encoding));
      if (std::holds_alternative<KvWrite>(op) || std::holds_alternative<PagedAttention>(op) ||
          std::holds_alternative<LatentRows>(op) || std::holds_alternative<LatentAttention>(op))
        names.insert(fmt::format("KV {}", kv_dtype_name(kv_dtype)));
      if (const auto* expand = std::get_if<ExpandLatent>(&op))
        for (const int32_t id : {expand->key_group, expand->value_group})
          names.insert(encoding_name(model.weights.tensors[model.weights.groups[id].segments[0].tensor].encoding));
    }
    return fmt::format("{}", fmt::join(names, "+"));
  }

  bool is_read_later(TensorId id) const {
    if (list.tensors[id].storage != Storage::kArena) return true;
    for (uint32_t i = end; i < list.ops.size(); ++i)
      if (std::ranges::count(access(list.ops[i]).reads, id)) return true;
    return false;
  }

  // What ops of one run hand to each other need not pass through memory.
  OpCost cost_of_run() const {
    OpCost sum;
    OpList bare = list;
    for (uint32_t i = first; i < end; ++i) {
      const OpAccess touched = access(list.ops[i]);
      if (i + 1 < end)
        for (TensorId id : touched.writes)
          if (!is_read_later(id)) bare.tensors[id].columns = 0;
      sum.flops += cost(list, list.ops[i], model.weights, sizes).flops;
      sum.bytes += cost(bare, list.ops[i], model.weights, sizes).bytes;
      for (const auto* ids : {&touched.reads, &touched.writes})
        for (TensorId id : *ids) bare.tensors[id].columns = 0;
    }
    return sum;
  }

  double written_bytes() const {
    double bytes = 0;
    std::set<TensorId> written;
    for (uint32_t i = first; i < end; ++i) {
      for (TensorId id : access(list.ops[i]).writes)
        if (is_read_later(id)) written.insert(id);
      if (const auto* rows = std::get_if<LatentRows>(&list.ops[i]))
        bytes += static_cast<double>(live_rows(rows->kv)) * sizes.kv.at(rows->kv_group).bytes_token;
      if (const auto* expand = std::get_if<ExpandLatent>(&list.ops[i]))
        bytes += 2.0 * static_cast<double>(sizes.kv.at(expand->expanded_group).tokens) * expand->num_heads *
                 (expand->key_dim() + expand->value_dim);
      if (const auto* write = std::get_if<KvWrite>(&list.ops[i]))
        bytes += static_cast<double>(live_rows(write->qkv)) * sizes.kv.at(write->kv_group).bytes_token;
    }
    for (TensorId id : written)
      bytes += static_cast<double>(live_rows(id)) * list.tensors[id].columns * dtype_bytes(list.tensors[id].dtype);
    return bytes;
  }
};

}  // namespace

std::string Kernel::label() const {
  return fmt::format("{}{}{}{}{}", name, encoding.empty() ? "" : " ", encoding, shape.empty() ? "" : " ", shape);
}

std::vector<Kernel> step_kernels(const LoweredStep& step, const Model& model, const CostSizes& sizes,
                                 const CostSizes& sample_sizes, KvDType kv_dtype, const std::vector<bool>& joined) {
  std::vector<Kernel> kernels;
  std::map<std::string, size_t> index;  // by label
  uint32_t before = 0;                  // ops of the lists before
  for (const SealedList* sealed : {step.forward, step.sample}) {
    if (!sealed) continue;
    const OpList& list = *sealed;
    const auto num_ops = static_cast<uint32_t>(list.ops.size());
    for (uint32_t first = 0, end = 0; first < num_ops; first = end) {
      for (end = first + 1; end < num_ops && joined[before + end];) ++end;
      const Run run{list, first, end, model, sealed == step.sample ? sample_sizes : sizes};
      Kernel kernel{run.name(), run.shape(), run.encoding(kv_dtype), sealed == step.sample, first, end - first, {}, {},
                    0};
      const auto [found, is_new] = index.emplace(kernel.label(), kernels.size());
      if (is_new) {
        kernel.cost = run.cost_of_run();
        kernel.written_bytes = run.written_bytes();
        kernels.push_back(std::move(kernel));
      }
      kernels[found->second].op_idxs.push_back(before + first);
    }
    before += num_ops;
  }
  return kernels;
}

}  // namespace llmrt::bench
