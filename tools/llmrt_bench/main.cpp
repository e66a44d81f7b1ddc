// llmrt-bench: the same work on every backend, with the device's limits beside it.
#include "tools/llmrt_bench/commands/commands.h"

int main(int argc, char** argv) {
  CLI::App app{"llmrt-bench: the same work on every backend, with the device's limits beside it"};
  app.require_subcommand(1);
  int exit_code = 0;
  llmrt::bench::add_limits_command(app, &exit_code);
  llmrt::bench::add_ops_command(app, &exit_code);
  llmrt::bench::add_model_command(app, &exit_code);
  llmrt::bench::add_agree_command(app, &exit_code);
  llmrt::bench::add_batching_command(app, &exit_code);
  llmrt::bench::add_serving_command(app, &exit_code);
  llmrt::bench::add_serve_command(app, &exit_code);
  llmrt::bench::add_capacity_command(app, &exit_code);
  llmrt::bench::add_kv_command(app, &exit_code);
  llmrt::bench::add_compare_command(app, &exit_code);
  llmrt::bench::add_report_command(app, &exit_code);
  llmrt::bench::add_startup_command(app, &exit_code);
  llmrt::bench::add_sweep_command(app, &exit_code);
  llmrt::bench::add_pipelines_command(app, &exit_code);
  CLI11_PARSE(app, argc, argv);
  return exit_code;
}
