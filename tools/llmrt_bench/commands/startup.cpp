// llmrt-bench startup: from exec of the program to its first token, by parts, with and without the caches of compiled
// kernels that earlier starts left.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "backends/backends.h"
#include "tools/llmrt_bench/commands/child_process.h"
#include "tools/llmrt_bench/commands/commands.h"
#include "tools/llmrt_bench/record/record.h"
#include "tools/llmrt_bench/record/stats.h"
#include "tools/llmrt_bench/record/time_left.h"
#include "tools/number_range.h"

namespace llmrt::bench {
namespace {

namespace json = boost::json;

struct Options {
  std::string model, program, json_path;
  std::vector<std::string> devices{"auto"}, caches{"cold", "warm"};
  uint32_t prompt = 32, repeats = 5;
  double timeout_s = 600;
};

// In the order in which they pass.
constexpr const char* kParts[] = {
    "process",      // exec, libraries, options
    "model",        // the file, tokenizer, chat template
    "device",       // driver and device
    "weights",      // to the device
    "engine",       // state, KV pool and, on a GPU, the step that sizes it
    "first_host",   // of the first token's steps: kernels compiled, commands recorded, the host's work
    "first_device"  // of the same steps: on the device
};
constexpr size_t kNumParts = std::size(kParts);
using PartTimes = std::array<double, kNumParts>;  // ms

// Where drivers and llmrt keep compiled kernels, all in one new folder that goes with this.
class EmptyCaches {
 public:
  static Result<std::unique_ptr<EmptyCaches>> create() {
    std::string pattern = (std::filesystem::temp_directory_path() / "llmrt-startup-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
      return make_error(ErrorCode::kIo, "{}: expected a folder that can be made, found none", pattern);
    return std::unique_ptr<EmptyCaches>(new EmptyCaches(pattern));
  }
  ~EmptyCaches() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::vector<std::string> environment() const {
    std::vector<std::string> all;
    for (const char* name :
         {"XDG_CACHE_HOME", "MESA_SHADER_CACHE_DIR", "__GL_SHADER_DISK_CACHE_PATH", "CUDA_CACHE_PATH"})
      all.push_back(fmt::format("{}={}", name, folder_));
    return all;
  }

 private:
  explicit EmptyCaches(std::string folder) : folder_(std::move(folder)) {}
  std::string folder_;
};

// Of the JSON that `llmrt complete` ends with.
Result<PartTimes> part_times(const ChildOutput& output) {
  try {
    const json::value root = json::parse(output.text);
    const auto at_ns = [&](const char* name) { return root.at("start_ns").at(name).to_number<TimeNs>(); };
    const TimeNs engine_ns = at_ns("engine");
    const double device_ms = root.at("first_token_device_ms").to_number<double>();
    PartTimes parts{};
    TimeNs before_ns = output.begun_ns;
    size_t part = 0;
    for (const char* name : {"begun", "model", "device", "weights", "engine"}) {
      const TimeNs now_ns = at_ns(name);
      parts[part++] = ms_between(before_ns, now_ns);
      before_ns = now_ns;
    }
    parts[part++] = ms_between(engine_ns, at_ns("first_token")) - device_ms;
    parts[part++] = device_ms;
    return parts;
  } catch (const std::exception& error) {
    return make_error(ErrorCode::kInternal, "llmrt complete: expected JSON with start_ns, found: {} in {}",
                      error.what(), output.text.substr(0, 200));
  }
}

Result<PartTimes> start_once(const Options& options, const std::string& device, bool is_cold) {
  std::vector<uint32_t> ids;
  for (uint32_t i = 0; i < options.prompt; ++i) ids.push_back(1 + i % 256);
  const std::vector<std::string> arguments{
      options.program, "complete", options.model, "--ids",         fmt::format("{}", fmt::join(ids, ",")),
      "--device",      device,     "--json",      "--temperature", "0",
      "--max-tokens",  "1"};
  std::vector<std::string> environment;
  std::unique_ptr<EmptyCaches> caches;
  if (is_cold) {
    Result<std::unique_ptr<EmptyCaches>> made = EmptyCaches::create();
    if (!made) return made.error();
    caches = std::move(*made);
    environment = caches->environment();
  }
  const Result<ChildOutput> output = run_child(arguments, environment, options.timeout_s);
  if (!output) return output.error();
  return part_times(*output);
}

// What one kind of start took, by run.
struct Starts {
  std::string device;
  bool is_cold = false;
  std::vector<double> total_ms;
  std::array<std::vector<double>, kNumParts> parts_ms;
  Status status;

