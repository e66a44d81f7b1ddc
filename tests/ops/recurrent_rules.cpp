#include "tests/ops/recurrent_rules.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace llmrt::optest {
namespace {

using Numbers = std::vector<double>;
using Tokens = RecurrentRule::Tokens;

double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}
double soft_plus(double x) {
  return x > 30 ? x : std::log1p(std::exp(x));
}
Numbers part(const Numbers& token, size_t first, size_t count) {
  return {token.begin() + static_cast<std::ptrdiff_t>(first),
          token.begin() + static_cast<std::ptrdiff_t>(first + count)};
}
double product(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Numbers weight_numbers(const Suite& suite, WeightId id) {
  const WeightTensor& tensor = suite.weights.tensors[static_cast<size_t>(id)];
  std::vector<float> narrow(tensor.rows * tensor.columns);
  std::memcpy(narrow.data(), tensor.data, narrow.size() * sizeof(float));
  return {narrow.begin(), narrow.end()};
}

// A vector of uniform numbers.
WeightId add_vector(Suite* suite, size_t count, double least, double most, std::mt19937_64& rng) {
  std::uniform_real_distribution<float> uniform(static_cast<float>(least), static_cast<float>(most));
  std::vector<float> numbers(count);
  for (float& x : numbers) x = uniform(rng);
  return suite->add_f32(numbers);
}

// One head over a text: token j adds key_j value_j^T to a state that decays by exp(log_decay) a token, and a query
// reads it. With strengths it is the delta rule: a value is strength (value - what the state gives for the key).
struct Head {
  std::vector<Numbers> keys, queries, values;
  Numbers log_decays, strengths;
};

struct HeadResult {
  std::vector<Numbers> outputs, added;
  Numbers state;  // [key, value]
};

HeadResult work_out(const Head& head, size_t value_dim, size_t key_dim, RuleFault fault) {
  const size_t count = head.keys.size();
  Numbers sums(count + 1);  // of log decays: those of the tokens before
  for (size_t t = 0; t < count; ++t) sums[t + 1] = sums[t] + (fault == RuleFault::kNoDecay ? 0 : head.log_decays[t]);
  // What is left of token j when token t is there.
  const auto left = [&](size_t j, size_t t) {
    return fault == RuleFault::kDecayBehind ? std::exp(sums[t] - sums[j]) : std::exp(sums[t + 1] - sums[j + 1]);
  };
  HeadResult result{{}, {}, Numbers(key_dim * value_dim)};
  std::vector<Numbers>& added = result.added;
  for (size_t t = 0; t < count; ++t) {
    Numbers value = head.values[t], output(value_dim);
    if (!head.strengths.empty()) {
      for (size_t j = 0; j < t; ++j) {
        const double known = left(j, t) * product(head.keys[t], head.keys[j]);
        for (size_t v = 0; v < value_dim; ++v) value[v] -= known * added[j][v];
      }
      for (double& x : value) x *= fault == RuleFault::kNoGate ? 1 : head.strengths[t];
    }
    added.push_back(std::move(value));
    for (size_t j = 0; j <= t; ++j) {
      const double seen = left(j, t) * product(head.queries[t], head.keys[j]);
      for (size_t v = 0; v < value_dim; ++v) output[v] += seen * added[j][v];
    }
    result.outputs.push_back(std::move(output));
  }
  for (size_t j = 0; j < count; ++j)
    for (size_t k = 0; k < key_dim; ++k)
      for (size_t v = 0; v < value_dim; ++v)
        result.state[k * value_dim + v] += left(j, count - 1) * head.keys[j][k] * added[j][v];
  return result;
}

// Heads' results as an op's: by token the outputs of all heads, or the states one behind the other.
template <class HeadOf>
Numbers all_outputs(const Tokens& tokens, uint32_t num_heads, size_t value_dim, size_t key_dim, RuleFault fault,
                    const HeadOf& head_of) {
  Numbers out(tokens.size() * num_heads * value_dim);
  for (uint32_t h = 0; h < num_heads; ++h) {
    const HeadResult result = work_out(head_of(h, fault), value_dim, key_dim, fault);
    for (size_t t = 0; t < tokens.size(); ++t)
      std::ranges::copy(result.outputs[t], out.begin() + static_cast<std::ptrdiff_t>((t * num_heads + h) * value_dim));
  }
  return out;
}
template <class HeadOf>
Numbers all_states(uint32_t num_heads, size_t value_dim, size_t key_dim, RuleFault fault, const HeadOf& head_of) {
  Numbers states;
  for (uint32_t h = 0; h < num_heads; ++h) {
    const Numbers state = work_out(head_of(h, fault), value_dim, key_dim, fault).state;
    states.insert(states.end(), state.begin(), state.end());
  }
  return states;
}

// heads_of(h): the head, its key head, and what its keys are divided by, by token.
struct EntryHead {
  Head head;
  uint32_t key_head;
  Numbers lengths;
};
template <class HeadOf>
std::vector<RingEntry> all_entries(const Tokens& tokens, const StateRing& ring, RuleFault fault,
                                   const HeadOf& head_of) {
  std::vector<RingEntry> entries(tokens.size(), {Numbers(ring.key_heads * ring.key_dim),
                                                 Numbers(ring.heads * ring.value_dim), Numbers(ring.heads)});
  for (uint32_t h = 0; h < ring.heads; ++h) {
    const EntryHead own = head_of(h, fault);
    const HeadResult result = work_out(own.head, ring.value_dim, ring.key_dim, fault);
    for (size_t t = 0; t < tokens.size(); ++t) {
      RingEntry& entry = entries[t];
      for (uint32_t k = 0; k < ring.key_dim; ++k)
        entry.keys[own.key_head * ring.key_dim + k] = own.head.keys[t][k] * own.lengths[t];
      for (uint32_t v = 0; v < ring.value_dim; ++v)
        entry.values[h * ring.value_dim + v] = result.added[t][v] / own.lengths[t];
      entry.decays[h] = fault == RuleFault::kNoDecay ? 1 : std::exp(own.head.log_decays[t]);
    }
  }
  return entries;
}

struct ConvText {
  ConvShape shape;
  Numbers weight, bias;

  double u(const Numbers& token, uint32_t c, RuleFault fault) const {
    return shape.gates && fault != RuleFault::kNoGate ? token[c] * token[shape.channels + c] : token[c];
  }
  Numbers outputs(const Tokens& tokens, RuleFault fault) const {
    Numbers out;
    for (size_t t = 0; t < tokens.size(); ++t) {
      for (uint32_t c = 0; c < shape.channels; ++c) {
        double sum = shape.bias ? bias[c] : 0;
        for (uint32_t back = 0; back < shape.width && back <= t; ++back)
          sum += weight[c * shape.width + shape.width - 1 - back] * u(tokens[t - back], c, fault);
        if (shape.silu && fault != RuleFault::kNoGate) sum *= logistic(sum);
        if (shape.gates) sum *= tokens[t][2 * shape.channels + c];
        out.push_back(sum);
      }
    }
    return out;
  }
  Numbers input(const Tokens& tokens, uint32_t position, RuleFault fault) const {
    Numbers numbers;
    for (uint32_t c = 0; c < shape.channels; ++c) numbers.push_back(u(tokens[position], c, fault));
    return numbers;
  }
};

constexpr float kEps = 1e-6f;

struct DeltaText {
  DeltaShape shape;
  Numbers a, dt_bias;
  double scale;

  Numbers key(const Numbers& token, uint32_t first, uint32_t head, RuleFault fault) const {
    Numbers numbers = part(token, first + size_t{head} * shape.key_dim, shape.key_dim);
    const double divisor = length(numbers, fault);
    for (double& x : numbers) x /= divisor;
    return numbers;
  }
  double length(const Numbers& key, RuleFault fault) const {
    const bool normalises = shape.normalise && fault != RuleFault::kNoNorm;
    return normalises ? std::sqrt(product(key, key) + static_cast<double>(kEps)) : 1;
  }
  uint32_t key_head_of(uint32_t h, RuleFault fault) const {
    const bool divided = (shape.order == KeyHeadOrder::kDivided) != (fault == RuleFault::kOtherHead);
    return divided ? h / (shape.value_heads / shape.key_heads) : h % shape.key_heads;
  }
  EntryHead entry_head(const Tokens& tokens, uint32_t h, RuleFault fault) const {
    EntryHead entry{head_of(tokens, h, fault), key_head_of(h, fault), {}};
    const uint32_t keys = shape.key_heads * shape.key_dim;
    for (const Numbers& token : tokens)
      entry.lengths.push_back(length(part(token, keys + entry.key_head * shape.key_dim, shape.key_dim), fault));
    return entry;
  }
  Head head_of(const Tokens& tokens, uint32_t h, RuleFault fault) const {
    const uint32_t shared = shape.value_heads / shape.key_heads, keys = shape.key_heads * shape.key_dim;
    const uint32_t values = shape.value_heads * shape.value_dim;
    const uint32_t key_head = key_head_of(h, fault), alphas = 2 * keys + values;
    // In turn: the betas of a key head's value heads, then their alphas.
    const uint32_t alpha = shape.gates_in_turn ? alphas + h / shared * 2 * shared + shared + h % shared : alphas + h;
    const uint32_t beta = shape.gates_in_turn ? alpha - shared : alpha + shape.value_heads;
    Head head;
    for (const Numbers& token : tokens) {
      head.queries.push_back(key(token, 0, key_head, fault));
      for (double& x : head.queries.back()) x *= scale;
      head.keys.push_back(key(token, keys, key_head, fault));
      head.values.push_back(part(token, 2 * keys + size_t{h} * shape.value_dim, shape.value_dim));
      head.log_decays.push_back(a[h] * soft_plus(token[alpha] + dt_bias[h]));
      head.strengths.push_back(logistic(token[beta]));
    }
    return head;
  }
};

struct ScanText {
  ScanShape shape;
  Numbers a, dt_bias, d;

  uint32_t values() const { return shape.num_heads * shape.head_dim; }
  uint32_t keys() const { return shape.num_groups * shape.state_dim; }
  uint32_t group_of(uint32_t h, RuleFault fault) const {
    return fault == RuleFault::kOtherHead ? h % shape.num_groups : h / (shape.num_heads / shape.num_groups);
  }
  EntryHead entry_head(const Tokens& tokens, uint32_t h, RuleFault fault) const {
    return {head_of(tokens, h, fault), group_of(h, fault), Numbers(tokens.size(), 1)};
  }
  Head head_of(const Tokens& tokens, uint32_t h, RuleFault fault) const {
    const uint32_t group = group_of(h, fault);
    Head head;
    for (const Numbers& token : tokens) {
      const double dt = std::clamp(soft_plus(token[values() + 2 * keys() + h] + dt_bias[h]),
                                   static_cast<double>(shape.dt_min), static_cast<double>(shape.dt_max));
      head.values.push_back(part(token, size_t{h} * shape.head_dim, shape.head_dim));
      for (double& x : head.values.back()) x *= fault == RuleFault::kNoGate ? 1 : dt;
      head.keys.push_back(part(token, values() + size_t{group} * shape.state_dim, shape.state_dim));
      head.queries.push_back(part(token, values() + keys() + size_t{group} * shape.state_dim, shape.state_dim));
      head.log_decays.push_back(a[h] * dt);
    }
    return head;
  }
};

void add_ring(RecurrentRule* rule, const StateRing& ring, bool has_ring) {
  rule->state_numbers = ring.matrix_numbers() + (has_ring ? ring.numbers() : 0);
  if (has_ring) rule->ring = ring;
}

}  // namespace

