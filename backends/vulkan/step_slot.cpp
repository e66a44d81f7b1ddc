#include "backends/vulkan/step_slot.h"

#include <cstring>

#include "backends/vulkan/recorder.h"

namespace llmrt::vulkan {

Result<StepSlot> StepSlot::create(Queue* queue, MemoryBook* book, const StateConfig& config) {
  StepSlot slot;
  slot.device_ = &queue->device();
  slot.config_ = config;
  auto inputs = Buffer::create(queue->device(), book, MemoryKind::kOther, Buffer::Where::kHostWrite,
                               (config.forward_words_max + config.sample_words_max) * 4);
  if (!inputs) return inputs.error();
  slot.inputs_ = std::move(*inputs);
  auto results = Buffer::create(queue->device(), book, MemoryKind::kOther, Buffer::Where::kHostRead,
                                config.sample_rows_max * (sizeof(SampleResult) + sizeof(LogprobRow)));
  if (!results) return results.error();
  slot.results_ = std::move(*results);
  for (VkCommandBuffer* commands : {&slot.head, &slot.between[0], &slot.between[1], &slot.tail}) {
    auto allocated = queue->allocate();
    if (!allocated) return allocated.error();
    *commands = *allocated;
  }
  return slot;
}

void StepSlot::copy_inputs(VkCommandBuffer commands, const Resources& resources, const StepSubmission& step) {
  record_full_barrier(*device_, commands);
  const auto copy = [&](std::span<const uint32_t> words, uint64_t slot_offset, const View& target) {
    if (words.empty()) return;
    std::memcpy(inputs_.mapped() + slot_offset, words.data(), words.size_bytes());
    const VkBufferCopy region{slot_offset, target.offset, words.size_bytes()};
    device_->api().CmdCopyBuffer(commands, inputs_.handle(), target.buffer->handle(), 1, &region);
  };
  copy(step.forward_inputs, 0, resources.forward_inputs);
  copy(step.sample_inputs, config_.forward_words_max * 4, resources.sample_inputs);
  record_full_barrier(*device_, commands);
}

void StepSlot::copy_results(VkCommandBuffer commands, const Resources& resources, const StepSubmission& step) {
  num_sampled_ = step.sample ? step.num_sampled : 0;
  want_logprobs_ = step.want_logprobs;
  record_full_barrier(*device_, commands);
  if (num_sampled_ == 0) return;
  const uint64_t rows_bytes = config_.sample_rows_max * sizeof(SampleResult);
  const View& results = resources.results;
  const VkBufferCopy regions[] = {{results.offset, 0, num_sampled_ * sizeof(SampleResult)},
                                  {results.offset + rows_bytes, rows_bytes, num_sampled_ * sizeof(LogprobRow)}};
  device_->api().CmdCopyBuffer(commands, results.buffer->handle(), results_.handle(), want_logprobs_ ? 2 : 1, regions);
  record_full_barrier(*device_, commands);
}

void StepSlot::take_results(StepOutput* output) const {
  output->results.resize(num_sampled_);
  if (want_logprobs_) output->logprobs.resize(num_sampled_);
  if (num_sampled_ == 0) return;
  std::memcpy(output->results.data(), results_.mapped(), num_sampled_ * sizeof(SampleResult));
  if (want_logprobs_)
    std::memcpy(output->logprobs.data(), results_.mapped() + config_.sample_rows_max * sizeof(SampleResult),
                num_sampled_ * sizeof(LogprobRow));
}

}  // namespace llmrt::vulkan
