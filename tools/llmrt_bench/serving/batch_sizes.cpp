#include "tools/llmrt_bench/serving/batch_sizes.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/engine/pool_shapes.h"
#include "tools/llmrt_bench/record/time_left.h"
#include "tools/llmrt_bench/serving/drive.h"
#include "tools/llmrt_bench/serving/parts.h"

namespace llmrt::bench {
namespace {

// Samples of one size on one device.
struct Measured {
  std::vector<double> ttft_ms, worst_ms, plain_ms;  // chunks
  std::vector<double> seconds, tok_s;               // blocks
};

double kv_token_bytes(const Model& model, KvDType dtype) {
  EngineConfig config;
  config.kv_dtype = dtype;
  return static_cast<double>(PoolShapes(model.config, config).bytes_block()) / config.block_tokens;
}

// The long prompt comes when all streams decode, and they outlast it.
Result<DryRun> count_chunks(const BatchSizes& sizes, uint32_t chunk_tokens) {
  if (chunk_tokens <= sizes.num_streams)
    return make_error(ErrorCode::kInvalidArgument,
                      "--chunks: expected more tokens than there are streams ({}), found {}", sizes.num_streams,
                      chunk_tokens);
  constexpr uint32_t kArrivalMs = 4;
  const uint32_t num_chunks = sizes.prompt_tokens / (chunk_tokens - sizes.num_streams) + 1;
  std::vector<DryRequest> requests(sizes.num_streams, {1, num_chunks + 2 * kArrivalMs, 0});
  requests.push_back({sizes.prompt_tokens, 1, kArrivalMs});
  SchedulerConfig config =
      dry_config(requests, sizes.num_streams + 1, std::max(sizes.step_tokens, chunk_tokens + sizes.num_streams), 16);
  config.chunk_tokens = chunk_tokens;
  Result<DryRun> run = dry_run(config, requests);
  if (run) run->num_chunks -= sizes.num_streams;  // their prompts, one each
  return run;
}

Status measure_chunk(const BatchSizes& sizes, uint32_t chunk_tokens, const Model& model, const SizedDevice& on,
                     const Clock& clock, Measured* measured) {
  ServingOptions options;
  options.gap_streams = sizes.num_streams;
  options.gap_prompt = sizes.prompt_tokens;
  options.kv_dtype = sizes.kv_dtype;
  Result<Record> unwritten = Record::create("batching", {}, {}, "");
  if (!unwritten) return unwritten.error();
  Report report(&*unwritten, &clock);
  const auto make_engine = [&](const EngineConfig& config) { return on.device.make_engine(config); };
  const Bench bench{options, model, on.device.caps(), clock, report, make_engine, {}};
  EngineConfig config = gap_config(bench);
  config.chunk_tokens = chunk_tokens;
  config.step_tokens_max =
      std::min(std::max(sizes.step_tokens, chunk_tokens + sizes.num_streams), on.device.caps().step_tokens_max);
  const Result<Stall> stall = measure_stall(bench, config, kNever);
  if (!stall) return stall.error();
  measured->ttft_ms.push_back(stall->ttft_ms);
  measured->worst_ms.push_back(stall->worst_ms);
  measured->plain_ms.push_back(stall->plain_ms);
  return {};
}

Status measure_blocks(const BatchSizes& sizes, uint32_t block_tokens, std::span<const WorkItem> items,
                      const SizedDevice& on, const Clock& clock, Measured* measured) {
  EngineConfig config;
  config.kv_dtype = sizes.kv_dtype;
  config.prefix_cache = PrefixCacheKind::kOff;
  config.block_tokens = block_tokens;
  config.sequences_max = sizes.num_rows;
  config.step_tokens_max = std::min(sizes.step_tokens, on.device.caps().step_tokens_max);
  constexpr uint32_t kWarmUpTokens = 64;
  config.context_max = kWarmUpTokens + sizes.num_rows;
  for (const WorkItem& item : items)
    config.context_max = std::max(config.context_max, static_cast<uint32_t>(item.prompt.size()) + item.output_tokens);
  config.kv_tokens = uint64_t{sizes.num_rows} * (config.context_max + block_tokens) * 33 / 32;
  Result<std::unique_ptr<Engine>> engine = on.device.make_engine(config);
  if (!engine) return engine.error();
  if (Status status = Drive(engine->get(), &clock).warm_up(sizes.num_rows); !status) return status;
  const Result<Run> run = Drive(engine->get(), &clock).run(items, kNever);
  if (!run) return run.error();
  measured->seconds.push_back(run->seconds);
  measured->tok_s.push_back(run->tok_s());
  return {};
}

// Sizes and devices take turns within each repeat, so that drift hits them alike. [size][device]
template <typename Measure>
Result<std::vector<std::vector<Measured>>> measure_in_turns(const char* what, std::span<const uint32_t> all_sizes,
                                                            std::span<const SizedDevice> devices, uint32_t num_repeats,
                                                            const Measure& measure) {
  std::vector<std::vector<Measured>> all(all_sizes.size(), std::vector<Measured>(devices.size()));
  TimeLeft left(static_cast<double>(num_repeats * all_sizes.size() * devices.size()));
  for (uint32_t repeat = 0; repeat < num_repeats; ++repeat)
    for (size_t size = 0; size < all_sizes.size(); ++size)
      for (size_t device = 0; device < devices.size(); ++device) {
        left.begin(fmt::format("{}: {} of {}", devices[device].id, what, all_sizes[size]));
        if (Status status = measure(all_sizes[size], devices[device], &all[size][device]); !status)
          return make_error(status.error().code, "{}: {} of {}: {}", devices[device].id, what, all_sizes[size],
                            status.error().message);
        left.done(1);
      }
  return all;
}

std::string shown(const Value& value) {
  return fmt::format("{:.4g} ±{:.1f} %", value.value, 100 * spread_of(value));
}

std::string bytes_text(const Model* model, double bytes) {
  return model == nullptr ? "-" : fmt::format("{:.4g} MB", bytes * 1e-6);
}

}  // namespace

SchedulerConfig dry_config(std::span<const DryRequest> requests, uint32_t num_rows, uint32_t step_tokens,
                           uint32_t block_tokens) {
  uint64_t num_tokens = 0;
  for (const DryRequest& request : requests) num_tokens += uint64_t{request.prompt_tokens} + request.output_tokens;
  SchedulerConfig config;
  config.context_max = static_cast<uint32_t>(num_tokens);
  config.sequences_max = num_rows;
  config.step_tokens_max = step_tokens;
  config.queue_tokens_max = num_tokens;
  config.queue_branches_max = config.queue_bytes_max = uint64_t{1} << 40;
  config.kv_pools = {{static_cast<uint32_t>(num_tokens / block_tokens + requests.size() + 1), block_tokens}};
  config.watermark = 0;
  return config;
}

Status compare_chunks(const BatchSizes& sizes, const Model* model, std::span<const SizedDevice> devices,
                      const Clock& clock, Record* record) {
  std::vector<DryRun> counted;
  for (const uint32_t chunk : sizes.chunks) {
    Result<DryRun> run = count_chunks(sizes, chunk);
    if (!run) return run.error();
    counted.push_back(*std::move(run));
  }
  const auto fits = [&](uint32_t chunk, const SizedDevice& on) { return chunk <= on.device.caps().step_tokens_max; };
  const auto all = measure_in_turns("chunks", sizes.chunks, devices, sizes.num_repeats,
                                    [&](uint32_t chunk, const SizedDevice& on, Measured* measured) -> Status {
                                      if (!fits(chunk, on)) return {};
                                      return measure_chunk(sizes, chunk, *model, on, clock, measured);
                                    });
  if (!all) return all.error();
  fmt::print(
      "\nA prompt of {} tokens beside {} streams, by chunk size\n| chunk | chunks | KV read again, tokens | bytes"
      "       | device   | TTFT, ms          | worst gap, ms     | plain gap, ms     |\n"
      "|------:|-------:|----------------------:|------------:|----------|------------------:|"
      "------------------:|------------------:|\n",
      sizes.prompt_tokens, sizes.num_streams);
  for (size_t i = 0; i < sizes.chunks.size(); ++i) {
    const std::string test = fmt::format("chunks of {}", sizes.chunks[i]);
    const auto reread = static_cast<double>(counted[i].reread_tokens);
    const double bytes = model == nullptr ? 0 : reread * kv_token_bytes(*model, sizes.kv_dtype);
    const std::string line = fmt::format("| {:>5} | {:>6} | {:>21} | {:>11} |", sizes.chunks[i], counted[i].num_chunks,
                                         counted[i].reread_tokens, bytes_text(model, bytes));
    RecordRow row{
        test,
        "",
        {{"chunks", "chunks", static_cast<double>(counted[i].num_chunks)}, {"kv_read_again", "tokens", reread}}};
    if (model != nullptr) row.values.push_back({"kv_read_again_bytes", "bytes", bytes});
    record->add(row);
    if (devices.empty()) fmt::print("{} {:<8} | {:>17} | {:>17} | {:>17} |\n", line, "-", "-", "-", "-");
    for (size_t device = 0; device < devices.size(); ++device) {
      const std::string& id = devices[device].id;
      if (!fits(sizes.chunks[i], devices[device])) {
        const std::string reason =
            fmt::format("steps hold at most {} tokens", devices[device].device.caps().step_tokens_max);
        fmt::print("{} {:<8} | {}\n", line, id, reason);
        record->miss(test, id, reason);
        continue;
      }
      const Measured& measured = (*all)[i][device];
      row = {test,
             id,
             {median_value("ttft", "ms", measured.ttft_ms), median_value("worst_itl", "ms", measured.worst_ms),
              median_value("plain_itl", "ms", measured.plain_ms)}};
      fmt::print("{} {:<8} | {:>17} | {:>17} | {:>17} |\n", line, id, shown(row.values[0]), shown(row.values[1]),
                 shown(row.values[2]));
      record->add(row);
    }
  }
  return {};
}

Status compare_blocks(const BatchSizes& sizes, std::span<const DryRequest> requests, const Model* model,
                      std::span<const SizedDevice> devices, const Clock& clock, Record* record) {
  std::vector<WorkItem> items;
  Draws draws(1);
  for (const DryRequest& request : requests)
    if (model != nullptr)
      items.push_back({draws.tokens(request.prompt_tokens, model->config.vocab_size), request.output_tokens});
  const auto all = measure_in_turns("blocks", sizes.blocks, devices, sizes.num_repeats,
                                    [&](uint32_t block, const SizedDevice& on, Measured* measured) {
                                      return measure_blocks(sizes, block, items, on, clock, measured);
                                    });
  if (!all) return all.error();
  fmt::print(
      "\n{} requests, {} at a time, by KV block size\n| block | blocks at most | of them empty | device   | time, s"
      "           | tok/s             |\n"
      "|------:|---------------:|--------------:|----------|------------------:|------------------:|\n",
      requests.size(), sizes.num_rows);
  for (size_t i = 0; i < sizes.blocks.size(); ++i) {
    const std::string test = fmt::format("blocks of {}", sizes.blocks[i]);
    const Result<DryRun> run =
        dry_run(dry_config(requests, sizes.num_rows, sizes.step_tokens, sizes.blocks[i]), requests);
    if (!run) return run.error();
    record->add(
        {test,
         "",
         {{"blocks_max", "blocks", static_cast<double>(run->blocks_max)}, {"kv_waste", "share", run->kv_waste()}}});
    const std::string line = fmt::format("| {:>5} | {:>14} | {:>13} |", sizes.blocks[i], run->blocks_max,
                                         fmt::format("{:.2f} %", 100 * run->kv_waste()));
    if (devices.empty()) fmt::print("{} {:<8} | {:>17} | {:>17} |\n", line, "-", "-", "-");
    for (size_t device = 0; device < devices.size(); ++device) {
      const Measured& measured = (*all)[i][device];
      const RecordRow row{
          test,
          devices[device].id,
          {median_value("time", "s", measured.seconds), median_value("tok_s", "tok/s", measured.tok_s)}};
      fmt::print("{} {:<8} | {:>17} | {:>17} |\n", line, devices[device].id, shown(row.values[0]),
                 shown(row.values[1]));
      record->add(row);
    }
  }
  return {};
}

}  // namespace llmrt::bench
