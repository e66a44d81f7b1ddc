#include "backends/vulkan/state.h"

#include <algorithm>

#include "backends/vulkan/choose_experts.h"

namespace llmrt::vulkan {
namespace {

// A range of the state, and where its view goes.
struct Wanted {
  View Resources::*view;
  uint64_t bytes;
};

std::vector<Wanted> wanted_ranges(const Traits& traits, const StateConfig& c, const WeightPieces* weights) {
  const Target target{traits, default_tuning()};
  const uint64_t halves_bytes = weights ? weights->halves_bytes(target, c.step_tokens_max) : 0;
  const uint32_t rows_max = std::max(c.step_tokens_max, c.sample_rows_max);
  const uint64_t routes_bytes =
      weights && weights->has_experts() ? routes_bytes_max(rows_max) + routed_x_bytes_max(*weights, rows_max) : 0;
  return {
      {&Resources::hidden, uint64_t{c.step_tokens_max} * c.hidden_columns * 4},
      {&Resources::rows, uint64_t{c.slots_max} * kRowWords * 4},
      {&Resources::tables, uint64_t{c.num_kv_groups} * c.slots_max * c.blocks_row_max * 4},
      {&Resources::counts, uint64_t{c.penalty_rows_max} * c.vocab_size * 4},
      {&Resources::partials, uint64_t{c.partials_max} * c.heads_max * (c.head_dim_max + 2) * 4},
      {&Resources::results, c.sample_rows_max * uint64_t{sizeof(SampleResult) + sizeof(LogprobRow)}},
      {&Resources::forward_inputs, c.forward_words_max * 4},
      {&Resources::sample_inputs, c.sample_words_max * 4},
      {&Resources::candidates, uint64_t{c.sample_rows_max} * 2 * kListMax * 4},
      {&Resources::products, traits.num_cores * uint64_t{kSplitBytesCore}},
      {&Resources::arrivals, std::max(traits.num_cores * kArrivalsCore, c.sample_rows_max) * uint64_t{4}},
      {&Resources::merge_arrivals, uint64_t{c.partials_max} * c.heads_max * 4},
      {&Resources::norms, norm_parts_bytes(traits, c.hidden_columns)},
      {&Resources::routes, routes_bytes},
      {&Resources::halves, std::min(halves_bytes, kHalvesBytesMax)},
  };
}

// The ranges of num_blocks blocks: for each layer data, then scales.
void append_sizes(const KvGroup& group, uint32_t num_blocks, std::vector<uint64_t>* sizes) {
  for (uint32_t layer = 0; layer < group.num_layers; ++layer) {
    sizes->push_back(num_blocks * group.data_bytes_block_layer());
    if (group.scales_vector() > 0) sizes->push_back(num_blocks * group.scale_bytes_block_layer());
  }
}

void take_views(const KvGroup& group, const RangeSet& ranges, size_t* item, KvMemory* memory) {
  for (uint32_t layer = 0; layer < group.num_layers; ++layer) {
    memory->data.push_back(ranges[(*item)++]);
    if (group.scales_vector() > 0) memory->scales.push_back(ranges[(*item)++]);
  }
}

Status zero(Transfer* transfer, const RangeSet& ranges) {
  for (const auto& buffer : ranges.buffers())
    if (Status s = transfer->zero({0, buffer.get(), 0, buffer->bytes()}); !s) return s;
  return {};
}

}  // namespace

Result<DeviceState> DeviceState::create(const Device& device, MemoryBook* book, Transfer* transfer,
                                        const StateConfig& config, Resources* resources) {
  const std::vector<Wanted> wanted = wanted_ranges(device.traits(), config, resources->weights);
  std::vector<uint64_t> sizes;
  for (const Wanted& range : wanted) sizes.push_back(range.bytes);
  auto state = RangeSet::create(device, book, MemoryKind::kState, sizes);
  if (!state) return state.error();
  auto arena = RangeSet::create(device, book, MemoryKind::kArena, {&config.arena_bytes, 1});
  if (!arena) return arena.error();
  DeviceState made;
  made.state_ = std::move(*state);
  made.arena_ = std::move(*arena);
  for (size_t i = 0; i < wanted.size(); ++i) resources->*wanted[i].view = made.state_[i];
  resources->arena = made.arena_[0];
  resources->config = config;
  if (Status s = zero(transfer, made.state_); !s) return s.error();
  return made;
}

Result<KvPools> KvPools::create(const Device& device, MemoryBook* book, Transfer* transfer,
                                std::span<const KvGroup> groups, std::vector<KvPool>* pools) {
  std::vector<uint64_t> sizes, host_sizes;
  for (const KvGroup& group : groups) {
    append_sizes(group, group.num_blocks, &sizes);
    if (group.num_host_blocks > 0) append_sizes(group, group.num_host_blocks, &host_sizes);
  }
  auto on_device = RangeSet::create(device, book, MemoryKind::kKv, sizes);
  if (!on_device) return on_device.error();
  auto on_host = RangeSet::create(device, book, MemoryKind::kOther, host_sizes, 256, Buffer::Where::kHostRead);
  if (!on_host) return on_host.error();
  KvPools made;
  made.device_ = std::move(*on_device);
  made.host_ = std::move(*on_host);
  size_t item = 0, host_item = 0;
  for (const KvGroup& group : groups) {
    KvPool& pool = pools->emplace_back(KvPool{group, {}, {}});
    take_views(group, made.device_, &item, &pool.device);
    if (group.num_host_blocks > 0) take_views(group, made.host_, &host_item, &pool.host);
  }
  if (Status s = zero(transfer, made.device_); !s) return s.error();
  return made;
}

}  // namespace llmrt::vulkan
