// Which rows a workgroup of the expert kernels multiplies, and by which expert: an item, at most so many rows of one expert.
// Needs types.glsl. Twin: backends/vulkan/choose_experts.h ItemKind.
const uint kItemsOfOne = 0;     // the live row's routed rows, which go to different experts: an item each
const uint kItemsSorted = 1;    // sort_experts.comp made them
const uint kItemsOfMatrix = 2;  // no experts: runs of rows, all by one matrix

// Words of what sort_experts makes: the number of items; from word 4 on items of 4 words (expert, first place, rows);
// from rows_first on the routed rows by place. Twin: backends/vulkan/choose_experts.h.
const uint kItemsFirst = 4, kItemWords4 = 4;

struct Item {
  uint expert, first, num_rows;  // num_rows of 0: nothing to do
};

// `items`: of kItemsOfOne the ids. `rows`: live routed rows. `rows_first`: of kItemsOfMatrix the first row that counts.
Item item_at(uint kind, Words items, uint i, uint rows, uint rows_max, uint rows_first) {
  if (kind == kItemsOfOne) return i < rows ? Item(items.w[i], i, 1u) : Item(0u, 0u, 0u);
  if (kind == kItemsOfMatrix) {
    uint left = rows - min(rows, rows_first + i * rows_max);
    return Item(0u, i * rows_max, min(left, rows_max));
  }
  if (i >= items.w[0]) return Item(0u, 0u, 0u);
  uint at = kItemsFirst + i * kItemWords4;
  return Item(items.w[at], items.w[at + 1u], items.w[at + 2u]);
}
// Which routed row is row n of an item.
uint routed_row(uint kind, Words items, uint rows_first, Item item, uint n) {
  return kind == kItemsSorted ? items.w[rows_first + item.first + n] : item.first + n;
}
