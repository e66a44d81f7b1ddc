// llmrt-bench limits: read, write and copy bandwidth and matrix rates of each device (device_limits.h).
#include <fmt/format.h>

#include <algorithm>

#include "backends/backends.h"
#include "tools/llmrt_bench/commands/commands.h"
#include "tools/llmrt_bench/ops/device_limits.h"
#include "tools/llmrt_bench/record/record.h"

namespace llmrt::bench {
namespace {

struct Options {
  std::vector<std::string> devices{"auto"};
  std::string json_path;
};

void print_row(const DeviceLimits& limits, const Limit& limit) {
  const auto [least, most] = std::ranges::minmax_element(limit.samples);
  fmt::print("| {:<10} | {:<32} | {:<12} | {:>10.4g} {:<7} | {:>8.1f} |\n", limits.caps.device_id,
             limits.caps.device_name, limit.name, limit.best, limit.unit, 100 * (*most - *least) / *most);
}

Status run(const Options& options) {
  const boost::json::object work{{"matrix_size", kMatrixSize}, {"range_bytes", kRangeBytes}};
  Result<Record> record = Record::create("limits", work, {}, options.json_path);
  if (!record) return record.error();
  fmt::print("| {:<10} | {:<32} | {:<12} | {:>18} | {:>8} |\n", "device", "name", "limit", "best", "spread %");
  fmt::print("|------------|----------------------------------|--------------|-------------------:|---------:|\n");
  for (const std::string& device : options.devices) {
    Result<std::unique_ptr<Backend>> backend = open_device(device);
    if (!backend) return backend.error();
    Result<DeviceLimits> limits = measure_limits(*std::move(backend));
    if (!limits) return limits.error();
    record->add_device(limits->caps);
    record_limits(*limits, &*record);
    for (const Limit* limit : {&limits->read, &limits->write, &limits->copy}) print_row(*limits, *limit);
    for (const Limit& limit : limits->matrix) print_row(*limits, limit);
  }
  return record->finish();
}

}  // namespace

void add_limits_command(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("limits", "Read, write and copy bandwidth and matrix rates of each device, measured");
  command->add_option("-d,--device", options->devices, "Devices to measure (repeat)")->capture_default_str();
  command->add_option("--json", options->json_path, "Also write the figures to this file");
  on_parsed(command, exit_code, [options] { return run(*options); });
}

}  // namespace llmrt::bench
