#include "backends/vulkan/recordings.h"

#include <algorithm>

#include "backends/vulkan/recorder.h"

namespace llmrt::vulkan {
namespace {

constexpr size_t kRecordingsMax = 192;

}  // namespace

void Recordings::drop() {
  for (auto& [key, recording] : recordings_) queue_->free(recording.commands);
  recordings_.clear();
}

void Recordings::evict(uint64_t done) {
  while (recordings_.size() > kRecordingsMax) {
    const auto oldest =
        std::ranges::min_element(recordings_, {}, [](const auto& keyed) { return keyed.second.last_used; });
    if (oldest->second.last_used > done) return;
    queue_->free(oldest->second.commands);
    recordings_.erase(oldest);
  }
}

Status Recordings::compile(const Resources& resources, std::span<const SealedList* const> lists) {
  std::vector<Kernel> kernels;
  for (const SealedList* list : lists) {
    auto program = make_program(resources, *list);
    if (!program) return program.error();
    const std::vector<Kernel> more = kernels_of(*program);
    kernels.insert(kernels.end(), more.begin(), more.end());
  }
  return pipelines_->compile(kernels);
}

Status Recordings::record(const Resources& resources, const OpList& list, Recording* recording) {
  auto program = make_compiled_program(resources, pipelines_, list);
  if (!program) return program.error();
  auto commands = queue_->allocate();
  if (!commands) return commands.error();
  recording->commands = *commands;
  if (Status status = queue_->begin(*commands, false); !status) return status;
  record_program(queue_->device(), *pipelines_, *commands, *program);
  return queue_->end(*commands);
}

Result<VkCommandBuffer> Recordings::find(const Resources& resources, const SealedList& list, uint64_t value,
                                         uint64_t done) {
  auto found = recordings_.find(list.key);
  if (found == recordings_.end()) {
    evict(done);
    Recording fresh;
    if (Status status = record(resources, list, &fresh); !status) {
      if (fresh.commands) queue_->free(fresh.commands);
      return status.error();
    }
    found = recordings_.emplace(list.key, fresh).first;
  }
  found->second.last_used = std::max(found->second.last_used, value);
  return found->second.commands;
}

}  // namespace llmrt::vulkan
