// llmrt-bench sweep: decode speed at every number of rows, one more at a time. The KV cache has random numbers, so that
// no prompts are computed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "backends/backends.h"
#include "core/engine/pool_shapes.h"
#include "core/engine/probe_plan.h"
#include "core/engine/warm_up.h"
#include "tools/llmrt_bench/commands/commands.h"
#include "tools/llmrt_bench/ops/op_bench.h"
#include "tools/llmrt_bench/record/record.h"
#include "tools/llmrt_bench/record/time_left.h"
#include "tools/number_range.h"

namespace llmrt::bench {
namespace {

constexpr uint32_t kWarmUpSteps = 3;  // lists are compiled or recorded in the first
constexpr int kBarColumns = 40;

struct Options {
  std::string model = "synthetic:llama-3.1-8b:q4_0";
  std::vector<std::string> devices{"auto"};
  uint32_t rows_max = 64, depth = 512, steps = 32, repeats = 2;
  double fall_max = 0;  // percent; 0 = none is wrong
  std::string kv_dtype = "f16", json_path;
  bool batch_invariant = false;
};

EngineConfig config_of(const Options& options, KvDType kv_dtype) {
  EngineConfig config;
  config.kv_dtype = kv_dtype;
  config.batch_invariant = options.batch_invariant;
  config.sequences_max = config.sample_rows_max = options.rows_max;
  config.context_max = options.depth + std::max(options.steps, kWarmUpSteps);
  config.step_tokens_max = options.rows_max;
  config.keeps_windows = true;  // no rows share a block, as in an engine that frees those behind windows
  config.kv_tokens = uint64_t{options.rows_max} * (config.context_max + config.block_tokens);
  return config;
}

// Drives one device step by step, the next one submitted before the last is waited for, as the engine does.
class Stepper {
 public:
  static Result<Stepper> create(const std::string& device, const std::shared_ptr<const Model>& model,
                                const EngineConfig& config, uint32_t depth) {
    Result<std::unique_ptr<Backend>> backend = open_device(device);
    if (!backend) return backend.error();
    Result<WarmEngine> warm = warm_up(config, model, {}, backend->get(), {});
    if (!warm) return warm.error();
    Stepper stepper(*std::move(backend), *std::move(warm), model->config.vocab_size, depth);
    if (Status status = stepper.fill(*model); !status) return status.error();
    return stepper;
  }

  const Caps& caps() const { return backend_->caps(); }

  // Milliseconds that the device worked.
  Result<double> run(uint32_t num_rows, uint32_t num_steps) {
    double device_ms = 0;
    std::deque<Ticket> in_flight;
    const auto wait = [&]() -> Status {
      Result<StepOutput> output = backend_->wait(in_flight.front());
      in_flight.pop_front();
      if (!output) return output.error();
      device_ms += output->forward_ms + output->sample_ms;
      return {};
    };
    for (uint32_t step = 0; step < num_steps; ++step) {
      const ProbeShape shape{num_rows, 1, depth_ + step, 1, warm_.config.block_tokens};
      IterationPlan plan = probe_plan(shape, vocab_size_);
      for (PlanRow& row : plan.rows) row.batch_invariant = warm_.config.batch_invariant;
      warm_.lowering->lower(plan, &lowered_);
      Result<Ticket> ticket = backend_->submit(lowered_.submission());
      if (!ticket) return ticket.error();
      in_flight.push_back(*ticket);
      if (in_flight.size() == 2)  // one step ahead
        if (Status status = wait(); !status) return status.error();
    }
    while (!in_flight.empty())
      if (Status status = wait(); !status) return status.error();
    return device_ms;
  }

 private:
  Stepper(std::unique_ptr<Backend> backend, WarmEngine warm, uint32_t vocab_size, uint32_t depth)
      : backend_(std::move(backend)), warm_(std::move(warm)), vocab_size_(vocab_size), depth_(depth) {}

