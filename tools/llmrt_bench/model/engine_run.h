// Drives an engine in process with a batch of equal requests and times what comes out.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/engine/engine.h"

namespace llmrt::bench {

struct EngineUnderTest {
  std::string device_id, device_name, tier;
  std::unique_ptr<Engine> engine;
  double load_s = 0;
};

// `draft`: null, or what drafts for the model.
Result<EngineUnderTest> open_engine(const std::string& device, std::shared_ptr<const Model> model,
                                    const EngineConfig& config, const Clock* clock,
                                    std::shared_ptr<const Model> draft = nullptr);

// Drafts of a batch whose rows each write one token again and again (a bias makes them), so that it is known which
// drafts are right: none; as many right ones as a step may have; or those of an adversary, who is right in the first 16
// steps that ask it and wherever it was not asked for a while, and wrong from then on.
enum class BatchDrafts : uint8_t { kNone, kRight, kAdversary };
inline constexpr const char* kBatchDraftsNames[] = {"none", "right", "adversary"};

struct BatchResult {
  double prefill_s = 0;         // first submit to the last request's first token
  double decode_tok_s = 0;      // while all requests decode
  double step_ms = 0;           // of those steps, wall
  double idle_share = 0;        // of those steps: 1 - sum of list times / wall
  double end_to_end_tok_s = 0;  // generated tokens over the whole time
  uint32_t decode_steps = 0;
};

struct Batch {
  uint32_t num_requests = 1;
  uint32_t prompt_tokens = 0, output_tokens = 0;  // of each; answers are forced to that length
  BatchDrafts drafts = BatchDrafts::kNone;
  uint32_t draft_tokens = kDraftTokensDefault;  // of a row in a step, at most
};

// Prompts of random ids; temperature 1.
Result<BatchResult> run_batch(Engine* engine, const Clock& clock, const Batch& batch, uint64_t seed);

}  // namespace llmrt::bench
