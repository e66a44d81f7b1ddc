// The same on an engine in process: no HTTP, no tokenizer between, and times are the engine's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tools/llmrt_bench/load/http_load.h"
#include "tools/llmrt_bench/serving/drive.h"
#include "tools/llmrt_bench/serving/grammar_supply.h"

namespace llmrt::bench {

struct EngineItem {
  std::optional<double> arrival_s;
  std::vector<int32_t> prompt;
  uint32_t output_tokens = 1;
  uint32_t adapter = 0;            // of EngineLoadOptions::adapters, from 1 on; 0 = none
  boost::json::value schema = {};  // null: none. Compiled when the request comes, which counts
};
// By the model's tokenizer; of a model that has none, as many random tokens as the workload means.
Result<std::vector<EngineItem>> tokenize(const std::vector<LoadItem>& items, const Tokenizer* tokenizer,
                                         uint32_t vocab_size);

struct EngineLoadOptions {
  uint32_t concurrency = 0;  // 0 = by arrivals
  SamplingParams sampling = {.temperature = 0};
  RequestClass request_class = RequestClass::kInteractive;
  GrammarSupply* grammars = nullptr;  // for items with a schema
  std::span<const ReadyAdapter> adapters = {};
};

// Runs all of them to their ends, and leaves nothing. Errors: the machine's; those of a request are in its outcome.
Result<std::vector<Outcome>> run_on_engine(Engine* engine, const Clock& clock,
                                           const std::function<void(TimeNs)>& wait_until,
                                           const std::vector<EngineItem>& items, const EngineLoadOptions& options,
                                           const OnOutcome& on_outcome);

}  // namespace llmrt::bench
