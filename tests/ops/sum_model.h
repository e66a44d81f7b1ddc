// A small model with blocks in KV group 0 and states in group 1, as a Backend: its own op lists run on the validated
// reference in place of those that are submitted, which only say how large a step is.
//
//   x = the embedding of the token; sum = the running sum of x; second = the running sum of sum, which knows the order
//   of the tokens; hidden = sum + second / 64 + the mean of x so far (attention whose queries are 0).
#pragma once

#include <map>
#include <random>
#include <vector>

#include "core/backend/forwarding.h"
#include "tests/fakes/fake_model.h"
#include "tests/ops/op_harness.h"

namespace llmrt::optest {

class SumModel final : public ForwardingBackend {
 public:
  static constexpr uint32_t kWidth = 16, kVocab = test::kFakeVocab;

  explicit SumModel(std::mt19937_64& rng);

  Status load() { return load_weights(suite_.weights, {}); }
  uint64_t arena_bytes(const OpList&) const override { return 0; }  // create_state knows its own lists
  Status create_state(const StateConfig& config) override;
  Result<Ticket> submit(const StepSubmission& step) override;

  // Of a token behind a text: worked out from the text, without lists, tables or pools.
  double logprob(const std::vector<int32_t>& text, int32_t token) const;

 private:
  std::vector<double> values_of(WeightId id) const;
  const SealedList& forward_list(uint32_t num_tokens);
  const SealedList& sample_list(uint32_t num_sampled);

  static constexpr float kSecondFactor = 1.0f / 64;

  Suite suite_;
  WeightId embedding_ = 0;
  WeightGroupId head_ = 0, qkv_ = 0;
  std::vector<double> embeddings_, heads_;  // [V, D]
  std::map<uint32_t, SealedList> forward_lists_, sample_lists_;
};

}  // namespace llmrt::optest
