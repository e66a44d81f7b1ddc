#include "core/schedule/reservations.h"

#include <algorithm>
#include <cmath>

namespace llmrt {

Reservations::Reservations(const SchedulerConfig& config, const KvSpace& kv)
    : config_(config), kv_(kv), promised_(kv.num_groups()), watermark_(kv.num_groups()) {
  for (uint32_t g = 0; g < kv.num_groups(); ++g)
    watermark_[g] = static_cast<uint32_t>(std::ceil(config.watermark * kv.num_blocks(g)));
}

uint32_t Reservations::positions(const Sequence& sequence) const {
  if (reserves_all(config_.on_exhaustion)) return sequence.positions_max();
  const Request& request = sequence.request;
  uint32_t output = config_.reserve_output_tokens;
  if (config_.learns_output)
    output = output_lengths_[static_cast<size_t>(request.route)][static_cast<size_t>(request.request_class)].expected(
        output);
  return static_cast<uint32_t>(std::min<uint64_t>(sequence.tokens.size() + output, sequence.positions_max()));
}

void Reservations::learn(const Request& request, uint32_t num_output) {
  if (num_output == 0) return;
  output_lengths_[static_cast<size_t>(request.route)][static_cast<size_t>(request.request_class)].add(num_output);
}

void Reservations::count(std::span<Sequence* const> running) {
  for (uint32_t g = 0; g < promised_.size(); ++g) {
    promised_[g] = 0;
    for (const Sequence* sequence : running) promised_[g] += blocks_promised(g, *sequence);
  }
}

void Reservations::promise(const Sequence& sequence) {
  for (uint32_t g = 0; g < kv_.num_groups(); ++g) promised_[g] += blocks_promised(g, sequence);
}

uint32_t Reservations::blocks_promised(uint32_t group, const Sequence& sequence) const {
  const uint32_t blocks = kv_.blocks_for(group, sequence.residency.reserved_tokens);
  return blocks - std::min(blocks, sequence.residency.tables[group].num_held());
}

// Blocks that it shares with running sequences cost nothing.
bool Reservations::fits(Sequence& sequence, PrefixMatch* match, const Running& running) const {
  const uint32_t num_tokens = static_cast<uint32_t>(sequence.tokens.size());
  const bool alone = running.is_empty();
  const uint32_t needed_positions = alone ? std::min(num_tokens, sequence.positions_max()) : positions(sequence);
  for (uint32_t g = 0; g < kv_.num_groups(); ++g) {
    const uint64_t own = kv_.blocks_for(g, needed_positions) - kv_.num_live(*match, g);
    const uint64_t needed = own + (alone ? 0 : kept(g));
    if (needed > kv_.num_free(g)) {
      sequence.found.blocks_needed = static_cast<uint32_t>(own);
      sequence.found.needed_at = running.num_admissions();
      sequence.found.needed_group = g;
      return false;
    }
    if (g > 0 || needed < kv_.num_free(g) || match->partial_tokens == 0 || kv_.is_live(match->partial_block)) continue;
    match->drop_partial();
  }
  return true;
}

bool Reservations::is_known_short(const Sequence& sequence, const Running& running) const {
  const uint32_t group = sequence.found.needed_group;
  return !running.is_empty() && sequence.found.needed_at == running.num_admissions() &&
         sequence.found.blocks_needed + kept(group) > kv_.num_free(group);
}

std::vector<uint64_t> Reservations::missing_blocks(const Sequence& sequence) const {
  std::vector<uint64_t> missing(kv_.num_groups());
  for (uint32_t g = 0; g < kv_.num_groups(); ++g) {
    const bool is_known = g == sequence.found.needed_group && sequence.found.blocks_needed > 0;
    const uint64_t own = is_known ? sequence.found.blocks_needed : kv_.blocks_for(g, positions(sequence));
    const uint64_t needed = own + kept(g);
    missing[g] = needed - std::min<uint64_t>(needed, kv_.num_free(g));
  }
  return missing;
}

uint64_t Reservations::yielded_blocks(uint32_t group, const Sequence& row) const {
  return row.residency.tables[group].num_held() + blocks_promised(group, row);
}

Error Reservations::no_room(const Sequence& sequence) const {
  uint32_t g = 0;
  const auto lacks = [&](uint32_t group) {
    return kv_.blocks_for(group, sequence.positions_max()) + kept(group) > kv_.num_free(group);
  };
  while (g + 1 < kv_.num_groups() && !lacks(g)) ++g;
  return make_error(ErrorCode::kOverloaded, "no room now: {} KV blocks of {} are needed, {} are free, {} of them kept",
                    kv_.blocks_for(g, sequence.positions_max()), config_.kv_pools[g].block_tokens, kv_.num_free(g),
                    std::min<uint64_t>(kv_.num_free(g), kept(g)));
}

}  // namespace llmrt
