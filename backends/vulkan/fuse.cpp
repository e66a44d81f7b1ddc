#include "backends/vulkan/fuse.h"

#include <algorithm>
#include <numeric>

#include "backends/vulkan/patterns.h"

namespace llmrt::vulkan {
namespace {

// A step of one op.
Step make_single(const Setting& setting, FuseState* state, uint32_t op) {
  const Op& found = setting.list.ops[op];
  if (const Matmul* matmul = std::get_if<Matmul>(&found)) return MatmulStep{op, state->end(matmul->x)};
  const RmsNorm* norm = std::get_if<RmsNorm>(&found);
  if (!norm) return PlainStep{op};
  NormStep step{op, norm->delta == kNoTensor ? 0u : 1u, false};
  if (norm->delta != kNoTensor && norm->delta == state->parts_of) step.parts = state->parts;
  state->parts_of = kNoTensor;
  step.leaves_factor = !setting.traits().cpu_kernels && setting.list.rows_of(norm->x) <= setting.traits().fragment.n;
  if (step.leaves_factor) state->slot = 0;
  return step;
}

// The first pattern that runs as one step from `op` on; -1: none. What does not is noted.
struct Found {
  const Pattern* pattern = nullptr;
  std::vector<uint32_t> ops;  // that run
  Step step = PlainStep{};
};
Found find_pattern(const Setting& setting, const Flow& flow, uint32_t op, const std::vector<bool>& taken,
                   FuseState* state, std::vector<PatternNote>* notes) {
  for (const Pattern& pattern : all_patterns()) {
    const Match match = pattern.match(flow, op);
    if (!match.lost.empty()) notes->push_back({pattern.name, op, true, match.lost});
    if (match.num_run == 0 || match.ops.empty()) continue;
    const bool runs = match.lost.empty() || pattern.match == find_qkv_heads;
    if (!runs || std::ranges::any_of(match.ops, [&](uint32_t i) { return taken[i]; })) continue;
    if (const char* reason = pattern.refuses(setting, *state, match.ops)) {
      notes->push_back({pattern.name, op, false, reason});
      continue;
    }
    return {&pattern, {match.ops.begin(), match.ops.begin() + match.num_run}, pattern.make(setting, state, match.ops)};
  }
  return {};
}

}  // namespace

std::vector<uint32_t> ops_of(const Step& step) {
  std::vector<uint32_t> ops;
  std::visit(
      [&]<class T>(const T& s) {
        if constexpr (std::is_same_v<T, PlainStep>) ops = {s.op};
        if constexpr (std::is_same_v<T, MatmulStep> || std::is_same_v<T, PartsMatmulStep>) ops = {s.matmul};
        if constexpr (std::is_same_v<T, NormStep>) ops = {s.norm};
        if constexpr (std::is_same_v<T, GatedMatmulStep>) ops = {s.matmul, s.activation};
        if constexpr (std::is_same_v<T, QkvMatmulStep>) ops = {s.matmul, s.rope, s.kv_write};
        if constexpr (std::is_same_v<T, NormedMatmulStep>) ops = {s.matmul, s.norm};
        if constexpr (std::is_same_v<T, QkvHeadsStep>)
          for (const int op : {s.norm, s.rope, s.kv_write})
            if (op >= 0) ops.push_back(static_cast<uint32_t>(op));
      },
      step);
  return ops;
}

std::string name_of(const Step& step, const OpList& list) {
  if (std::holds_alternative<GatedMatmulStep>(step)) return "gated_matmul";
  if (std::holds_alternative<NormedMatmulStep>(step)) return "normed_matmul";
  if (std::holds_alternative<PartsMatmulStep>(step)) return "parts_matmul";
  if (std::holds_alternative<QkvMatmulStep>(step)) return "qkv_matmul";
  if (std::holds_alternative<QkvHeadsStep>(step)) return "qkv_heads";
  return op_name(list.ops[ops_of(step).front()]);
}

FusedList fuse(const Setting& setting) {
  const Flow flow(setting.list);
  const uint32_t num_ops = static_cast<uint32_t>(setting.list.ops.size());
  FusedList out;
  FuseState state;
  std::vector<bool> taken(num_ops);
  std::vector<std::vector<Step>> ending(num_ops);  // by last op
  for (uint32_t op = 0; op < num_ops; ++op) {
    if (taken[op]) continue;
    Found found = find_pattern(setting, flow, op, taken, &state, &out.notes);
    if (!found.pattern) {
      found.ops = {op};
      found.step = make_single(setting, &state, op);
    }
    for (const uint32_t i : found.ops) taken[i] = true;
    ending[found.ops.back()].push_back(found.step);
  }
  for (std::vector<Step>& steps : ending) out.steps.insert(out.steps.end(), steps.begin(), steps.end());
  return out;
}

std::vector<int> lives_with(const OpList& list) {
  const Flow flow(list);
  std::vector<int> last(list.ops.size());
  std::iota(last.begin(), last.end(), 0);
  for (const Pattern& pattern : all_patterns()) {
    for (uint32_t op = 0; op < list.ops.size(); ++op) {
      const Match match = pattern.match(flow, op);
      if (match.num_run < 2 || match.ops.empty() || !match.lost.empty()) continue;
      const uint32_t end = match.ops[match.num_run - 1];
      // Where ops stand between, a step runs behind them.
      if (!pattern.writes_early && end == op + match.num_run - 1) continue;
      for (uint32_t i = 0; i < match.num_run; ++i)
        last[match.ops[i]] = std::max(last[match.ops[i]], static_cast<int>(end));
    }
  }
  return last;
}

}  // namespace llmrt::vulkan