RecurrentRule conv_rule(const ConvShape& shape, Suite* suite, std::mt19937_64& rng) {
  const WeightId weight = suite->add_weight(Encoding::kF32, shape.channels, shape.width, rng, 0.5);
  const WeightId bias = shape.bias ? suite->add_weight(Encoding::kF32, 1, shape.channels, rng) : -1;
  const ConvText text{shape, weight_numbers(*suite, weight), shape.bias ? weight_numbers(*suite, bias) : Numbers()};
  RecurrentRule rule;
  rule.name = fmt::format("causal_conv C {} width {} bias {} silu {} gates {} -> {}", shape.channels, shape.width,
                          shape.bias, shape.silu, shape.gates, dtype_name(shape.out_dtype));
  rule.inputs.assign(shape.gates ? 3 : 1, shape.channels);
  rule.out_columns = shape.channels;
  rule.out_dtype = shape.out_dtype;
  rule.state_numbers = uint64_t{shape.channels} * conv_slots(shape.width);
  rule.conv_width = shape.width;
  rule.make_op = [=](const std::vector<Columns>& in, const StatePart& state, TensorId out) {
    const Columns none;
    return CausalConv{
        in[0], shape.gates ? in[1] : none, shape.gates ? in[2] : none, weight, bias, shape.width, shape.silu, state,
        out};
  };
  rule.draw = [=](uint32_t, std::mt19937_64& numbers) { return random_normal(numbers, shape.channels); };
  rule.outputs = [=](const Tokens& tokens, RuleFault fault) { return text.outputs(tokens, fault); };
  rule.kept_input = [=](const Tokens& tokens, uint32_t p, RuleFault fault) { return text.input(tokens, p, fault); };
  return rule;
}

