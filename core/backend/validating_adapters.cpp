// What a step says of its rows' adapters: every row inside the step and in one item, every slot written, and each entry
// that the list's ops will read inside the pool and of the group's shape.
#include <cmath>
#include <unordered_set>

#include "core/backend/validating_checks.h"

namespace llmrt::validating {
namespace {

struct AdapterChecker {
  const Limits& limits;
  const OpList& list;
  std::span<const AdapterItem> items;
  std::span<const AdapterRow> rows;
  Report report = {};

  // The numbers [offset, + rows * columns) of an entry.
  void check_range(const std::string& where, const char* field, uint32_t offset, uint64_t numbers, DType dtype) {
    const uint64_t table_bytes = limits.adapter_table.size() * sizeof(AdapterEntry);
    const uint64_t begin = uint64_t{offset} * kAdapterAlignment;
    if (begin < table_bytes) report.fail(where, field, fmt::format("behind {} bytes of table", table_bytes), begin);
    report.at_most(where, field, begin + numbers * dtype_bytes(dtype), limits.adapters.bytes);
  }

  void check_entry(const AdapterItem& item, int32_t group_id, uint32_t rank_max, DType dtype) {
    const WeightGroup& group = limits.weights.groups[static_cast<size_t>(group_id)];
    const AdapterEntry& entry =
        limits.adapter_table[item.slot * limits.weights.groups.size() + static_cast<size_t>(group_id)];
    if (entry.rank == 0) return;
    const std::string where = fmt::format("adapter slot {}, group {}", item.slot, group.name);
    if (entry.num_parts == 0 || entry.num_parts > kAdapterPartsMax)
      return report.fail(where, "num_parts", fmt::format("1 to {}", kAdapterPartsMax), entry.num_parts);
    report.at_most(where, "rank", entry.rank, rank_max);
    check_range(where, "a_offset", entry.a_offset, uint64_t{entry.rank} * group.columns, dtype);
    uint32_t rank_begin = 0, row_begin = 0;
    for (uint32_t p = 0; p < entry.num_parts && report.ok(); ++p) {
      const uint32_t rank = entry.rank_end[p] - rank_begin, num_rows = entry.row_end[p] - row_begin;
      if (entry.rank_end[p] < rank_begin || rank > kAdapterRankMax || rank % kAdapterRankStep != 0)
        report.fail(where, "rank of a part", fmt::format("a multiple of {} to {}", kAdapterRankStep, kAdapterRankMax),
                    rank);
      if (entry.row_end[p] <= row_begin) report.fail(where, "row_end", "above the part before", entry.row_end[p]);
      if (rank > 0) check_range(where, "b_offset", entry.b_offset[p], uint64_t{num_rows} * rank, dtype);
      if (!std::isfinite(entry.scale[p])) report.fail(where, "scale", "a finite number", entry.scale[p]);
      rank_begin = entry.rank_end[p];
      row_begin = entry.row_end[p];
    }
    if (rank_begin != entry.rank) report.fail(where, "rank_end", entry.rank, rank_begin);
    if (row_begin != group.rows) report.fail(where, "row_end", group.rows, row_begin);
  }

  void check_entries(DType dtype) {
    for (const Op& op : list.ops) {
      const auto* shrink = std::get_if<AdapterShrink>(&op);
      if (!shrink) continue;
      for (const AdapterItem& item : items)
        check_entry(item, shrink->group, list.tensors[static_cast<size_t>(shrink->y)].columns, dtype);
    }
  }

  void check_items(size_t num_rows, std::span<const uint32_t> slots_of_rows) {
    std::unordered_set<uint32_t> seen;
    for (size_t i = 0; i < items.size() && report.ok(); ++i) {
      const AdapterItem& item = items[i];
      const std::string where = fmt::format("adapter_items[{}]", i);
      report.below(where, "slot", item.slot, limits.adapters.slots_max);
      if (item.num_rows == 0 || item.num_rows > kAdapterItemRows)
        report.fail(where, "num_rows", fmt::format("1 to {}", kAdapterItemRows), item.num_rows);
      if (!report.at_most(where, "rows", uint64_t{item.first} + item.num_rows, rows.size())) return;
      for (const AdapterRow& row : rows.subspan(item.first, item.num_rows)) {
        if (!report.below(where, "row", row.row, num_rows)) return;
        if (!seen.insert(row.row).second) report.fail(where, "row", "a row of one item", row.row);
        if (!slots_of_rows.empty() && slots_of_rows[row.row] != item.slot + 1)
          report.fail(where, "slot", fmt::format("that of row {}: {}", row.row, slots_of_rows[row.row]), item.slot + 1);
        if (!std::isfinite(row.scale)) report.fail(where, "scale", "a finite number", row.scale);
      }
    }
    for (uint32_t r = 0; r < slots_of_rows.size(); ++r)
      if (slots_of_rows[r] != 0 && !seen.contains(r))
        report.fail("adapter_items", "rows", fmt::format("row {}", r), "none");
  }
};

}  // namespace

Status check_adapters(const Limits& limits, const OpList& list, std::span<const AdapterItem> items,
                      std::span<const AdapterRow> rows, size_t num_rows, std::span<const uint32_t> slots_of_rows) {
  AdapterChecker checker{limits, list, items, rows};
  if (!items.empty() && limits.adapters.bytes == 0)
    checker.report.fail("inputs", "adapter_items", "none without a pool of adapters", items.size());
  if (!items.empty() && !has_op<AdapterShrink>(list))
    checker.report.fail("inputs", "adapter_items", "none for a list without adapter_shrink", items.size());
  if (checker.report.ok()) checker.check_items(num_rows, slots_of_rows);
  if (checker.report.ok()) checker.check_entries(limits.adapter_dtype);
  return checker.report.status();
}

}  // namespace llmrt::validating
