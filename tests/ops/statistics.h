// Chi-square tests.
#pragma once

#include <vector>

namespace llmrt::optest {

// P(chi-square with `degrees` >= value).
double chi_square_tail(double value, double degrees);
// p-value of observed counts under expected probabilities (sum 1). Cells that expect fewer than 5 are pooled; a count
// in a cell of probability 0 gives 0.
double chi_square_p(const std::vector<double>& counts, const std::vector<double>& probabilities);
// p-value of independence of a table [rows][columns] of counts.
double independence_p(const std::vector<std::vector<double>>& table);

}  // namespace llmrt::optest
