// What devices said of one text, side by side: log-probabilities, distributions and greedy paths. Answers are kept in
// records of llmrt-bench agree and read back from those of other machines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/request/request.h"
#include "tools/llmrt_bench/agree/logits_file.h"
#include "tools/llmrt_bench/record/saved_record.h"

namespace llmrt::bench {

struct GreedyStep {
  int32_t token;
  float margin;  // log-probability of the token less that of the second best
};

// What one device answered. Scored positions are the text's tokens, but the first of each window.
struct Answers {
  std::string name;  // of the device, behind the file where it was saved
  std::string device_id;
  std::vector<int32_t> tokens;  // the text's, by scored position
  std::vector<float> logprobs;
  std::vector<std::vector<TopLogprob>> top;     // the likeliest, best first; empty where none were asked for
  std::vector<std::vector<GreedyStep>> greedy;  // by prompt
  std::optional<LogitsFile> logits;

  double nll() const;  // mean, nats
};

RecordRow to_row(const Answers& answers);
// Errors: those of read_record; invalid_argument, of another command; corrupt_file, with the place.
Result<std::vector<Answers>> read_answers(const SavedRecord& record);
// invalid_argument, each difference by its name. `any_weights`: the models may differ, their tokens may not. KV dtypes
// may always.
Status check_same_work(const std::string& name_a, boost::json::object work_a, const std::string& name_b,
                       boost::json::object work_b, bool any_weights);

struct Divergence {
  size_t prompt_idx, step_idx;
  GreedyStep a, b;
};

struct Agreement {
  double mean_difference = 0, greatest_difference = 0;  // of log-probabilities of the text's tokens, nats
  // KL(a || b), nats: over the whole vocabulary where both have logits; else over the tokens that both know, with all
  // others as one, which is at most the whole one; absent where one knows of no distribution.
  std::optional<double> mean_kl, greatest_kl, same_best;
  bool is_whole = false;
  size_t num_paths = 0;
  std::vector<Divergence> divergences;  // of each path that differs the first

  double worst_margin() const;  // the lesser of both, of the divergence where it is greatest
};
// Errors: invalid_argument: other positions or vocabularies; those of LogitsReader.
Result<Agreement> compare_answers(const Answers& a, const Answers& b);

}  // namespace llmrt::bench
