#include "backends/vulkan/executor.h"

#include "backends/vulkan/pipelines.h"

namespace llmrt::vulkan {
namespace {

constexpr uint32_t kTimesSlot = 4;  // begin, between the lists, end

}  // namespace

Result<std::unique_ptr<Executor>> Executor::create(const Device& device, MemoryBook* book, Pipelines* pipelines,
                                                   const StateConfig& config) {
  auto queue = Queue::create(device);
  if (!queue) return queue.error();
  std::unique_ptr<Executor> executor(new Executor(std::move(*queue), pipelines, config));
  auto timestamps = Timestamps::create(device, kTimesSlot * kInFlightMax);
  if (!timestamps) return timestamps.error();
  executor->timestamps_ = std::move(*timestamps);
  for (StepSlot& slot : executor->slots_) {
    auto created = StepSlot::create(executor->queue_.get(), book, config);
    if (!created) return created.error();
    slot = std::move(*created);
  }
  return executor;
}

// Buffers and timestamps go before the queue, which no submission may then use.
Executor::~Executor() {
  device().api().DeviceWaitIdle(device().handle());
}

Status Executor::compile(const Resources& resources, std::span<const SealedList* const> lists) {
  return recordings_.compile(resources, lists);
}

Status Executor::prepare(const Resources& resources, const SealedList& list) {
  auto prepared = recordings_.find(resources, list, 0, waited_);
  if (!prepared) return prepared.error();
  return {};
}

Status Executor::check_inputs(const StepSubmission& step) const {
  const auto check = [](const char* what, uint64_t found, uint64_t most) -> Status {
    if (found <= most) return {};
    return make_error(ErrorCode::kInvalidArgument, "vulkan: {}: expected at most {}, found {}", what, most, found);
  };
  if (Status s = check("forward inputs", step.forward_inputs.size(), config_.forward_words_max); !s) return s;
  if (Status s = check("sample inputs", step.sample_inputs.size(), config_.sample_words_max); !s) return s;
  return check("sampled rows", step.num_sampled, config_.sample_rows_max);
}

Result<Ticket> Executor::submit(const Resources& resources, const StepSubmission& step) {
  LLMRT_CHECK(submitted_ - waited_ < kInFlightMax, "more steps submitted than may be in flight");
  if (Status status = check_inputs(step); !status) return status.error();
  const uint64_t ticket = submitted_ + 1;
  const SealedList* lists[] = {step.memory, step.forward, step.sample};
  VkCommandBuffer recorded[std::size(lists)] = {};
  for (size_t i = 0; i < std::size(lists); ++i) {
    if (!lists[i]) continue;
    auto found = recordings_.find(resources, *lists[i], ticket, waited_);
    if (!found) return found.error();
    recorded[i] = *found;
  }

  const uint32_t slot_idx = submitted_ % kInFlightMax, first_time = slot_idx * kTimesSlot;
  StepSlot& slot = slots_[slot_idx];
  slot.has_memory = step.memory != nullptr;
  slot.has_forward = step.forward != nullptr;
  slot.has_sample = step.sample != nullptr;
  const VkCommandBuffer around[kTimesSlot] = {slot.head, slot.between[0], slot.between[1], slot.tail};
  for (VkCommandBuffer commands : around)
    if (Status status = queue_->begin(commands, true); !status) return status.error();
  timestamps_.clear(slot.head, first_time, kTimesSlot);
  slot.copy_inputs(slot.head, resources, step);
  for (uint32_t i = 0; i < kTimesSlot; ++i) timestamps_.write(around[i], first_time + i);
  slot.copy_results(slot.tail, resources, step);
  for (VkCommandBuffer commands : around)
    if (Status status = queue_->end(commands); !status) return status.error();

  std::vector<VkCommandBuffer> order;
  for (size_t i = 0; i < kTimesSlot; ++i) {
    order.push_back(around[i]);
    if (i < std::size(recorded) && recorded[i]) order.push_back(recorded[i]);
  }
  if (Status status = queue_->submit(order, ticket); !status) return status.error();
  return submitted_ = ticket;
}

Result<StepOutput> Executor::wait(Ticket ticket) {
  LLMRT_CHECK(ticket == waited_ + 1 && ticket <= submitted_, "tickets are waited for in order");
  if (Status status = queue_->wait(ticket); !status) return status.error();
  waited_ = ticket;
  const uint32_t slot_idx = (ticket - 1) % kInFlightMax;
  const StepSlot& slot = slots_[slot_idx];
  uint64_t times[kTimesSlot] = {};
  if (Status status = timestamps_.read(slot_idx * kTimesSlot, times); !status) return status.error();
  const auto ms_between = [&](size_t begin) { return elapsed_ms(device().traits(), times[begin], times[begin + 1]); };
  StepOutput output;
  if (slot.has_memory) output.memory_ms = ms_between(0);
  if (slot.has_forward) output.forward_ms = ms_between(1);
  if (slot.has_sample) output.sample_ms = ms_between(2);
  slot.take_results(&output);
  return output;
}

}  // namespace llmrt::vulkan
