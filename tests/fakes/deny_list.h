// A policy as an example: a branch whose text comes to hold one of the denied phrases ends before it, and nothing that
// may be the begin of one is shown. Given to a request as
// `request.policy = std::make_shared<DenyList>(std::vector<std::string>{"secret"})`.
#pragma once

#include <string>
#include <vector>

#include "core/request/policy.h"
#include "core/request/string_automaton.h"

namespace llmrt::test {

class DenyList final : public Policy {
 public:
  explicit DenyList(const std::vector<std::string>& phrases) : automaton_(phrases) {}
  std::unique_ptr<PolicyFilter> begin() const override { return std::make_unique<Filter>(automaton_); }

 private:
  struct Filter final : PolicyFilter {
    explicit Filter(const StringAutomaton& phrases) : automaton(phrases) {}
    PolicyVerdict advance(int32_t, std::string_view bytes) override {
      for (size_t i = 0; i < bytes.size(); ++i) {
        state = automaton.advance(state, static_cast<uint8_t>(bytes[i]));
        const uint32_t match_bytes = automaton.match_bytes(state);
        if (match_bytes == 0) continue;
        return {.stops = true, .cut_bytes = static_cast<uint32_t>(bytes.size() - i - 1) + match_bytes};
      }
      return {.hold_bytes = automaton.hold_bytes(state)};
    }
    const StringAutomaton& automaton;  // of the list, which the request holds
    uint32_t state = StringAutomaton::kStart;
  };
  const StringAutomaton automaton_;
};

}  // namespace llmrt::test
