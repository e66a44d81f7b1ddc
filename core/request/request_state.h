// The states of a request and the table of legal moves between them. PREFILLING and DECODING are names for reports,
// computed from the token counts; no decision reads them.
#pragma once

#include <cstdint>

namespace llmrt {

enum class RequestState : uint8_t {
  kQueued,      // accepted, waiting for admission
  kPrefilling,  // running, prompt (or recompute) tokens left
  kDecoding,    // running, one token a step
  kStreaming,   // last token sampled, blocks released, the outbox not yet drained
  kFinished,    // drained
  kCancelled,   // by the client or by a deadline
  kPreempted,   // blocks taken away; waits at the front of the queue
  kRejected,    // never admitted
};
inline constexpr int kNumRequestStates = 8;

const char* request_state_name(RequestState state);  // "QUEUED", ...
bool is_legal_move(RequestState from, RequestState to);
constexpr bool is_terminal(RequestState state) {
  return state == RequestState::kFinished || state == RequestState::kCancelled || state == RequestState::kRejected;
}

}  // namespace llmrt
