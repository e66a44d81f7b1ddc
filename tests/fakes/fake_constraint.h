// A constraint made of hashes: which tokens may follow depends on all tokens of the answer before. Its masks come late,
// and now and then never, by its own numbers. Tests that know the tokens of an answer can ask it what was allowed.
#pragma once

#include <memory>

#include "core/request/token_constraint.h"
#include "tests/fakes/fake_model.h"

namespace llmrt::test {

struct FakeConstraintConfig {
  uint64_t seed = 0;
  uint32_t asks_max = 0;     // a mask is there when it was asked for up to so many times
  uint32_t end_one_in = 9;   // places where nothing but the end may follow
  uint32_t fail_one_in = 0;  // places whose mask cannot be made; 0 = none
  uint32_t fixed_of_16 = 0;  // places where one token may follow
};

class FakeConstraint final : public TokenConstraint {
 public:
  explicit FakeConstraint(const FakeConstraintConfig& config) : config_(config) {}

  std::unique_ptr<ConstraintMatcher> start() const override { return std::make_unique<Matcher>(config_); }
  size_t held_bytes() const override { return sizeof(*this); }

 private:
  class Matcher final : public ConstraintMatcher {
   public:
    explicit Matcher(const FakeConstraintConfig& config) : config_(config), digest_(mix(config.seed, 21)) {}

    std::unique_ptr<ConstraintMatcher> fork() const override { return std::make_unique<Matcher>(*this); }
    bool advance(int32_t token) override {
      if (!may_follow(token)) return false;
      is_over_ = is_end(token);
      digest_ = mix(digest_, static_cast<uint64_t>(token));
      ++num_tokens_;
      num_asked_ = 0;
      return true;
    }
    NextTokens next() override {
      if (config_.fail_one_in > 0 && digest_ / 3 % config_.fail_one_in == 0) {
        return {.state = NextTokens::State::kFailed,
                .error = make_error(ErrorCode::kGrammarTooComplex, "a mask that cannot be made")};
      }
      if (num_asked_++ < digest_ % (config_.asks_max + 1)) return {.state = NextTokens::State::kLate};
      std::vector<uint32_t> bits((kFakeVocab + 31) / 32, 0);
      for (int32_t token = 0; token < static_cast<int32_t>(kFakeVocab); ++token) {
        if (may_follow(token)) bits[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
      }
      return {.mask = std::make_shared<TokenMask>(std::move(bits))};
    }
    void wait(std::chrono::microseconds) override {}
    bool accepts() const override { return is_over_ || ended() || (!is_fixed_place() && digest_ / 7 % 5 == 0); }
    bool ended() const override { return is_over_ || (num_tokens_ > 0 && digest_ / 5 % config_.end_one_in == 0); }

   private:
    static bool is_end(int32_t token) { return std::ranges::find(kFakeEnds, token) != kFakeEnds.end(); }
    bool is_fixed_place() const { return digest_ / 11 % 16 < config_.fixed_of_16; }
    bool may_follow(int32_t token) const {
      if (is_over_) return false;
      if (is_end(token)) return accepts();
      if (ended()) return false;
      const auto some = static_cast<int32_t>(2 + digest_ % (kFakeVocab - 2));  // there is always one
      if (is_fixed_place()) return token == some;
      return token == some || mix(digest_, static_cast<uint64_t>(token) + 1000) % 4 == 0;
    }

    FakeConstraintConfig config_;
    uint64_t digest_;
    uint32_t num_tokens_ = 0, num_asked_ = 0;
    bool is_over_ = false;
  };

  FakeConstraintConfig config_;
};

}  // namespace llmrt::test