  void add(const PartTimes& times) {
    double sum = 0;
    for (size_t part = 0; part < kNumParts; ++part) {
      parts_ms[part].push_back(times[part]);
      sum += times[part];
    }
    total_ms.push_back(sum);
  }
  RecordRow row() const {
    RecordRow out{is_cold ? "cold" : "warm", device, {median_value("total", "ms", total_ms)}};
    for (size_t part = 0; part < kNumParts; ++part)
      out.values.push_back(median_value(kParts[part], "ms", parts_ms[part]));
    return out;
  }
  void print() const {
    const auto [least, most] = std::ranges::minmax(total_ms);
    fmt::print("| {:<8} | {:<6} | {:>9.1f} | {:>19} |", device, is_cold ? "cold" : "warm", median(total_ms),
               fmt::format("{:.1f} - {:.1f}", least, most));
    for (const std::vector<double>& part : parts_ms) fmt::print(" {:>12.1f} |", median(part));
    fmt::print("\n");
  }
};

Result<std::vector<Caps>> find_devices(const std::vector<std::string>& names) {
  const std::vector<DeviceInfo> all = list_devices();
  std::vector<Caps> found;
  for (const std::string& name : names) {
    const auto it = std::ranges::find_if(
        all, [&](const DeviceInfo& info) { return info.usable && (name == "auto" || info.id == name); });
    if (it == all.end())
      return make_error(ErrorCode::kNotFound,
                        "--device: expected auto or a device that llmrt devices calls usable, found {}", name);
    Caps& caps = found.emplace_back();
    caps.device_id = it->id;
    caps.device_name = it->name;
    caps.driver = it->driver;
    caps.tier = it->tier;
    caps.is_cpu = it->is_cpu;
    caps.memory_bytes = it->memory_bytes;
    caps.memory_free_bytes = it->memory_free_bytes;
  }
  return found;
}

Status run(Options options) {
  std::error_code failure;
  if (options.program.empty())
    options.program = std::filesystem::read_symlink("/proc/self/exe", failure).replace_filename("llmrt").string();
  Result<std::shared_ptr<const Model>> model = load_model(options.model);
  if (!model) return model.error();
  const Result<std::vector<Caps>> devices = find_devices(options.devices);
  if (!devices) return devices.error();
  json::object work = model_work(**model);
  work["prompt"] = options.prompt;
  work["caches"] = json::value_from(options.caches);
  Result<Record> record = Record::create(
      "startup", std::move(work),
      {{"model", options.model}, {"program", options.program}, {"repeats", options.repeats}}, options.json_path);
  if (!record) return record.error();
  std::vector<Starts> all;
  for (const Caps& caps : *devices) {
    record->add_device(caps);
    for (const std::string& caches : options.caches) all.push_back({caps.device_id, caches == "cold", {}, {}, {}});
  }
  // The first round warms up: it fills the warm starts' caches and the system's memory of the model's file.
  TimeLeft time_left(static_cast<double>(all.size() * (options.repeats + 1)));
  for (uint32_t repeat = 0; repeat <= options.repeats; ++repeat) {
    for (Starts& starts : all) {
      time_left.begin(fmt::format("{} {} {}", starts.device, starts.is_cold ? "cold" : "warm",
                                  repeat ? fmt::format("start {} of {}", repeat, options.repeats) : "warm-up"));
      if (starts.status) {
        const Result<PartTimes> times = start_once(options, starts.device, starts.is_cold);
        if (!times)
          starts.status = times.error();
        else if (repeat > 0)
          starts.add(*times);
      }
      time_left.done(1);
    }
  }
  time_left.clear();
  fmt::print("| {:<8} | {:<6} | {:>9} | {:>19} |", "device", "caches", "total ms", "min - max");
  for (const char* part : kParts) fmt::print(" {:>12} |", part);
  fmt::print("\n|----------|--------|----------:|--------------------:|");
  for (size_t part = 0; part < kNumParts; ++part) fmt::print("-------------:|");
  fmt::print("\n");
  bool has_failed = false;
  for (const Starts& starts : all) {
    if (starts.status) {
      starts.print();
      record->add(starts.row());
      continue;
    }
    has_failed = true;
    fmt::print(stderr, "{} FAILED: {}\n", starts.device, starts.status.error().message);
    record->miss(starts.is_cold ? "cold" : "warm", starts.device, starts.status.error().message);
  }
  if (Status status = record->finish(); !status) return status;
  if (has_failed) return make_error(ErrorCode::kInternal, "not all starts went well; see FAILED above");
  return {};
}

}  // namespace

void add_startup_command(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "startup", "From exec of llmrt to the first token, by parts, with cold and warm kernel caches");
  command->add_option("-m,--model", options->model, "GGUF file or synthetic:<shape>:<encoding>")->required();
  command->add_option("-d,--device", options->devices, "Devices to compare (repeat)")->capture_default_str();
  command
      ->add_option("--caches", options->caches,
                   "cold: folders of compiled kernels are empty; warm: as the start before left them")
      ->delimiter(',')
      ->check(CLI::IsMember({"cold", "warm"}))
      ->capture_default_str();
  command->add_option("-p,--prompt", options->prompt, "Tokens of the prompt")
      ->check(CLI::Range(1u, 1u << 16))
      ->capture_default_str();
  command->add_option("--repeats", options->repeats, "Counted starts of each kind, after one warm-up")
      ->check(CLI::Range(1u, 1000u))
      ->capture_default_str();
  command->add_option("--program", options->program, "The llmrt to start; default: the one beside this program");
  command->add_option("--timeout-s", options->timeout_s, "Of one start")
      ->check(number_range(0.1, 1e5))
      ->capture_default_str();
  command->add_option("--json", options->json_path, "Also write the record of the run to this file");
  command->footer(
      "Parts: process (exec, libraries, options), model (file, tokenizer), device (driver), weights (to the device), "
      "engine (state, KV pool and, on a GPU, the step that sizes it), then of the first token's steps first_host "
      "(kernels compiled, commands recorded) and first_device (what a driver compiles only now, too). The model's file "
      "is in the system's memory.");
  on_parsed(command, exit_code, [options] { return run(*options); });
}

}  // namespace llmrt::bench
