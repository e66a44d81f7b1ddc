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

// Makes the step of the first of the op's matches that runs as one; false: there is none. What does not run is noted.
bool take_match(const Setting& setting, std::span<const PatternMatch> matches, const std::vector<bool>& taken,
                FuseState* state, Step* step, std::vector<PatternNote>* notes) {
  for (const auto& [op, pattern, match] : matches) {
    if (!match.lost.empty()) notes->push_back({pattern->name, op, true, match.lost});
    const bool runs = match.lost.empty() || pattern->runs_in_part;
    if (!runs || std::ranges::any_of(match.ops, [&](uint32_t i) { return taken[i]; })) continue;
    const char* reason = pattern->take(setting, state, match.ops, step);
    if (!reason) return true;
    notes->push_back({pattern->name, op, false, reason});
  }
  return false;
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

std::vector<PatternMatch> find_matches(const OpList& list) {
  const OpFlow flow(list);
  std::vector<PatternMatch> matches;
  for (uint32_t op = 0; op < list.ops.size(); ++op)
    for (const Pattern& pattern : all_patterns())
      if (Match match = pattern.match(flow, op); !match.ops.empty())
        matches.push_back({op, &pattern, std::move(match)});
  return matches;
}

std::vector<int> lives_with(const OpList& list, std::span<const PatternMatch> matches) {
  std::vector<int> last(list.ops.size());
  std::iota(last.begin(), last.end(), 0);
  for (const auto& [op, pattern, match] : matches) {
    if (!match.lost.empty()) continue;
    const uint32_t end = match.ops[match.num_run - 1];
    // Where ops stand between, a step runs behind them.
    if (!pattern->writes_early && end == op + match.num_run - 1) continue;
    for (uint32_t i = 0; i < match.num_run; ++i)
      last[match.ops[i]] = std::max(last[match.ops[i]], static_cast<int>(end));
  }
  return last;
}

FusedList fuse(const Setting& setting, std::span<const PatternMatch> matches) {
  const uint32_t num_ops = static_cast<uint32_t>(setting.list.ops.size());
  FusedList out;
  FuseState state;
  std::vector<bool> taken(num_ops);
  std::vector<std::vector<Step>> ending(num_ops);  // by last op
  size_t next = 0;
  for (uint32_t op = 0; op < num_ops; ++op) {
    const size_t first = next;
    while (next < matches.size() && matches[next].op == op) ++next;
    if (taken[op]) continue;
    Step step = PlainStep{op};
    const auto at_op = matches.subspan(first, next - first);
    if (!take_match(setting, at_op, taken, &state, &step, &out.notes)) step = make_single(setting, &state, op);
    const std::vector<uint32_t> ops = ops_of(step);
    for (const uint32_t i : ops) taken[i] = true;
    ending[ops.back()].push_back(std::move(step));
  }
  for (const std::vector<Step>& steps : ending) out.steps.insert(out.steps.end(), steps.begin(), steps.end());
  return out;
}

}  // namespace llmrt::vulkan
