// Runs a real model through the Engine for tests: texts in, tokens with margins out.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "core/text/tokenizer.h"

namespace llmrt::test {

// One generated token and how far the best logit was from the second.
struct StepTaken {
  int32_t token;
  float margin;
  uint64_t hash;  // of the bits of its log-probability, and of the 20 best tokens and theirs
};

struct Answer {
  std::vector<StepTaken> steps;
  FinishReason finish = FinishReason::kNone;
  std::string error;
};

struct Prompt {
  std::vector<int32_t> tokens;
  uint32_t max_tokens = 16;
  uint32_t arrives_at_tick = 0;
  bool batch_invariant = false;
  float temperature = 0;
  uint32_t n = 1;
  uint32_t branch = 0;  // draws what that branch of n draws
  std::optional<Speculation> speculation = {};
  std::shared_ptr<const TokenConstraint> constraint = {};  // may end it before max_tokens
};

// The devices that a model test runs on: LLMRT_TEST_DEVICES (comma separated), else every usable one.
std::vector<std::string> test_devices();
// From an environment variable; empty when it is not set.
std::string model_path(const char* variable);

class ModelUnderTest {
 public:
  // Fails the running Catch2 test on an error.
  ModelUnderTest(const std::string& path, const std::string& device, const EngineConfig& config);
  // As above on a backend of the caller's, beside a draft model if there is one.
  ModelUnderTest(std::shared_ptr<const Model> model, std::unique_ptr<Backend> backend, const EngineConfig& config,
                 DraftParts draft = {});

  std::vector<int32_t> encode(const std::string& text) const { return tokenizer_->encode(text); }
  // All prompts share the engine, each submitted at its tick. An answer per branch, in the prompts' order. Where
  // `enough` is true of the answers so far (asked after each tick; those of prompts yet to come are empty), the
  // requests are cancelled, and what has come is returned.
  std::vector<Answer> run(const std::vector<Prompt>& prompts,
                          const std::function<bool(const std::vector<Answer>&)>& enough = {});
  Engine& engine() { return *engine_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  void start(std::unique_ptr<Backend> backend, const EngineConfig& config, DraftParts draft = {});

  SteadyClock clock_;
  std::shared_ptr<const Model> model_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<Engine> engine_;
};

// Two runs of a sequence are compared up to their first difference; there the margin must be < 0.05.
struct Agreement {
  int num_sequences = 0, num_different = 0;
  float worst_margin = 0;  // at a first difference
  bool fair() const { return worst_margin < 0.05f && num_different * 20 <= num_sequences; }
};
// Whether every sequence of one run ended as in the other, after as many tokens; compare() demands it.
bool same_ends(const std::vector<Answer>& a, const std::vector<Answer>& b);
// Whether answers b, which may still grow, can no longer end as those of a and agree fairly. Of whole answers it is the
// opposite of same_ends() and fair().
bool disagree_already(const std::vector<Answer>& a, const std::vector<Answer>& b);
// Steps whose token or hash differ, of all.
int num_different_bits(const std::vector<Answer>& a, const std::vector<Answer>& b);
Agreement compare(const std::vector<Answer>& a, const std::vector<Answer>& b);

}  // namespace llmrt::test
