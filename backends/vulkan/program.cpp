#include "backends/vulkan/program.h"

#include <fmt/format.h>

#include <map>

#include "backends/vulkan/emitter.h"
#include "backends/vulkan/patterns.h"

namespace llmrt::vulkan {
namespace {

constexpr uint64_t kArenaAlignment = 256;

ArenaPlan plan_with(const OpList& list, std::span<const PatternMatch> matches) {
  return llmrt::plan_arena(list, kArenaAlignment, lives_with(list, matches));
}

}  // namespace

ArenaPlan plan_arena(const OpList& list) {
  return plan_with(list, find_matches(list));
}

uint64_t arena_bytes(const OpList& list) {
  return plan_arena(list).bytes;
}

Result<Program> make_program(const Resources& resources, const OpList& list) {
  if (Status status = refuse_routed_rows(list); !status) return status.error();
  Program program;
  program.name = list.name;
  const std::vector<PatternMatch> matches = find_matches(list);
  program.arena = plan_with(list, matches);
  if (program.arena.bytes > resources.arena.bytes)
    return make_error(ErrorCode::kInvalidArgument, "vulkan: list {}: expected an arena of {} bytes, state has {}",
                      list.name, program.arena.bytes, resources.arena.bytes);
  const Setting setting = setting_of(resources, list);
  FusedList fused = fuse(setting, matches);
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
