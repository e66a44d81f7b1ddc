#include "core/request/request_state.h"

#include <array>
#include <cstddef>

namespace llmrt {
namespace {

constexpr uint8_t bit(RequestState state) {
  return static_cast<uint8_t>(1u << static_cast<int>(state));
}

using enum RequestState;

// Row: from; bits: where it may go. Terminal states go nowhere.
constexpr std::array<uint8_t, kNumRequestStates> kMoves = {
    // kQueued: STREAMING when there is nothing to compute (max_tokens 0 and no prompt token to score)
    static_cast<uint8_t>(bit(kPrefilling) | bit(kStreaming) | bit(kCancelled) | bit(kRejected)),
    // kPrefilling
    static_cast<uint8_t>(bit(kDecoding) | bit(kStreaming) | bit(kCancelled) | bit(kPreempted)),
    // kDecoding
    static_cast<uint8_t>(bit(kStreaming) | bit(kCancelled) | bit(kPreempted)),
    // kStreaming: CANCELLED when the receiver went away before it had drained
    static_cast<uint8_t>(bit(kFinished) | bit(kCancelled)),
    // kFinished
    0,
    // kCancelled
    0,
    // kPreempted: back to PREFILLING when it is resumed; STREAMING when the token that was in flight was its last
    static_cast<uint8_t>(bit(kPrefilling) | bit(kStreaming) | bit(kCancelled)),
    // kRejected
    0,
};

}  // namespace

const char* request_state_name(RequestState state) {
  constexpr const char* kNames[] = {"QUEUED",   "PREFILLING", "DECODING",  "STREAMING",
                                    "FINISHED", "CANCELLED",  "PREEMPTED", "REJECTED"};
  return kNames[static_cast<int>(state)];
}

bool is_legal_move(RequestState from, RequestState to) {
  return (kMoves[static_cast<std::size_t>(from)] & bit(to)) != 0;
}

}  // namespace llmrt
