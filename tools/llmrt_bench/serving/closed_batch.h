// A full batch of rows on an engine: a row whose answer ends is replaced at once. Either every request has a JSON
// schema of its own, compiled beside the engine, or all are plain and have lengths that are given.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tools/llmrt_bench/serving/drive.h"
#include "tools/llmrt_bench/serving/grammar_supply.h"

namespace llmrt::bench {

// What one run of requests came to. The window of the rates is from when all rows have begun until the first of them
// stays empty.
struct Turn {
  double tok_s = 0, rows_in_use = 0;
  std::vector<double> tpots_ms;    // of answers
  std::vector<uint32_t> lengths;   // of answers, in the order of their requests
  std::vector<double> compile_ms;  // of the compiler's thread
  size_t num_whole = 0;            // ended by their grammar
  size_t num_parsed = 0;           // of them, JSON that has the schema's types and required keys
  uint64_t num_parked = 0, masks_made = 0, masks_found = 0, mask_cpu_us = 0;
  double mask_wait_ms = 0, compile_waited_ms = 0;  // the longest
};

struct BatchSpec {
  uint32_t num_rows = 1;       // the engine's sequences_max
  uint32_t prompt_tokens = 1;  // random ones
  uint64_t seed = 1;           // of prompts
};

// Runs once. One thread, the engine's.
class ClosedBatch {
 public:
  // All outlive it. `wait_until` as of Drive::until.
  ClosedBatch(Engine* engine, const Clock& clock, std::function<void(TimeNs)> wait_until, const BatchSpec& spec);

  // At temperature 1, each request with another schema of `schemas`; at least as many requests as rows.
  Result<Turn> run_grammars(GrammarSupply* supply, size_t num_requests, uint32_t output_max, Draws* schemas);
  // The same with answers of these lengths.
  Result<Turn> run_plain(std::vector<uint32_t> lengths);

 private:
  Status run();
  void drop_ended();
  Result<TimeNs> submit_due(TimeNs now);
  Status take_grammars();
  Status submit();
  void measure();
  void count_whole(const Answer& answer, const boost::json::object& schema);

  Engine* engine_;
  std::function<void(TimeNs)> wait_until_;
  BatchSpec spec_;
  size_t num_ahead_;  // requests that wait in the engine, and in the compiler: a row is never empty for want of one
  Drive drive_;
  Draws content_;
  GrammarSupply* supply_ = nullptr;  // null: plain rows
  std::vector<uint32_t> lengths_;    // at most
  std::vector<boost::json::object> schemas_;
  size_t num_asked_ = 0;  // of them
  std::vector<std::shared_ptr<const TokenConstraint>> constraints_;
  std::vector<std::shared_ptr<const Answer>> answers_, open_;
  Turn turn_;
};

}  // namespace llmrt::bench
