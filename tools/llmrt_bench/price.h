// What tokens cost on a machine that is paid by the hour.
#pragma once

namespace llmrt::bench {

// USD a million tokens; 0 where there is no price or no rate.
inline double usd_mtok(double price_hour_usd, double tok_s) {
  return tok_s > 0 ? price_hour_usd / 3600 / tok_s * 1e6 : 0;
}

}  // namespace llmrt::bench
