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

  // The numbers [offset, + numbers) of an entry; of experts as many of each, `stride` apart.
  void check_range(const std::string& where, const char* field, uint32_t offset, uint64_t numbers, uint32_t stride,
                   const AdapterEntry& entry, DType dtype) {
    const uint64_t table_bytes = limits.adapter_table.size() * sizeof(AdapterEntry);
    const uint64_t begin = uint64_t{offset} * kAdapterAlignment, bytes = numbers * dtype_bytes(dtype);
    if (begin < table_bytes) report.fail(where, field, fmt::format("behind {} bytes of table", table_bytes), begin);
    if (stride > 0 && uint64_t{stride} * kAdapterAlignment < bytes)
      report.fail(where, field, fmt::format("{} bytes of each expert", bytes), uint64_t{stride} * kAdapterAlignment);
    const uint64_t last = uint64_t{stride} * kAdapterAlignment * (std::max(entry.num_experts, 1u) - 1);
    report.at_most(where, field, begin + last + bytes, limits.adapters.bytes);
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
    if (group.num_experts == 0 && entry.num_experts > 0)
      report.fail(where, "num_experts", "0 of a group that is one matrix", entry.num_experts);
    if (group.num_experts > 0 && entry.num_experts == 0)
      report.fail(where, "num_experts", "at least 1 of a stack of experts", entry.num_experts);
    report.at_most(where, "experts", uint64_t{entry.expert_first} + entry.num_experts, uint64_t{group.num_experts});
    const uint64_t group_rows = group.rows / std::max<uint64_t>(group.num_experts, 1);
    check_range(where, "a_offset", entry.a_offset, uint64_t{entry.rank} * group.columns, entry.a_stride, entry, dtype);
    uint32_t rank_begin = 0, row_begin = 0;
    for (uint32_t p = 0; p < entry.num_parts && report.ok(); ++p) {
      const uint32_t rank = entry.rank_end[p] - rank_begin, num_rows = entry.row_end[p] - row_begin;
      if (entry.rank_end[p] < rank_begin || rank > kAdapterRankMax || rank % kAdapterRankStep != 0)
        report.fail(where, "rank of a part", fmt::format("a multiple of {} to {}", kAdapterRankStep, kAdapterRankMax),
                    rank);
      if (entry.row_end[p] <= row_begin) report.fail(where, "row_end", "above the part before", entry.row_end[p]);
      if (rank > 0)
        check_range(where, "b_offset", entry.b_offset[p], uint64_t{num_rows} * rank, entry.b_stride[p], entry, dtype);
      if (!std::isfinite(entry.scale[p])) report.fail(where, "scale", "a finite number", entry.scale[p]);
      rank_begin = entry.rank_end[p];
      row_begin = entry.row_end[p];
    }
    if (rank_begin != entry.rank) report.fail(where, "rank_end", entry.rank, rank_begin);
    if (row_begin != group_rows) report.fail(where, "row_end", group_rows, row_begin);
  }

  // No adapter of the step changes a stack that the list multiplies without adapters.
  void check_left(int32_t group_id, const std::unordered_set<int32_t>& shrunk) {
    if (shrunk.contains(group_id)) return;
    for (const AdapterItem& item : items) {
      const size_t index = item.slot * limits.weights.groups.size() + static_cast<size_t>(group_id);
      if (limits.adapter_table[index].rank == 0) continue;
      const std::string& name = limits.weights.groups[static_cast<size_t>(group_id)].name;
      report.fail(fmt::format("adapter slot {}, group {}", item.slot, name), "rank",
                  "0 for a list without expert_shrink", limits.adapter_table[index].rank);
    }
  }

  void check_entries(DType dtype) {
    const auto check = [&](const auto& shrink) {
      for (const AdapterItem& item : items)
        check_entry(item, shrink.group, list.tensors[static_cast<size_t>(shrink.y)].columns, dtype);
    };
    std::unordered_set<int32_t> shrunk;
    for (const Op& op : list.ops) {
      if (const auto* shrink = std::get_if<AdapterShrink>(&op)) check(*shrink);
      if (const auto* shrink = std::get_if<ExpertShrink>(&op)) {
        check(*shrink);
        shrunk.insert(shrink->group);
      }
    }
    for (const Op& op : list.ops) {
      if (const auto* experts = std::get_if<ExpertGateUp>(&op)) check_left(experts->group, shrunk);
      if (const auto* experts = std::get_if<ExpertDown>(&op)) check_left(experts->group, shrunk);
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
  if (!items.empty() && !has_op<AdapterShrink>(list) && !has_op<ExpertShrink>(list))
    checker.report.fail("inputs", "adapter_items", "none for a list without adapter_shrink", items.size());
  if (checker.report.ok()) checker.check_items(num_rows, slots_of_rows);
  if (checker.report.ok()) checker.check_entries(limits.adapter_dtype);
  return checker.report.status();
}

}  // namespace llmrt::validating
