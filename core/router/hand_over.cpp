#include "core/router/hand_over.h"

#include <algorithm>
#include <limits>

namespace llmrt {
namespace {

constexpr const char* kRoleNames[] = {"both", "prefill", "decode"};
// Of two that could do it alone a pair is taken where it takes at most so much of the time.
constexpr double kClearlyLess = 0.8;

double answer_of_one(const PlacementAsk& ask) {
  return static_cast<double>(ask.answer_tokens) / std::max(ask.num_branches, 1u);
}

}  // namespace

const char* worker_role_name(WorkerRole role) {
  return kRoleNames[static_cast<int>(role)];
}

std::optional<WorkerRole> parse_worker_role(std::string_view name) {
  for (int i = 0; i < 3; ++i)
    if (name == kRoleNames[i]) return static_cast<WorkerRole>(i);
  return std::nullopt;
}

PhaseChoice choose_prefill(const HandOverRule& rule, const PlacementAsk& ask, const PlacementChoice& alone) {
  const std::vector<WorkerRole>& roles = rule.roles;
  const double tokens = answer_of_one(ask), way_ms = rule.token_ms * static_cast<double>(ask.prompt_tokens);
  const auto can = [&](uint32_t i) { return alone.terms[i].infeasible.empty(); };
  PhaseChoice best{*alone.worker};
  double best_ms = std::numeric_limits<double>::infinity();
  const auto consider = [&](uint32_t worker, bool gives, double ms) {
    if (ms >= best_ms) return;
    best = {worker, gives};
    best_ms = ms;
  };
  // The placement's own choice among those that do both, so that its rule holds for them.
  if (roles[*alone.worker] == WorkerRole::kBoth) {
    const PlacementTerms& terms = alone.terms[*alone.worker];
    consider(*alone.worker, false, terms.ttft_ms + tokens * terms.tpot_ms);
  }
  for (uint32_t i = 0; i < roles.size(); ++i)
    if (can(i) && roles[i] == WorkerRole::kBoth)
      consider(i, false, alone.terms[i].ttft_ms + tokens * alone.terms[i].tpot_ms);
  for (uint32_t first = 0; first < roles.size(); ++first) {
    if (!can(first) || roles[first] == WorkerRole::kDecode) continue;
    for (uint32_t second = 0; second < roles.size(); ++second) {
      if (second == first || !can(second) || roles[second] == WorkerRole::kPrefill) continue;
      const bool both = roles[first] == WorkerRole::kBoth && roles[second] == WorkerRole::kBoth;
      if (both && !rule.by_load) continue;
      const double ms = alone.terms[first].ttft_ms + way_ms + tokens * alone.terms[second].tpot_ms;
      consider(first, true, both ? ms / kClearlyLess : ms);
    }
  }
  return best;
}

std::optional<uint32_t> choose_decode(const HandOverRule& rule, uint32_t from, const PlacementAsk& ask,
                                      const PlacementChoice& now) {
  const double way_ms = rule.token_ms * static_cast<double>(ask.prompt_tokens);
  std::optional<uint32_t> best;
  double best_ms = std::numeric_limits<double>::infinity();
  for (uint32_t i = 0; i < rule.roles.size(); ++i) {
    const PlacementTerms& terms = now.terms[i];
    const bool stays = i == from;
    if (!stays && (!terms.infeasible.empty() || rule.roles[i] == WorkerRole::kPrefill)) continue;
    if (stays && rule.roles[i] == WorkerRole::kPrefill) continue;
    const double ms = answer_of_one(ask) * terms.tpot_ms + (stays ? 0 : way_ms + terms.ttft_ms);
    if (ms >= best_ms) continue;
    best_ms = ms;
    best = i;
  }
  return best == from ? std::nullopt : best;
}

}  // namespace llmrt
