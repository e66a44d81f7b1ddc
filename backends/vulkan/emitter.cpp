#include "backends/vulkan/emitter.h"

#include <algorithm>

namespace llmrt::vulkan {
namespace {

bool any_overlap(std::span<const View> a, const std::vector<View>& b) {
  return std::ranges::any_of(
      a, [&](const View& x) { return std::ranges::any_of(b, [&](const View& y) { return overlap(x, y); }); });
}

}  // namespace

bool Hazards::add(std::span<const View> reads, std::span<const View> writes) {
  const bool conflicts = any_overlap(reads, written_) || any_overlap(writes, written_) || any_overlap(writes, read_);
  if (conflicts) clear();
  read_.insert(read_.end(), reads.begin(), reads.end());
  written_.insert(written_.end(), writes.begin(), writes.end());
  return conflicts;
}

void Hazards::clear() {
  read_.clear();
  written_.clear();
}

void Emitter::begin_step(const Step& step) {
  step_hazards_.clear();
  program_->steps.push_back({name_of(step, list()), ops_of(step), static_cast<uint32_t>(program_->launches.size()), 0});
}

Launch& Emitter::launch(const KernelChoice& choice, const PushBytes& push, std::span<const View> reads,
                        std::span<const View> writes) {
  const Groups& groups = choice.groups;
  const uint32_t* most = traits().groups_max;
  if (status_ && (groups.x > most[0] || groups.y > most[1] || groups.z > most[2]))
    status_ =
        make_error(ErrorCode::kMissingFeature, "vulkan: {}: expected at most {} x {} x {} groups, found {} x {} x {}",
                   choice.kernel.shader, most[0], most[1], most[2], groups.x, groups.y, groups.z);
  ++program_->steps.back().num_launches;
  Launch& made = program_->launches.emplace_back(Launch{choice.kernel, groups, push, {}, {}});
  for (const View& view : reads)
    if (view.bytes > 0) made.reads.push_back(view);
  for (const View& view : writes)
    if (view.bytes > 0) made.writes.push_back(view);
  made.barrier = hazards_.add(made.reads, made.writes);
  made.barrier_in_step = step_hazards_.add(made.reads, made.writes);
  return made;
}

View Emitter::tensor(TensorId id) const {
  const bool is_hidden = desc(id).storage == Storage::kHidden;
  const View& home = is_hidden ? resources_.hidden : resources_.arena;
  return home.part(is_hidden ? 0 : program_->arena.offsets[id], list().bytes_of(id));
}

View Emitter::live_count(TensorId id) const {
  const Rows rows = desc(id).rows;
  if (rows == Rows::kTokens || (rows == Rows::kRouted && list().num_sampled == 0))
    return resources_.forward_inputs.part(kFwdNumTokens * 4ull, 4);
  return resources_.sample_inputs.part(kSmpNumRecords * 4ull, 4);
}

bool Emitter::has_items(TensorId ids, const ExpertItems& items, TensorId x) {
  const bool has = sorted_ids_ == ids && sorted_items_ == items && (x == kNoTensor || rounded_x_ == x);
  if (has) return true;
  sorted_ids_ = ids;
  sorted_items_ = items;
  rounded_x_ = x;
  return has;
}

Status emit(Emitter&, const RunningSum&) {
  return make_error(ErrorCode::kUnsupported, "vulkan: running_sum: no kernel");
}

Status emit(Emitter& e, const PlainStep& step) {
  return std::visit(
      [&]<class T>(const T& op) -> Status {
        if constexpr (requires { emit(e, op); })
          return emit(e, op);
        else
          LLMRT_CHECK(false, "an op that is never a plain step");
      },
      e.list().ops[step.op]);
}

}  // namespace llmrt::vulkan
