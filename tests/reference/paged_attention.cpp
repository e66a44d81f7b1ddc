// paged_attention and latent_attention, driven by the work lists as a device would be, and strict about them: the items
// of each query token must cover every key that it may see exactly once, and either one item writes the token's output
// or one merge does.
#include <algorithm>
#include <limits>

#include "tests/reference/machine.h"

namespace llmrt::reference {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

// Softmax over some keys of one token and one head, not yet divided: value = sum of exp(score - max) * v.
struct Partial {
  double max = kNone, sum = 0;
  std::vector<double> value;
};

struct Keys {
  uint32_t begin, end;
};

// Which rows an op computes: of latent attention those that have expanded keys, or the others.
enum class Form { kAll, kAbsorbed, kExpanded };

// What both ops are. Values are the first value_dim numbers of v, or of k where the pool holds keys only.
struct Attended {
  const char* name;
  TensorId queries, out;
  uint32_t kv_group, layer, num_heads, num_kv_heads, key_dim, value_dim;
  float scale;
  uint32_t window;
  float soft_cap;
  KvTensorScales scales;
  int32_t sinks;
  Form form = Form::kAll;
  uint32_t head_first = 0;  // of queries and out, which may have heads behind num_heads
};

struct Attention {
  Machine& m;
  const Attended op;
  const KvPool& pool = m.pools[op.kv_group];
  const AttentionWork& work = m.forward.attention[op.kv_group];
  const Tensor& queries = m.tensor(op.queries);
  Tensor& out = m.tensor(op.out);
  const std::vector<float>* sinks = op.sinks < 0 ? nullptr : &m.values_of(op.sinks);  // by head
  uint32_t live = m.live(op.queries);
  std::vector<std::vector<Keys>> seen = std::vector<std::vector<Keys>>(live);  // keys by token
  std::vector<uint32_t> writers = std::vector<uint32_t>(live);                 // outputs written by token
  std::vector<uint32_t> open_partials = std::vector<uint32_t>(live);           // written, not yet merged, by token
  std::vector<std::vector<Partial>> partials = {};                             // [partial][head], empty = not written
  std::vector<uint32_t> partial_tokens = {};

  template <typename... Args>
  Error bad(fmt::format_string<Args...> format, Args&&... args) const {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: {}", op.name, fmt::format(format, std::forward<Args>(args)...))};
  }

  uint32_t first_visible(uint32_t position) const {
    return op.window > 0 && position + 1 > op.window ? position + 1 - op.window : 0;
  }

  // k or v of keys [begin, end) of a slot: [key][dim].
  Result<std::vector<double>> load(const Slot& slot, Keys keys, uint32_t which, uint32_t head) const {
    std::vector<double> values(static_cast<size_t>(keys.end - keys.begin) * op.key_dim);
    for (uint32_t key = keys.begin; key < keys.end; ++key) {
      const uint32_t entry = key / pool.group.block_tokens;
      const std::vector<int32_t>& table = slot.tables[op.kv_group];
      if (entry >= table.size() || table[entry] < 0 ||
          static_cast<uint32_t>(table[entry]) >= pool.group.seen_by(op.num_kv_heads).num_blocks)
        return bad("no block for key {}", key);
      const KvPool::Run run = pool.run_of(op.num_kv_heads, static_cast<uint32_t>(table[entry]), which, head);
      pool.load(op.layer, run.block, run.which, run.head, key % pool.group.block_tokens,
                which ? op.scales.v : op.scales.k, values.data() + static_cast<size_t>(key - keys.begin) * op.key_dim);
    }
    return values;
  }

  // One token, one head, against the visible part of the item's keys.
  Partial attend(const double* q, Keys visible, Keys loaded, const std::vector<double>& k,
                 const std::vector<double>& v) const {
    Partial partial;
    partial.value.assign(op.value_dim, 0);
    std::vector<double> scores;
    for (uint32_t key = visible.begin; key < visible.end; ++key) {
      const double* k_row = k.data() + static_cast<size_t>(key - loaded.begin) * op.key_dim;
      double score = 0;
      for (uint32_t i = 0; i < op.key_dim; ++i) score += q[i] * k_row[i];
      score *= op.scale;
      if (op.soft_cap > 0) score = op.soft_cap * std::tanh(score / op.soft_cap);
      scores.push_back(score);
      partial.max = std::max(partial.max, score);
    }
    for (uint32_t key = visible.begin; key < visible.end; ++key) {
      const double weight = std::exp(scores[key - visible.begin] - partial.max);
      const double* v_row = v.data() + static_cast<size_t>(key - loaded.begin) * op.key_dim;
      partial.sum += weight;
      for (uint32_t i = 0; i < op.value_dim; ++i) partial.value[i] += weight * v_row[i];
    }
    return partial;
  }

