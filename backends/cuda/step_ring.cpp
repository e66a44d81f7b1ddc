#include "backends/cuda/step_ring.h"

#include <cstring>

#include "backends/cuda/check.h"

namespace llmrt::cuda {
namespace {

Status elapsed(cudaEvent_t begin, cudaEvent_t end, double* out_ms) {
  float ms = 0;
  CUDA_TRY(cudaEventElapsedTime(&ms, begin, end), "step times");
  *out_ms = ms;
  return {};
}

}  // namespace

Status StepRing::create(const StateConfig& config) {
  for (Slot& slot : slots_) {
    const auto pin = [](uint64_t bytes, PinnedBuffer* out) -> Status {
      Result<PinnedBuffer> buffer = PinnedBuffer::create(bytes, "create_state");
      if (!buffer) return buffer.error();
      *out = *std::move(buffer);
      return {};
    };
    if (Status s = pin(config.forward_words_max * 4, &slot.forward_inputs); !s) return s;
    if (Status s = pin(config.sample_words_max * 4, &slot.sample_inputs); !s) return s;
    if (Status s = pin(config.sample_rows_max * sizeof(SampleResult), &slot.results); !s) return s;
    if (Status s = pin(config.sample_rows_max * sizeof(LogprobRow), &slot.logprobs); !s) return s;
    for (cudaEvent_t* event : {&slot.begin, &slot.memory_end, &slot.forward_end, &slot.sample_begin, &slot.sample_end})
      if (!*event) CUDA_TRY(cudaEventCreate(event), "create_state: event");
    if (!slot.done) CUDA_TRY(cudaEventCreateWithFlags(&slot.done, cudaEventDisableTiming), "create_state: event");
  }
  return {};
}

Result<StepOutput> StepRing::collect(Ticket ticket) {
  Slot& slot = this->slot(ticket);
  CUDA_TRY(cudaEventSynchronize(slot.done), "wait for a step");
  StepOutput output;
  if (slot.has_memory)
    if (Status s = elapsed(slot.begin, slot.memory_end, &output.memory_ms); !s) return s.error();
  if (slot.has_forward)
    if (Status s = elapsed(slot.has_memory ? slot.memory_end : slot.begin, slot.forward_end, &output.forward_ms); !s)
      return s.error();
  if (!slot.has_sample) return output;
  if (Status s = elapsed(slot.sample_begin, slot.sample_end, &output.sample_ms); !s) return s.error();
  const SampleResult* results = slot.results.as<SampleResult>();
  output.results.assign(results, results + slot.num_sampled);
  const LogprobRow* logprobs = slot.logprobs.as<LogprobRow>();
  if (slot.want_logprobs) output.logprobs.assign(logprobs, logprobs + slot.num_sampled);
  return output;
}

void StepRing::destroy_events() {
  for (Slot& slot : slots_)
    for (cudaEvent_t event :
         {slot.begin, slot.memory_end, slot.forward_end, slot.sample_begin, slot.sample_end, slot.done})
      if (event) cudaEventDestroy(event);
}

}  // namespace llmrt::cuda
