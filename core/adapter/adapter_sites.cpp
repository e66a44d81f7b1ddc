#include "core/adapter/adapter_sites.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/model/architectures.h"
#include "core/ops/adapter_ops.h"
#include "core/weights/metadata.h"

namespace llmrt {
namespace {

using namespace tensor_names;

constexpr std::string_view kWeight = ".weight";

template <typename... Args>
Error refused_site(std::string_view shown, fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kUnsupported, "unsupported adapter: tensor {}: {}", printable(shown),
                    fmt::format(format, std::forward<Args>(args)...));
}

// The rows [begin, begin + count) of the module.
void add_rows(std::vector<uint32_t>* rows, uint64_t begin, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) rows->push_back(static_cast<uint32_t>(begin + i));
}

// Of each run of `period` rows those from `begin` on, `count` of them.
void add_rows_of_each(std::vector<uint32_t>* rows, uint64_t num_rows, uint64_t period, uint64_t begin, uint64_t count) {
  for (uint64_t first = begin; first < num_rows; first += period) add_rows(rows, first, count);
}

// "blk.3.attn_q.weight": "attn_q".
std::string_view part_name(std::string_view canonical) {
  const size_t dot = canonical.find('.', std::string_view("blk.").size());
  if (dot == std::string_view::npos || !canonical.ends_with(kWeight)) return {};
  canonical.remove_prefix(dot + 1);
  canonical.remove_suffix(std::min(kWeight.size(), canonical.size()));
  return canonical;
}

}  // namespace

AdapterSites::AdapterSites(const Model& model, AdapterRows order) : model_(model) {
  const Architecture* architecture = find_architecture(model.config.architecture);
  if (order == AdapterRows::kGguf && architecture != nullptr) {
    pairing_ = architecture->rope_pairing;
    value_order_ = architecture->value_head_order;
  }
  const auto& groups = model.weights.groups;
  for (size_t g = 0; g < groups.size(); ++g)
    for (size_t s = 0; s < groups[g].segments.size(); ++s) {
      const WeightTensor& tensor = model.weights.tensors[static_cast<size_t>(groups[g].segments[s].tensor)];
      places_[tensor.name].push_back({static_cast<WeightGroupId>(g), static_cast<uint32_t>(s)});
    }
}

const AdapterSites::Places* AdapterSites::places_of(const std::string& name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &found->second;
}

ModuleSites AdapterSites::in_order(const Places& places) const {
  ModuleSites found;
  for (const Place& place : places) {
    found.rows = group(place.group).segments[place.part].num_rows;
    found.columns = group(place.group).columns;
    found.sites.push_back({place.group, place.part, {}, {}});
  }
  return found;
}

Result<ModuleSites> AdapterSites::find(const std::string& canonical, std::string_view shown) const {
  if (canonical == kEmbedding) return refused_site(shown, "expected no adapter on the embedding, found one");
  if (canonical == std::string(kHead) + std::string(kWeight)) return in_order({{model_.head, 0}});
  if (const auto layer = layer_of(canonical); layer && *layer < model_.config.num_layers()) {
    const std::string_view name = part_name(canonical);
    const bool has_experts = model_.config.layers[*layer].feed_forward == FeedForwardKind::kExperts;
    // The expert of all tokens may be one of the stack.
    const bool is_stacked =
        has_experts && name.ends_with("_shexp") && model_.config.layers[*layer].experts.rule.num_shared > 0;
    if ((has_experts && name.ends_with("_exps")) || is_stacked) return find_experts(*layer, name, shown);
  }
  const Places* places = places_of(canonical);
  if (places == nullptr) return find_missing(canonical, shown);
  for (const Place& place : *places) {
    const WeightGroup& found = group(place.group);
    if (found.by_head)
      return refused_site(shown, "expected none on the matrices of each head of latent attention, found {}",
                          printable(canonical));
    LLMRT_CHECK(found.num_experts == 0, "stacks of experts have been found by name");
    if (found.segments.size() > kAdapterPartsMax)
      return refused_site(shown, "expected at most {} matrices that are multiplied together, found {}",
                          kAdapterPartsMax, found.segments.size());
  }
  const auto layer = layer_of(canonical);
  if (!layer || *layer >= model_.config.num_layers()) return in_order(*places);
  return find_in_layer(canonical, *layer, in_order(*places), shown);
}

