// The parts of llmrt-bench serving, a file each. A part makes its engines one after the other on the device that holds
// the weights, and adds each figure to the report as soon as it is known.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "core/grammar/json_schema.h"
#include "tools/llmrt_bench/serving/part_report.h"
#include "tools/llmrt_bench/serving/workload.h"

namespace llmrt::bench {

struct ServingOptions {
  std::string model = "synthetic:llama-3.1-8b:q4_0", json_path;
  std::vector<std::string> devices{"auto"};
  std::vector<std::string> parts{"gap", "prefix", "batching", "kv", "ablation"};
  KvDType kv_dtype = KvDType::kF16;
  double price_hour_usd = 0;
  double budget_s = 20;  // of a part on a device; what passes it is cut, and says so

  uint32_t sequences = 64;  // batching
  WorkloadSpec batching;

  uint32_t gap_streams = 32, gap_prompt = 16384;
  std::vector<std::string> gap_settings{"512", "x3.6", "x2.2"};  // parse_pacing

  uint32_t prefix_prompt = 8192, prefix_repeats = 2;
  double prefix_share = 0.9;

  std::vector<KvDType> kv_compared = {KvDType::kI8, KvDType::kF8};  // with f16
  uint32_t kv_mib = 8192, kv_rows = 16, kv_output = 64;
  std::vector<uint32_t> kv_contexts{512, 2048};

  double classes_s = 60;  // under overload; the budget does not cut it
  uint32_t classes_rows = 64, classes_prompt = 1024, classes_output = 512, classes_chunk = 512;

  uint32_t beats_rows = 32, beats_output = 512;

  std::vector<uint32_t> grammar_rows{32, 128};
  uint32_t grammar_prompt = 128, grammar_output = 384;  // tokens; of an answer at most
  uint32_t grammar_answers = 4, grammar_rounds = 3;     // of a row in a round; the budget does not cut them
  // The server allows more (kDefault), of which random weights would write little else.
  SchemaOptions::Spaces grammar_spaces = SchemaOptions::Spaces::kOneSpace;
  std::string vocabulary_path;  // empty: of the model, or made up

  uint32_t ablation_requests = 96, ablation_sequences = 32;
  uint32_t ablation_naive = 6, ablation_reserving = 10;  // of the requests, where all would take too long
  uint32_t ablation_context = 4608, ablation_pool_contexts = 10;
};

struct Bench {
  const ServingOptions& options;
  const Model& model;
  const Caps& caps;
  const Clock& clock;
  Report& report;
  std::function<Result<std::unique_ptr<Engine>>(const EngineConfig&)> make_engine;
  std::function<void(TimeNs)> wait_until;  // of the clock

  // The time by which a share of the part's budget is spent, from now on.
  TimeNs deadline(double share_of_budget) const {
    return clock.now_ns() + static_cast<TimeNs>(share_of_budget * options.budget_s * 1e9);
  }
  uint32_t vocab_size() const { return model.config.vocab_size; }
};

// Tokens a second of the same requests with continuous and with static batching.
Status batching_part(const Bench& bench);
// How long streams stand still when a long prompt comes, and how long that prompt waits.
Status gap_part(const Bench& bench);
// Time to the first token of a prompt whose beginning is cached.
Status prefix_part(const Bench& bench);
// Tokens that the same bytes hold by KV dtype, and the speed of decoding.
Status kv_part(const Bench& bench);
// One workload with the scheduler's features added one by one.
Status ablation_part(const Bench& bench);
// Time to the first token of a class beside twice the load that is served, and what another class gets.
Status classes_part(const Bench& bench);
// Tokens a second of rows that need their newest token on the host, beside those of plain rows.
Status beats_part(const Bench& bench);
// Tokens a second of rows that each follow a JSON schema of their own, beside those of plain rows.
Status grammar_part(const Bench& bench);

// How long streams stood still when a prompt came, and how long it waited.
struct Stall {
  double plain_ms = 0;  // median gap before the arrival
  double worst_ms = 0;  // gap from the arrival on
  double ttft_ms = 0;   // of the long prompt
  uint64_t num_steps = 0;
};
inline constexpr uint32_t kGapRoomTokens = 64;  // of the context, beside the prompt
// For options.gap_streams and a prompt of options.gap_prompt tokens.
EngineConfig gap_config(const Bench& bench);
// That scene once on an engine of its own, after a rehearsal. Errors: timeout, past the deadline.
Result<Stall> measure_stall(const Bench& bench, const EngineConfig& config, TimeNs deadline_ns);

// How prompts share steps with streams: "512" = chunks of so many tokens, "x2.5" = chunks that keep a step within so
// many plain ones.
struct Pacing {
  uint32_t chunk_tokens = 0;
  double plain_steps = 0;  // 0 = chunk_tokens
};
Result<Pacing> parse_pacing(const std::string& text);

}  // namespace llmrt::bench
