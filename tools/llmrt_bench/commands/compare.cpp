// llmrt-bench compare: two records of the same work, B / A of every value, and an exit code for who guards speed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/llmrt_bench/commands/commands.h"
#include "tools/llmrt_bench/record/comparison.h"
#include "tools/llmrt_bench/record/price.h"
#include "tools/number_range.h"

namespace llmrt::bench {
namespace {

struct Options {
  std::string path_a, path_b;
  ComparisonOptions comparison;
  double slower_max_percent = -1;            // < 0: slower is fine
  std::vector<double> prices_hour_usd = {};  // of A, and of B
};

std::string spread_text(const Value& value) {
  return value.samples.size() < 2 ? "" : fmt::format(" ± {:.1f} %", 100 * spread_of(value));
}

// A value that is not known was written as null.
std::string number_text(double number) {
  return std::isnan(number) ? "-" : fmt::format("{:.5g}", number);
}

std::string verdict(const ComparedValue& value) {
  const auto [least, most] = value.ratio_range();
  if (!(least > 1 || most < 1)) return "within spread";
  return fmt::format("{:.1f} % {}", 100 * std::fabs(value.slowdown()), value.slowdown() > 0 ? "slower" : "faster");
}

void print_head(const char* name, const SavedRecord& record) {
  fmt::print("{}: {}, {}, llmrt {}{}{}\n", name, record.path, record.begun_at, record.version,
             record.commit.empty() ? "" : " " + record.commit, record.is_complete ? "" : ", CUT SHORT");
  for (const Caps& device : record.devices)
    fmt::print("   {}: {}, {}\n", device.device_id, device.device_name, device.driver);
}

void print_table(const Comparison& all) {
  fmt::print("\n| {:<40} | {:<10} | {:<8} | {:>20} | {:>20} | {:>6} | {:>15} | {:<15} |\n", "test", "value", "unit",
             "A", "B", "B / A", "from - to", "");
  fmt::print(
      "|------------------------------------------|------------|----------|---------------------:|"
      "---------------------:|-------:|----------------:|-----------------|\n");
  for (const ComparedValue& value : all.values) {
    // What is no speed follows from the work, but where it does not.
    if (value.direction() == Direction::kNone && value.a.value == value.b.value) continue;
    const std::string devices =
        value.device_a == value.device_b ? value.device_a : value.device_a + ", " + value.device_b;
    const std::string place = devices.empty() ? value.test : fmt::format("{} {}", devices, value.test);
    if (value.direction() == Direction::kNone) {
      fmt::print("| {:<40} | {:<10} | {:<8} | {:>20} | {:>20} | {:>6} | {:>15} | {:<15} |\n", place, value.a.name,
                 value.a.unit, number_text(value.a.value), number_text(value.b.value), "", "", "");
      continue;
    }
    const auto [least, most] = value.ratio_range();
    const bool is_known = !std::isnan(value.a.value) && !std::isnan(value.b.value);
    fmt::print("| {:<40} | {:<10} | {:<8} | {:>20} | {:>20} | {:>6} | {:>15} | {:<15} |\n", place, value.a.name,
               value.a.unit, number_text(value.a.value) + spread_text(value.a),
               number_text(value.b.value) + spread_text(value.b), is_known ? fmt::format("{:.3f}", value.ratio()) : "-",
               is_known ? fmt::format("{:.3f} - {:.3f}", least, most) : "-", is_known ? verdict(value) : "not known");
  }
}

void print_prices(const Comparison& all, const std::vector<double>& prices) {
  const double price_a = prices.front(), price_b = prices.back();
  fmt::print("\nUSD a million tokens at {} and {} USD an hour\n", price_a, price_b);
  for (const ComparedValue& value : all.values) {
    if (value.a.unit != "tok/s") continue;
    const auto a = usd_mtok(price_a, value.a.value), b = usd_mtok(price_b, value.b.value);
    fmt::print("  {:<40} {:>10} {:>10}   B / A {}\n", value.test, price_text(a), price_text(b),
               a && b ? fmt::format("{:.3f}", *b / *a) : "-");
  }
}

Status run(const Options& options) {
  const Result<SavedRecord> a = read_record(options.path_a);
  if (!a) return a.error();
  const Result<SavedRecord> b = read_record(options.path_b);
  if (!b) return b.error();
  const Result<Comparison> all = compare(*a, *b, options.comparison);
  if (!all) return all.error();
  print_head("A", *a);
  print_head("B", *b);
  for (const std::string& text : all->settings) fmt::print("{}\n", text);
  print_table(*all);
  for (const std::string& place : all->only_a) fmt::print("only in A: {}\n", place);
  for (const std::string& place : all->only_b) fmt::print("only in B: {}\n", place);
  if (!options.prices_hour_usd.empty()) print_prices(*all, options.prices_hour_usd);
  if (options.slower_max_percent < 0) return {};

  std::vector<std::string> failures;
  for (const std::string& place : all->lost) failures.push_back(place + " is not in B");
  for (const ComparedValue& value : all->values)
    // Not a number, where a value is not finite, fails too.
    if (const double percent = 100 * value.slowdown(); is_guarded(value.a) && !(percent <= options.slower_max_percent))
      failures.push_back(fmt::format("{} {} {} {}", value.device_b, value.test, value.a.name,
                                     std::isnan(percent) ? "has no ratio, as one of the two is not known"
                                                         : fmt::format("is {:.1f} % slower", percent)));
  if (failures.empty()) return {};
  return make_error(ErrorCode::kInvalidArgument, "--fail-if-slower: expected at most {} %, found {}",
                    options.slower_max_percent, fmt::join(failures, "; "));
}

}  // namespace

void add_compare_command(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "compare", "B / A of every value of two records (--json) of the same work; other work is refused by name");
  command->add_option("A", options->path_a, "Record, the yardstick")->required();
  command->add_option("B", options->path_b, "Record")->required();
  command->add_option("--device-a", options->comparison.device_a, "Rows of this device of A only");
  command->add_option("--device-b", options->comparison.device_b, "Rows of this device of B only");
  command->add_option("--values", options->comparison.names, "Values to compare, such as tok_s; default: all")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option("--fail-if-slower", options->slower_max_percent,
                   "Exit code 1 when a rate or a time of B is more than so many percent slower, by its median, or is "
                   "not there; late_*, the load generator's own, aside")
      ->check(number_range(0.0, 100.0));
  command
      ->add_option("--price-per-hour", options->prices_hour_usd,
                   "USD, of A's machine or A's,B's: adds USD a million tokens")
      ->delimiter(',')
      ->expected(1, 2)
      ->allow_extra_args(false)
      ->check(number_range(1e-6, 1e6));
  command->footer(
      "Rows belong together by test and device; by test alone where each side has one device. ± and from - to: where "
      "medians lie with 95 % confidence, or all that few samples span.");
  on_parsed(command, exit_code, [options] { return run(*options); });
}

}  // namespace llmrt::bench
