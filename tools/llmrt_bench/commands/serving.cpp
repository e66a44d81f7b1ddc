// llmrt-bench serving: the figures that show what the scheduler is worth, on an engine in process and a real device.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "backends/backends.h"
#include "tools/llmrt_bench/commands/commands.h"
#include "tools/llmrt_bench/serving/loaded_device.h"
#include "tools/llmrt_bench/serving/parts.h"
#include "tools/number_range.h"

namespace llmrt::bench {
namespace {

struct NamedPart {
  const char* name;
  Status (*run)(const Bench&);
};
constexpr NamedPart kParts[] = {
    {"batching", batching_part}, {"gap", gap_part},         {"prefix", prefix_part}, {"kv", kv_part},
    {"ablation", ablation_part}, {"classes", classes_part}, {"beats", beats_part},   {"grammar", grammar_part}};

struct Candidate {
  std::string id;
  LoadedDevice device;
  bool is_lost = false;
};

Result<Candidate> load(const ServingOptions& options, const std::string& name,
                       const std::shared_ptr<const Model>& model, const Clock& clock, Record* record, Report* report) {
  report->begin(name, "load");
  Result<std::unique_ptr<Backend>> backend = open_device(name);
  if (!backend) return backend.error();
  Candidate candidate{(*backend)->caps().device_id, {}};
  report->begin(candidate.id, "load");
  report->progress((*backend)->caps().device_name);
  Result<LoadedDevice> device = LoadedDevice::load(std::move(*backend), model, &clock);
  if (!device) return device.error();
  candidate.device = *std::move(device);
  const Caps& caps = candidate.device.caps();
  record->add_device(caps);
  report->add({"weights on the device", candidate.device.load_s(), "s",
               fmt::format("{}, {}; {:.2f} GB, KV in {}", caps.device_name, caps.tier,
                           static_cast<double>(model->weights.bytes()) * 1e-9, kv_dtype_name(options.kv_dtype))});
  return candidate;
}

constexpr std::pair<const char*, SchemaOptions::Spaces> kSpaces[] = {{"default", SchemaOptions::Spaces::kDefault},
                                                                     {"one", SchemaOptions::Spaces::kOneSpace},
                                                                     {"compact", SchemaOptions::Spaces::kCompact}};

const char* spaces_name(SchemaOptions::Spaces spaces) {
  const auto* found = std::ranges::find(kSpaces, spaces, &std::pair<const char*, SchemaOptions::Spaces>::second);
  return found->first;
}

std::string vocabulary_name(const ServingOptions& options, const Model& model) {
  if (!options.vocabulary_path.empty()) return std::filesystem::path(options.vocabulary_path).filename().string();
  return model.vocabulary ? "the model's" : "made up";
}

// All of a workload's numbers, of whatever parts.
boost::json::object work_of(const ServingOptions& options, const Model& model) {
  boost::json::object work = model_work(model, options.kv_dtype);
  const WorkloadSpec& batching = options.batching;
  work["parts"] = boost::json::value_from(options.parts);
  work["batching"] = {{"requests", batching.num_requests},
                      {"sequences", options.sequences},
                      {"prompt_min", batching.prompt_min},
                      {"prompt_max", batching.prompt_max},
                      {"output_mean", batching.output_mean},
                      {"output_max", batching.output_max},
                      {"seed", batching.seed}};
  work["gap"] = {{"streams", options.gap_streams},
                 {"prompt", options.gap_prompt},
                 {"settings", boost::json::value_from(options.gap_settings)}};
  work["prefix"] = {{"prompt", options.prefix_prompt}, {"share", options.prefix_share}};
  boost::json::array kv_dtypes;
  for (const KvDType dtype : options.kv_compared) kv_dtypes.push_back(kv_dtype_name(dtype));
  work["kv"] = {{"dtypes", std::move(kv_dtypes)},
                {"mib", options.kv_mib},
                {"rows", options.kv_rows},
                {"output", options.kv_output},
                {"contexts", boost::json::value_from(options.kv_contexts)}};
  work["classes"] = {{"rows", options.classes_rows},
                     {"prompt", options.classes_prompt},
                     {"output", options.classes_output},
                     {"chunk", options.classes_chunk}};
  if (std::ranges::find(options.parts, "beats") != options.parts.end())
    work["beats"] = {{"rows", options.beats_rows}, {"output", options.beats_output}};
  if (std::ranges::find(options.parts, "grammar") != options.parts.end())
    work["grammar"] = {{"rows", boost::json::value_from(options.grammar_rows)},
                       {"prompt", options.grammar_prompt},
                       {"output", options.grammar_output},
                       {"answers", options.grammar_answers},
                       {"spaces", spaces_name(options.grammar_spaces)},
                       {"vocabulary", vocabulary_name(options, model)}};
  work["ablation"] = {{"requests", options.ablation_requests}, {"sequences", options.ablation_sequences},
                      {"naive", options.ablation_naive},       {"reserving", options.ablation_reserving},
                      {"context", options.ablation_context},   {"pool_contexts", options.ablation_pool_contexts}};
  return work;
}

Status run(const ServingOptions& options) {
  for (const std::string& text : options.gap_settings)
    if (Result<Pacing> pacing = parse_pacing(text); !pacing) return pacing.error();
  if (options.batching.prompt_min > options.batching.prompt_max)
    return make_error(ErrorCode::kInvalidArgument, "--prompt-min: expected at most --prompt-max {}, found {}",
                      options.batching.prompt_max, options.batching.prompt_min);
  Result<std::shared_ptr<const Model>> model = load_model(options.model);
  if (!model) return model.error();
  SteadyClock clock;
  Result<Record> record = Record::create("serving", work_of(options, **model),
                                         {{"model", (*model)->path},
                                          {"budget_s", options.budget_s},
                                          {"prefix_repeats", options.prefix_repeats},
                                          {"classes_s", options.classes_s}},
                                         options.json_path);
  if (!record) return record.error();
  Report report(&*record, &clock, options.price_hour_usd);
  std::vector<Candidate> candidates;
  for (const std::string& name : options.devices) {
    Result<Candidate> candidate = load(options, name, *model, clock, &*record, &report);
    if (!candidate) {
      report.fail(candidate.error());
      continue;
    }
    candidates.push_back(*std::move(candidate));
  }
  for (const std::string& wanted : options.parts) {
    const NamedPart* part = std::ranges::find(kParts, wanted, &NamedPart::name);
    for (Candidate& candidate : candidates) {
      if (candidate.is_lost) continue;
      const LoadedDevice& device = candidate.device;
      const Bench bench{
          options,
          **model,
          device.caps(),
          clock,
          report,
          [&](const EngineConfig& config) { return device.make_engine(config); },
          [&](TimeNs then) { std::this_thread::sleep_for(std::chrono::nanoseconds(then - clock.now_ns())); }};
      report.begin(candidate.id, wanted);
      report.progress("begins");
      Status status = part->run(bench);
      if (status) status = device.free_pool();
      if (status) continue;
      report.fail(status.error());
      candidate.is_lost = status.error().code == ErrorCode::kDeviceLost;
    }
  }
  if (Status status = record->finish(); !status) return status;
  if (report.has_failed()) return make_error(ErrorCode::kInternal, "not all parts ran; see FAILED above");
  return {};
}

std::string is_kv_dtype(const std::string& name) {
  return parse_kv_dtype(name) ? "" : fmt::format("expected {}, found {}", kKvDTypeNames, name);
}

void add_options(CLI::App* command, ServingOptions* options) {
  const auto number = [&](const char* name, auto& value, uint32_t least, uint32_t most, const char* help) {
    command->add_option(name, value, help)->check(number_range(least, most))->capture_default_str();
  };
  std::vector<std::string> names;
  for (const NamedPart& part : kParts) names.push_back(part.name);
  command->add_option("-m,--model", options->model, "GGUF file or synthetic:<shape>:<encoding>")->capture_default_str();
  command->add_option("-d,--device", options->devices, "Devices, in turn in each part (repeat)")->capture_default_str();
  command->add_option("--parts", options->parts, "In this order")
      ->delimiter(',')
      ->check(CLI::IsMember(names))
      ->capture_default_str();
  command
      ->add_option_function<std::string>(
          "--kv", [options](const std::string& name) { options->kv_dtype = *parse_kv_dtype(name); },
          "KV cache dtype of all parts but kv [f16]")
      ->check(is_kv_dtype);
  command
      ->add_option("--budget-s", options->budget_s,
                   "Seconds of a part on a device, but of classes and grammar; what passes it is cut and says so")
      ->check(number_range(0.1, 1e6))
      ->capture_default_str();
  command->add_option("--json", options->json_path, "Also write the figures to this file, after each");
  command->add_option("--price-per-hour", options->price_hour_usd, "Of the machine, in USD: adds USD a million tokens")
      ->check(number_range(0.0, 1e6));
  number("--requests", options->batching.num_requests, 1, 1u << 16, "batching: requests, all at t = 0");
  number("--sequences", options->sequences, 1, 1024, "batching: rows of a batch");
  number("--prompt-min", options->batching.prompt_min, 1, 1u << 16, "batching: prompts, log-uniform");
  number("--prompt-max", options->batching.prompt_max, 1, 1u << 16, "");
  number("--output-mean", options->batching.output_mean, 1, 1u << 16, "batching: answers, geometric");
  number("--output-max", options->batching.output_max, 1, 1u << 16, "");
  command->add_option("--seed", options->batching.seed, "batching: of lengths and prompts")->capture_default_str();
  number("--gap-streams", options->gap_streams, 1, 1024, "gap: streams that decode");
  number("--gap-prompt", options->gap_prompt, 1, 1u << 20, "gap: tokens of the prompt that arrives");
  command
      ->add_option("--gap-settings", options->gap_settings,
                   "gap: beside unchunked; 512 = chunks of so many tokens, x2.5 = chunks within so many plain steps")
      ->delimiter(',')
      ->capture_default_str();
  number("--prefix-prompt", options->prefix_prompt, 1, 1u << 20, "prefix: tokens of a prompt");
  number("--prefix-repeats", options->prefix_repeats, 1, 100, "prefix: counted rounds, after a warm-up");
  command->add_option("--prefix-share", options->prefix_share, "prefix: of the prompt, shared with the one before")
      ->check(number_range(0.0, 0.999))
      ->capture_default_str();
  command
      ->add_option_function<std::vector<std::string>>(
          "--kv-dtypes",
          [options](const std::vector<std::string>& dtypes) {
            options->kv_compared.clear();
            for (const std::string& name : dtypes) options->kv_compared.push_back(*parse_kv_dtype(name));
          },
          "kv: compared with f16 [int8,fp8]")
      ->delimiter(',')
      ->check(is_kv_dtype);
  number("--kv-mib", options->kv_mib, 1, 1u << 20, "kv: bytes of the pool");
  number("--kv-rows", options->kv_rows, 1, 1024, "kv: rows that decode");
  number("--kv-output", options->kv_output, 4, 1u << 16, "kv: tokens that each row decodes");
  command->add_option("--kv-contexts", options->kv_contexts, "kv: prompt tokens of a row")
      ->delimiter(',')
      ->check(CLI::Range(1u, 1u << 20))
      ->capture_default_str();
  command
      ->add_option("--classes-s", options->classes_s,
                   "classes: seconds under twice the load that is served; the part takes 2.5 times as long and more")
      ->check(number_range(0.1, 1e6))
      ->capture_default_str();
  number("--classes-rows", options->classes_rows, 1, 1024, "classes: rows of a batch");
  number("--classes-prompt", options->classes_prompt, 8, 1u << 20, "classes: the longest prompt; log-uniform from 1/8");
  number("--classes-output", options->classes_output, 8, 1u << 20, "classes: the longest answer; log-uniform from 1/8");
  number("--classes-chunk", options->classes_chunk, 1, 1u << 20, "classes: tokens of prompts in a step that decodes");
  number("--beats-rows", options->beats_rows, 2, 1024, "beats: rows that decode, beside a lone one");
  number("--beats-output", options->beats_output, 16, 1u << 16, "beats: tokens that each row decodes");
  command->add_option("--grammar-rows", options->grammar_rows, "grammar: rows of a batch, each number on its own")
      ->delimiter(',')
      ->check(CLI::Range(1u, 1024u))
      ->capture_default_str();
  number("--grammar-prompt", options->grammar_prompt, 1, 1u << 20, "grammar: tokens of a prompt");
  number("--grammar-output", options->grammar_output, 2, 1u << 16, "grammar: tokens of an answer at most");
  number("--grammar-answers", options->grammar_answers, 2, 1000, "grammar: answers of each row in a round");
  number("--grammar-rounds", options->grammar_rounds, 1, 100, "grammar: rounds, each of both kinds; medians are told");
  std::vector<std::string> spaces;
  for (const auto& [name, value] : kSpaces) spaces.emplace_back(name);
  command
      ->add_option_function<std::string>(
          "--grammar-spaces",
          [options](const std::string& name) {
            for (const auto& [known, value] : kSpaces)
              if (name == known) options->grammar_spaces = value;
          },
          "grammar: white space in the JSON; default: as the server allows it, which random weights write a lot of; "
          "one: a space at most; compact: none [one]")
      ->check(CLI::IsMember(spaces));
  command->add_option("--vocabulary", options->vocabulary_path,
                      "grammar: GGUF file with the words that grammars are made over, weights or none (llama.cpp's "
                      "models/ggml-vocab-llama-bpe.gguf); default: the model's, made up for a synthetic model");
  number("--ablation-requests", options->ablation_requests, 1, 1u << 16, "ablation: requests, all at t = 0");
  number("--ablation-sequences", options->ablation_sequences, 1, 1024, "ablation: rows of a batch");
  number("--ablation-naive", options->ablation_naive, 1, 1u << 16, "ablation: of them, run one at a time");
  number("--ablation-reserving", options->ablation_reserving, 1, 1u << 16, "ablation: of them, with whole contexts");
  number("--ablation-context", options->ablation_context, 768, 1u << 20, "ablation: tokens of a context");
  number("--ablation-contexts", options->ablation_pool_contexts, 1, 1024, "ablation: contexts that the KV pool holds");
}

}  // namespace

void add_serving_command(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "serving",
      "What the scheduler is worth: gaps by chunk size, prefix cache, continuous against static batching, 8-bit "
      "KV, ablation; and, where asked for by --parts, classes under overload, beats: rows whose newest token the "
      "host needs, and grammar: rows that each follow a JSON schema of their own. Defaults, Llama 8B in f16 on an "
      "H200, "
      "estimated: CUDA 55 s, Vulkan 85 s, and loading");
  const auto options = std::make_shared<ServingOptions>();
  add_options(command, options.get());
  on_parsed(command, exit_code, [options] { return run(*options); });
}

}  // namespace llmrt::bench
