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

struct BatchResult {
  double prefill_s = 0;         // first submit to the last request's first token
  double decode_tok_s = 0;      // while all requests decode
  double step_ms = 0;           // of those steps, wall
  double idle_share = 0;        // of those steps: 1 - sum of list times / wall
  double end_to_end_tok_s = 0;  // generated tokens over the whole time
  uint32_t decode_steps = 0;
};

// `num_requests` prompts of `prompt_tokens` random ids, `output_tokens` each, forced to that length; temperature 1.
Result<BatchResult> run_batch(Engine* engine, const Clock& clock, uint32_t num_requests, uint32_t prompt_tokens,
                              uint32_t output_tokens, uint64_t seed);

}  // namespace llmrt::bench
