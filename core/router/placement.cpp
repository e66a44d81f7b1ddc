#include "core/router/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace llmrt {
namespace {

constexpr const char* kPolicyNames[] = {"lateness", "least-load", "round-robin"};
// Of the time to an answer's end, beside its lateness.
constexpr double kFinishShare = 0.05;
constexpr uint64_t kLargeTimes = 2;

uint64_t blocks_of(uint64_t tokens, uint32_t block_tokens) {
  return (tokens + block_tokens - 1) / std::max(block_tokens, 1u);
}

std::string why_not(const PlacementAsk& ask, const WorkerFacts& worker) {
  if (!worker.unusable.empty()) return worker.unusable;
  const uint64_t own = ask.prompt_tokens + ask.answer_tokens / std::max(ask.num_branches, 1u);
  if (own > worker.context_max) return fmt::format("context: expected {}, found {}", own, worker.context_max);
  if (blocks_of(own, worker.block_tokens) > worker.blocks_total)
    return fmt::format("KV pool: expected {} blocks, found {}", blocks_of(own, worker.block_tokens),
                       worker.blocks_total);
  if (ask.batch_invariant && !worker.batch_invariant) return "expected batch-invariant kernels, found none";
  if (ask.has_adapter && worker.adapter_slots == 0) return "expected a slot for adapters, found none";
  if (ask.wants_draft_model && !worker.has_draft_model) return "expected a draft model, found none";
  return {};
}

// What is not known yet is taken for as good as the best that is, so that a new worker is tried.
struct BestKnown {
  double prefill_tokens_ms = 0, decode_more_ms = 0;
};
BestKnown best_known(std::span<const WorkerFacts> workers) {
  BestKnown best;
  for (const WorkerFacts& worker : workers) {
    best.prefill_tokens_ms = std::max(best.prefill_tokens_ms, worker.prefill_tokens_ms);
    if (worker.decode_more_ms > 0 && (best.decode_more_ms == 0 || worker.decode_more_ms < best.decode_more_ms))
      best.decode_more_ms = worker.decode_more_ms;
  }
  return best;
}

void predict(const PlacementConfig& config, const PlacementAsk& ask, const WorkerFacts& worker, const BestKnown& best,
             PlacementTerms* terms) {
  const double rate = worker.prefill_tokens_ms > 0 ? worker.prefill_tokens_ms : best.prefill_tokens_ms;
  const double step_ms = worker.decode_more_ms > 0 ? worker.decode_more_ms : best.decode_more_ms;
  const uint64_t own = ask.prompt_tokens - std::min(ask.prompt_tokens, worker.cached_tokens);
  const auto before = static_cast<double>(worker.waiting_tokens + worker.prompt_tokens_left + own);
  terms->ttft_ms = (rate > 0 ? before / rate : 0) + step_ms;
  // Those that wait will run beside it, as far as there are rows.
  const double rows_now = std::max(1.0, static_cast<double>(worker.num_running));
  const double more =
      worker.decode_ms > 0 ? std::max(0.0, worker.decode_more_ms - worker.decode_ms) : step_ms / rows_now;
  const double free_rows = std::max(0.0, static_cast<double>(worker.sequences_max) - worker.num_running);
  terms->tpot_ms = step_ms + more * std::min(static_cast<double>(worker.num_waiting), free_rows);
  const double tokens = static_cast<double>(ask.answer_tokens) / std::max(ask.num_branches, 1u);
  terms->late_ms = std::max(0.0, terms->ttft_ms - config.ttft_target_ms) +
                   tokens * std::max(0.0, terms->tpot_ms - config.tpot_target_ms);
  terms->total_ms = terms->late_ms + kFinishShare * (terms->ttft_ms + tokens * terms->tpot_ms);
}

}  // namespace

const char* placement_policy_name(PlacementPolicy policy) {
  return kPolicyNames[static_cast<int>(policy)];
}

std::optional<PlacementPolicy> parse_placement_policy(std::string_view name) {
  const auto found = std::ranges::find(kPolicyNames, name, [](const char* known) { return std::string_view(known); });
  if (found == std::end(kPolicyNames)) return std::nullopt;
  return static_cast<PlacementPolicy>(found - std::begin(kPolicyNames));
}

PlacementChoice place(const PlacementConfig& config, const PlacementAsk& ask, std::span<const WorkerFacts> workers,
                      uint64_t turn) {
  PlacementChoice choice;
  choice.terms.resize(workers.size());
  const BestKnown best = best_known(workers);
  uint64_t smallest = ~uint64_t{0};
  for (const WorkerFacts& worker : workers)
    smallest = std::min(smallest, uint64_t{worker.blocks_total} * worker.block_tokens);
  std::vector<uint32_t> feasible;
  for (uint32_t i = 0; i < workers.size(); ++i) {
    const WorkerFacts& worker = workers[i];
    PlacementTerms& terms = choice.terms[i];
    terms.infeasible = why_not(ask, worker);
    if (!terms.infeasible.empty()) continue;
    feasible.push_back(i);
    predict(config, ask, worker, best, &terms);
    terms.cached_tokens = worker.cached_tokens;
    terms.room_blocks =
        static_cast<int64_t>(worker.blocks_free) - static_cast<int64_t>(blocks_of(ask.tokens(), worker.block_tokens));
    const bool is_large = uint64_t{worker.blocks_total} * worker.block_tokens >= kLargeTimes * smallest;
    terms.keeps_room = is_large && ask.tokens() <= config.long_tokens &&
                       static_cast<double>(terms.room_blocks) < config.kept_share * worker.blocks_total;
  }
  if (feasible.empty()) return choice;
  if (config.policy == PlacementPolicy::kRoundRobin) {
    choice.worker = feasible[turn % feasible.size()];
    return choice;
  }
  const auto rank = [&](uint32_t i) {
    const PlacementTerms& terms = choice.terms[i];
    const WorkerFacts& worker = workers[i];
    const bool by_load = config.policy == PlacementPolicy::kLeastLoad;
    const double first = by_load ? worker.num_running + worker.num_waiting : terms.total_ms;
    return std::tuple(!by_load && terms.keeps_room, first, -terms.room_blocks, worker.num_running + worker.num_waiting);
  };
  choice.worker = *std::ranges::min_element(feasible, {}, rank);
  return choice;
}

std::string describe(const PlacementChoice& choice, std::span<const std::string> names) {
  std::string text;
  for (size_t i = 0; i < choice.terms.size(); ++i) {
    const PlacementTerms& terms = choice.terms[i];
    if (i > 0) text += "; ";
    text += names[i];
    if (!terms.infeasible.empty()) {
      text += ": " + terms.infeasible;
      continue;
    }
    text += fmt::format(" ttft {:.1f} ms tpot {:.2f} ms late {:.1f} total {:.1f} room {}{}", terms.ttft_ms,
                        terms.tpot_ms, terms.late_ms, terms.total_ms, terms.room_blocks,
                        terms.keeps_room ? " kept for long requests" : "");
  }
  return text;
}

}  // namespace llmrt
