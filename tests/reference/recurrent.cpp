// causal_conv, gated_delta, selective_scan, gated_norm: token by token, as ops.h tells them.
#include <algorithm>
#include <cmath>

#include "tests/reference/ring_state.h"

namespace llmrt::reference {
namespace {

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
double silu(double x) {
  return x * sigmoid(x);
}
double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

const double* columns_of(Machine& m, const Columns& part, uint32_t token) {
  return m.tensor(part.tensor).row(token) + part.first;
}

// S[k][v] = decay S[k][v]; for the delta rule the new value is beta (value - S^T key) instead of `value` itself. Then S
// += key value^T, and out = S^T query. Returns the new value.
std::vector<double> update(double decay, const double* key, std::vector<double> value, const double* query,
                           const double* beta, uint32_t key_dim, double* state, double* out) {
  const size_t value_dim = value.size();
  for (size_t i = 0; i < key_dim * value_dim; ++i) state[i] *= decay;
  if (beta) {
    for (size_t v = 0; v < value_dim; ++v) {
      double known = 0;
      for (size_t k = 0; k < key_dim; ++k) known += state[k * value_dim + v] * key[k];
      value[v] = *beta * (value[v] - known);
    }
  }
  for (size_t v = 0; v < value_dim; ++v) {
    out[v] = 0;
    for (size_t k = 0; k < key_dim; ++k) {
      state[k * value_dim + v] += key[k] * value[v];
      out[v] += state[k * value_dim + v] * query[k];
    }
  }
  return value;
}

// What one head of q or k is divided by.
double length_of(const GatedDelta& op, const double* numbers) {
  if (!op.normalise) return 1;
  double sum = 0;
  for (uint32_t i = 0; i < op.key_dim; ++i) sum += numbers[i] * numbers[i];
  return std::sqrt(sum + static_cast<double>(op.eps));
}
std::vector<double> divided(const double* numbers, uint32_t count, double by) {
  std::vector<double> head(numbers, numbers + count);
  for (double& x : head) x /= by;
  return head;
}

uint32_t key_head_of(const GatedDelta& op, uint32_t head) {
  return op.order == KeyHeadOrder::kDivided ? head / (op.value_heads / op.key_heads) : head % op.key_heads;
}
uint32_t key_head_of(const SelectiveScan& op, uint32_t head) {
  return head / (op.num_heads / op.num_groups);
}

// What the token of a head gives goes to `entry`.
void delta_token(Machine& m, const GatedDelta& op, uint32_t t, double* state, RingEntry* entry) {
  const double *q = columns_of(m, op.qkv, t), *k = q + op.key_heads * op.key_dim, *v = k + op.key_heads * op.key_dim;
  const double *alpha = columns_of(m, op.alpha, t), *beta = columns_of(m, op.beta, t);
  const std::vector<float>&a = m.values_of(op.a), &dt_bias = m.values_of(op.dt_bias);
  const uint32_t shared = op.value_heads / op.key_heads;
  std::vector<double> out(op.value_dim);
  for (uint32_t h = 0; h < op.value_heads; ++h) {
    const uint32_t key_head = key_head_of(op, h);
    const uint32_t column = op.gates_in_turn ? h + h / shared * shared : h;
    const double decay =
        std::exp(static_cast<double>(a[h]) * softplus(alpha[column] + static_cast<double>(dt_bias[h])));
    const double strength = sigmoid(beta[column]);
    const double *own_query = q + key_head * op.key_dim, *own_key = k + key_head * op.key_dim;
    const double length = length_of(op, own_key);
    const std::vector<double> query = divided(own_query, op.key_dim, length_of(op, own_query)),
                              key = divided(own_key, op.key_dim, length);
    const std::vector<double> added =
        update(decay, key.data(), {v + h * op.value_dim, v + (h + 1) * op.value_dim}, query.data(), &strength,
               op.key_dim, state + size_t{h} * op.key_dim * op.value_dim, out.data());
    entry->decays[h] = decay;
    std::copy_n(own_key, op.key_dim, entry->keys.data() + key_head * op.key_dim);
    std::ranges::copy(divided(added.data(), op.value_dim, length), entry->values.data() + h * op.value_dim);
    for (uint32_t i = 0; i < op.value_dim; ++i)
      m.tensor(op.out).set(t, h * op.value_dim + i, out[i] * static_cast<double>(op.scale));
  }
}

void scan_token(Machine& m, const SelectiveScan& op, uint32_t t, double* state, RingEntry* entry) {
  const double *x = columns_of(m, op.x, t), *dts = columns_of(m, op.dt, t);
  const std::vector<float>&a = m.values_of(op.a), &dt_bias = m.values_of(op.dt_bias);
  std::vector<double> out(op.head_dim);
  for (uint32_t h = 0; h < op.num_heads; ++h) {
    const uint32_t group = key_head_of(op, h);
    const double dt = std::clamp(softplus(dts[h] + static_cast<double>(dt_bias[h])), static_cast<double>(op.dt_min),
                                 static_cast<double>(op.dt_max));
    const double* own = x + h * op.head_dim;
    std::vector<double> value(own, own + op.head_dim);
    for (double& number : value) number *= dt;
    const double* key = columns_of(m, op.b, t) + group * op.state_dim;
    entry->decays[h] = std::exp(static_cast<double>(a[h]) * dt);
    value = update(entry->decays[h], key, std::move(value), columns_of(m, op.c, t) + group * op.state_dim, nullptr,
                   op.state_dim, state + size_t{h} * op.state_dim * op.head_dim, out.data());
    std::copy_n(key, op.state_dim, entry->keys.data() + group * op.state_dim);
    std::ranges::copy(value, entry->values.data() + h * op.head_dim);
    const double d = op.d >= 0 ? static_cast<double>(m.values_of(op.d)[h]) : 0.0;
    for (uint32_t i = 0; i < op.head_dim; ++i) m.tensor(op.out).set(t, h * op.head_dim + i, out[i] + d * own[i]);
  }
}

// step(token, state) for each token of each row, in the order of the row.
template <class StepFn>
Status walk(Machine& m, const StatePart& part, uint64_t numbers, const StepFn& step) {
  for (const RowRecord& row : m.forward.rows) {
    auto state = RowState::begin(m, row, part.kv_group, part.layer, part.first, numbers);
    if (!state) return state.error();
    for (uint32_t i = 0; i < row.num_tokens; ++i) {
      step(row.token_first + i, state->data());
      state->advance(i + 1);
    }
  }
  return {};
}

// The same over matrices. step(token, state, entry) fills the entry too.
template <class Op, class StepFn>
Status walk_matrices(Machine& m, const Op& op, const StepFn& step) {
  const StateRing ring = ring_of(op);
  RingEntry entry{std::vector<double>(ring.key_heads * ring.key_dim), std::vector<double>(ring.heads * ring.value_dim),
                  std::vector<double>(ring.heads)};
  if (op.state.ring_tokens == 0)
    return walk(m, op.state, state_numbers(op), [&](uint32_t t, double* state) { step(t, state, &entry); });
  std::vector<uint32_t> key_heads(ring.heads);
  for (uint32_t head = 0; head < ring.heads; ++head) key_heads[head] = key_head_of(op, head);
  for (const RowRecord& row : m.forward.rows) {
    auto state = RingState::begin(m, row, op.state, ring, key_heads);
    if (!state) return state.error();
    for (uint32_t i = 0; i < row.num_tokens; ++i) {
      step(row.token_first + i, state->data(), &entry);
      state->advance(entry);
    }
  }
  return {};
}

// The last inputs of a row's channels.
class ConvState {
 public:
  ConvState(RowState state, const RowRecord& row, uint32_t channels, uint32_t width)
      : state_(std::move(state)), row_(row), channels_(channels), kept_(width - 1), slots_(conv_slots(width)) {}

