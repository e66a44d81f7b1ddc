// The commands of llmrt-bench, a file each. Every command adds itself to the parser and leaves its exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "core/base/status.h"
#include "core/kv/kv_format.h"

namespace llmrt::bench {

void add_limits_command(CLI::App& app, int* exit_code);
void add_ops_command(CLI::App& app, int* exit_code);
void add_model_command(CLI::App& app, int* exit_code);
void add_agree_command(CLI::App& app, int* exit_code);
void add_batching_command(CLI::App& app, int* exit_code);
void add_serving_command(CLI::App& app, int* exit_code);
void add_serve_command(CLI::App& app, int* exit_code);
void add_capacity_command(CLI::App& app, int* exit_code);
void add_kv_command(CLI::App& app, int* exit_code);
void add_compare_command(CLI::App& app, int* exit_code);
void add_report_command(CLI::App& app, int* exit_code);
void add_startup_command(CLI::App& app, int* exit_code);
void add_sweep_command(CLI::App& app, int* exit_code);
void add_pipelines_command(CLI::App& app, int* exit_code);

// What a command does once its options are parsed; an error or an exception is printed and makes the exit code 1.
void on_parsed(CLI::App* command, int* exit_code, std::function<Status()> run);
// The dtype that a --kv option names.
Result<KvDType> kv_dtype_of(const std::string& name);
// A whole file, or an error.
Result<std::string> read_text(const std::string& path);

}  // namespace llmrt::bench
