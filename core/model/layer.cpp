#include "core/model/layer.h"

#include <algorithm>

#include "core/base/check.h"

namespace llmrt {

namespace {

bool holds(const CacheGroup& group, const LayerSpec& layer) {
  return group.attention == layer.attention && group.window == layer.window &&
         group.num_kv_heads == layer.num_kv_heads && group.head_dim == layer.head_dim &&
         group.state_columns == layer.recurrent.state_columns();
}

CacheGroup group_of(const LayerSpec& layer) {
  return {layer.attention, layer.window, layer.num_kv_heads, layer.head_dim, layer.recurrent.state_columns(), 0};
}

}  // namespace

const char* attention_name(AttentionKind kind) {
  constexpr const char* kNames[] = {"full attention",     "window attention", "latent attention", "a short convolution",
                                    "a gated delta rule", "a selective scan", "nothing"};
  return kNames[static_cast<int>(kind)];
}

const char* feed_forward_name(FeedForwardKind kind) {
  constexpr const char* kNames[] = {"a dense feed-forward part", "experts", "experts beside a dense part", "nothing"};
  return kNames[static_cast<int>(kind)];
}

void assign_cache_groups(std::span<LayerSpec> layers) {
  std::vector<CacheGroup> groups;
  auto leader = std::ranges::find(layers, AttentionKind::kFull, &LayerSpec::attention);
  if (leader == layers.end()) leader = std::ranges::find(layers, AttentionKind::kLatent, &LayerSpec::attention);
  if (leader == layers.end()) leader = std::ranges::find(layers, AttentionKind::kWindow, &LayerSpec::attention);
  if (leader != layers.end()) groups.push_back(group_of(*leader));  // layers that read another one's come behind that
  for (LayerSpec& layer : layers) {
    if (layer.attention == AttentionKind::kNone) continue;
    if (layer.cache_of >= 0) {  // check_layers says that it is an earlier one
      const LayerSpec& owner = layers[std::min<size_t>(static_cast<size_t>(layer.cache_of), layers.size() - 1)];
      layer.cache_group = owner.cache_group;
      layer.cache_layer = owner.cache_layer;
      continue;
    }
    auto group = std::ranges::find_if(groups, [&](const CacheGroup& candidate) { return holds(candidate, layer); });
    if (group == groups.end()) group = groups.insert(group, group_of(layer));
    layer.cache_group = static_cast<uint32_t>(group - groups.begin());
    layer.cache_layer = group->num_layers++;
  }
}

std::vector<CacheGroup> cache_groups(std::span<const LayerSpec> layers) {
  std::vector<CacheGroup> groups;
  for (const LayerSpec& layer : layers) {
    if (layer.cache_of >= 0 || layer.attention == AttentionKind::kNone) continue;
    if (layer.cache_group >= groups.size()) groups.resize(layer.cache_group + 1);
    CacheGroup& group = groups[layer.cache_group];
    if (group.num_layers == 0) group = group_of(layer);
    LLMRT_CHECK(holds(group, layer) && layer.cache_layer == group.num_layers,
                "cache groups are those of assign_cache_groups");
    ++group.num_layers;
  }
  return groups;
}

Status check_layers(std::span<const LayerSpec> layers) {
  uint32_t routed_per_row = 0;
  // The prefix cache goes by blocks of keys and values.
  if (std::ranges::all_of(layers, [](const LayerSpec& layer) {
        return is_recurrent(layer.attention) || layer.attention == AttentionKind::kNone;
      }))
    return make_error(ErrorCode::kUnsupported,
                      "unsupported model: expected attention in at least one of {} layers, found it in none",
                      layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerSpec& layer = layers[i];
    const auto refuse = [&](const char* known, const char* found) {
      return make_error(ErrorCode::kUnsupported, "unsupported model: layer {}: expected {}, found {}", i, known, found);
    };
    const bool has_keys = !is_recurrent(layer.attention) && layer.attention != AttentionKind::kNone;
    if (layer.attention == AttentionKind::kLatent &&
        (layer.latent.rank == 0 || layer.num_kv_heads != 1 || layer.head_dim != layer.latent.row_dim()))
      return refuse("one row of a latent's size in the cache", "heads of another");
    if (!has_keys && !is_recurrent(layer.attention) && (i == 0 || layer.feed_forward == FeedForwardKind::kNone))
      return refuse(i == 0 ? "attention or a recurrent part" : "at least one part", attention_name(layer.attention));
    const bool has_owner = layer.cache_of >= 0 && static_cast<size_t>(layer.cache_of) < i &&
                           layers[static_cast<size_t>(layer.cache_of)].cache_of < 0 &&
                           holds(group_of(layers[static_cast<size_t>(layer.cache_of)]), layer);
    if (layer.cache_of >= 0 && !has_owner)
      return make_error(
          ErrorCode::kUnsupported,
          "unsupported model: layer {}: expected to read the cache of an earlier layer with its window and "
          "heads, found layer {}",
          i, layer.cache_of);
    if ((layer.joined_qk_norm || layer.v_norm) && !layer.qk_norm)
      return refuse("norms of q and k beside the norm of v or of all heads", "none");
    if (layer.joined_qk_norm && layer.v_norm) return refuse("a norm of v beside norms by head", "one of all heads");
    if (layer.feed_forward == FeedForwardKind::kBoth)
      return refuse("a dense feed-forward part or experts", feed_forward_name(layer.feed_forward));
    // OpList::routed_per_row is one number for all layers.
    if (layer.feed_forward == FeedForwardKind::kExperts && routed_per_row > 0 &&
        layer.experts.routed_per_row() != routed_per_row)
      return make_error(ErrorCode::kUnsupported,
                        "unsupported model: layer {}: expected {} experts a token, as other layers have, found {}", i,
                        routed_per_row, layer.experts.routed_per_row());
    if (layer.feed_forward == FeedForwardKind::kExperts) routed_per_row = layer.experts.routed_per_row();
    if (layer.cache_group >= kKvGroupsMax)
      return make_error(ErrorCode::kUnsupported,
                        "unsupported model: layer {}: expected at most {} kinds of window, KV heads and size of heads, "
                        "found another",
                        i, kKvGroupsMax);
  }
  return {};
}

}  // namespace llmrt
