#include <fmt/format.h>

#include <exception>
#include <fstream>
#include <optional>
#include <sstream>

#include "tools/llmrt_bench/commands/commands.h"

namespace llmrt::bench {

void on_parsed(CLI::App* command, int* exit_code, std::function<Status()> run) {
  command->callback([run = std::move(run), exit_code] {
    std::optional<std::string> problem;
    try {
      if (Status status = run(); !status) problem = status.error().message;
    } catch (const std::exception& error) {  // out of memory, most likely
      problem = error.what();
    }
    if (!problem) return;
    fmt::print(stderr, "llmrt-bench: {}\n", *problem);
    *exit_code = 1;
  });
}

Result<KvDType> kv_dtype_of(const std::string& name) {
  if (const std::optional<KvDType> dtype = parse_kv_dtype(name)) return *dtype;
  return make_error(ErrorCode::kInvalidArgument, "--kv: expected {}, found {}", kKvDTypeNames, name);
}

Result<std::string> read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return make_error(ErrorCode::kNotFound, "text: {}: cannot be opened", path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace llmrt::bench
