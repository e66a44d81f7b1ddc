// llmrt-bench report: records as one page with plots and tables.
#include <fmt/format.h>

#include <fstream>

#include "tools/llmrt_bench/commands/commands.h"
#include "tools/llmrt_bench/report/report_page.h"

namespace llmrt::bench {
namespace {

struct Options {
  std::vector<std::string> paths;
  std::string out;
};

Status run(const Options& options) {
  std::vector<SavedRecord> records;
  for (const std::string& path : options.paths) {
    Result<SavedRecord> record = read_record(path);
    if (!record) return record.error();
    records.push_back(*std::move(record));
  }
  std::ofstream file(options.out, std::ios::binary);
  file << report_page(records);
  file.close();
  if (!file) return make_error(ErrorCode::kIo, "--out: expected a file that can be written, found {}", options.out);
  fmt::print("{}\n", options.out);
  return {};
}

}  // namespace

void add_report_command(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("report", "Records (--json) as one HTML page with plots and tables");
  command->add_option("RECORD", options->paths, "Records of any commands, side by side")->required();
  command->add_option("-o,--out", options->out, "The page; it needs no other file and no network")->required();
  on_parsed(command, exit_code, [options] { return run(*options); });
}

}  // namespace llmrt::bench
