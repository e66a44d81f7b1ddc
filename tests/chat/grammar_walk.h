// Random texts of a grammar, from its rules: a part of every choice by chance, short ones where rules nest deeply;
// bytes of terminals by their derivatives.
#pragma once

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/grammar/grammar_builder.h"

namespace llmrt::chat_test {

class GrammarWalk {
 public:
  using Pieces = std::vector<std::pair<int32_t, std::string>>;  // token, or -1 and text

  GrammarWalk(GrammarBuilder* builder, std::mt19937* random) : b_(*builder), random_(*random) { measure(); }

  // The symbol must have a text.
  Pieces text_of(SymbolId symbol) {
    Pieces pieces;
    write(symbol, 0, &pieces);
    return pieces;
  }

 private:
  using Kind = GrammarBuilder::Symbol::Kind;
  static constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max() / 4;

  // Least depth of a derivation, as a fixed point.
  void measure() {
    height_.assign(b_.num_symbols(), kNever);
    for (bool changed = true; changed;) {
      changed = false;
      for (SymbolId id = 0; id < b_.num_symbols(); ++id) {
        const auto& s = b_.symbol(id);
        uint32_t height = kNever;
        switch (s.kind) {
          case Kind::kNothing:
            break;
          case Kind::kEmpty:
          case Kind::kMark:
          case Kind::kTerminal:
          case Kind::kToken:
            height = 1;
            break;
          case Kind::kSequence:
            height = 1;
            for (SymbolId part : s.parts) height = std::max(height, height_[part] + 1);
            break;
          case Kind::kChoice:
            for (SymbolId part : s.parts) height = std::min(height, height_[part] + 1);
            break;
          case Kind::kRepeat:
            height = s.min == 0 ? 1 : height_[s.parts[0]] + 1;
            break;
          case Kind::kRule:
            height = s.value == UINT32_MAX ? kNever : height_[s.value] + 1;
            break;
        }
        height = std::min(height, kNever);
        if (height < height_[id]) height_[id] = height, changed = true;
      }
    }
  }

  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

  void write(SymbolId id, int depth, Pieces* out) {
    const auto s = b_.symbol(id);
    switch (s.kind) {
      case Kind::kNothing:
        LLMRT_CHECK(false, "a symbol without a text was reached");
        return;
      case Kind::kEmpty:
      case Kind::kMark:
        return;
      case Kind::kTerminal:
        out->emplace_back(-1, text(s.value));
        return;
      case Kind::kToken:
        out->emplace_back(static_cast<int32_t>(s.value), "");
        return;
      case Kind::kSequence:
        for (SymbolId part : s.parts) write(part, depth + 1, out);
        return;
      case Kind::kChoice: {
        SymbolId part = s.parts[below(s.parts.size())];
        if (depth > 60 || height_[part] >= kNever) {
          part = *std::min_element(s.parts.begin(), s.parts.end(),
                                   [&](auto a, auto b) { return height_[a] < height_[b]; });
        }
        return write(part, depth + 1, out);
      }
      case Kind::kRepeat: {
        const size_t most = depth > 60 ? s.min : std::min<size_t>(s.max, s.min + 3);
        for (size_t n = s.min + below(most - s.min + 1); n > 0; --n) write(s.parts[0], depth + 1, out);
        return;
      }
      case Kind::kRule:
        return write(s.value, depth + 1, out);
    }
  }

  // Random bytes for a while, then the shortest way to the end.
  std::string text(RegexId regex) {
    RegexPool& pool = b_.regexes();
    std::string result;
    for (size_t left = below(12); left > 0; --left) {
      if (pool.accepts_empty(regex) && below(6) == 0) return result;
      const auto next = step(regex);
      if (next.empty()) break;
      const auto& [byte, after] = next[below(next.size())];
      result += static_cast<char>(byte);
      regex = after;
    }
    return result + shortest(regex);
  }

  std::vector<std::pair<uint8_t, RegexId>> step(RegexId regex) {
    RegexPool& pool = b_.regexes();
    std::vector<std::pair<uint8_t, RegexId>> next;
    const auto classes = pool.byte_classes(regex);
    for (const uint8_t representative : classes.representatives) {
      // Another byte of the class as well: letters, not the class's first.
      uint8_t byte = representative;
      for (int tries = 0; tries < 8; ++tries) {
        const auto other = static_cast<uint8_t>(32 + below(96));
        if (classes.class_of[other] == classes.class_of[representative]) byte = other;
      }
      const RegexId after = pool.after(regex, byte);
      if (pool.has_text(after, 10'000) == RegexPool::Answer::kYes) next.emplace_back(byte, after);
    }
    return next;
  }

  std::string shortest(RegexId from) {
    RegexPool& pool = b_.regexes();
    std::vector<std::pair<RegexId, std::string>> level = {{from, ""}};
    std::vector<RegexId> seen = {from};
    while (!level.empty()) {
      std::vector<std::pair<RegexId, std::string>> next_level;
      for (const auto& [regex, text] : level) {
        if (pool.accepts_empty(regex)) return text;
        for (const auto& [byte, after] : step(regex)) {
          if (std::find(seen.begin(), seen.end(), after) != seen.end()) continue;
          seen.push_back(after);
          next_level.emplace_back(after, text + static_cast<char>(byte));
        }
      }
      level = std::move(next_level);
    }
    LLMRT_CHECK(false, "a terminal without a text was reached");
    return {};
  }

  GrammarBuilder& b_;
  std::mt19937& random_;
  std::vector<uint32_t> height_;
};

}  // namespace llmrt::chat_test