RecurrentRule delta_rule(const DeltaShape& shape, Suite* suite, std::mt19937_64& rng) {
  const WeightId a = add_vector(suite, shape.value_heads, -1, -0.01, rng);
  const WeightId dt_bias = add_vector(suite, shape.value_heads, -4, 0, rng);
  const double scale = 1 / std::sqrt(shape.key_dim);
  const DeltaText text{shape, weight_numbers(*suite, a), weight_numbers(*suite, dt_bias),
                       static_cast<double>(static_cast<float>(scale))};
  RecurrentRule rule;
  rule.name = fmt::format("gated_delta heads {}/{} dims {}/{} {}{}{}", shape.key_heads, shape.value_heads,
                          shape.key_dim, shape.value_dim, shape.order == KeyHeadOrder::kDivided ? "divided" : "modulo",
                          shape.gates_in_turn ? " gates in turn" : "", shape.normalise ? "" : " as they are") +
              (shape.ring ? " ring" : "");
  rule.inputs = {2 * shape.key_heads * shape.key_dim + shape.value_heads * shape.value_dim};
  if (shape.gates_in_turn)
    rule.inputs.push_back(2 * shape.value_heads);
  else
    rule.inputs.insert(rule.inputs.end(), 2, shape.value_heads);
  rule.out_columns = shape.value_heads * shape.value_dim;
  const StateRing ring{shape.value_heads, shape.key_heads, shape.key_dim, shape.value_dim};
  add_ring(&rule, ring, shape.ring);
  rule.entries = [=](const Tokens& tokens, RuleFault fault) {
    return all_entries(tokens, ring, fault, [&](uint32_t h, RuleFault f) { return text.entry_head(tokens, h, f); });
  };
  rule.make_op = [=](const std::vector<Columns>& in, const StatePart& state, TensorId out) {
    Columns alpha = in[1], beta = in.back();
    if (shape.gates_in_turn) alpha.first += shape.value_heads / shape.key_heads;
    return GatedDelta{in[0],
                      alpha,
                      beta,
                      a,
                      dt_bias,
                      shape.key_heads,
                      shape.value_heads,
                      shape.key_dim,
                      shape.value_dim,
                      shape.order,
                      shape.gates_in_turn,
                      shape.normalise,
                      kEps,
                      static_cast<float>(scale),
                      state,
                      out};
  };
  // Keys that are not normalised are short enough for the rule to be stable.
  const double key_deviation = shape.normalise ? 1 : 0.7 / std::sqrt(shape.key_dim);
  const std::vector<uint32_t> columns = rule.inputs;
  rule.draw = [=](uint32_t input, std::mt19937_64& numbers) {
    Numbers drawn = random_normal(numbers, columns[input]);
    for (uint32_t i = 0; input == 0 && i < 2 * shape.key_heads * shape.key_dim; ++i) drawn[i] *= key_deviation;
    return drawn;
  };
  rule.outputs = [=](const Tokens& tokens, RuleFault fault) {
    return all_outputs(tokens, shape.value_heads, shape.value_dim, shape.key_dim, fault,
                       [&](uint32_t h, RuleFault f) { return text.head_of(tokens, h, f); });
  };
  rule.state = [=](const Tokens& tokens, RuleFault fault) {
    return all_states(shape.value_heads, shape.value_dim, shape.key_dim, fault,
                      [&](uint32_t h, RuleFault f) { return text.head_of(tokens, h, f); });
  };
  return rule;
}

