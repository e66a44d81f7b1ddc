// The search for a beginning: group 0 first, by the cache and the host tier; then the longest part of it that every
// other group can go on from.
#include <algorithm>

#include "core/kv/prefix_sharing.h"

namespace llmrt {

PrefixMatch PrefixSharing::match(const Digest& identity, std::span<const int32_t> tokens) const {
  if (!cache_) return {};
  Nodes nodes;
  return find(identity, tokens, &nodes);
}

// The nodes are all that group 0 has, the match what all groups can go on from.
PrefixMatch PrefixSharing::find(const Digest& identity, std::span<const int32_t> tokens, Nodes* nodes_out) const {
  Nodes& nodes = *nodes_out;
  PrefixMatch match = cache_->match(identity, tokens);
  extend_by_host(identity, tokens, &match, &nodes);
  if (!match.host_blocks.empty() || groups_.size() > 1) match.drop_partial();
  nodes.blocks = match.blocks;
  nodes.tokens = tokens;
  match.num_path = match.num_full();
  match.path_end = path_end_of(match, tokens.size() / groups_.shape(0).block_tokens);
  if (groups_.size() > 1) match_others(nodes, &match);
  return match;
}

PathEnd PrefixSharing::path_end_of(const PrefixMatch& match, size_t num_blocks) const {
  if (match.num_path == num_blocks) return PathEnd::kWhole;
  if (!cache_->knows_children() || !match.host_blocks.empty()) return PathEnd::kUnknown;
  if (match.blocks.empty()) return PathEnd::kParts;
  if (!cache_->has_children(match.blocks.back())) return PathEnd::kLeaf;
  const uint32_t nodes_place = std::max(1u, groups_.place_tokens() / groups_.shape(0).block_tokens);
  const uint32_t last_place = match.num_path - match.num_path % nodes_place;
  return last_place > 0 && ends_prompt_[match.blocks[last_place - 1]] ? PathEnd::kTurn : PathEnd::kParts;
}

void PrefixSharing::extend_by_host(const Digest& identity, std::span<const int32_t> tokens, PrefixMatch* match,
                                   Nodes* nodes) const {
  if (!tiers_.has_host() || (tiers_.host(0)->num_used() == 0 && !nodes->with_disk)) return;
  const uint32_t block_tokens = groups_.shape(0).block_tokens;
  Digest key = match->blocks.empty() ? identity : keys_[match->blocks.back()];
  tokens = tokens.subspan(match->blocks.size() * block_tokens);
  for (; tokens.size() >= block_tokens; tokens = tokens.subspan(block_tokens)) {
    const auto chunk = tokens.first(block_tokens);
    key = chain_key(key, chunk);
    const BlockId block = find_below(0, key, chunk, *nodes);
    if (block == kNoBlock) break;
    match->host_blocks.push_back(block);
    nodes->host_keys.push_back(key);
  }
}

GroupMatch::Part PrefixSharing::find_part(uint32_t group, const Nodes& nodes, uint32_t node_idx, uint32_t part) const {
  const bool on_device = node_idx < nodes.blocks.size();
  if (on_device) {
    const BlockId block = contents(group).at(nodes.blocks[node_idx], part);
    if (block != kNoBlock) return {.block = block, .is_checkpoint = groups_.is_state(group)};
  }
  if (!tiers_.has_host()) return {};
  const Digest key = part_key(node_key(nodes, node_idx), group, part);
  return {find_below(group, key, node_tokens(nodes, node_idx), nodes), true, 0};
}

BlockId PrefixSharing::find_below(uint32_t group, const Digest& key, std::span<const int32_t> tokens,
                                  const Nodes& nodes) const {
  return nodes.with_disk ? tiers_.find_on_disk(group, key, tokens) : tiers_.find(group, key, tokens);
}

Digest PrefixSharing::node_key(const Nodes& nodes, uint32_t node_idx) const {
  const bool on_device = node_idx < nodes.blocks.size();
  return on_device ? keys_[nodes.blocks[node_idx]] : nodes.host_keys[node_idx - nodes.blocks.size()];
}

std::span<const int32_t> PrefixSharing::node_tokens(const Nodes& nodes, uint32_t node_idx) const {
  const uint32_t block_tokens = groups_.shape(0).block_tokens;
  return nodes.tokens.subspan(size_t{node_idx} * block_tokens, block_tokens);
}

std::vector<bool> PrefixSharing::usable_ends(uint32_t group, const Nodes& nodes, uint32_t num_nodes,
                                             std::vector<GroupMatch::Part>* parts) const {
  const GroupContents& beside = contents(group);
  const uint32_t leading = groups_.shape(0).block_tokens;
  std::vector<bool> usable(num_nodes + 1);
  usable[0] = true;
  uint32_t run = 0;  // how many entries up to the last one are there without a gap
  for (uint32_t n = 1; n <= num_nodes; ++n) {
    if (groups_.is_state(group)) {
      parts->push_back(beside.ends_at(n) ? find_part(group, nodes, n - 1, 0) : GroupMatch::Part{});
      usable[n] = parts->back().block != kNoBlock;
      continue;
    }
    if (!beside.ends_at(n)) continue;
    for (uint32_t part = 0; part < beside.parts_node(); ++part) {
      parts->push_back(find_part(group, nodes, n - 1, part));
      run = parts->back().block == kNoBlock ? 0 : run + 1;
    }
    usable[n] = run >= parts->size() - groups_.first_entry(group, n * leading);
  }
  return usable;
}

void PrefixSharing::match_others(const Nodes& nodes, PrefixMatch* match) const {
  const uint32_t num_nodes = match->num_full(), leading = groups_.shape(0).block_tokens;
  std::vector<std::vector<GroupMatch::Part>> parts(groups_.size());
  std::vector<bool> usable(num_nodes + 1, true);
  for (uint32_t g = 1; g < groups_.size(); ++g) {
    const std::vector<bool> of_group = usable_ends(g, nodes, num_nodes, &parts[g]);
    for (uint32_t n = 0; n <= num_nodes; ++n) usable[n] = usable[n] && of_group[n];
  }
  uint32_t num_used = num_nodes;
  while (!usable[num_used]) --num_used;
  const uint32_t num_device = std::min(num_used, static_cast<uint32_t>(match->blocks.size()));
  match->blocks.resize(num_device);
  match->host_blocks.resize(num_used - num_device);
  match->others.resize(groups_.size() - 1);
  for (uint32_t g = 1; g < groups_.size() && num_used > 0; ++g) {
    GroupMatch& other = match->others[g - 1];
    if (groups_.is_state(g)) {
      other.parts = {parts[g][num_used - 1]};
      continue;
    }
    other.first_entry = groups_.first_entry(g, num_used * leading);
    other.parts.assign(parts[g].begin() + other.first_entry,
                       parts[g].begin() + groups_.entries_for(g, num_used * leading));
  }
}

// ---- of running sequences ------------------------------------------------------------------------------------------

PrefixMatch PrefixSharing::match(std::span<const BlockTable> tables, uint32_t num_tokens) const {
  PrefixMatch match;
  const BlockTable& table = tables[0];
  const uint32_t block_tokens = groups_.shape(0).block_tokens;
  if (!is_trusted(tables)) return match;  // a branch begins anew
  uint32_t num_full = num_tokens / block_tokens;
  if (cache_) num_full = std::min(num_full, table.num_cached);  // a block that is full since a moment ago is copied
  match.blocks.assign(table.blocks.begin(), table.blocks.begin() + num_full);
  match.partial_tokens = std::min(num_tokens - num_full * block_tokens, block_tokens);
  if (match.partial_tokens > 0) match.partial_block = table.blocks[num_full];
  const uint32_t num_matched = match.num_tokens(block_tokens);
  for (uint32_t g = 1; g < groups_.size(); ++g)
    if (num_matched == 0 || !find_held(g, tables[g], num_matched, num_full, &match.others.emplace_back())) return {};
  return match;
}

// What stands beside the shared blocks of group 0 is shared too, the rest is copied. What this step still copies to
// cannot be copied from.
bool PrefixSharing::find_held(uint32_t group, const BlockTable& table, uint32_t num_tokens, uint32_t num_nodes,
                              GroupMatch* match) const {
  const uint32_t block_tokens = groups_.shape(group).block_tokens;
  if (groups_.is_state(group)) {
    if (table.num_tokens != num_tokens || table.blocks.empty() || tiers_.is_copied_to(group, table.blocks[0]))
      return false;
    if (table.source != kNoBlock) return false;  // its own record is empty yet
    match->parts = {{table.blocks[0], false, block_tokens}};
    return true;
  }
  match->first_entry = groups_.first_entry(group, num_tokens);
  if (table.first > match->first_entry) return false;
  for (uint32_t entry = match->first_entry; entry < groups_.entries_for(group, num_tokens); ++entry) {
    const BlockId block = table.blocks[entry];
    const uint32_t used = std::min(num_tokens - entry * block_tokens, block_tokens);
    const bool is_shared =
        used == block_tokens &&
        (!cache_ || (contents(group).contains(block) && contents(group).node_idx_of(entry) < num_nodes));
    if (!is_shared && tiers_.is_copied_to(group, block)) return false;
    match->parts.push_back({block, false, is_shared ? 0 : used});
  }
  return true;
}

uint32_t PrefixSharing::num_live(const PrefixMatch& match, uint32_t group) const {
  const BlockPool& pool = groups_.pool(group);
  if (group == 0)
    return static_cast<uint32_t>(
        std::ranges::count_if(match.blocks, [&](BlockId block) { return pool.references(block) > 0; }));
  if (match.others.empty()) return 0;
  return static_cast<uint32_t>(std::ranges::count_if(match.others[group - 1].parts, [&](const GroupMatch::Part& part) {
    return !part.on_host && part.copy_tokens == 0 && !part.is_checkpoint && pool.references(part.block) > 0;
  }));
}

}  // namespace llmrt