  // Of all keys of a token: here, and only here, its sink joins the softmax.
  void write(uint32_t token, uint32_t head, const Partial& partial) {
    const double sink = sinks == nullptr ? kNone : (*sinks)[head];
    const double most = std::max(partial.max, sink);
    // Relative to the largest of scores and sink; what no key has is not asked for.
    const double factor = partial.sum > 0 ? std::exp(partial.max - most) : 0;
    const double sum = factor * partial.sum + (sink > kNone ? std::exp(sink - most) : 0);
    for (uint32_t i = 0; i < op.value_dim; ++i)
      out.set(token, (op.head_first + head) * op.value_dim + i, sum > 0 ? factor * partial.value[i] / sum : 0);
  }

  // Of an item's `i`th token; `stride`: see stride_of.
  static size_t partial_of(const AttentionItem& item, size_t i, size_t stride) {
    return static_cast<size_t>(item.partial) + i * stride;
  }
  Result<size_t> stride_of(const AttentionItem& item, bool is_prompt) const {
    if (item.partial < 0) return size_t{0};
    if (is_prompt) return size_t{item.partial_stride};
    if (item.merge_idx + uint64_t{item.num_tokens} > work.merge_items.size())
      return bad("item merges [{}, +{}) of {}", item.merge_idx, item.num_tokens, work.merge_items.size());
    return size_t{work.merge_items[item.merge_idx].num_partials};
  }

  Status check_item(const AttentionItem& item, uint32_t tokens_max, size_t stride) const {
    if (item.slot >= m.slots.size()) return bad("item slot {} of {}", item.slot, m.slots.size());
    if (item.num_tokens == 0 || item.num_tokens > tokens_max || item.token_first + uint64_t{item.num_tokens} > live)
      return bad("item tokens [{}, +{}) of {}, at most {}", item.token_first, item.num_tokens, live, tokens_max);
    if (item.key_begin > item.key_end) return bad("item keys [{}, {})", item.key_begin, item.key_end);
    for (uint32_t i = 0; i < item.num_tokens; ++i) {
      const uint32_t token = item.token_first + i;
      const RowRecord& row = m.forward.rows[m.forward.token_rows[token]];
      const uint32_t position = row.start + (token - row.token_first);
      if (row.slot != item.slot || position != item.position_first + i)
        return bad("item says slot {} position {} for token {}, its row slot {} position {}", item.slot,
                   item.position_first + i, token, row.slot, position);
    }
    if (item.partial >= 0 && partial_of(item, item.num_tokens - 1, stride) >= m.state.partials_max)
      return bad("partial {} of {}", partial_of(item, item.num_tokens - 1, stride), m.state.partials_max);
    return {};
  }

  Status run_item(const AttentionItem& item, bool is_prompt) {
    const Result<size_t> stride = stride_of(item, is_prompt);
    if (!stride) return stride.error();
    const uint32_t tokens_max = is_prompt ? kPromptItemTokens : kDecodeItemTokens;
    if (Status status = check_item(item, tokens_max, *stride); !status) return status;
    const uint32_t position_last = item.position_first + item.num_tokens - 1;
    const Keys loaded{std::max(item.key_begin, std::min(first_visible(item.position_first), item.key_end)),
                      std::max(item.key_begin, std::min(item.key_end, position_last + 1))};
    const auto visible_of = [&](uint32_t i) {
      const uint32_t position = item.position_first + i;
      const uint32_t begin = std::max(loaded.begin, first_visible(position));
      return Keys{begin, std::max(begin, std::min(loaded.end, position + 1))};
    };
    for (uint32_t i = 0; i < item.num_tokens; ++i) {
      const uint32_t token = item.token_first + i;
      seen[token].push_back(visible_of(i));
      if (item.partial < 0) {
        ++writers[token];
        continue;
      }
      const size_t partial = partial_of(item, i, *stride);
      if (partials.size() <= partial) partials.resize(partial + 1), partial_tokens.resize(partial + 1);
      if (!partials[partial].empty()) return bad("partial {} is written twice", partial);
      partials[partial].resize(op.num_heads);
      partial_tokens[partial] = token;
      ++open_partials[token];
    }
    const uint32_t group_heads = op.num_heads / op.num_kv_heads;
    for (uint32_t kv_head = 0; kv_head < op.num_kv_heads; ++kv_head) {
      auto k = load(m.slots[item.slot], loaded, 0, kv_head);
      auto v = pool.group.keys_only ? k : load(m.slots[item.slot], loaded, 1, kv_head);
      if (!k) return k.error();
      if (!v) return v.error();
      for (uint32_t i = 0; i < item.num_tokens; ++i) {
        for (uint32_t head = kv_head * group_heads; head < (kv_head + 1) * group_heads; ++head) {
          const uint32_t token = item.token_first + i;
          Partial partial =
              attend(queries.row(token) + (op.head_first + head) * op.key_dim, visible_of(i), loaded, *k, *v);
          if (item.partial < 0)
            write(token, head, partial);
          else
            partials[partial_of(item, i, *stride)][head] = std::move(partial);
        }
      }
    }
    return {};
  }