RecurrentRule scan_rule(const ScanShape& shape, Suite* suite, std::mt19937_64& rng) {
  const WeightId a = add_vector(suite, shape.num_heads, -2, -0.01, rng);
  const WeightId dt_bias = add_vector(suite, shape.num_heads, -4, 0, rng);
  const WeightId d = shape.has_d ? add_vector(suite, shape.num_heads, -2, 2, rng) : -1;
  const ScanText text{shape, weight_numbers(*suite, a), weight_numbers(*suite, dt_bias),
                      shape.has_d ? weight_numbers(*suite, d) : Numbers(shape.num_heads)};
  RecurrentRule rule;
  rule.name = fmt::format("selective_scan heads {} dim {} groups {} states {} d {} dt {} to {}", shape.num_heads,
                          shape.head_dim, shape.num_groups, shape.state_dim, shape.has_d, shape.dt_min, shape.dt_max) +
              (shape.ring ? " ring" : "");
  rule.inputs = {text.values(), text.keys(), text.keys(), shape.num_heads};
  rule.out_columns = text.values();
  const StateRing ring{shape.num_heads, shape.num_groups, shape.state_dim, shape.head_dim};
  add_ring(&rule, ring, shape.ring);
  rule.entries = [=](const Tokens& tokens, RuleFault fault) {
    return all_entries(tokens, ring, fault, [&](uint32_t h, RuleFault f) { return text.entry_head(tokens, h, f); });
  };
  rule.make_op = [=](const std::vector<Columns>& in, const StatePart& state, TensorId out) {
    return SelectiveScan{in[0],
                         in[1],
                         in[2],
                         in[3],
                         dt_bias,
                         a,
                         d,
                         shape.num_heads,
                         shape.head_dim,
                         shape.num_groups,
                         shape.state_dim,
                         shape.dt_min,
                         shape.dt_max,
                         state,
                         out};
  };
  const std::vector<uint32_t> columns = rule.inputs;
  rule.draw = [=](uint32_t input, std::mt19937_64& numbers) { return random_normal(numbers, columns[input]); };
  rule.outputs = [=](const Tokens& tokens, RuleFault fault) {
    Numbers out = all_outputs(tokens, shape.num_heads, shape.head_dim, shape.state_dim, fault,
                              [&](uint32_t h, RuleFault f) { return text.head_of(tokens, h, f); });
    for (size_t t = 0; t < tokens.size(); ++t)
      for (uint32_t i = 0; i < text.values(); ++i)
        out[t * text.values() + i] += text.d[i / shape.head_dim] * tokens[t][i];
    return out;
  };
  rule.state = [=](const Tokens& tokens, RuleFault fault) {
    return all_states(shape.num_heads, shape.head_dim, shape.state_dim, fault,
                      [&](uint32_t h, RuleFault f) { return text.head_of(tokens, h, f); });
  };
  return rule;
}

}  // namespace llmrt::optest
