// The pool of low-rank adapters and the rows that have one. Twins: core/ops/adapter_ops.h, core/ops/step_inputs.h.

// AdapterEntry: rank, num_parts, a_offset, a_stride, then by part b_offset, rank_end, row_end, scale, b_stride; then
// expert_first, num_experts, two words.
const uint kEntryWords = 28;
const uint kEntryRank = 0, kEntryParts = 1, kEntryA = 2, kEntryAStride = 3, kEntryB = 4, kEntryRankEnd = 8,
           kEntryRowEnd = 12, kEntryScale = 16, kEntryBStride = 20, kEntryExpertFirst = 24, kEntryExperts = 25;
// AdapterItem: slot, first, num_rows. AdapterRow: row, scale.
const uint kAdapterItemWords = 4, kAdapterRowWords = 2;

// What stands so many times 16 bytes behind the pool's start, which may be more bytes than a word counts.
Words pool_part(uvec2 pool, uint units) {
  uint carry;
  uint low = uaddCarry(pool.x, units << 4, carry);
  return Words(uvec2(low, pool.y + (units >> 28) + carry));
}

// Rows of an item that a workgroup takes, of one adapter.
struct AdapterRows {
  uint entry;  // word of the table where the adapter's entry for the group begins
  uint at;     // word of the inputs where the rows begin
  uint count;  // 0: none
};

// Those of the grid's place: y the item, z which `most` of its rows. `header`: the word that counts the items; the next
// ones are the offsets of items and of rows.
AdapterRows adapter_rows(Words inputs, uint header, uint group, uint num_groups, uint most) {
  AdapterRows rows = AdapterRows(0, 0, 0);
  if (gl_WorkGroupID.y >= inputs.w[header]) return rows;
  uint item = inputs.w[header + 1u] + gl_WorkGroupID.y * kAdapterItemWords;
  uint skip = gl_WorkGroupID.z * most, num_rows = inputs.w[item + 2u];
  if (skip >= num_rows) return rows;
  rows.entry = (inputs.w[item] * num_groups + group) * kEntryWords;
  rows.at = inputs.w[header + 2u] + (inputs.w[item + 1u] + skip) * kAdapterRowWords;
  rows.count = min(most, num_rows - skip);
  return rows;
}
