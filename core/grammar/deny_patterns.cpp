#include "core/grammar/deny_patterns.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>

#include "core/grammar/regex_pool.h"
#include "core/grammar/regex_syntax.h"
#include "core/request/string_automaton.h"

namespace llmrt {
namespace {

uint8_t lower(uint8_t byte) {
  return byte >= 'A' && byte <= 'Z' ? static_cast<uint8_t>(byte + 'a' - 'A') : byte;
}
uint8_t upper(uint8_t byte) {
  return byte >= 'a' && byte <= 'z' ? static_cast<uint8_t>(byte - ('a' - 'A')) : byte;
}

// The derivatives of all expressions together as a table. State 0 has no text left.
struct Automaton {
  static constexpr uint16_t kDead = 0, kStart = 1;
  std::vector<std::array<uint16_t, 256>> next;
  std::vector<bool> accepts;
};

Result<Automaton> make_automaton(RegexPool* pool, RegexId expression, bool ignore_case) {
  Automaton automaton;
  std::vector<RegexId> states = {RegexPool::kNothing, expression};
  std::unordered_map<RegexId, uint16_t> numbers = {{RegexPool::kNothing, Automaton::kDead},
                                                   {expression, Automaton::kStart}};
  for (size_t i = 0; i < states.size(); ++i) {
    const RegexId state = states[i];
    automaton.accepts.push_back(pool->accepts_empty(state));
    std::array<uint16_t, 256>& next = automaton.next.emplace_back();
    for (unsigned byte = 0; byte < 256; ++byte) {
      const auto b = static_cast<uint8_t>(byte);
      RegexId after = pool->after(state, b);
      if (ignore_case && lower(b) != upper(b))
        after = pool->either(pool->after(state, lower(b)), pool->after(state, upper(b)));
      const auto [place, is_new] = numbers.emplace(after, static_cast<uint16_t>(states.size()));
      if (is_new) states.push_back(after);
      next[byte] = place->second;
    }
    if (pool->failed() || states.size() > kDeniedStatesMax)
      return make_error(ErrorCode::kInvalidArgument,
                        "expressions: expected at most {} states of all together, found more", kDeniedStatesMax);
  }
  return automaton;
}

class DenyPatterns final : public Policy {
 public:
  DenyPatterns(const DenySource& source, std::optional<Automaton> automaton)
      : ignore_case_(source.ignore_case), expressions_(std::move(automaton)) {
    std::vector<std::string> strings = source.strings;
    if (ignore_case_)
      for (std::string& text : strings)
        for (char& c : text) c = static_cast<char>(lower(static_cast<uint8_t>(c)));
    if (!strings.empty()) strings_.emplace(strings);
  }

  std::unique_ptr<PolicyFilter> begin() const override { return std::make_unique<Filter>(*this); }

 private:
  // Positions are counted in bytes of the branch's text.
  class Filter final : public PolicyFilter {
   public:
    explicit Filter(const DenyPatterns& patterns) : patterns_(patterns) {}

    PolicyVerdict advance(int32_t, std::string_view bytes) override {
      const uint64_t end = position_ + bytes.size();
      for (const char c : bytes) {
        const std::optional<uint64_t> match = step(static_cast<uint8_t>(c));
        ++position_;
        if (match) return {.stops = true, .cut_bytes = static_cast<uint32_t>(end - *match)};
      }
      return {.hold_bytes = held()};
    }

   private:
    // Where the longest match that ends with this byte begins; nothing: none ends here.
    std::optional<uint64_t> step(uint8_t byte) {
      std::optional<uint64_t> match;
      if (patterns_.strings_) {
        string_state_ = patterns_.strings_->advance(string_state_, patterns_.ignore_case_ ? lower(byte) : byte);
        if (const uint32_t length = patterns_.strings_->match_bytes(string_state_); length > 0)
          match = position_ + 1 - length;
      }
      if (!patterns_.expressions_) return match;
      const Automaton& automaton = *patterns_.expressions_;
      open_.push_back({Automaton::kStart, position_});
      if (seen_.empty()) seen_.resize(automaton.next.size());
      ++round_;
      size_t kept = 0;
      for (const Open& begun : open_) {  // the oldest first: of two in one state the older tells all
        const uint16_t state = automaton.next[begun.state][byte];
        if (state == Automaton::kDead || seen_[state] == round_) continue;
        seen_[state] = round_;
        if (automaton.accepts[state]) {
          const uint64_t shown = position_ + 1 - std::min<uint64_t>(position_ + 1, kDeniedBytesHeldMax);
          const uint64_t from = std::max(begun.position, shown);
          match = match ? std::min(*match, from) : from;
        }
        open_[kept++] = {state, begun.position};
      }
      open_.resize(kept);
      return match;
    }

    uint32_t held() const {
      uint64_t held = patterns_.strings_ ? patterns_.strings_->hold_bytes(string_state_) : 0;
      if (!open_.empty())
        held = std::max(held, std::min<uint64_t>(position_ - open_.front().position, kDeniedBytesHeldMax));
      return static_cast<uint32_t>(held);
    }

    struct Open {
      uint16_t state;
      uint64_t position;  // of its first byte
    };
    const DenyPatterns& patterns_;  // which the request holds
    uint32_t string_state_ = StringAutomaton::kStart;
    std::vector<Open> open_;      // begins of matches, by position
    std::vector<uint64_t> seen_;  // by state: the round that met it last
    uint64_t round_ = 0, position_ = 0;
  };

  const bool ignore_case_;
  std::optional<StringAutomaton> strings_;
  const std::optional<Automaton> expressions_;
};

}  // namespace

Result<std::shared_ptr<const Policy>> compile_deny_patterns(const DenySource& source) {
  if (source.strings.empty() && source.expressions.empty())
    return make_error(ErrorCode::kInvalidArgument, "policy: expected strings or expressions, found none");
  for (const std::string& text : source.strings)
    if (text.empty()) return make_error(ErrorCode::kInvalidArgument, "strings: expected texts, found an empty one");
  RegexPool pool;
  std::vector<RegexId> parts;
  for (const std::string& pattern : source.expressions) {
    const Result<RegexId> part = parse_regex(&pool, pattern, {.anchored = true});
    if (!part) return make_error(part.error().code, "expression '{}': {}", pattern, part.error().message);
    if (pool.accepts_empty(*part))
      return make_error(ErrorCode::kInvalidArgument,
                        "expression '{}': expected one that needs a character to match, "
                        "found one that matches everywhere",
                        pattern);
    parts.push_back(*part);
  }
  std::optional<Automaton> automaton;
  if (!parts.empty()) {
    Result<Automaton> made = make_automaton(&pool, pool.either(parts), source.ignore_case);
    if (!made) return made.error();
    automaton = *std::move(made);
  }
  return std::shared_ptr<const Policy>(std::make_shared<DenyPatterns>(source, std::move(automaton)));
}

}  // namespace llmrt
