// route_experts, expert_gate_up, expert_down.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/reference/machine.h"

namespace llmrt::reference {
namespace {

std::vector<double> scores_of(Machine& m, const RouteExperts& op, const double* x) {
  const WeightTensor& weight = m.weights.tensors[static_cast<size_t>(op.weight)];
  const float* values = m.values_of(op.weight).data();
  std::vector<double> scores(weight.rows);
  for (size_t e = 0; e < scores.size(); ++e)
    scores[e] = dot(x, values + e * weight.columns, weight.columns) + (op.bias < 0 ? 0 : m.values_of(op.bias)[e]);
  return scores;
}

std::vector<double> softmax(std::vector<double> scores) {
  const double most = *std::ranges::max_element(scores);
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - most);
  for (double& score : scores) score /= sum;
  return scores;
}

std::vector<double> probabilities(ExpertScoring scoring, std::vector<double> scores) {
  if (scoring == ExpertScoring::kSoftmax) return softmax(std::move(scores));
  if (scoring == ExpertScoring::kSigmoid)
    for (double& score : scores) score = 1 / (1 + std::exp(-score));
  if (scoring == ExpertScoring::kSqrtSoftplus)
    for (double& score : scores) score = std::sqrt(std::max(score, 0.0) + std::log1p(std::exp(-std::abs(score))));
  return scores;
}

// Experts whose group is not among the best ones get -infinity. Ties by lower group.
void leave_groups(const RoutingRule& rule, std::vector<double>* selection) {
  if (rule.groups <= 1) return;
  const size_t size = selection->size() / rule.groups;
  std::vector<double> sums(rule.groups);
  for (uint32_t g = 0; g < rule.groups; ++g) {
    std::vector<double> group(selection->begin() + g * size, selection->begin() + (g + 1) * size);
    std::ranges::sort(group, std::greater());
    sums[g] = group[0] + (size > 1 ? group[1] : 0);
  }
  std::vector<uint32_t> order(rule.groups);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) { return sums[a] > sums[b]; });
  for (uint32_t i = rule.groups_used; i < rule.groups; ++i)
    std::fill_n(selection->begin() + order[i] * size, size, -INFINITY);
}

struct Choice {
  std::vector<uint32_t> ids;
  std::vector<double> weights;
};

Choice choose(Machine& m, const RouteExperts& op, const std::vector<double>& scores, size_t count) {
  Choice choice;
  if (std::ranges::any_of(scores, [](double score) { return std::isnan(score); })) {
    choice.ids.resize(count);
    std::iota(choice.ids.begin(), choice.ids.end(), 0);
    choice.weights.assign(count, std::nan(""));
    return choice;
  }
  const std::vector<double> probability = probabilities(op.rule.scoring, scores);
  std::vector<double> selection = probability;
  for (size_t e = 0; op.correction >= 0 && e < selection.size(); ++e) selection[e] += m.values_of(op.correction)[e];
  leave_groups(op.rule, &selection);
  std::vector<uint32_t> order(selection.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) { return selection[a] > selection[b]; });
  choice.ids.assign(order.begin(), order.begin() + static_cast<ptrdiff_t>(count));
  for (const uint32_t id : choice.ids) choice.weights.push_back(probability[id]);
  if (op.rule.scoring == ExpertScoring::kSoftmaxOfChosen) choice.weights = softmax(choice.weights);
  const double sum = std::accumulate(choice.weights.begin(), choice.weights.end(), 0.0);
  const double divisor = op.rule.renormalise ? std::max(sum, std::ldexp(1.0, -14)) : 1;
  for (double& weight : choice.weights) weight *= op.rule.scale / divisor;
  return choice;
}

}  // namespace

const float* Machine::group_row(const WeightGroup& group, uint64_t row) {
  for (const RowSegment& segment : group.segments) {
    if (row < segment.num_rows) return values_of(segment.tensor).data() + (segment.row_begin + row) * group.columns;
    row -= segment.num_rows;
  }
  return nullptr;
}