  Status run_merge(const MergeItem& item) {
    if (item.token >= live) return bad("merge token {} of {}", item.token, live);
    if (item.num_partials == 0 || item.partial_first + uint64_t{item.num_partials} > partials.size())
      return bad("merge partials [{}, +{}) of {}", item.partial_first, item.num_partials, partials.size());
    ++writers[item.token];
    open_partials[item.token] -= item.num_partials;
    for (uint32_t p = item.partial_first; p < item.partial_first + item.num_partials; ++p)
      if (partials[p].empty() || partial_tokens[p] != item.token)
        return bad("merge of token {}: partial {}", item.token, p);
    for (uint32_t head = 0; head < op.num_heads; ++head) {
      Partial all;
      all.value.assign(op.value_dim, 0);
      for (uint32_t p = 0; p < item.num_partials; ++p)
        all.max = std::max(all.max, partials[item.partial_first + p][head].max);
      for (uint32_t p = 0; p < item.num_partials; ++p) {
        const Partial& partial = partials[item.partial_first + p][head];
        if (partial.sum == 0) continue;  // the window hides every key of this split
        const double weight = std::exp(partial.max - all.max);
        all.sum += weight * partial.sum;
        for (uint32_t i = 0; i < op.value_dim; ++i) all.value[i] += weight * partial.value[i];
      }
      write(item.token, head, all);
    }
    return {};
  }

  bool is_for(const RowRecord& row) const {
    if (op.form == Form::kAll) return true;
    const bool has_expanded = std::ranges::any_of(m.forward.attention, [&row](const AttentionWork& of_group) {
      return std::ranges::find(of_group.expand_items, row.slot, &ExpandItem::slot) != of_group.expand_items.end();
    });
    return has_expanded == (op.form == Form::kExpanded);
  }

  Status check_cover() {
    for (uint32_t token = 0; token < live; ++token) {
      if (!is_for(m.forward.rows[m.forward.token_rows[token]])) {
        if (writers[token] + seen[token].size() > 0) return bad("token {} is for the other form", token);
        continue;
      }
      if (writers[token] != 1) return bad("token {} is written {} times", token, writers[token]);
      if (open_partials[token] != 0) return bad("token {}: its merge leaves partials out", token);
      const RowRecord& row = m.forward.rows[m.forward.token_rows[token]];
      const uint32_t position = row.start + (token - row.token_first);
      std::erase_if(seen[token], [](Keys keys) { return keys.begin == keys.end; });
      std::sort(seen[token].begin(), seen[token].end(), [](Keys a, Keys b) { return a.begin < b.begin; });
      uint32_t next = first_visible(position);
      for (Keys keys : seen[token]) {
        if (keys.begin != next)
          return bad("token {} at position {}: key {} is covered not once", token, position, next);
        next = keys.end;
      }
      if (next != position + 1) return bad("token {} at position {}: key {} is not covered", token, position, next);
    }
    return {};
  }
};

Status run(Machine& m, const Attended& op) {
  Attention attention{m, op};
  for (const AttentionItem& item : attention.work.decode_items)
    if (Status status = attention.run_item(item, false); !status) return status;
  for (const AttentionItem& item : attention.work.prompt_items)
    if (Status status = attention.run_item(item, true); !status) return status;
  for (const MergeItem& item : attention.work.merge_items)
    if (Status status = attention.run_merge(item); !status) return status;
  return attention.check_cover();
}

}  // namespace

Status run(Machine& m, const PagedAttention& op) {
  const bool is_expanded = op.value_dim > 0;
  return run(m, Attended{"paged_attention", op.qkv, op.out, op.kv_group, op.layer, op.num_heads, op.num_kv_heads,
                         op.head_dim, is_expanded ? op.value_dim : op.head_dim, op.scale, op.window, op.soft_cap,
                         op.scales, op.sinks, is_expanded ? Form::kExpanded : Form::kAll, op.head_first});
}

Status run(Machine& m, const LatentAttention& op) {
  return run(m, Attended{"latent_attention", op.query, op.out, op.kv_group, op.layer, op.num_heads, 1, op.row_dim(),
                         op.rank, op.scale, 0, 0, op.scales, -1, Form::kAbsorbed});
}

}  // namespace llmrt::reference