  // u of a channel, so many tokens before `position`.
  double before(uint32_t position, uint32_t back, uint32_t c) {
    return back <= position ? state_.data()[place(position - back) + c] : 0;
  }
  void set(uint32_t position, uint32_t c, double u) { state_.data()[place(position) + c] = u; }
  // The token at `position` has been set.
  void advance(uint32_t position) {
    const uint32_t end = position + 1, row_end = row_.start + row_.num_tokens;
    for (const uint32_t record : state_.places_behind(end - row_.start)) leave(record, cut(end, kept_), end);
    const uint32_t first = state_.is_own() ? row_.start : cut(row_.start, kept_);
    if (end == row_end) leave(state_.own(), std::max(first, cut(end, slots_)), end);
  }

 private:
  static uint32_t cut(uint32_t position, uint32_t count) { return position - std::min(position, count); }
  size_t place(uint32_t position) const { return size_t{position % slots_} * channels_; }
  void leave(uint32_t record, uint32_t first, uint32_t end) {
    std::vector<double> numbers = state_.load(record);
    for (uint32_t p = first; p < end; ++p) std::copy_n(state_.data() + place(p), channels_, numbers.data() + place(p));
    state_.store(record, numbers, numbers.size());
  }

  RowState state_;
  const RowRecord& row_;
  uint32_t channels_, kept_, slots_;
};

}  // namespace

Status run(Machine& m, const CausalConv& op) {
  Tensor& out = m.tensor(op.out);
  const uint32_t channels = out.columns, kept = op.width - 1;
  const std::vector<float>& weight = m.values_of(op.weight);
  for (const RowRecord& row : m.forward.rows) {
    auto begun =
        RowState::begin(m, row, op.state.kv_group, op.state.layer, op.state.first, state_numbers(channels, op));
    if (!begun) return begun.error();
    ConvState state(std::move(*begun), row, channels, op.width);
    for (uint32_t i = 0; i < row.num_tokens; ++i) {
      const uint32_t t = row.token_first + i, position = row.start + i;
      for (uint32_t c = 0; c < channels; ++c) {
        double u = columns_of(m, op.x, t)[c];
        if (op.gate_in.tensor != kNoTensor) u *= columns_of(m, op.gate_in, t)[c];
        double sum = op.bias >= 0 ? static_cast<double>(m.values_of(op.bias)[c]) : 0.0;
        sum += static_cast<double>(weight[c * op.width + kept]) * u;
        for (uint32_t j = 0; j < kept; ++j)
          sum += static_cast<double>(weight[c * op.width + j]) * state.before(position, kept - j, c);
        state.set(position, c, u);
        if (op.silu) sum = silu(sum);
        if (op.gate_out.tensor != kNoTensor) sum *= columns_of(m, op.gate_out, t)[c];
        out.set(t, c, sum);
      }
      state.advance(position);
    }
  }
  return {};
}

Status run(Machine& m, const GatedDelta& op) {
  return walk_matrices(m, op,
                       [&](uint32_t t, double* state, RingEntry* entry) { delta_token(m, op, t, state, entry); });
}

Status run(Machine& m, const SelectiveScan& op) {
  return walk_matrices(m, op, [&](uint32_t t, double* state, RingEntry* entry) { scan_token(m, op, t, state, entry); });
}

Status run(Machine& m, const GatedNorm& op) {
  const Tensor& x = m.tensor(op.x);
  Tensor& out = m.tensor(op.out);
  const std::vector<float>& weight = m.values_of(op.weight);
  std::vector<double> y(op.group_columns);
  for (uint32_t t = 0; t < m.live(op.x); ++t) {
    for (uint32_t first = 0; first < x.columns; first += op.group_columns) {
      const double *numbers = x.row(t) + first, *gate = columns_of(m, op.gate, t) + first;
      double sum = 0;
      for (uint32_t c = 0; c < op.group_columns; ++c) {
        y[c] = op.gate_first ? numbers[c] * silu(gate[c]) : numbers[c];
        sum += y[c] * y[c];
      }
      const double factor = 1 / std::sqrt(sum / op.group_columns + static_cast<double>(op.eps));
      for (uint32_t c = 0; c < op.group_columns; ++c) {
        const double w = static_cast<double>(weight[weight.size() == op.group_columns ? c : first + c]);
        out.set(t, first + c, y[c] * factor * w * (op.gate_first ? 1 : silu(gate[c])));
      }
    }
  }
  return {};
}

}  // namespace llmrt::reference