  // Gives every sequence a table with room for all of its steps, and every block keys and values.
  Status fill(const Model& model) {
    const EngineConfig& config = warm_.config;
    const ProbeShape sequences{config.sequences_max, config.context_max - depth_, depth_, 1, config.block_tokens};
    for (uint32_t i = 0; i < sequences.num_sequences; ++i)
      if (Status status = apply_row_updates(probe_setup_plan(sequences, i, warm_.memory_plan.pools), backend_.get());
          !status)
        return status;
    const PoolShapes shapes(model.config, config);
    return fill_pools(shapes.groups(probe_blocks(sequences), 0), warm_.lowering->memory_list(), backend_.get());
  }

  std::unique_ptr<Backend> backend_;
  WarmEngine warm_;
  uint32_t vocab_size_, depth_;
  LoweredStep lowered_;
};

struct Point {
  uint32_t num_rows = 0;
  std::vector<double> step_ms;  // of each run
  double idle_share = 0;        // of the fastest run

  double ms() const { return *std::ranges::min_element(step_ms); }
  double tok_s() const { return 1e3 * num_rows / ms(); }
};

Result<Point> measure(const Options& options, uint32_t num_rows, const Clock& clock, Stepper* stepper) {
  if (Result<double> warm = stepper->run(num_rows, kWarmUpSteps); !warm) return warm.error();
  Point point{num_rows, {}};
  for (uint32_t run = 0; run < options.repeats; ++run) {
    const TimeNs begin_ns = clock.now_ns();
    Result<double> device_ms = stepper->run(num_rows, options.steps);
    if (!device_ms) return device_ms.error();
    const double wall_ms = ms_between(begin_ns, clock.now_ns());
    point.step_ms.push_back(wall_ms / options.steps);
    if (point.step_ms.back() == point.ms()) point.idle_share = 1 - *device_ms / wall_ms;
  }
  return point;
}

// Percent of the total that the row more cost; not positive where it gained.
double fall(const Point& before, const Point& point) {
  return 100 * (1 - point.tok_s() / before.tok_s());
}

void print_points(const std::vector<Point>& points, double marked_fall) {
  const double most = std::ranges::max(points, {}, &Point::tok_s).tok_s();
  fmt::print("{:>5} {:>10} {:>9} {:>7} {:>8}\n", "rows", "tok/s", "ms", "idle %", "change %");
  for (size_t i = 0; i < points.size(); ++i) {
    const Point& point = points[i];
    const double fell = i ? fall(points[i - 1], point) : 0;
    fmt::print("{:>5} {:>10.1f} {:>9.3f} {:>7.1f} {:>8} |{}{}\n", point.num_rows, point.tok_s(), point.ms(),
               100 * point.idle_share, i ? fmt::format("{:+.1f}", -fell) : "",
               std::string(static_cast<size_t>(std::lround(kBarColumns * point.tok_s() / most)), '#'),
               fell > marked_fall ? "  <- falls" : "");
  }
}

RecordRow to_record(const Point& point, const Options& options, const std::string& device) {
  std::vector<double> tok_s;
  for (const double ms : point.step_ms) tok_s.push_back(1e3 * point.num_rows / ms);
  return {fmt::format("tg{}@{} x{}", options.steps, options.depth, point.num_rows),
          device,
          {{"tok_s", "tok/s", point.tok_s(), tok_s},
           {"ms", "ms", point.ms(), point.step_ms},
           {"idle_share", "", point.idle_share}},
          {{"n_rows", point.num_rows}, {"n_depth", options.depth}, {"n_gen", options.steps}}};
}

// The largest fall, in percent.
Result<double> sweep(const Options& options, const std::string& model, Stepper* stepper, TimeLeft* time_left,
                     Record* record) {
  const SteadyClock clock;
  const Caps& caps = stepper->caps();
  const std::string& device = caps.device_id;
  std::vector<Point> points;
  double largest = 0;
  for (uint32_t num_rows = 1; num_rows <= options.rows_max; ++num_rows) {
    time_left->begin(fmt::format("{} {} rows", device, num_rows));
    Result<Point> point = measure(options, num_rows, clock, stepper);
    if (!point) return point.error();
    record->add(to_record(*point, options, device));
    if (!points.empty()) largest = std::max(largest, fall(points.back(), *point));
    points.push_back(*std::move(point));
    time_left->done(1);
  }
  time_left->clear();
  constexpr double kMarkedFall = 3;
  fmt::print("{} {}, {}: best of {} x {} steps behind {} tokens\n", device, caps.device_name, model, options.repeats,
             options.steps, options.depth);
  print_points(points, options.fall_max > 0 ? options.fall_max : kMarkedFall);
  fmt::print("largest fall of the total by a row more: {:.1f} %\n\n", largest);
  return largest;
}

Status run(const Options& options) {
  Result<std::shared_ptr<const Model>> model = load_model(options.model);
  if (!model) return model.error();
  const Result<KvDType> kv_dtype = kv_dtype_of(options.kv_dtype);
  if (!kv_dtype) return kv_dtype.error();
  const EngineConfig config = config_of(options, *kv_dtype);
  if (config.context_max > (*model)->config.context_max)
    return make_error(ErrorCode::kInvalidArgument,
                      "--depth and --steps: expected at most the {} tokens of {}'s context, found {}",
                      (*model)->config.context_max, (*model)->path, config.context_max);
  boost::json::object work = model_work(**model, *kv_dtype);
  work["rows_max"] = options.rows_max;
  work["depth"] = options.depth;
  work["steps"] = options.steps;
  Result<Record> record = Record::create(
      "sweep", std::move(work),
      {{"model", (*model)->path}, {"repeats", options.repeats}, {"batch_invariant", options.batch_invariant}},
      options.json_path);
  if (!record) return record.error();
  TimeLeft time_left(static_cast<double>(options.devices.size()) * options.rows_max);
  double largest = 0;
  for (const std::string& name : options.devices) {
    Result<Stepper> stepper = Stepper::create(name, *model, config, options.depth);
    if (!stepper) return stepper.error();
    record->add_device(stepper->caps());
    Result<double> fell = sweep(options, (*model)->path, &*stepper, &time_left, &*record);
    if (!fell) return fell.error();
    largest = std::max(largest, *fell);
  }
  if (Status status = record->finish(); !status) return status;
  if (options.fall_max > 0 && largest > options.fall_max)
    return make_error(ErrorCode::kInvalidArgument, "a row more costs {:.1f} % of the total: expected at most {:g} %",
                      largest, options.fall_max);
  return {};
}

}  // namespace

void add_sweep_command(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "sweep", "Decode speed at every number of rows from 1 on: whether a user more ever costs the others speed");
  const auto number = [&](const char* name, uint32_t& value, uint32_t least, uint32_t most, const char* help) {
    command->add_option(name, value, help)->check(number_range(least, most))->capture_default_str();
  };
  command->add_option("-m,--model", options->model, "GGUF file or synthetic:<shape>:<encoding>")->capture_default_str();
  command->add_option("-d,--device", options->devices, "Devices, one after the other (repeat)")->capture_default_str();
  number("-r,--rows-max", options->rows_max, 1, 4096, "The last number of rows");
  number("--depth", options->depth, 1, 1u << 20, "Tokens that each row has in the KV cache");
  number("--steps", options->steps, 1, 10000, "Steps of a run");
  number("--repeats", options->repeats, 1, 10000, "Runs, of which the fastest counts");
  command->add_option("--kv", options->kv_dtype, fmt::format("KV cache dtype: {}", kKvDTypeNames))
      ->capture_default_str();
  command->add_flag("--batch-invariant", options->batch_invariant, "Kernels whose numbers do not depend on the batch");
  command
      ->add_option("--fall-max", options->fall_max,
                   "Exit code 1 when a row more costs more than so many percent of the total")
      ->check(number_range(0.0, 100.0));
  command->add_option("--json", options->json_path, "Also write the record of the run to this file");
  on_parsed(command, exit_code, [options] { return run(*options); });
}

}  // namespace llmrt::bench
