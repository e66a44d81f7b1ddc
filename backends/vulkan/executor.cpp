#include "backends/vulkan/executor.h"

#include <algorithm>
#include <cstring>

#include "backends/vulkan/check.h"

namespace llmrt::vulkan {
namespace {

constexpr uint64_t kArenaAlignment = 256;  // twin: core/engine/lower.cpp sizes the arena with it
constexpr size_t kRecordingsMax = 192;
constexpr uint32_t kQueriesSlot = 4;  // begin, between the lists, end

void full_barrier(const Device& device, VkCommandBuffer commands) {
  VkMemoryBarrier2 barrier{VK_STRUCTURE_TYPE_MEMORY_BARRIER_2};
  barrier.srcStageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT;
  barrier.srcAccessMask = VK_ACCESS_2_MEMORY_WRITE_BIT;
  barrier.dstStageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT | VK_PIPELINE_STAGE_2_HOST_BIT;
  barrier.dstAccessMask = VK_ACCESS_2_MEMORY_READ_BIT | VK_ACCESS_2_MEMORY_WRITE_BIT;
  VkDependencyInfo dependency{VK_STRUCTURE_TYPE_DEPENDENCY_INFO};
  dependency.memoryBarrierCount = 1;
  dependency.pMemoryBarriers = &barrier;
  device.api().CmdPipelineBarrier2(commands, &dependency);
}

Status record_all(Recorder& recorder) {
  recorder.begin();
  for (uint32_t i = 0; i < recorder.list().ops.size();) {
    auto taken = record_ops(recorder, i);
    if (!taken) return taken.error();
    i += *taken;
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Executor>> Executor::create(const Device& device, MemoryBook* book, Pipelines* pipelines,
                                                   const StateConfig& config) {
  const DeviceApi& api = device.api();
  std::unique_ptr<Executor> executor(new Executor(device, pipelines, config));
  VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
  pool.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
  pool.queueFamilyIndex = device.queue_family();
  VK_TRY(api.CreateCommandPool(device.handle(), &pool, nullptr, &executor->pool_), "command pool");
  VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  const VkSemaphoreCreateInfo semaphore{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type, 0};
  VK_TRY(api.CreateSemaphore(device.handle(), &semaphore, nullptr, &executor->timeline_), "timeline semaphore");
  VkQueryPoolCreateInfo queries{VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO};
  queries.queryType = VK_QUERY_TYPE_TIMESTAMP;
  queries.queryCount = kQueriesSlot * kInFlightMax;
  VK_TRY(api.CreateQueryPool(device.handle(), &queries, nullptr, &executor->queries_), "query pool");
  for (RingSlot& slot : executor->ring_) {
    auto inputs = Buffer::create(device, book, MemoryKind::kOther, Buffer::Where::kHostWrite,
                                 (config.forward_words_max + config.sample_words_max) * 4);
    if (!inputs) return inputs.error();
    slot.inputs = std::move(*inputs);
    auto results = Buffer::create(device, book, MemoryKind::kOther, Buffer::Where::kHostRead,
                                  config.sample_rows_max * (sizeof(SampleResult) + sizeof(LogprobRow)));
    if (!results) return results.error();
    slot.results = std::move(*results);
    for (VkCommandBuffer* commands : {&slot.head, &slot.between[0], &slot.between[1], &slot.tail}) {
      auto allocated = executor->allocate_commands();
      if (!allocated) return allocated.error();
      *commands = *allocated;
    }
  }
  return executor;
}

Executor::~Executor() {
  const DeviceApi& api = device_.api();
  api.DeviceWaitIdle(device_.handle());
  api.DestroyQueryPool(device_.handle(), queries_, nullptr);
  api.DestroySemaphore(device_.handle(), timeline_, nullptr);
  api.DestroyCommandPool(device_.handle(), pool_, nullptr);
}

Result<VkCommandBuffer> Executor::allocate_commands() {
  VkCommandBufferAllocateInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
  info.commandPool = pool_;
  info.commandBufferCount = 1;
  VkCommandBuffer commands = VK_NULL_HANDLE;
  VK_TRY(device_.api().AllocateCommandBuffers(device_.handle(), &info, &commands), "command buffer");
  return commands;
}

Status Executor::begin_commands(VkCommandBuffer commands, bool once) {
  VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  begin.flags = once ? VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT : VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT;
  VK_TRY(device_.api().BeginCommandBuffer(commands, &begin), "vkBeginCommandBuffer");
  return {};
}

// ---- recordings ----------------------------------------------------------------------------------------------------

void Executor::drop_recordings() {
  for (auto& [key, recording] : recordings_)
    device_.api().FreeCommandBuffers(device_.handle(), pool_, 1, &recording.commands);
  recordings_.clear();
}

// Frees the least recently used ones that no submission in flight may still run.
void Executor::evict_recordings() {
  while (recordings_.size() > kRecordingsMax) {
    auto oldest = recordings_.begin();
    for (auto it = recordings_.begin(); it != recordings_.end(); ++it)
      if (it->second.last_used < oldest->second.last_used) oldest = it;
    if (oldest->second.last_used > waited_) return;
    device_.api().FreeCommandBuffers(device_.handle(), pool_, 1, &oldest->second.commands);
    recordings_.erase(oldest);
  }
}

Result<ArenaPlan> Executor::plan(const Resources& resources, const OpList& list) const {
  ArenaPlan plan = plan_arena(list, kArenaAlignment);
  if (plan.bytes > resources.arena.bytes)
    return make_error(ErrorCode::kInvalidArgument, "vulkan: list {}: expected an arena of {} bytes, state has {}",
                      list.name, plan.bytes, resources.arena.bytes);
  return plan;
}

Status Executor::collect(const Resources& resources, const OpList& list, const ArenaPlan& plan,
                         std::vector<Kernel>* kernels) const {
  Recorder collector(device_, *pipelines_, resources, list, plan, VK_NULL_HANDLE);
  if (Status status = record_all(collector); !status) return status;
  kernels->insert(kernels->end(), collector.kernels().begin(), collector.kernels().end());
  return {};
}

Status Executor::compile(const Resources& resources, std::span<const OpList* const> lists) {
  std::vector<Kernel> kernels;
  for (const OpList* list : lists) {
    auto arena = plan(resources, *list);
    if (!arena) return arena.error();
    if (Status status = collect(resources, *list, *arena, &kernels); !status) return status;
  }
  return pipelines_->compile(kernels);
}

Status Executor::record(const Resources& resources, const OpList& list, Recording* recording) {
  auto arena = plan(resources, list);
  if (!arena) return arena.error();
  recording->plan = std::move(*arena);
  std::vector<Kernel> kernels;
  if (Status status = collect(resources, list, recording->plan, &kernels); !status) return status;
  if (Status status = pipelines_->compile(kernels); !status) return status;
  auto commands = allocate_commands();
  if (!commands) return commands.error();
  recording->commands = *commands;
  if (Status status = begin_commands(*commands, false); !status) return status;
  Recorder recorder(device_, *pipelines_, resources, list, recording->plan, *commands);
  if (Status status = record_all(recorder); !status) return status;
  VK_TRY(device_.api().EndCommandBuffer(*commands), "vkEndCommandBuffer");
  return {};
}

Result<Executor::Recording*> Executor::recording(const Resources& resources, const OpList& list) {
  const uint64_t key = list.key();
  const auto found = recordings_.find(key);
  if (found != recordings_.end()) return &found->second;
  if (Status status = refuse_routed_rows(list); !status) return status.error();
  evict_recordings();
  Recording fresh;
  if (Status status = record(resources, list, &fresh); !status) {
    if (fresh.commands) device_.api().FreeCommandBuffers(device_.handle(), pool_, 1, &fresh.commands);
    return status.error();
  }
  return &recordings_.emplace(key, std::move(fresh)).first->second;
}

Status Executor::prepare(const Resources& resources, const OpList& list) {
  auto prepared = recording(resources, list);
  if (!prepared) return prepared.error();
  return {};
}

// ---- submission ----------------------------------------------------------------------------------------------------

Status Executor::check_inputs(const StepSubmission& step) const {
  const auto check = [](const char* what, uint64_t found, uint64_t most) -> Status {
    if (found <= most) return {};
    return make_error(ErrorCode::kInvalidArgument, "vulkan: {}: expected at most {}, found {}", what, most, found);
  };
  if (Status s = check("forward inputs", step.forward_inputs.size(), config_.forward_words_max); !s) return s;
  if (Status s = check("sample inputs", step.sample_inputs.size(), config_.sample_words_max); !s) return s;
  return check("sampled rows", step.num_sampled, config_.sample_rows_max);
}

// Waits for whatever still reads the inputs' place, then fills it.
void Executor::copy_inputs(const Resources& resources, RingSlot& slot, const StepSubmission& step) {
  const DeviceApi& api = device_.api();
  full_barrier(device_, slot.head);
  const auto copy = [&](std::span<const uint32_t> words, uint64_t ring_offset, const View& target) {
    if (words.empty()) return;
    std::memcpy(slot.inputs.mapped() + ring_offset, words.data(), words.size_bytes());
    const VkBufferCopy region{ring_offset, target.offset, words.size_bytes()};
    api.CmdCopyBuffer(slot.head, slot.inputs.handle(), target.buffer->handle(), 1, &region);
  };
  copy(step.forward_inputs, 0, resources.forward_inputs);
  copy(step.sample_inputs, config_.forward_words_max * 4, resources.sample_inputs);
  full_barrier(device_, slot.head);
}

void Executor::copy_results(const Resources& resources, RingSlot& slot) {
  full_barrier(device_, slot.tail);
  if (slot.num_sampled == 0) return;
  const uint64_t rows_bytes = config_.sample_rows_max * sizeof(SampleResult);
  const View& results = resources.results;
  std::vector<VkBufferCopy> regions{{results.offset, 0, slot.num_sampled * sizeof(SampleResult)}};
  if (slot.want_logprobs)
    regions.push_back({results.offset + rows_bytes, rows_bytes, slot.num_sampled * sizeof(LogprobRow)});
  device_.api().CmdCopyBuffer(slot.tail, results.buffer->handle(), slot.results.handle(),
                              static_cast<uint32_t>(regions.size()), regions.data());
  full_barrier(device_, slot.tail);
}

Status Executor::queue_submit(std::span<const VkCommandBuffer> commands, uint64_t value) {
  std::vector<VkCommandBufferSubmitInfo> infos;
  for (VkCommandBuffer buffer : commands) {
    infos.push_back({VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO});
    infos.back().commandBuffer = buffer;
  }
  VkSemaphoreSubmitInfo signal{VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO};
  signal.semaphore = timeline_;
  signal.value = value;
  signal.stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT;
  VkSubmitInfo2 submit{VK_STRUCTURE_TYPE_SUBMIT_INFO_2};
  submit.commandBufferInfoCount = static_cast<uint32_t>(infos.size());
  submit.pCommandBufferInfos = infos.data();
  submit.signalSemaphoreInfoCount = 1;
  submit.pSignalSemaphoreInfos = &signal;
  VK_TRY(device_.api().QueueSubmit2(device_.queue(), 1, &submit, VK_NULL_HANDLE), "vkQueueSubmit2");
  return {};
}

Result<Ticket> Executor::submit(const Resources& resources, const StepSubmission& step) {
  LLMRT_CHECK(submitted_ - waited_ < kInFlightMax, "more steps submitted than may be in flight");
  if (Status status = check_inputs(step); !status) return status.error();
  Recording *memory = nullptr, *forward = nullptr, *sample = nullptr;
  for (auto [list, target] : {std::pair{step.memory, &memory}, {step.forward, &forward}, {step.sample, &sample}}) {
    if (!list) continue;
    auto found = recording(resources, *list);
    if (!found) return found.error();
    *target = *found;
    (*target)->last_used = submitted_ + 1;
  }

  const DeviceApi& api = device_.api();
  const uint32_t slot_idx = submitted_ % kInFlightMax;
  RingSlot& slot = ring_[slot_idx];
  slot.ticket = submitted_ + 1;
  slot.num_sampled = step.sample ? step.num_sampled : 0;
  slot.want_logprobs = step.want_logprobs;
  slot.has_memory = memory != nullptr;
  slot.has_forward = forward != nullptr;
  slot.has_sample = sample != nullptr;
  const auto timestamp = [&](VkCommandBuffer commands, uint32_t query) {
    api.CmdWriteTimestamp2(commands, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, queries_, slot_idx * kQueriesSlot + query);
  };
  for (VkCommandBuffer commands : {slot.head, slot.between[0], slot.between[1], slot.tail})
    if (Status status = begin_commands(commands, true); !status) return status.error();
  api.CmdResetQueryPool(slot.head, queries_, slot_idx * kQueriesSlot, kQueriesSlot);
  copy_inputs(resources, slot, step);
  timestamp(slot.head, 0);
  timestamp(slot.between[0], 1);
  timestamp(slot.between[1], 2);
  timestamp(slot.tail, 3);
  copy_results(resources, slot);
  for (VkCommandBuffer commands : {slot.head, slot.between[0], slot.between[1], slot.tail})
    VK_TRY(api.EndCommandBuffer(commands), "vkEndCommandBuffer");

  std::vector<VkCommandBuffer> order{slot.head};
  if (memory) order.push_back(memory->commands);
  order.push_back(slot.between[0]);
  if (forward) order.push_back(forward->commands);
  order.push_back(slot.between[1]);
  if (sample) order.push_back(sample->commands);
  order.push_back(slot.tail);
  if (Status status = queue_submit(order, submitted_ + 1); !status) return status.error();
  return ++submitted_;
}

Status Executor::wait_for(uint64_t value) {
  VkSemaphoreWaitInfo wait{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
  wait.semaphoreCount = 1;
  wait.pSemaphores = &timeline_;
  wait.pValues = &value;
  VK_TRY(device_.api().WaitSemaphores(device_.handle(), &wait, UINT64_MAX), "vkWaitSemaphores");
  return {};
}

Status Executor::wait_idle() {
  return wait_for(submitted_);
}

Result<StepOutput> Executor::wait(Ticket ticket) {
  LLMRT_CHECK(ticket == waited_ + 1 && ticket <= submitted_, "tickets are waited for in order");
  if (Status status = wait_for(ticket); !status) return status.error();
  waited_ = ticket;
  const uint32_t slot_idx = (ticket - 1) % kInFlightMax;
  const RingSlot& slot = ring_[slot_idx];
  uint64_t times[kQueriesSlot] = {};
  VK_TRY(device_.api().GetQueryPoolResults(device_.handle(), queries_, slot_idx * kQueriesSlot, kQueriesSlot,
                                           sizeof(times), times, sizeof(uint64_t),
                                           VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT),
         "vkGetQueryPoolResults");
  const auto ms_between = [&](size_t begin) { return elapsed_ms(device_.traits(), times[begin], times[begin + 1]); };
  StepOutput output;
  if (slot.has_memory) output.memory_ms = ms_between(0);
  if (slot.has_forward) output.forward_ms = ms_between(1);
  if (slot.has_sample) output.sample_ms = ms_between(2);
  output.results.resize(slot.num_sampled);
  if (slot.num_sampled)
    std::memcpy(output.results.data(), slot.results.mapped(), slot.num_sampled * sizeof(SampleResult));
  if (slot.want_logprobs) {
    output.logprobs.resize(slot.num_sampled);
    if (slot.num_sampled)
      std::memcpy(output.logprobs.data(), slot.results.mapped() + config_.sample_rows_max * sizeof(SampleResult),
                  slot.num_sampled * sizeof(LogprobRow));
  }
  return output;
}

// Each group of fused ops in a command buffer of its own between two timestamps; the first op of a group carries its
// time.
Result<std::vector<double>> Executor::profile(const Resources& resources, const StepSubmission& step) {
  if (Status status = check_inputs(step); !status) return status.error();
  if (Status status = wait_idle(); !status) return status.error();
  LLMRT_CHECK(submitted_ == waited_, "profile with steps in flight");
  const DeviceApi& api = device_.api();
  uint32_t num_ops = 0;
  for (const OpList* list : {step.forward, step.sample}) num_ops += list ? static_cast<uint32_t>(list->ops.size()) : 0;
  VkQueryPoolCreateInfo info{VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO};
  info.queryType = VK_QUERY_TYPE_TIMESTAMP;
  info.queryCount = num_ops + 2;
  VkQueryPool queries = VK_NULL_HANDLE;
  VK_TRY(api.CreateQueryPool(device_.handle(), &info, nullptr, &queries), "query pool");

  const auto run = [&]() -> Result<std::vector<double>> {
    RingSlot& slot = ring_[0];
    if (Status status = begin_commands(slot.head, true); !status) return status.error();
    api.CmdResetQueryPool(slot.head, queries, 0, info.queryCount);
    copy_inputs(resources, slot, step);
    VkCommandBuffer commands = slot.head;
    const auto timestamp = [&](uint32_t query) {
      api.CmdWriteTimestamp2(commands, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, queries, query);
    };
    std::vector<uint32_t> first_ops;  // of each timed group
    uint32_t op_base = 0;
    if (step.memory) {
      auto prepared = recording(resources, *step.memory);
      if (!prepared) return prepared.error();
      Recorder recorder(device_, *pipelines_, resources, *step.memory, (*prepared)->plan, commands);
      for (uint32_t i = 0; i < step.memory->ops.size(); ++i)
        if (auto taken = record_ops(recorder, i); !taken) return taken.error();
      recorder.barrier();
    }
    timestamp(0);
    for (const OpList* list : {step.forward, step.sample}) {
      if (!list) continue;
      auto prepared = recording(resources, *list);  // compiles
      if (!prepared) return prepared.error();
      Recorder recorder(device_, *pipelines_, resources, *list, (*prepared)->plan, commands);
      for (uint32_t i = 0; i < list->ops.size();) {
        auto taken = record_ops(recorder, i);
        if (!taken) return taken.error();
        recorder.barrier();
        first_ops.push_back(op_base + i);
        timestamp(static_cast<uint32_t>(first_ops.size()));
        i += *taken;
      }
      op_base += static_cast<uint32_t>(list->ops.size());
    }
    VK_TRY(api.EndCommandBuffer(commands), "vkEndCommandBuffer");
    if (Status status = queue_submit({&commands, 1}, submitted_ + 1); !status) return status.error();
    waited_ = ++submitted_;
    if (Status status = wait_idle(); !status) return status.error();
    std::vector<uint64_t> times(first_ops.size() + 1);
    VK_TRY(api.GetQueryPoolResults(device_.handle(), queries, 0, static_cast<uint32_t>(times.size()), times.size() * 8,
                                   times.data(), 8, VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT),
           "vkGetQueryPoolResults");
    std::vector<double> op_ms(num_ops, 0.0);
    for (size_t g = 0; g < first_ops.size(); ++g)
      op_ms[first_ops[g]] =
          std::max(elapsed_ms(device_.traits(), times[g], times[g + 1]), device_.traits().timestamp_ns * 1e-6);
    return op_ms;
  };
  auto result = run();
  api.DestroyQueryPool(device_.handle(), queries, nullptr);
  return result;
}

}  // namespace llmrt::vulkan
