// Sequences for the tests of the scheduler's parts.
#pragma once

#include <memory>
#include <utility>

#include "core/request/sequence.h"

namespace llmrt::test {

inline Request request_of(RequestId id, uint32_t prompt_tokens = 4, uint32_t max_tokens = 8,
                          RequestClass request_class = RequestClass::kInteractive) {
  Request request;
  request.id = id;
  request.prompt.assign(prompt_tokens, static_cast<int32_t>(id));
  request.max_tokens = max_tokens;
  request.request_class = request_class;
  return request;
}

inline std::unique_ptr<Sequence> sequence_of(Request request) {
  return std::make_unique<Sequence>(std::move(request));
}

// As if it ran: with empty tables, one for each KV group.
inline void make_resident(Sequence& sequence, int32_t slot, uint64_t admission, size_t num_groups = 1) {
  sequence.move_to(RequestState::kPrefilling);
  sequence.residency.slot = slot;
  sequence.residency.admission = admission;
  sequence.residency.tables.resize(num_groups);
}

}  // namespace llmrt::test
