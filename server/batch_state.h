// Where a batch stands, as OpenAI's API has it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace llmrt::server {

enum class BatchState : uint8_t {
  kValidating,
  kInProgress,
  kFinalizing,
  kCompleted,
  kFailed,
  kExpired,
  kCancelling,
  kCancelled
};
inline constexpr size_t kNumBatchStates = 8;
const char* batch_state_name(BatchState state);
bool is_over(BatchState state);

}  // namespace llmrt::server
