// Requests of one class as they come, and what each got. Lengths are log-uniform.
#pragma once

#include "tools/llmrt_bench/serving/drive.h"

namespace llmrt::bench {

struct Window {
  TimeNs from_ns = 0, to_ns = 0;
  bool has(TimeNs time_ns) const { return time_ns >= from_ns && time_ns < to_ns; }
  double seconds() const { return ms_between(from_ns, to_ns) * 1e-3; }
};

struct TokenCounts {
  uint64_t prompt = 0, output = 0;
  double all() const { return static_cast<double>(prompt + output); }
};

struct TrafficSpec {
  RequestClass request_class = RequestClass::kInteractive;
  uint32_t prompt_min = 1, prompt_max = 1, output_min = 1, output_max = 1;
  uint64_t seed = 1;          // of lengths and times
  uint64_t content_seed = 1;  // of prompts; another one for each run, or a prefix cache knows them from the former
  uint32_t vocab_size = 1;

  // Prompt and output, expected.
  double mean_tokens() const;
};

class Traffic {
 public:
  Traffic(const TrafficSpec& spec, Drive* drive)
      : spec_(spec), drive_(drive), draws_(spec.seed), content_(spec.content_seed) {}

  // Poisson arrivals in the window. The next one that comes; kNever: none.
  void come(double per_s, Window window);
  Result<TimeNs> submit_due(TimeNs now);
  // Now, so that so many have no first token.
  Status keep_waiting(size_t count);

  // What came in the window, refused or not; and of it, what a full queue refused.
  size_t num_asked(Window window) const;
  size_t num_refused(Window window) const;
  TokenCounts asked(Window window) const;
  // A prompt counts when its first token comes.
  TokenCounts served(Window window) const;
  // First tokens of the taken requests that came in the window; for one that has none yet, the time until `now`.
  std::vector<double> ttfts_ms(Window window, TimeNs now) const;
  size_t num_waiting() const;
  size_t num_finished() const;

 private:
  struct Asked {
    TimeNs arrival_ns;
    TokenCounts tokens;
    std::shared_ptr<const Answer> answer;  // null: refused
  };
  Status submit(TimeNs arrival_ns);
  TimeNs gap_ns();

  TrafficSpec spec_;
  Drive* drive_;
  Draws draws_, content_;
  double per_s_ = 0;
  TimeNs next_ns_ = kNever, end_ns_ = kNever;
  std::vector<Asked> asked_;
};

}  // namespace llmrt::bench
