#include "core/schedule/audit.h"

#include <algorithm>

namespace llmrt {
namespace {

Status check_tables(const KvSpace& kv, const Running& running) {
  std::vector<KvSpace::Holder> holders;
  for (const Sequence* sequence : running.rows())
    holders.push_back({sequence->residency.tables, sequence->progress.computed});
  if (Status status = kv.check_books(holders); !status) return status;
  for (const Sequence* sequence : running.rows()) {
    for (uint32_t g = 0; g < kv.num_groups(); ++g) {
      const Progress& progress = sequence->progress;
      const uint32_t expected = kv.entries_for(g, progress.computed + progress.undone);
      const size_t found = sequence->residency.tables[g].blocks.size();
      if (found == expected) continue;
      return broken_books("request {}: expected {} table entries for {} tokens, found {}", sequence->request.id,
                          expected, progress.computed, found);
    }
  }
  return {};
}

// Each sequence counts on as many tokens as plans in flight draw for it. Beams draw none.
Status check_in_flight(const Waiting& waiting, const Running& running, const PlanWriter& plans) {
  const DrawsInFlight draws = plans.draws_in_flight();
  const auto check = [&](const Sequence& sequence) -> Status {
    const InFlight& found = sequence.progress.in_flight;
    const auto count = [&](const std::vector<RequestId>& ids) {
      const auto [first, last] = std::equal_range(ids.begin(), ids.end(), sequence.request.id);
      return static_cast<uint32_t>(last - first);
    };
    const uint32_t least = sequence.beam.search ? 0 : count(draws.certain);
    const uint32_t most = least + count(draws.behind_drafts);
    if (found == InFlight{least, most}) return {};
    return broken_books("request {}: expected {} to {} tokens in flight, found {} to {}", sequence.request.id, least,
                        most, found.min, found.max);
  };
  for (const Sequence* sequence : running.rows())
    if (Status status = check(*sequence); !status) return status;
  for (const Waiting::Queue& queue : waiting.queues())
    for (const auto& [place, sequence] : queue)
      if (Status status = check(*sequence); !status) return status;
  return {};
}

}  // namespace

Status audit(const KvSpace& kv, const Branches& branches, const Waiting& waiting, const Running& running,
             const Batches& batches, const PlanWriter& plans) {
  if (Status status = running.check(); !status) return status;
  if (Status status = check_tables(kv, running); !status) return status;
  if (Status status = batches.check(running, waiting); !status) return status;
  if (Status status = waiting.check(); !status) return status;
  if (Status status = check_in_flight(waiting, running, plans); !status) return status;
  if (branches.size() != running.size() + waiting.size() + branches.num_streaming()) {
    return broken_books("expected {} requests, found {} running + {} waiting + {} streaming", branches.size(),
                        running.size(), waiting.size(), branches.num_streaming());
  }
  return {};
}

}  // namespace llmrt
