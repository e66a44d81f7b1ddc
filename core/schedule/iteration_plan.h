// One tick as a value: what the scheduler decided and the lowering turns into op lists with their inputs. Ids and
// counts only. It has two parts. The forward part is complete when it is handed over; so is the tail, unless some rows
// need their newest token on the host first (late_rows): such a tail is completed by Scheduler::plan_tail. Apart from
// that nothing is written afterwards; the scheduler keeps the vectors' capacity for the next plan.
#pragma once

#include <cstdint>
#include <vector>

#include "core/ops/step_inputs.h"
#include "core/request/request.h"
#include "core/sample/token_mask.h"
#include "core/schedule/cost_model.h"

namespace llmrt {

// What is made of a hidden state.
enum class TailKind : uint8_t {
  kSample,  // the next token is drawn, or its candidates are told (beam search)
  kScore,   // the log-probability of a prompt token: nothing is drawn
  kEmbed,   // the state itself: no op computes it yet, so it is refused (Lowering::lower_tail)
};
const char* tail_kind_name(TailKind kind);  // "sample", "score", "embed"

// What is added to the logits of a sample that is drawn, and what it may be.
struct LogitChanges {
  uint32_t bias_first = 0, num_bias = 0;  // in TailPlan::bias
  int32_t mask = -1;                      // in TailPlan::masks; -1 = any token may be drawn
};

struct PlanSample {
  uint32_t token_offset;     // among the row's tokens of this step: whose hidden state
  uint32_t output_position;  // 0 for the first generated token (of a score: the token's position in the prompt)
  TailKind kind = TailKind::kSample;
  int32_t forced_token = -1;  // of a score: this prompt token
  bool logprobs = false;
  bool processed = false;  // with logprobs: of the distribution that is drawn from
  LogitChanges changes = {};
  // Of a row with drafts, whose last samples are a run: what should be drawn here for the next sample to mean anything
  // (-1 at the last), and how many of the run stand before it.
  int32_t draft = -1;
  uint32_t run_idx = 0;

  bool verifies() const { return draft >= 0 || run_idx > 0; }
};

// One sequence in the step: tokens at positions [start, start + num_tokens).
struct PlanRow {
  RequestId request_id;
  uint32_t slot;
  uint32_t start;
  uint32_t num_tokens;
  uint32_t token_first;   // in ForwardPlan::tokens
  uint32_t sample_first;  // in TailPlan::samples
  uint32_t num_samples;   // 0 for a chunk that does not reach the end of what is known, and for a row that was parked
  uint32_t adapter_slot;  // of the adapter pool + 1; 0 = none
  bool batch_invariant;
  uint64_t root = 0;                          // of its cached blocks (KvSpace::root)
  uint32_t places_first = 0, num_places = 0;  // in ForwardPlan::state_places
  uint32_t num_drafts = 0;                    // of its tokens, the last
  DraftOrigin draft_origin = DraftOrigin::kText;
  Lane lane = Lane::kInteractive;
  float adapter_scale = 1;          // the request's own factor
  uint32_t adapter_start = 0;       // the position from which on its tokens have the adapter
  bool adapter_on_experts = false;  // it changes experts too

  // The first of its tokens that has it, num_tokens where none has.
  uint32_t adapter_first() const {
    const uint32_t before = adapter_start > start ? adapter_start - start : 0;
    return adapter_slot == 0 || before > num_tokens ? num_tokens : before;
  }
};

// What is computed for each token.
struct ForwardPlan {
  std::vector<PlanRow> rows;
  std::vector<int32_t> tokens;  // T; kLastSampled where the value is still on the device
  std::vector<StatePlace> state_places;
  // Applied on the device before the step, in order.
  std::vector<RowUpdate> row_updates;
  std::vector<uint32_t> row_payload;
  // After these, in this order, before anything is computed.
  std::vector<BlockCopy> block_stores, block_loads, block_copies;

  bool moves_blocks() const { return !block_stores.empty() || !block_loads.empty() || !block_copies.empty(); }
};

// What is made of the hidden states.
struct TailPlan {
  std::vector<PlanSample> samples;  // R
  std::vector<BiasEntry> bias;
  std::vector<TokenMaskPtr> masks;  // each one once
  // Indexes of rows whose bias entries and masks are not there yet, ascending; empty once the tail is complete.
  std::vector<uint32_t> late_rows;

  bool is_complete() const { return late_rows.empty(); }
};

struct IterationPlan : ForwardPlan, TailPlan {
  uint64_t step = 0;   // counts up from 1
  uint64_t batch = 0;  // of a baseline (batching.h), counts up from 1; 0 with continuous batching
  StepWork work;       // for the cost model

  bool empty() const { return rows.empty(); }
  void clear();
};

// By the index of its PlanSample: what to append to the sequence. The scheduler turns it into a TokenEvent. An error
// ends that request alone.
using Verdict = TokenOutcome;

// Whether the run of a row with drafts ends with this sample: those behind it were computed for a text that is not the
// answer's.
inline bool ends_run(const PlanSample& sample, const Verdict& verdict) {
  return sample.verifies() && (verdict.token != sample.draft || verdict.finish != FinishReason::kNone);
}

}  // namespace llmrt
