// latent_rows: the cache's row of each token, and the turned part of the queries. head_matmul: each head times its own
// matrix. expand_latent: keys and values of heads from rows of the cache.
#include <algorithm>

#include "tests/reference/machine.h"

namespace llmrt::reference {
namespace {

// The numbers at `x`, turned.
std::vector<double> turned(const LatentRows& op, const std::vector<float>& freqs, double position, const double* x) {
  std::vector<double> out(op.rope_dim);
  for (uint32_t i = 0; i < op.rope_dim / 2; ++i) {
    const bool halves = op.pairing == RopePairing::kHalves;
    const uint32_t a = halves ? i : 2 * i, b = halves ? i + op.rope_dim / 2 : 2 * i + 1;
    const double cosine = std::cos(position * freqs[i]) * op.magnitude;
    const double sine = std::sin(position * freqs[i]) * op.magnitude;
    out[a] = x[a] * cosine - x[b] * sine;
    out[b] = x[a] * sine + x[b] * cosine;
  }
  return out;
}

}  // namespace

Status run(Machine& m, const LatentRows& op) {
  KvPool& pool = m.pools[op.kv_group];
  Tensor& q = m.tensor(op.q);
  const Tensor& kv = m.tensor(op.kv);
  Tensor& query = m.tensor(op.query);
  const std::vector<float>&norm = m.values_of(op.norm), &freqs = m.values_of(op.freqs);
  for (uint32_t t = 0; t < m.live(op.q); ++t) {
    const double position = m.tensor(op.positions).row(t)[0], kv_slot = m.tensor(op.kv_slots).row(t)[0];
    for (uint32_t head = 0; head < op.num_heads; ++head) {
      const std::vector<double> part = turned(op, freqs, position, q.row(t) + head * (op.nope + op.rope_dim) + op.nope);
      for (uint32_t i = 0; i < op.rope_dim; ++i) query.set(t, head * (op.rank + op.rope_dim) + op.rank + i, part[i]);
      for (uint32_t i = 0; op.turns_q && i < op.rope_dim; ++i)
        q.set(t, head * (op.nope + op.rope_dim) + op.nope + i, part[i]);
    }
    if (kv_slot < 0) continue;
    const uint32_t block = static_cast<uint32_t>(kv_slot) / pool.group.block_tokens;
    const uint32_t offset = static_cast<uint32_t>(kv_slot) % pool.group.block_tokens;
    if (block >= pool.group.num_blocks)
      return make_error(ErrorCode::kInvalidArgument, "latent_rows: kv_slots: block {} of {}", block,
                        pool.group.num_blocks);
    double sum = 0;
    for (uint32_t i = 0; i < op.rank; ++i) sum += kv.row(t)[i] * kv.row(t)[i];
    const double factor = 1 / std::sqrt(sum / op.rank + op.eps);
    std::vector<double> row(op.rank);
    for (uint32_t i = 0; i < op.rank; ++i) row[i] = kv.row(t)[i] * factor * norm[i];
    const std::vector<double> part = turned(op, freqs, position, kv.row(t) + op.rank);
    row.insert(row.end(), part.begin(), part.end());
    pool.store(op.layer, block, 0, 0, offset, op.scales.k, row.data());
  }
  return {};
}

Status run(Machine& m, const HeadMatmul& op) {
  const WeightGroup& group = m.weights.groups[static_cast<size_t>(op.group)];
  const RowSegment& segment = group.segments.front();
  const Tensor& x = m.tensor(op.x);
  Tensor& out = m.tensor(op.out);
  const uint32_t live = op.absorbed_only ? std::min(m.live(op.x), m.forward.num_absorbed) : m.live(op.x),
                 x_stride = x.columns / op.num_heads, out_stride = out.columns / op.num_heads;
  const uint64_t rows = group.rows / op.num_heads;
  const float* values = m.values_of(segment.tensor).data() + segment.row_begin * group.columns;
  parallel_for(m.num_threads, group.rows, [&](uint64_t begin, uint64_t end) {
    for (uint64_t n = begin; n < end; ++n) {
      const uint64_t head = n / rows;
      for (uint32_t t = 0; t < live; ++t)
        out.set(t, static_cast<uint32_t>(head * out_stride + n % rows),
                dot(x.row(t) + head * x_stride, values + n * group.columns, group.columns));
    }
  });
  return {};
}

Status run(Machine& m, const ExpandLatent& op) {
  const KvPool& latents = m.pools[op.kv_group];
  KvPool& out = m.pools[op.expanded_group];
  const KvGroup seen = out.group.seen_by(op.num_heads);
  const auto values_of = [&](int32_t group) {
    return m.values_of(m.weights.groups[static_cast<size_t>(group)].segments.front().tensor).data();
  };
  const float *keys = values_of(op.key_group), *values = values_of(op.value_group);
  for (const ExpandItem& item : m.forward.attention[op.expanded_group].expand_items) {
    if (item.slot >= m.slots.size() || item.block >= seen.num_blocks || item.num_keys > kExpandItemKeys)
      return make_error(ErrorCode::kInvalidArgument, "expand_latent: slot {} of {}, block {} of {}, {} keys", item.slot,
                        m.slots.size(), item.block, seen.num_blocks, item.num_keys);
    const std::vector<int32_t>& table = m.slots[item.slot].tables[op.kv_group];
    std::vector<std::vector<double>> rows;
    for (uint32_t key = item.key_begin; key < item.key_begin + item.num_keys; ++key) {
      const uint32_t entry = key / latents.group.block_tokens;
      if (entry >= table.size() || table[entry] < 0 || static_cast<uint32_t>(table[entry]) >= latents.group.num_blocks)
        return make_error(ErrorCode::kInvalidArgument, "expand_latent: no block for key {}", key);
      latents.load(op.layer, static_cast<uint32_t>(table[entry]), 0, 0, key % latents.group.block_tokens, op.scales.k,
                   rows.emplace_back(op.row_dim()).data());
    }
    parallel_for(m.num_threads, op.num_heads, [&](uint64_t begin, uint64_t end) {
      std::vector<double> made(op.key_dim());
      for (uint64_t h = begin; h < end; ++h) {
        const uint64_t head = op.head_first + h;
        for (uint32_t i = 0; i < item.num_keys; ++i) {
          const auto store = [&](uint32_t which) {
            const KvPool::Run run = out.run_of(op.num_heads, item.block, which, static_cast<uint32_t>(h));
            out.store(0, run.block, run.which, run.head, i, 1, made.data());
          };
          for (uint32_t n = 0; n < op.nope; ++n)
            made[n] = dot(rows[i].data(), keys + (head * op.nope + n) * op.rank, op.rank);
          for (uint32_t n = 0; n < op.rope_dim; ++n) made[op.nope + n] = rows[i][op.rank + n];
          store(0);
          std::fill(made.begin(), made.end(), 0.0);
          for (uint32_t n = 0; n < op.value_dim; ++n)
            made[n] = dot(rows[i].data(), values + (head * op.value_dim + n) * op.rank, op.rank);
          store(1);
        }
      }
    });
  }
  return {};
}

}  // namespace llmrt::reference
