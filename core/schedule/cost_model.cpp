#include "core/schedule/cost_model.h"

#include <algorithm>
#include <cmath>

#include "core/schedule/step_sizes.h"

namespace llmrt {
namespace {

constexpr double kFade = 0.995;      // of a step's weight with each later step
constexpr double kErrorRate = 0.25;  // how fast a size's error follows the last step
constexpr double kErrorMax = 0.25;   // of what the line says: one slow step must not put a size out of use
constexpr double kClockFallsMs = 100, kRestMs = 50;  // the clock is up again after so much other work
constexpr double kFastWeight = 0.2;                  // of steps that are fast while it falls
constexpr double kSurprise = 10, kSurpriseMs = 1;    // more than what is foretold times the first is a surprise
constexpr double kAnchor = 1e-3;  // how much the coefficients so far count beside a step of typical size

FadingLine<4>::Vector features(const StepWork& work) {
  return {1, static_cast<double>(work.tokens), static_cast<double>(work.decode_keys),
          static_cast<double>(work.chunk_pairs)};
}

// x of a symmetric positive definite system, by Cholesky. Rows and columns that are not `used` are left out; x is 0
// there.
template <size_t N>
std::array<double, N> solve_system(std::array<std::array<double, N>, N> a, std::array<double, N> b,
                                   const std::array<bool, N>& used) {
  for (size_t i = 0; i < N; ++i) {
    if (used[i]) continue;
    for (size_t k = 0; k < N; ++k) a[i][k] = a[k][i] = 0;
    a[i][i] = 1;
    b[i] = 0;
  }
  for (size_t i = 0; i < N; ++i) {
    for (size_t k = 0; k <= i; ++k) {
      double sum = a[i][k];
      for (size_t j = 0; j < k; ++j) sum -= a[i][j] * a[k][j];
      a[i][k] = i == k ? std::sqrt(sum) : sum / a[k][k];
    }
  }
  for (size_t i = 0; i < N; ++i) {
    for (size_t k = 0; k < i; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  for (size_t i = N; i-- > 0;) {
    for (size_t k = i + 1; k < N; ++k) b[i] -= a[k][i] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

}  // namespace

template <size_t N>
void FadingLine<N>::observe(const Vector& x, double y, double weight) {
  const double foretold = predict(x), most = kSurprise * std::max(foretold, kSurpriseMs);
  if (y > most && (num_observed_ > 0 || foretold > 0)) {
    weight *= most / y;
    y = most;
  }
  for (size_t i = 0; i < N; ++i) {
    for (size_t k = 0; k < N; ++k)
      products_[i][k] = kFade * products_[i][k] + weight * (x[i] / typical_[i]) * (x[k] / typical_[k]);
    targets_[i] = kFade * targets_[i] + weight * (x[i] / typical_[i]) * y;
  }
  if (num_observed_ < UINT32_MAX) ++num_observed_;
  solve();
}

// Coefficients that come out negative are held at 0, one after the other.
template <size_t N>
void FadingLine<N>::solve() {
  auto a = products_;
  Vector b = targets_;
  for (size_t i = 0; i < N; ++i) {
    a[i][i] += kAnchor;
    b[i] += kAnchor * coefficients_[i] * typical_[i];
  }
  std::array<bool, N> used;
  used.fill(true);
  Vector solution;
  for (size_t round = 0; round < N; ++round) {
    solution = solve_system(a, b, used);
    size_t worst = N;
    for (size_t i = 0; i < N; ++i)
      if (used[i] && solution[i] < 0 && (worst == N || solution[i] < solution[worst])) worst = i;
    if (worst == N) break;
    used[worst] = false;
  }
  for (size_t i = 0; i < N; ++i) coefficients_[i] = used[i] ? solution[i] / typical_[i] : 0;
}

CostModel::CostModel(const CostPrior& prior)
    : step_({prior.step_ms, prior.token_ms, 0, 0}, {1, 100, 1e5, 1e5}),
      beside_sizes_(step_),
      moves_({0, prior.store_ms, prior.load_ms}, {1, 10, 10}) {}

void CostModel::observe(const StepWork& work, const StepTimes& times) {
  if (times.step_ms > 0) {
    const FadingLine<4>::Vector x = features(work);
    const double weight = weight_of(work, times.step_ms);
    step_.observe(x, times.step_ms, weight);
    double& error = size_errors_[step_size_from(static_cast<uint32_t>(work.tokens))];
    beside_sizes_.observe(x, times.step_ms - error, weight);
    const double line = beside_sizes_.predict(x), most = kErrorMax * line;
    error += weight * kErrorRate * (std::clamp(times.step_ms - line, -most, most) - error);
  }
  if (times.memory_ms > 0 && work.stores + work.loads > 0)
    moves_.observe({1, work.stores, work.loads}, times.memory_ms);
}

double CostModel::weight_of(const StepWork& work, double ms) {
  if (work.chunk_pairs == 0) {
    rest_ms_ += ms;
    return 1;
  }
  if (rest_ms_ > kRestMs) chunks_ms_ = 0;
  rest_ms_ = 0;
  chunks_ms_ += ms;
  return chunks_ms_ < kClockFallsMs && knows_steps() && ms < step_ms(work) ? kFastWeight : 1;
}

double CostModel::step_ms(const StepWork& work) const {
  const auto error = size_errors_.find(step_size_from(static_cast<uint32_t>(work.tokens)));
  return std::max(0.0, beside_sizes_.predict(features(work)) + (error == size_errors_.end() ? 0.0 : error->second));
}

// c * (token + pair * depth) + c^2 * pair / 2 <= what the step's other work leaves.
uint32_t CostModel::chunk_by_line(double ms, const StepWork& work, uint64_t depth, uint32_t most) const {
  const double left = ms - step_.predict(features(work));
  if (left <= 0) return 0;
  const double square = step_.coefficient(3) / 2;
  const double line = step_.coefficient(1) + step_.coefficient(3) * (static_cast<double>(depth) + 0.5);
  const double root = line + std::sqrt(line * line + 4 * square * left);
  if (root <= 0) return most;
  return static_cast<uint32_t>(std::min<double>(2 * left / root, most));
}

uint32_t CostModel::chunk_within(double ms, const StepWork& work, uint64_t depth, uint32_t most) const {
  const uint32_t chunk = chunk_by_line(ms, work, depth, most), others = static_cast<uint32_t>(work.tokens);
  const auto smaller = [](uint32_t size) { return size > 1 ? step_size_within(size - 1) : 0; };
  for (uint32_t size = step_size_from(others + chunk + chunk / 4); size > others; size = smaller(size)) {
    const uint32_t tokens = std::min(size - others, most);
    if (tokens < chunk / 2) break;
    if (step_ms(with_chunk(work, depth, tokens)) <= ms) return tokens;
  }
  return chunk;
}

double CostModel::prefill_rate(uint32_t step_tokens) const {
  const double ms = step_ms(with_chunk({}, 0, step_tokens));
  return ms > 0 ? step_tokens / ms : 0;
}

double CostModel::recompute_ms(uint64_t num_tokens) const {
  const double n = static_cast<double>(num_tokens);
  return step_.predict({0, n, 0, n * (n + 1) / 2});
}

double CostModel::swap_ms(double num_blocks) const {
  return moves_.predict({1, num_blocks, num_blocks});
}

template class FadingLine<3>;
template class FadingLine<4>;

}  // namespace llmrt