// The matrices of a layer's experts, whether the model has gates and other halves in one stack or in two.
Result<ModuleSites> AdapterSites::find_experts(uint32_t layer, std::string_view name, std::string_view shown) const {
  const LayerSpec& spec = model_.config.layers[layer];
  const LayerWeights& weights = model_.layers[layer];
  const uint32_t num_parts = has_other_half(spec.activation) ? 2 : 1;
  const bool is_shared = name.ends_with("_shexp");
  const std::string_view kind = name.substr(0, name.rfind('_'));
  ModuleSites found;
  found.expert_first = is_shared ? spec.experts.count : 0;
  found.num_experts = is_shared ? spec.experts.rule.num_shared : spec.experts.count;
  const bool is_down = kind == "ffn_down";
  const WeightGroupId id = is_down ? weights.down : weights.gate_up;
  const uint64_t part_rows = group(id).rows / group(id).num_experts / (is_down ? 1 : num_parts);
  found.columns = group(id).columns;
  found.rows = part_rows;
  found.num_parts = is_down ? 1 : num_parts;
  const bool has_gate = num_parts == 2;
  if (is_down || (kind == "ffn_gate" && has_gate) || kind == "ffn_up") {
    found.sites.push_back({id, kind == "ffn_up" ? num_parts - 1 : 0, {}, {}, 0, 1});
    return found;
  }
  if (kind != "ffn_gate_up" || !has_gate)
    return make_error(ErrorCode::kInvalidArgument,
                      "adapter mismatch: tensor {}: expected a matrix of the layer's experts, found {}",
                      printable(shown), printable(name));
  found.rows *= 2;
  for (uint32_t part = 0; part < 2; ++part) found.sites.push_back({id, part, {}, {}, part * part_rows, 1});
  return found;
}

// Matrices that the model has under other names, and those that no adapter can change.
Result<ModuleSites> AdapterSites::find_missing(const std::string& canonical, std::string_view shown) const {
  const std::string_view name = part_name(canonical);
  const std::string prefix = canonical.substr(0, canonical.size() - kWeight.size() - name.size());
  const auto layer = layer_of(canonical);
  const auto places = [&](const char* part) { return places_of(prefix + part + std::string(kWeight)); };
  if (layer && *layer < model_.config.num_layers() && !name.empty()) {
    if (const auto* qkv = places(kDeltaQkv), *z = places(kDeltaGate);
        name == kStateIn && qkv != nullptr && z != nullptr)
      return split_delta_rows(*layer, qkv->front(), z->front());
    if (name == kDown && places(kSharedDown) != nullptr)
      return find(prefix + kSharedDown + std::string(kWeight), shown);
    if (name == kGateUp) {
      const bool is_shared = places(kSharedUp) != nullptr;
      const Places *gate = places(is_shared ? kSharedGate : kGate), *up = places(is_shared ? kSharedUp : kUp);
      if (gate != nullptr && up != nullptr) {
        ModuleSites both = in_order({gate->front(), up->front()});
        add_rows(&both.sites[0].b_rows, 0, both.rows);
        add_rows(&both.sites[1].b_rows, both.rows, both.rows);
        both.rows *= 2;
        return both;
      }
    }
  }
  const bool is_there =
      std::ranges::any_of(model_.weights.tensors, [&](const WeightTensor& tensor) { return tensor.name == canonical; });
  if (is_there || name == "attn_kv_b")
    return refused_site(shown, "expected a matrix of attention, a dense feed-forward part or the head, found {}",
                        printable(canonical));
  return make_error(ErrorCode::kInvalidArgument,
                    "adapter mismatch: tensor {}: expected a matrix of the model, found {}, which it does not have",
                    printable(shown), printable(canonical));
}

Result<ModuleSites> AdapterSites::find_in_layer(const std::string& canonical, uint32_t layer, ModuleSites found,
                                                std::string_view shown) const {
  const LayerSpec& spec = model_.config.layers[layer];
  const std::string_view name = part_name(canonical);
  const bool has_heads = spec.attention == AttentionKind::kFull || spec.attention == AttentionKind::kWindow;
  if (has_heads && name == kQ) {
    if (spec.output_gate) {
      if (pairing_ != spec.rope.pairing)
        return refused_site(shown, "expected rows of q in the model's order, found another");
      return split_gated_queries(layer, std::move(found));
    }
    if (auto s = turn_heads(layer, spec.num_heads, &found, shown); !s) return s.error();
  } else if (has_heads && name == kK) {
    if (auto s = turn_heads(layer, spec.num_kv_heads, &found, shown); !s) return s.error();
  } else if (spec.attention == AttentionKind::kGatedDelta) {
    if (name == kStateIn) return split_delta_rows(layer, {found.sites[0].group, 0}, {-1, 0});
    order_value_heads(spec.recurrent, name, &found);
  }
  return found;
}

