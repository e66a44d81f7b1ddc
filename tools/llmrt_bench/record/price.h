// What tokens cost on a machine that is paid by the hour.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>

namespace llmrt::bench {

// USD a million tokens; none where there is no rate: nothing came, at any price.
inline std::optional<double> usd_mtok(double price_hour_usd, double tok_s) {
  const double price = price_hour_usd / 3600 / tok_s * 1e6;
  if (!(tok_s > 0) || !std::isfinite(price)) return {};
  return price;
}
inline std::string price_text(std::optional<double> usd_mtok) {
  return usd_mtok ? fmt::format("{:.4f}", *usd_mtok) : "-";
}

}  // namespace llmrt::bench
