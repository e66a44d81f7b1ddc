#include "tests/ops/statistics.h"

#include <cmath>
#include <cstddef>
#include <numeric>

namespace llmrt::optest {
namespace {

// Regularised lower incomplete gamma by its series, for x < a + 1.
double gamma_series(double a, double x) {
  double term = 1 / a, sum = term;
  for (int n = 1; n < 10000 && term > sum * 1e-16; ++n) sum += term *= x / (a + n);
  return sum * std::exp(-x + a * std::log(x) - std::lgamma(a));
}

// Regularised upper incomplete gamma by Lentz's continued fraction, for x >= a + 1.
double gamma_fraction(double a, double x) {
  double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
  for (int i = 1; i < 10000; ++i) {
    const double an = -i * (i - a);
    b += 2;
    d = 1 / (an * d + b);
    c = b + an / c;
    h *= d * c;
    if (std::abs(d * c - 1) < 1e-15) break;
  }
  return h * std::exp(-x + a * std::log(x) - std::lgamma(a));
}

}  // namespace

double chi_square_tail(double value, double degrees) {
  if (value <= 0) return 1;
  const double a = degrees / 2, x = value / 2;
  return x < a + 1 ? 1 - gamma_series(a, x) : gamma_fraction(a, x);
}

double chi_square_p(const std::vector<double>& counts, const std::vector<double>& probabilities) {
  const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
  double value = 0, pooled_count = 0, pooled_expected = 0;
  int cells = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = total * probabilities[i];
    if (expected == 0 && counts[i] > 0) return 0;
    if (expected < 5) {
      pooled_count += counts[i];
      pooled_expected += expected;
      continue;
    }
    value += (counts[i] - expected) * (counts[i] - expected) / expected;
    ++cells;
  }
  if (pooled_expected >= 5) {
    value += (pooled_count - pooled_expected) * (pooled_count - pooled_expected) / pooled_expected;
    ++cells;
  }
  return cells < 2 ? 1 : chi_square_tail(value, cells - 1);
}

double independence_p(const std::vector<std::vector<double>>& table) {
  std::vector<double> row_sums, column_sums(table[0].size());
  double total = 0, value = 0;
  for (const auto& row : table) {
    row_sums.push_back(std::accumulate(row.begin(), row.end(), 0.0));
    total += row_sums.back();
    for (size_t c = 0; c < row.size(); ++c) column_sums[c] += row[c];
  }
  for (size_t r = 0; r < table.size(); ++r)
    for (size_t c = 0; c < column_sums.size(); ++c) {
      const double expected = row_sums[r] * column_sums[c] / total;
      value += (table[r][c] - expected) * (table[r][c] - expected) / expected;
    }
  return chi_square_tail(value, static_cast<double>((table.size() - 1) * (column_sums.size() - 1)));
}

}  // namespace llmrt::optest
