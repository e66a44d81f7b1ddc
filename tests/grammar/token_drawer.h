// Tokens drawn from a mask without a model: at temperature 1.5, with normal logits and a bonus for what closes
// something. One thread.
#pragma once

#include <cmath>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "core/grammar/token_vocabulary.h"
#include "core/sample/token_mask.h"

namespace llmrt::fakes {

// Draws tokens as a sampler with random logits would, but looks only at a few.
class TokenDrawer {
 public:
  TokenDrawer(const TokenVocabulary& vocabulary, unsigned seed) : random_(seed), singles_(256, -1) {
    for (const int32_t end : vocabulary.end_tokens()) closing_.push_back(end);
    for (int32_t v = 0; v < static_cast<int32_t>(vocabulary.num_tokens()); ++v) {
      const std::string_view bytes = vocabulary.bytes(v);
      if (bytes.size() == 1) singles_[static_cast<uint8_t>(bytes[0])] = v;
      if (bytes == "\"" || bytes == "}" || bytes == "]" || bytes == "\"}" || bytes == "\"]" || bytes == "}}") {
        closing_.push_back(v);
      }
    }
  }

  int32_t draw(const TokenMask& mask) {
    std::normal_distribution<double> normal;
    double best_score = -1e300;
    int32_t best = -1;
    const auto consider = [&](int32_t token, double bonus) {
      const double score = (kLogitScale * normal(random_) + bonus) / kTemperature + gumbel();
      if (score > best_score) std::tie(best_score, best) = std::pair(score, token);
    };
    for (const int32_t token : closing_) {
      if (mask.allows(token)) consider(token, kClosingBonus);
    }
    for (int i = 0; i < kCandidates; ++i) consider(any(mask), 0);
    return best;
  }

  // The token of a single byte; -1: none.
  int32_t of_byte(char byte) const { return singles_[static_cast<uint8_t>(byte)]; }

 private:
  static constexpr double kTemperature = 1.5, kLogitScale = 2, kClosingBonus = 3;
  static constexpr int kCandidates = 32;

  double gumbel() {
    std::uniform_real_distribution<double> uniform(1e-12, 1);
    return -std::log(-std::log(uniform(random_)));
  }
  int32_t any(const TokenMask& mask) {
    if (!mask.list().empty()) return static_cast<int32_t>(mask.list()[random_() % mask.list().size()]);
    while (true) {
      const auto token = static_cast<int32_t>(random_() % (32 * mask.bits().size()));
      if (mask.allows(token)) return token;
    }
  }

  std::mt19937 random_;
  std::vector<int32_t> closing_;
  std::vector<int32_t> singles_;  // by byte
};

}  // namespace llmrt::fakes
