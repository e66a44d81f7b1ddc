#include "core/engine/expert_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

namespace llmrt {

namespace {

Result<std::vector<double>> distinct_ids(const SealedList& sealed, uint32_t num_tokens, uint32_t num_sampled,
                                         Backend* backend) {
  const OpList& list = sealed;
  std::vector<double> counts(list.tensors.size());
  for (const Op& op : list.ops) {
    const auto* route = std::get_if<RouteExperts>(&op);
    if (route == nullptr) continue;
    std::vector<int32_t> ids(list.rows_of(route->ids));
    if (Status status = backend->read_tensor(sealed, route->ids, std::as_writable_bytes(std::span(ids))); !status)
      return status.error();
    const auto live = ids.begin() + list.rows_of(route->ids, num_tokens, num_sampled);
    counts[static_cast<size_t>(route->ids)] = static_cast<double>(std::set<int32_t>(ids.begin(), live).size());
  }
  return counts;
}

}  // namespace

OpList keep_expert_ids(OpList list) {
  for (const Op& op : list.ops)
    if (const auto* route = std::get_if<RouteExperts>(&op))
      list.tensors[static_cast<size_t>(route->ids)].storage = Storage::kPinned;
  return list;
}

Result<ExpertCounts> count_experts(const LoweredStep& step, uint32_t num_tokens, Backend* backend) {
  ExpertCounts counts;
  LoweredStep kept = step;
  const auto has_experts = [](const SealedList* list) { return list != nullptr && list->list.routed_per_row > 0; };
  if (!has_experts(step.forward) && !has_experts(step.sample)) return counts;
  std::optional<SealedList> forward, sample;
  if (step.forward != nullptr) kept.forward = &forward.emplace(keep_expert_ids(step.forward->list));
  if (step.sample != nullptr) kept.sample = &sample.emplace(keep_expert_ids(step.sample->list));
  // Both lists lie in one arena, so each part's ids are read before the other part runs.
  const auto run = [&](const StepSubmission& submission) -> Status {
    Result<Ticket> ticket = backend->submit(submission);
    if (!ticket) return ticket.error();
    Result<StepOutput> output = backend->wait(*ticket);
    return output ? Status{} : output.error();
  };
  if (forward) {
    if (Status status = run(kept.forward_submission()); !status) return status.error();
    auto found = distinct_ids(*forward, num_tokens, step.num_sampled, backend);
    if (!found) return found.error();
    counts.forward = *std::move(found);
  }
  if (sample) {
    if (Status status = run(kept.tail_submission()); !status) return status.error();
    auto found = distinct_ids(*sample, num_tokens, step.num_sampled, backend);
    if (!found) return found.error();
    counts.sample = *std::move(found);
  }
  return counts;
}

std::string describe_experts(const OpList& list, const std::vector<double>& counts, uint32_t num_rows) {
  double found = 0, expected = 0, layers = 0;
  uint32_t num_experts = 0;
  for (const Op& op : list.ops) {
    const auto* product = std::get_if<ExpertGateUp>(&op);
    if (product == nullptr || counts.empty()) continue;
    num_experts = product->num_experts;
    found += counts[static_cast<size_t>(product->ids)];
    expected += expected_distinct_experts(num_experts, list.routed_per_row, num_rows);
    ++layers;
  }
  if (layers == 0) return "";
  return fmt::format("{:.1f} of {} distinct experts a layer, {:.0f} % of what even choices make", found / layers,
                     num_experts, 100 * found / expected);
}

}  // namespace llmrt