Status run(Machine& m, const RouteExperts& op) {
  const uint32_t per_row = m.list->routed_per_row;
  const uint32_t num_experts = static_cast<uint32_t>(m.weights.tensors[static_cast<size_t>(op.weight)].rows);
  const Tensor& x = m.tensor(op.x);
  for (uint32_t t = 0; t < m.live(op.x); ++t) {
    const std::vector<double> scores = scores_of(m, op, x.row(t));
    Choice choice = choose(m, op, scores, per_row - op.rule.num_shared);
    for (uint32_t s = 0; s < op.rule.num_shared; ++s) {
      choice.ids.push_back(num_experts + s);
      const double gate = op.shared_gate < 0 ? INFINITY : dot(x.row(t), m.values_of(op.shared_gate).data(), x.columns);
      choice.weights.push_back(std::isnan(choice.weights[0]) ? choice.weights[0] : 1 / (1 + std::exp(-gate)));
    }
    for (uint32_t k = 0; k < per_row; ++k) {
      m.tensor(op.ids).set(t * per_row + k, 0, choice.ids[k]);
      m.tensor(op.weights).set(t * per_row + k, 0, choice.weights[k]);
    }
  }
  return {};
}

Status run(Machine& m, const ExpertGateUp& op) {
  const WeightGroup& group = m.weights.groups[static_cast<size_t>(op.group)];
  const float* bias = group.bias < 0 ? nullptr : m.values_of(group.bias).data();
  const Tensor& x = m.tensor(op.x);
  Tensor& out = m.tensor(op.out);
  for (const RowSegment& segment : group.segments) m.values_of(segment.tensor);
  parallel_for(m.num_threads, m.live(op.out), [&](uint64_t begin, uint64_t end) {
    for (uint64_t k = begin; k < end; ++k) {
      const uint64_t expert = static_cast<uint64_t>(m.tensor(op.ids).row(static_cast<uint32_t>(k))[0]);
      const double* row = x.row(static_cast<uint32_t>(k / m.list->routed_per_row));
      for (uint32_t c = 0; c < out.columns; ++c) {
        const bool has_up = has_other_half(op.activation);
        const uint64_t gate = (has_up && op.by_expert ? 2 : 1) * expert * out.columns + c;
        const uint64_t up = has_up ? gate + (op.by_expert ? 1 : op.num_experts) * uint64_t{out.columns} : gate;
        const auto product = [&](uint64_t n, uint32_t column) {
          const double term = op.term == kNoTensor ? 0 : m.tensor(op.term).row(static_cast<uint32_t>(k))[column];
          return dot(row, m.group_row(group, n), group.columns) + (bias ? bias[n] : 0) + term;
        };
        out.set(static_cast<uint32_t>(k), c,
                gated(op.activation, product(gate, c), product(up, has_up ? out.columns + c : c)));
      }
    }
  });
  return {};
}

Status run(Machine& m, const ExpertDown& op) {
  const WeightGroup& group = m.weights.groups[static_cast<size_t>(op.group)];
  const float* bias = group.bias < 0 ? nullptr : m.values_of(group.bias).data();
  const Tensor& x = m.tensor(op.x);
  Tensor& out = m.tensor(op.out);
  const uint32_t per_row = m.list->routed_per_row;
  for (const RowSegment& segment : group.segments) m.values_of(segment.tensor);
  parallel_for(m.num_threads, m.live(op.out), [&](uint64_t begin, uint64_t end) {
    for (uint32_t t = static_cast<uint32_t>(begin); t < end; ++t) {
      for (uint32_t c = 0; c < out.columns; ++c) {
        double sum = 0;
        for (uint32_t k = t * per_row; k < (t + 1) * per_row; ++k) {
          const uint64_t n = static_cast<uint64_t>(m.tensor(op.ids).row(k)[0]) * out.columns + c;
          sum += m.tensor(op.weights).row(k)[0] *
                 (dot(x.row(k), m.group_row(group, n), group.columns) + (bias ? bias[n] : 0));
        }
        out.set(t, c, sum);
      }
    }
  });
  return {};
}

}  // namespace llmrt::reference
