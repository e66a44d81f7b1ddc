// When one engine computes a prompt and another one goes on with the answer. Pure.
//
// A worker of role kPrefill computes prompts for those of role kDecode; one of kBoth does either and whole requests. An
// answer is predicted to end after
//   alone:  ttft + tokens * tpot                     of one worker
//   pair:   ttft of the first + blocks on their way + tokens * tpot of the second
// and the least is taken; between two that could do it alone a pair is taken by load only where it is clearly less.
// Where neither is possible any worker that can serve the request alone does.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/router/placement.h"

namespace llmrt {

enum class WorkerRole : uint8_t { kBoth, kPrefill, kDecode };
const char* worker_role_name(WorkerRole role);  // "both", "prefill", "decode"
std::optional<WorkerRole> parse_worker_role(std::string_view name);

struct HandOverRule {
  std::vector<WorkerRole> roles = {};  // by worker; empty: nothing is handed over
  bool by_load = false;                // also between workers that do both
  double token_ms = 0;                 // until a token's keys and values have reached the other device
};

struct PhaseChoice {
  uint32_t worker;
  bool gives = false;  // it computes the prompt, and another one is expected to go on
};

// `alone`: what place() says of a worker for all of it, which has one that can.
PhaseChoice choose_prefill(const HandOverRule& rule, const PlacementAsk& ask, const PlacementChoice& alone);

// Who goes on behind a prompt that `from` has computed; nothing: `from` does. `now`: what place() says where every
// worker has the prompt.
std::optional<uint32_t> choose_decode(const HandOverRule& rule, uint32_t from, const PlacementAsk& ask,
                                      const PlacementChoice& now);

}  // namespace llmrt
