#include "tests/vulkan/fake_device.h"

#include <fmt/format.h>

#include <algorithm>

#include "backends/vulkan/choose_matmul.h"
#include "core/base/check.h"

namespace llmrt::vulkan {
namespace {

Traits nvidia() {
  Traits t;
  t.name = "NVIDIA H200";
  t.driver = "NVIDIA 580.95.05, Vulkan 1.4.312";
  t.tier = Tier::kMatrix;
  t.subgroup_size = 32;
  t.asks_subgroup_size = true;
  t.num_cores = 132;
  t.shared_bytes = 49152;
  t.range_bytes = 4ull << 30;
  t.groups_max[0] = 2147483647u;
  t.matrix_m = t.matrix_n = t.matrix_k = 16;
  t.fragment = {16, 8, 16, 4, 2, true};
  t.has_int64 = true;
  return t;
}

Traits without_matrix(Traits t, Tier tier) {
  t.tier = tier;
  t.matrix_m = t.matrix_n = t.matrix_k = 0;
  t.fragment = {};
  t.packed_f16 = tier >= Tier::kSubgroup;
  if (tier == Tier::kScalar) t.subgroup_size = 1;
  return t;
}

Traits lavapipe() {
  Traits t;
  t.name = "llvmpipe";
  t.driver = "llvmpipe Mesa 25.2.8, Vulkan 1.4.318";
  t.tier = Tier::kSubgroup;
  t.is_cpu = t.cpu_kernels = t.unified_memory = true;
  t.subgroup_size = 8;
  t.shared_bytes = 32768;
  t.range_bytes = 128ull << 20;
  t.has_int64 = true;
  return t;
}

Traits amd(uint32_t simd_registers) {
  Traits t;
  t.driver = "radv Mesa 26.1.6, Vulkan 1.4.318";
  t.tier = Tier::kSubgroup;
  t.subgroup_size = 64;
  t.asks_subgroup_size = true;
  t.num_cores = 36;
  t.simd_registers = simd_registers;
  t.shared_bytes = 65536;
  t.range_bytes = 4ull << 30;
  t.has_int64 = true;
  return t;
}

}  // namespace

Traits fake_traits(const std::string& name) {
  if (name == "h200") return nvidia();
  if (name == "h200-t2") return without_matrix(nvidia(), Tier::kDots);
  if (name == "h200-t1") return without_matrix(nvidia(), Tier::kSubgroup);
  if (name == "h200-t0") return without_matrix(nvidia(), Tier::kScalar);
  if (name == "lavapipe") return lavapipe();
  if (name == "lavapipe-gpu") {
    Traits t = lavapipe();
    t.cpu_kernels = false;
    t.tier = Tier::kMatrix;
    t.matrix_m = t.matrix_n = t.matrix_k = 8;
    t.fragment = {8, 8, 8, 8, 1, true};
    return t;
  }
  if (name == "gcn") return amd(256);
  if (name == "rdna3") {
    Traits t = amd(768);
    t.tier = Tier::kMatrix;
    t.matrix_m = t.matrix_n = t.matrix_k = 16;
    return t;
  }
  LLMRT_CHECK(name == "xe", name);
  Traits t = amd(0);
  t.driver = "Intel open-source Mesa driver, Vulkan 1.4.318";
  t.subgroup_size = 16;
  t.lane_registers = 64;
  return t;
}

View FakeDevice::make(uint64_t bytes) {
  buffers_.push_back(std::make_unique<Buffer>());
  return {buffers_.size() << 40, buffers_.back().get(), 0, bytes};
}

FakeDevice::FakeDevice(const std::string& traits, const WeightTable& table, const StateConfig& config,
                       const KvGroup& group)
    : traits_(fake_traits(traits)) {
  const WeightRuns runs = plan_weight_runs(table, traits_, 16 << 20);
  std::vector<View> views;
  const View weights = make(1ull << 39);
  uint64_t at = 0;
  for (const uint64_t bytes : runs.bytes) {
    views.push_back(weights.part(at, bytes));
    at += bytes;
  }
  weights_ = make_pieces(table, runs, views);
  Resources& r = resources_;
  r.traits = &traits_;
  r.weights = &weights_;
  r.config = config;
  for (View* view : {&r.arena, &r.hidden, &r.rows, &r.tables, &r.counts, &r.partials, &r.merge_arrivals, &r.candidates,
                     &r.results, &r.forward_inputs, &r.sample_inputs})
    *view = make(1ull << 33);
  r.products = make(uint64_t{traits_.num_cores} * kSplitBytesCore);
  r.arrivals = make(std::max<uint64_t>(traits_.num_cores * kArrivalsCore, config.sample_rows_max) * 4);
  r.routes = make(64 << 20);
  r.norms = make(norm_parts_bytes(traits_, config.hidden_columns));
  r.halves =
      make(std::min(weights_.halves_bytes({traits_, default_tuning()}, config.step_tokens_max), kHalvesBytesMax));
  KvPool& pool = r.pools.emplace_back(KvPool{group, {}, {}});
  for (uint32_t layer = 0; layer < group.num_layers; ++layer) {
    pool.device.data.push_back(make(group.num_blocks * group.data_bytes_block_layer()));
    if (kv_has_scales(group.dtype))
      pool.device.scales.push_back(make(group.num_blocks * group.scale_bytes_block_layer()));
  }
}

void FakeDevice::add_copies() {
  for (GroupPieces& group : weights_.groups)
    for (Piece& piece : group.pieces)
      if (!group.of_sampled_rows && group.num_experts == 0 &&
          can_write_halves({traits_, default_tuning()}, piece, group.columns))
        piece.f16_copy = make(piece.num_rows * group.columns * 2);
}

std::string brief(const Program& program) {
  std::string text;
  for (const ProgramStep& step : program.steps)
    for (uint32_t i = 0; i < step.num_launches; ++i) {
      const Launch& launch = program.launches[step.first_launch + i];
      text += fmt::format("{}{}: {}\n", launch.barrier ? "|" : " ", step.name, launch.kernel.shader);
    }
  return text;
}

std::string notes(const Program& program, bool is_lost) {
  std::string text;
  for (const PatternNote& note : program.notes)
    if (note.is_lost == is_lost)
      text += fmt::format("{} {} at {}: {}\n", is_lost ? "lost" : "not taken", note.pattern, note.op, note.reason);
  return text;
}

}  // namespace llmrt::vulkan
