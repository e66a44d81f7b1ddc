// Requests that name adapters: which of them, by a Zipf law, and what came of each.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tools/llmrt_bench/load/outcome.h"
#include "tools/llmrt_bench/load/work.h"

namespace llmrt::bench {

// Adapter i of `count` is asked for in proportion to 1 / i^zipf: with 0 all equally often.
struct AdapterMix {
  uint32_t count = 0;  // 0: no request names one
  double zipf = 1;

  std::string name() const;  // "none", "8:1"
};
// "none", "COUNT" or "COUNT:EXPONENT", as AdapterMix::name() writes it. Errors: invalid_argument.
Result<AdapterMix> parse_adapter_mix(const std::string& option, const std::string& text);

class AdapterDraws {
 public:
  AdapterDraws(const AdapterMix& mix, uint64_t seed);

  // From 1 on; 0 without adapters.
  uint32_t next();

 private:
  std::vector<double> ends_;  // of each adapter's share, ascending
  Draws draws_;
};

// What was asked of each adapter.
struct AdapterCount {
  uint32_t adapter = 0;  // from 1 on
  size_t num_requests = 0, num_completed = 0;
  std::vector<double> ttft_ms;  // of the completed ones
};
// Those that were asked for, the most asked for first.
std::vector<AdapterCount> count_adapters(std::span<const LoadItem> items, std::span<const Outcome> outcomes);
std::string adapters_text(std::span<const AdapterCount> counts);  // a line; empty of none
boost::json::array adapters_json(std::span<const AdapterCount> counts);

}  // namespace llmrt::bench
