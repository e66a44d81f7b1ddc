// Executor::profile: each step of a program by itself between two timestamps.
#include <algorithm>

#include "backends/vulkan/executor.h"
#include "backends/vulkan/recorder.h"

namespace llmrt::vulkan {
namespace {

// A list's program, and where its ops' times go.
struct Timed {
  Program program;
  uint32_t op_base;
};

}  // namespace

Result<std::vector<double>> Executor::profile(const Resources& resources, const StepSubmission& step) {
  if (Status status = check_inputs(step); !status) return status.error();
  if (Status status = wait_idle(); !status) return status.error();
  LLMRT_CHECK(submitted_ == waited_, "profile with steps in flight");
  std::vector<Timed> timed;
  uint32_t num_ops = 0, num_steps = 0;
  for (const SealedList* sealed : {step.forward, step.sample}) {
    if (!sealed) continue;
    auto program = make_compiled_program(resources, pipelines_, *sealed);
    if (!program) return program.error();
    num_steps += static_cast<uint32_t>(program->steps.size());
    timed.push_back({std::move(*program), num_ops});
    num_ops += static_cast<uint32_t>(sealed->list.ops.size());
  }
  auto timestamps = Timestamps::create(device(), num_steps + 1);
  if (!timestamps) return timestamps.error();

  StepSlot& slot = slots_[0];
  const VkCommandBuffer commands = slot.head;
  if (Status status = queue_->begin(commands, true); !status) return status.error();
  timestamps->clear(commands, 0, num_steps + 1);
  slot.copy_inputs(commands, resources, step);
  if (step.memory) {
    auto memory = make_compiled_program(resources, pipelines_, *step.memory);
    if (!memory) return memory.error();
    record_program(device(), *pipelines_, commands, *memory);
    record_barrier(device(), commands, BarrierAfter::kLaunches);
  }
  timestamps->write(commands, 0);
  uint32_t next = 0;
  for (const Timed& list : timed)
    for (const ProgramStep& program_step : list.program.steps) {
      record_step(device(), *pipelines_, commands, list.program, program_step);
      record_barrier(device(), commands, BarrierAfter::kLaunches);
      timestamps->write(commands, ++next);
    }
  if (Status status = queue_->end(commands); !status) return status.error();
  if (Status status = queue_->submit({&commands, 1}, submitted_ + 1); !status) return status.error();
  waited_ = ++submitted_;
  if (Status status = wait_idle(); !status) return status.error();

  std::vector<uint64_t> times(num_steps + 1);
  if (Status status = timestamps->read(0, times); !status) return status.error();
  std::vector<double> op_ms(num_ops, 0.0);
  size_t at = 0;
  for (const Timed& list : timed)
    for (const ProgramStep& program_step : list.program.steps) {
      op_ms[list.op_base + program_step.ops.front()] =
          std::max(elapsed_ms(device().traits(), times[at], times[at + 1]), device().traits().timestamp_ns * 1e-6);
      ++at;
    }
  return op_ms;
}

}  // namespace llmrt::vulkan
