#include "tools/llmrt_bench/load/arrivals.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace llmrt::bench {
namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text)
    if (c == ':')
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

std::optional<double> number_in(const std::string& text, double least, double most) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= least && value <= most)) return {};
  return value;
}

std::optional<uint32_t> tokens_in(const std::string& text) {
  const std::optional<double> value = number_in(text, 1, kItemTokensMax);
  if (!value || *value != std::floor(*value)) return {};
  return static_cast<uint32_t>(*value);
}

// Marsaglia and Tsang's method; a shape below 1 is raised by one, and the draw brought down by a power of a uniform
// one.
double draw_gamma(double shape, Draws* draws) {
  if (shape < 1) return draw_gamma(shape + 1, draws) * std::pow(draws->unit(), 1 / shape);
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = draws->normal(), v = std::pow(1 + c * x, 3);
    if (v > 0 && std::log(draws->unit()) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
  }
}

}  // namespace

uint32_t Lengths::draw(Draws* draws) const {
  if (sigma == 0) return static_cast<uint32_t>(median);
  const double length = std::round(median * std::exp(sigma * draws->normal()));
  return static_cast<uint32_t>(std::clamp<double>(length, min, max));
}

Result<Lengths> parse_lengths(const std::string& option, const std::string& text) {
  const std::vector<std::string> parts = split(text);
  if (const auto tokens = tokens_in(text)) return Lengths{static_cast<double>(*tokens), 0, *tokens, *tokens};
  if (parts.size() == 5 && parts[0] == "lognormal") {
    const auto median = number_in(parts[1], 1, kItemTokensMax), sigma = number_in(parts[2], 0.01, 10);
    const auto min = tokens_in(parts[3]), max = tokens_in(parts[4]);
    if (median && sigma && min && max && *min <= *max) return Lengths{*median, *sigma, *min, *max};
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "{}: expected a number of tokens, or lognormal:MEDIAN:SIGMA:MIN:MAX with a sigma of 0.01 to 10, "
                    "found {}",
                    option, text);
}

std::vector<double> ArrivalPattern::times_s(size_t count, double per_s, Draws* draws) const {
  const auto gap = [&](size_t i) -> double {
    switch (kind) {
      case Kind::kConstant:
        return 1;
      case Kind::kPoisson:
        return -std::log(draws->unit());
      case Kind::kGamma:
        return draw_gamma(parameter, draws) / parameter;
      case Kind::kPareto:
        return (parameter - 1) / parameter * std::pow(draws->unit(), -1 / parameter);
      case Kind::kBurst:
        return i % static_cast<size_t>(parameter) == 0 ? parameter : 0;
    }
    return 1;
  };
  std::vector<double> times(count);
  for (size_t i = 1; i < count; ++i) times[i] = times[i - 1] + gap(i) / per_s;
  return times;
}

Result<ArrivalPattern> parse_arrivals(const std::string& option, const std::string& text) {
  using Kind = ArrivalPattern::Kind;
  const std::vector<std::string> parts = split(text);
  if (text == "constant") return ArrivalPattern{Kind::kConstant, 0};
  if (text == "poisson") return ArrivalPattern{Kind::kPoisson, 0};
  if (parts.size() == 2) {
    const std::string& name = parts[0];
    if (const auto shape = number_in(parts[1], 0.01, 100); shape && name == "gamma")
      return ArrivalPattern{Kind::kGamma, *shape};
    if (const auto alpha = number_in(parts[1], 1.05, 100); alpha && name == "pareto")
      return ArrivalPattern{Kind::kPareto, *alpha};
    if (const auto size = tokens_in(parts[1]); size && name == "burst")
      return ArrivalPattern{Kind::kBurst, static_cast<double>(*size)};
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "{}: expected {} (SHAPE 0.01 to 100, ALPHA 1.05 to 100, N from 1), found {}", option,
                    kArrivalsForms, text);
}

std::vector<LoadItem> make_work(size_t count, const Lengths& prompt, const Lengths& output, Draws* draws) {
  std::vector<LoadItem> items(count);
  for (LoadItem& item : items) {
    item.prompt_tokens = prompt.draw(draws);
    item.output_tokens = output.draw(draws);
    item.prompt = make_words(item.prompt_tokens, draws);
  }
  return items;
}

}  // namespace llmrt::bench
