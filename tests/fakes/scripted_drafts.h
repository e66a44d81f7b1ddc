// A source of drafts for tests: it knows the answers, and proposes what follows in one that begins as the branch's
// does, now and then another token. How many it proposes changes from step to step, and so does what it says of the
// next.
#pragma once

#include <algorithm>
#include <random>

#include "core/speculate/drafter.h"

namespace llmrt::test {

struct DraftScript {
  uint64_t seed = 0;
  uint32_t right_of_16 = 16;    // how many of 16 drafts are what it knows to follow; the others are any tokens
  bool always_as_many = false;  // as it is asked for
  int32_t vocab_size = 0;
  std::vector<std::vector<int32_t>> answers = {};
};

class ScriptedDrafts final : public DraftSource {
 public:
  explicit ScriptedDrafts(DraftScript script) : script_(std::make_shared<const DraftScript>(std::move(script))) {}

  std::unique_ptr<Drafter> begin(uint32_t num_prompt) const override {
    return std::make_unique<Scripted>(script_, num_prompt);
  }
  size_t held_bytes() const override { return 0; }

 private:
  class Scripted final : public Drafter {
   public:
    Scripted(std::shared_ptr<const DraftScript> script, uint32_t num_prompt)
        : script_(std::move(script)), num_prompt_(num_prompt), random_(script_->seed) {}

    void propose(std::span<const int32_t> tokens, uint32_t most, std::vector<int32_t>* drafts) override {
      const auto answer = tokens.subspan(num_prompt_);
      const auto known = std::ranges::find_if(script_->answers, [&](const std::vector<int32_t>& other) {
        return answer.size() <= other.size() && std::ranges::equal(answer, std::span(other).first(answer.size()));
      });
      const size_t count = script_->always_as_many ? most : random_() % (uint64_t{most} + 1);
      for (size_t i = answer.size(); i < answer.size() + count; ++i) {
        const bool knows = known != script_->answers.end() && i < known->size();
        const bool is_right = knows && random_() % 16 < script_->right_of_16;
        drafts->push_back(is_right ? (*known)[i]
                                   : static_cast<int32_t>(random_() % static_cast<uint32_t>(script_->vocab_size)));
      }
    }
    bool expects_more(std::span<const int32_t> tokens) override {
      return script_->always_as_many || tokens.size() % 3 != 0;
    }

   private:
    std::shared_ptr<const DraftScript> script_;
    uint32_t num_prompt_;
    std::mt19937_64 random_;
  };

  std::shared_ptr<const DraftScript> script_;
};

}  // namespace llmrt::test
