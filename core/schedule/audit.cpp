#include "core/schedule/audit.h"

namespace llmrt {
namespace {

Status check_tables(const KvSpace& kv, const Running& running) {
  std::vector<KvSpace::Holder> holders;
  for (const Sequence* sequence : running.rows())
    holders.push_back({sequence->residency.tables, sequence->progress.computed});
  if (Status status = kv.check_books(holders); !status) return status;
  for (const Sequence* sequence : running.rows()) {
    for (uint32_t g = 0; g < kv.num_groups(); ++g) {
      const uint32_t expected = kv.entries_for(g, sequence->progress.computed);
      const size_t found = sequence->residency.tables[g].blocks.size();
      if (found == expected) continue;
      return broken_books("request {}: expected {} table entries for {} tokens, found {}", sequence->request.id, expected,
                          sequence->progress.computed, found);
    }
  }
  return {};
}

}  // namespace

Status audit(const KvSpace& kv, const Branches& branches, const Waiting& waiting, const Running& running,
             const Batches& batches) {
  if (Status status = running.check(); !status) return status;
  if (Status status = check_tables(kv, running); !status) return status;
  if (Status status = batches.check(running, waiting); !status) return status;
  if (Status status = waiting.check(); !status) return status;
  if (branches.size() != running.size() + waiting.size() + branches.num_streaming()) {
    return broken_books("expected {} requests, found {} running + {} waiting + {} streaming", branches.size(),
                        running.size(), waiting.size(), branches.num_streaming());
  }
  return {};
}

}  // namespace llmrt
