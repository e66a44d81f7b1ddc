// llmrt-bench batching: continuous batching beside static and dynamic batching, by the scheduler alone: no model, a
// step takes a millisecond.
#include <fmt/format.h>

#include <algorithm>

#include "core/schedule/dry_run.h"
#include "tools/llmrt_bench/commands.h"
#include "tools/llmrt_bench/record.h"

namespace llmrt::bench {
namespace {

struct Options {
  std::vector<uint32_t> lengths{3, 8, 2, 5}, prompts{1}, arrivals_ms{0};
  uint32_t num_rows = 4, step_tokens = 2048, chunk_tokens = 512;
  int64_t wait_ms = 4;
  size_t columns = 100;
  std::string json_path;
};

// The last of a list stands for all that follow.
uint32_t nth(const std::vector<uint32_t>& list, size_t i) {
  return list[std::min(i, list.size() - 1)];
}

Status run(const Options& options) {
  std::vector<DryRequest> requests;
  uint64_t num_tokens = 0;
  for (size_t i = 0; i < options.lengths.size(); ++i) {
    requests.push_back({nth(options.prompts, i), options.lengths[i], nth(options.arrivals_ms, i)});
    num_tokens += uint64_t{requests.back().prompt_tokens} + requests.back().output_tokens;
  }
  std::ranges::stable_sort(requests, {}, &DryRequest::arrival_ms);
  SchedulerConfig config;
  config.context_max = static_cast<uint32_t>(num_tokens);
  config.sequences_max = options.num_rows;
  config.step_tokens_max = options.step_tokens;
  config.chunk_tokens = options.chunk_tokens;
  config.batch_wait_ms = options.wait_ms;
  config.queue_tokens_max = num_tokens;
  config.kv_pools = {{static_cast<uint32_t>(num_tokens / 16 + requests.size() + 1), 16}};
  config.watermark = 0;
  Result<Record> record = Record::create("batching",
                                         {{"lengths", boost::json::value_from(options.lengths)},
                                          {"prompts", boost::json::value_from(options.prompts)},
                                          {"arrivals_ms", boost::json::value_from(options.arrivals_ms)},
                                          {"sequences", options.num_rows},
                                          {"step_tokens", options.step_tokens},
                                          {"chunk_tokens", options.chunk_tokens},
                                          {"batch_wait_ms", options.wait_ms}},
                                         {}, options.json_path);
  if (!record) return record.error();
  fmt::print(". waits   P prompt   # answer   - ended, and its batch has not\n");
  for (const Batching batching : {Batching::kContinuous, Batching::kStatic, Batching::kDynamic}) {
    config.batching = batching;
    const Result<DryRun> dry = dry_run(config, requests);
    if (!dry) return dry.error();
    fmt::print("\n{}: {} steps, {} tokens computed, {} of padding, utilisation {:.2f} %\n", batching_name(batching),
               dry->steps.size(), dry->useful_tokens, dry->padded_tokens, 100 * dry->utilisation());
    fmt::print("{}", timeline(dry->requests, dry->steps, options.columns));
    record->add({batching_name(batching),
                 "",
                 {{"steps", "steps", static_cast<double>(dry->steps.size())},
                  {"useful", "tokens", static_cast<double>(dry->useful_tokens)},
                  {"padded", "tokens", static_cast<double>(dry->padded_tokens)},
                  {"utilisation", "share", dry->utilisation()}}});
  }
  return record->finish();
}

}  // namespace

void add_batching_command(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("batching", "Who runs when with continuous, static and dynamic batching; needs no device");
  const auto options = std::make_shared<Options>();
  const auto list = [&](const char* name, std::vector<uint32_t>& values, uint32_t least, const char* help) {
    command->add_option(name, values, help)->delimiter(',')->check(CLI::Range(least, 1u << 20))->capture_default_str();
  };
  list("--lengths", options->lengths, 1, "tokens of each answer");
  list("--prompts", options->prompts, 1, "tokens of each prompt; the last counts for all that follow");
  list("--arrivals-ms", options->arrivals_ms, 0, "of each request; the last counts for all that follow");
  const auto number = [&](const char* name, uint32_t& value, const char* help) {
    command->add_option(name, value, help)->check(CLI::Range(1u, 65536u))->capture_default_str();
  };
  number("--sequences", options->num_rows, "rows of a batch");
  number("--step-tokens", options->step_tokens, "tokens of one step, at most");
  number("--chunk-tokens", options->chunk_tokens, "of prompts, in a step in which others decode");
  command->add_option("--batch-wait-ms", options->wait_ms, "dynamic batching: until a batch that is not full begins")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command->add_option("--columns", options->columns, "of the timeline")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("--json", options->json_path, "Also write the figures to this file");
  on_parsed(command, exit_code, [options] { return run(*options); });
}

}  // namespace llmrt::bench
