#include "backends/vulkan/program.h"

#include <fmt/format.h>

#include <map>

#include "backends/vulkan/emitter.h"

namespace llmrt::vulkan {

constexpr uint64_t kArenaAlignment = 256;  // twin: core/engine/lower.cpp sizes the arena with it

ArenaPlan plan_arena(const OpList& list) {
  return plan_arena(list, kArenaAlignment, lives_with(list));
}

uint64_t arena_bytes(const OpList& list) {
  return plan_arena(list).bytes;
}

Setting setting_of(const Resources& resources, const OpList& list) {
  Setting setting{.target = {*resources.traits, default_tuning()}, .weights = *resources.weights, .list = list};
  for (const KvPool& pool : resources.pools) setting.kv_groups.push_back(pool.group);
  setting.hidden_columns = resources.config.hidden_columns;
  setting.halves_bytes = resources.halves.bytes;
  setting.products_bytes = resources.products.bytes;
  setting.arrivals_bytes = resources.arrivals.bytes;
  return setting;
}

uint64_t norm_parts_bytes(const Traits& traits, uint32_t columns) {
  return traits.fragment.n * (8 + columns * uint64_t{3});  // at least 4 / m bytes of squares a column, and 2 of x
}

NormParts norm_parts(const Resources& resources) {
  const uint64_t rows = resources.traits->fragment.n, columns = resources.config.hidden_columns;
  const View& all = resources.norms;
  const uint64_t squares = 2 * rows * 4, x = squares + rows * (columns / resources.traits->fragment.m) * 4;
  return {all,
          {all.part(0, rows * 4), all.part(rows * 4, rows * 4)},
          all.part(squares, x - squares),
          all.part(x, rows * columns * 2)};
}

Result<Program> make_program(const Resources& resources, const OpList& list) {
  Program program;
  program.name = list.name;
  program.arena = plan_arena(list);
  if (program.arena.bytes > resources.arena.bytes)
    return make_error(ErrorCode::kInvalidArgument, "vulkan: list {}: expected an arena of {} bytes, state has {}",
                      list.name, program.arena.bytes, resources.arena.bytes);
  const Setting setting = setting_of(resources, list);
  FusedList fused = fuse(setting);
  program.notes = std::move(fused.notes);
  Emitter emitter(resources, setting, &program);
  for (const Step& step : fused.steps) {
    emitter.begin_step(step);
    Status status = std::visit([&](const auto& s) { return emit(emitter, s); }, step);
    if (!status) return status.error();
    if (!emitter.status()) return emitter.status().error();
  }
  return program;
}

std::string print(const Program& program) {
  std::string text =
      fmt::format("{}: {} launches, arena {}\n", program.name, program.launches.size(), program.arena.bytes);
  for (const ProgramStep& step : program.steps) {
    for (uint32_t i = 0; i < step.num_launches; ++i) {
      const Launch& launch = program.launches[step.first_launch + i];
      text += fmt::format("{} {}: {}", launch.barrier ? "|" : " ", step.name,
                          print(KernelChoice{launch.kernel, launch.groups}));
      if (launch.products_bytes > 0) text += fmt::format(" sums={}", launch.products_bytes);
      if (launch.arrivals_bytes > 0) text += fmt::format(" arrivals={}", launch.arrivals_bytes / 4);
      text += "\n";
    }
  }
  std::map<std::string, uint32_t> notes;
  for (const PatternNote& note : program.notes)
    ++notes[fmt::format("{} {}: {}", note.is_lost ? "lost" : "not taken", note.pattern, note.reason)];
  for (const auto& [note, count] : notes) text += fmt::format("{} (x{})\n", note, count);
  return text;
}

}  // namespace llmrt::vulkan
