// What `llmrt-bench model` measures: tests, their runs on an engine, and the figures that follow from the runs.
#pragma once

#include <boost/json.hpp>

#include <optional>
#include <string>
#include <vector>

#include "core/backend/caps.h"
#include "tools/llmrt_bench/model/engine_run.h"
#include "tools/llmrt_bench/record/record.h"

namespace llmrt::bench {

// A prompt of n_prompt tokens alone, or n_rows sequences that decode n_gen tokens each behind n_depth of prompt.
struct ModelTest {
  uint32_t n_prompt = 0, n_gen = 0, n_depth = 0, n_rows = 1;
  BatchDrafts drafts = BatchDrafts::kNone;
  uint32_t draft_tokens = kDraftTokensDefault;

  bool is_prompt() const { return n_prompt > 0; }
  std::string name() const;  // "pp512", "tg128@512 x8"
  uint32_t tokens() const;   // that its rate counts
  double weight() const;     // of a run's time, roughly
  boost::json::object to_json() const;
};

// The samples of one test on one device, by run.
struct ModelSamples {
  std::vector<double> tok_s;             // prompt tokens, or tokens decoded while all rows decode
  std::vector<double> ms;                // of the prompt, or of a step
  std::vector<double> idle_share;        // decode only, here and below
  std::vector<double> prefill_s, all_s;  // to the last row's first token; to the last token
};

// One run. Errors: those of the engine; invalid_argument, when n_gen is too short for all rows to decode at once.
Status run_once(Engine* engine, const Clock& clock, const ModelTest& test, uint64_t seed, ModelSamples* samples);

// Measured on the same device; 0 = not measured.
struct Ceilings {
  double read_gb_s = 0, matrix_tflop_s = 0;
};

struct ModelRow {
  Caps caps;
  ModelTest test;
  ModelSamples samples;
  // What one prompt or one step needs at least: weights and cache read once, states read and written once; the
  // products, attention's and those on states.
  double bytes = 0, flops = 0;
  Ceilings ceilings;
  double price_hour_usd = 0;  // 0 = not asked for

  double tok_s() const;  // medians, here and below
  double ms() const;
  double gb_s() const { return bytes / ms() * 1e-6; }
  double tflop_s() const { return flops / ms() * 1e-9; }
  // The share of the measured limit: matrix products for prompts, reading for decode; 0 = not measured.
  double limit_share() const;
  std::optional<double> usd_mtok() const;

  RecordRow to_record() const;
};
ModelRow make_row(const Model& model, const EngineConfig& config, const ModelTest& test, ModelSamples samples);

}  // namespace llmrt::bench