// The module's rows are those of a head and of its gate in turn; the gates are a group of their own.
ModuleSites AdapterSites::split_gated_queries(uint32_t layer, ModuleSites queries) const {
  const uint64_t dim = model_.config.layers[layer].head_dim, rows = 2 * queries.rows;
  for (AdapterSite& site : queries.sites) add_rows_of_each(&site.b_rows, rows, 2 * dim, 0, dim);
  AdapterSite gates{model_.layers[layer].attention_gate, 0, {}, {}, 0, 1};
  add_rows_of_each(&gates.b_rows, rows, 2 * dim, dim, dim);
  queries.sites.push_back(std::move(gates));
  queries.rows = rows;
  return queries;
}

// The module's rows are q, k, v and z of one key head after the other; the model has all q, all k, all v, then all z,
// in one part or (z.group >= 0) z in its own.
ModuleSites AdapterSites::split_delta_rows(uint32_t layer, const Place& qkv, const Place& z) const {
  const RecurrentSpec& spec = model_.config.layers[layer].recurrent;
  const uint64_t keys = spec.key_dim, values = spec.value_columns() / spec.key_heads;
  const uint64_t own = 2 * keys + 2 * values, rows = own * spec.key_heads;
  ModuleSites found = in_order({qkv});
  found.rows = rows;
  std::vector<uint32_t>* to = &found.sites[0].b_rows;
  add_rows_of_each(to, rows, own, 0, keys);
  add_rows_of_each(to, rows, own, keys, keys);
  add_rows_of_each(to, rows, own, 2 * keys, values);
  if (z.group >= 0) {
    found.sites.push_back({z.group, z.part, {}, {}});
    to = &found.sites[1].b_rows;
  }
  add_rows_of_each(to, rows, own, 2 * keys + values, values);
  return found;
}

// Rows of q and k, where pairs that turn together lie otherwise in the adapter than in the model.
Status AdapterSites::turn_heads(uint32_t layer, uint32_t num_heads, ModuleSites* found, std::string_view shown) const {
  const LayerSpec& spec = model_.config.layers[layer];
  if (pairing_ == spec.rope.pairing) return {};
  const uint32_t dim = spec.head_dim, half = dim / 2;
  if (spec.rope.dim != 0 && spec.rope.dim != dim)
    return refused_site(shown, "expected heads that turn as a whole, found {} of {} numbers", spec.rope.dim, dim);
  std::vector<uint32_t> rows;
  for (uint32_t head = 0; head < num_heads; ++head)
    for (uint32_t i = 0; i < dim; ++i) {
      const bool to_neighbours = spec.rope.pairing == RopePairing::kInterleaved;
      rows.push_back(head * dim + (to_neighbours ? i % 2 * half + i / 2 : i % half * 2 + i / half));
    }
  for (AdapterSite& site : found->sites) site.b_rows = rows;
  return {};
}

// What goes by value heads of a delta rule, where these come in another order in the adapter than in the model.
void AdapterSites::order_value_heads(const RecurrentSpec& spec, std::string_view name, ModuleSites* found) const {
  if (value_order_ == spec.order) return;
  const uint32_t keys = spec.key_heads, of_key = spec.value_heads / keys;
  const bool is_qkv = name == kDeltaQkv, is_out = name == kStateOut;
  const bool is_by_head = name == kDeltaBeta || name == kDeltaAlpha;
  if (!is_qkv && !is_out && !is_by_head && name != kDeltaGate) return;
  const uint32_t dim = is_by_head ? 1 : spec.value_dim, first = is_qkv ? 2 * spec.key_columns() : 0;
  std::vector<uint32_t> map;
  add_rows(&map, 0, first);
  for (uint32_t head = 0; head < spec.value_heads; ++head) {
    const bool to_modulo = spec.order == KeyHeadOrder::kModulo;
    const uint32_t from = to_modulo ? head % keys * of_key + head / keys : head % of_key * keys + head / of_key;
    add_rows(&map, first + uint64_t{from} * dim, dim);
  }
  for (AdapterSite& site : found->sites) (is_out ? site.a_columns : site.b_rows) = map;
}

}  // namespace llmrt
