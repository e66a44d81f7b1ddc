#include "core/router/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

namespace llmrt {
namespace {

constexpr const char* kPolicyNames[] = {"lateness", "least-load", "round-robin"};
// Of the time to an answer's end, beside its lateness.
constexpr double kFinishShare = 0.05;
constexpr uint64_t kLargeTimes = 2;
constexpr double kUnknownTokensMs = 100, kUnknownStepMs = 1;
constexpr double kPromptShareMin = 0.5;
// Of the target to the first token that a queue may fill: what is foretold errs, and behind longer queues the steps of
// an engine are as long as its target for each token allows, or longer.
constexpr double kTtftShare = 0.7;
// A request that is late everywhere waits at most so many times its target while others wait less, and a worker that is
// late by so many times the target is taken for given up.
constexpr double kLateTimes = 60, kLateFade = 10;
constexpr double kLostMost = 1e9, kLeastMs = 1e-9;
// Of the prompts that would come while the rows that run now are all replaced: arrivals may end.
constexpr double kJoiningShare = 0.5;

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
  double answer_tokens = 0, prompt_tokens_each = 0;  // mean of those that know
};
BestKnown best_known(std::span<const WorkerFacts> workers) {
  BestKnown best;
  double num_known = 0;
  for (const WorkerFacts& worker : workers) {
    num_known += worker.answer_tokens > 0;
    best.answer_tokens += worker.answer_tokens;
    best.prompt_tokens_each += worker.prompt_tokens_each;
    best.prefill_tokens_ms = std::max(best.prefill_tokens_ms, worker.prefill_tokens_ms);
    if (worker.decode_more_ms > 0 && (best.decode_more_ms == 0 || worker.decode_more_ms < best.decode_more_ms))
      best.decode_more_ms = worker.decode_more_ms;
  }
  best.answer_tokens /= std::max(1.0, num_known);
  best.prompt_tokens_each /= std::max(1.0, num_known);
  // Of none: all are alike, and what they have to do counts.
  if (best.prefill_tokens_ms == 0) best.prefill_tokens_ms = kUnknownTokensMs;
  if (best.decode_more_ms == 0) best.decode_more_ms = kUnknownStepMs;
  return best;
}

// Steps of a worker, by its own cost model.
struct StepCost {
  double rate, now_ms, more_ms, row_ms;  // prompt tokens a millisecond; a step now, with one row more; of each row
};
StepCost step_cost(const WorkerFacts& worker, const BestKnown& best) {
  StepCost cost;
  cost.rate = worker.prefill_tokens_ms > 0 ? worker.prefill_tokens_ms : best.prefill_tokens_ms;
  cost.more_ms = worker.decode_more_ms > 0 ? worker.decode_more_ms : best.decode_more_ms;
  cost.now_ms = worker.decode_ms > 0 ? worker.decode_ms : cost.more_ms;
  const double rows = std::max(1.0, static_cast<double>(worker.num_running));
  cost.row_ms = worker.decode_ms > 0 ? std::max(0.0, cost.more_ms - cost.now_ms) : cost.more_ms / rows;
  return cost;
}

// How many running branches have to end before the request has its rows and its blocks.
double ends_before(const PlacementAsk& ask, const WorkerFacts& worker, double answer_tokens) {
  const double waiting = worker.num_waiting, running = worker.num_running;
  const double rows = running + waiting + ask.num_branches - worker.sequences_max;
  const double reserved = std::min(answer_tokens, static_cast<double>(ask.answer_tokens) / ask.num_branches);
  const double tokens = static_cast<double>(worker.waiting_tokens + ask.prompt_tokens) + waiting * answer_tokens +
                        reserved * ask.num_branches;
  const double blocks = tokens / std::max(worker.block_tokens, 1u) - worker.blocks_free;
  const double used = static_cast<double>(worker.blocks_total) - worker.blocks_free;
  const double own = (static_cast<double>(ask.prompt_tokens) + reserved) / std::max(worker.block_tokens, 1u);
  const double blocks_row = std::max(1.0, running > 0 ? used / running : own);
  return std::max({0.0, rows, blocks / blocks_row});
}

// Answers in time that the worker cannot give if the request, which is late wherever it goes, goes there: as many as it
// gives in that time, but fewer the later it is already, since it is in time again only when its queue is gone.
struct Spent {
  double prompt_ms, alone_ms, row_ms, answer_tokens;  // its prompt; a step of one row, of each more; a mean answer
};
double answers_lost(const PlacementConfig& config, const PlacementAsk& ask, const WorkerFacts& worker,
                    const Spent& spent, const PlacementTerms& terms) {
  if (config.ttft_target_ms == 0 || config.tpot_target_ms == 0) return 0;
  if (terms.ttft_ms > kLateTimes * config.ttft_target_ms) return kLostMost;
  if (spent.alone_ms > config.tpot_target_ms) return 0;  // it never is in time
  const uint64_t blocks = blocks_of(ask.prompt_tokens, worker.block_tokens) +
                          blocks_of(static_cast<uint64_t>(spent.answer_tokens), worker.block_tokens) + 1;
  const double rows = std::clamp<double>(static_cast<double>(worker.blocks_total) / static_cast<double>(blocks), 1,
                                         std::max(1u, worker.sequences_max));
  const double tokens = static_cast<double>(ask.answer_tokens) / std::max(ask.num_branches, 1u);
  const double ms = spent.prompt_ms + tokens * (spent.alone_ms + spent.row_ms * (rows - 1)) / rows;
  return std::exp(-terms.late_ms / config.ttft_target_ms / kLateFade) / std::max(ms, kLeastMs);
}

void predict(const PlacementConfig& config, const PlacementAsk& ask, const WorkerFacts& worker, const BestKnown& best,
             PlacementTerms* terms) {
  const StepCost cost = step_cost(worker, best);
  const auto ms_of_prompt = [&](double tokens) { return cost.rate > 0 ? tokens / cost.rate : 0; };
  const double own = static_cast<double>(ask.prompt_tokens - std::min(ask.prompt_tokens, worker.cached_tokens));
  const double tokens = static_cast<double>(ask.answer_tokens) / std::max(ask.num_branches, 1u);
  const double known = worker.answer_tokens > 0 ? worker.answer_tokens : best.answer_tokens;
  const double answer = known > 0 ? known : tokens;
  const double each = worker.answer_tokens > 0 ? worker.prompt_tokens_each : best.prompt_tokens_each;
  const double running = worker.num_running;
  terms->wait_ms = ends_before(ask, worker, answer) * answer * cost.now_ms / std::max(1.0, running);
  const double before = static_cast<double>(worker.waiting_tokens + worker.prompt_tokens_left);
  // Beside rows that run, prompts have what these leave of a step within its target.
  const double share = running > 0 && config.tpot_target_ms > 0
                           ? std::clamp(1 - cost.now_ms / config.tpot_target_ms, kPromptShareMin, 1.0)
                           : 1;
  const double deep = std::max(0.0, own - worker.step_tokens);
  const double own_ms = ms_of_prompt(own) + worker.prefill_pair_ms * own * deep / 2;
  const double before_ms = ms_of_prompt(before);
  terms->ttft_ms = terms->wait_ms + (before_ms + own_ms) / share + cost.more_ms;
  // Those that wait will run beside it, as far as there are rows, and as many prompts come as answers go.
  const double free_rows = std::max(0.0, static_cast<double>(worker.sequences_max) - running);
  const double joining = std::min(static_cast<double>(worker.num_waiting), free_rows);
  // Short prompts overtake long ones, which are then computed beside their answers.
  terms->tpot_ms = cost.more_ms + cost.row_ms * joining + kJoiningShare * ms_of_prompt((running + joining) * each) +
                   before_ms / std::max(1.0, std::min(answer, tokens));
  terms->late_ms = std::max(0.0, terms->ttft_ms - kTtftShare * config.ttft_target_ms) +
                   tokens * std::max(0.0, terms->tpot_ms - config.tpot_target_ms);
  // The rows that run wait for its prompt.
  const double room_ms = std::max(0.0, config.tpot_target_ms - terms->tpot_ms);
  terms->others_ms =
      running > 0 && terms->tpot_ms <= config.tpot_target_ms ? std::max(0.0, own_ms - answer * room_ms) * running : 0;
  terms->total_ms = terms->late_ms + terms->others_ms + kFinishShare * (terms->ttft_ms + tokens * terms->tpot_ms);
  const double alone_ms = std::max(0.0, cost.now_ms - cost.row_ms * std::max(0.0, running - 1));
  terms->lost = answers_lost(config, ask, worker, {own_ms, alone_ms, cost.row_ms, answer}, *terms);
}

uint32_t by_lateness(const PlacementConfig& config, const PlacementAsk& ask, std::vector<uint32_t> feasible,
                     std::span<const WorkerFacts> workers, std::span<const PlacementTerms> terms) {
  // Room that is kept is a last resort.
  const auto keeps = [&](uint32_t i) { return terms[i].keeps_room; };
  if (!std::ranges::all_of(feasible, keeps)) std::erase_if(feasible, keeps);
  const bool has_targets = config.ttft_target_ms > 0 && config.tpot_target_ms > 0;
  const auto is_late = [&](uint32_t i) { return terms[i].late_ms + terms[i].others_ms > 0; };
  const bool all_late = std::ranges::all_of(feasible, is_late);
  if (has_targets && !all_late) std::erase_if(feasible, is_late);
  const auto rank = [&](uint32_t i) {
    const PlacementTerms& its = terms[i];
    double first = its.total_ms, second = 0;
    if (has_targets && !all_late) {
      first = its.ttft_ms / config.ttft_target_ms + its.tpot_ms / config.tpot_target_ms;
    } else if (has_targets && ask.tokens() <= config.long_tokens) {
      first = its.lost;
      second = its.late_ms;
    }
    return std::tuple(first, second, -its.room_blocks, workers[i].num_running + workers[i].num_waiting);
  };
  return *std::ranges::min_element(feasible, {}, rank);
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
  if (config.policy == PlacementPolicy::kRoundRobin)
    choice.worker = feasible[turn % feasible.size()];
  else if (config.policy == PlacementPolicy::kLeastLoad)
    choice.worker = *std::ranges::min_element(feasible, {}, [&](uint32_t i) {
      return std::pair(workers[i].num_running + workers[i].num_waiting, -choice.terms[i].room_blocks);
    });
  else
    choice.worker = by_lateness(config, ask, std::move(feasible), workers, choice.terms);
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
