#include "backends/vulkan/resources.h"

namespace llmrt::vulkan {

Setting setting_of(const Resources& resources, const OpList& list) {
  Setting setting{.target = {*resources.traits, default_tuning()}, .weights = *resources.weights, .list = list};
  for (const KvPool& pool : resources.pools) setting.kv_groups.push_back(pool.group);
  setting.hidden_columns = resources.config.hidden_columns;
  setting.halves_bytes = resources.halves.bytes;
  setting.products_bytes = resources.products.bytes;
  setting.arrivals_bytes = resources.arrivals.bytes;
  return setting;
}

uint64_t norm_parts_bytes(const Traits& traits, uint32_t columns) {
  return traits.fragment.n * (8 + columns * uint64_t{3});  // at least 4 / m bytes of squares a column, and 2 of x
}

NormParts norm_parts(const Resources& resources) {
  const uint64_t rows = resources.traits->fragment.n, columns = resources.config.hidden_columns;
  const View& all = resources.norms;
  const uint64_t squares = 2 * rows * 4, x = squares + rows * (columns / resources.traits->fragment.m) * 4;
  return {all,
          {all.part(0, rows * 4), all.part(rows * 4, rows * 4)},
          all.part(squares, x - squares),
          all.part(x, rows * columns * 2)};
}

}  // namespace llmrt::vulkan
