// One recorded command buffer for each list, resubmitted as it is, since every live size comes from the inputs. The
// least recently used ones go when there are too many.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>

#include "backends/vulkan/program.h"
#include "backends/vulkan/queue.h"
#include "core/ops/sealed_list.h"

namespace llmrt::vulkan {

class Pipelines;

class Recordings {
 public:
  Recordings(Queue* queue, Pipelines* pipelines) : queue_(queue), pipelines_(pipelines) {}

  // Commands refer to addresses: they are dropped when any resource moves.
  void drop();
  // Compiles all that the lists will launch, and records nothing.
  Status compile(const Resources& resources, std::span<const SealedList* const> lists);
  // The list's commands, for submission `value`; recorded on first use. Others may go where no submission behind
  // `done` runs them.
  Result<VkCommandBuffer> find(const Resources& resources, const SealedList& list, uint64_t value, uint64_t done);

 private:
  struct Recording {
    VkCommandBuffer commands = VK_NULL_HANDLE;
    uint64_t last_used = 0;
  };
  Status record(const Resources& resources, const OpList& list, Recording* recording);
  void evict(uint64_t done);

  Queue* queue_;
  Pipelines* pipelines_;
  std::unordered_map<uint64_t, Recording> recordings_;  // by SealedList::key
};

}  // namespace llmrt::vulkan
