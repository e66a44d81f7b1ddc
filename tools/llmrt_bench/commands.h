// The commands of llmrt-bench, a file each. Every command adds itself to the parser and leaves its exit code.
#pragma once

#include <CLI/CLI.hpp>

namespace llmrt::bench {

void add_limits_command(CLI::App& app, int* exit_code);
void add_model_command(CLI::App& app, int* exit_code);
void add_agree_command(CLI::App& app, int* exit_code);
void add_batching_command(CLI::App& app, int* exit_code);
void add_serving_command(CLI::App& app, int* exit_code);
void add_kv_command(CLI::App& app, int* exit_code);

}  // namespace llmrt::bench
