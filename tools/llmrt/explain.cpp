#include "tools/llmrt/explain_ops.h"

#include "core/engine/pool_sizing.h"
#include "core/study/compatibility.h"
#include "tools/llmrt/program.h"
#include "tools/number_range.h"

namespace llmrt::cli {
namespace {

struct Options {
  ModelOptions model;
  EngineOptions engine;
  ExplainOptions ops;
  bool memory = false, sharing = false;
};

void explain_memory(Options& options) {
  OpenModel open = open_model(options.model);
  const SteadyClock clock;
  options.engine.config.disk.is_opened = false;  // a server may have it open
  const std::unique_ptr<Engine> engine = open_engine(open, options.engine, &clock);
  fmt::print("{}", print(engine->memory_plan(), engine->config().context_max, options.engine.config.sequences_max));
  if (open.model->config.num_draft_layers > 0) fmt::print("\n{}\n", drafts_text(*open.model));
}

}  // namespace

void add_explain(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("explain", "Show what a step does, where the memory goes, or what may share a step");
  const auto options = std::make_shared<Options>();
  add_model_options(*command, options->model);
  CLI::Option* memory =
      command->add_flag("--memory", options->memory,
                        "show the terms of the KV pool's size, measured on the device, and how many sequences fit");
  CLI::Option* sharing =
      command->add_flag("--sharing", options->sharing,
                        "show what requests of one step may differ in, and what needs another engine; needs no MODEL");
  CLI::Option* model = command->get_option("model")->required(false);
  const char* group = "Steps (not with --memory or --sharing)";
  ExplainOptions& ops = options->ops;
  command->add_option("--tokens", ops.tokens, "tokens of each sequence in the step; one report for each number")
      ->delimiter(',')
      ->check(number_range(1u, 1u << 30).description(""))
      ->type_name("N,...")
      ->group(group);
  command->add_option("--positions", ops.context, "tokens that each sequence has in the KV cache already")
      ->capture_default_str()
      ->check(number_range(0u, 1u << 30).description(""))
      ->type_name("N")
      ->group(group);
  command->add_option("--decoding", ops.num_decoding, "other sequences in the step, which decode one token each")
      ->check(number_range(0u, 65536u).description(""))
      ->type_name("N")
      ->group(group);
  command
      ->add_option("--decoding-positions", ops.decoding_context,
                   "tokens that each of those has in the KV cache already")
      ->capture_default_str()
      ->check(number_range(0u, 1u << 30).description(""))
      ->type_name("N")
      ->group(group);
  command->add_flag("--every-op", ops.every_op, "print each op on its own line instead of sums by kind")->group(group);
  CLI::Option* program =
      command
          ->add_flag("--program", ops.program,
                     "print what the device runs: each launch with its kernel, then the patterns of ops that it could "
                     "run as one and does not, with the reason")
          ->group(group);
  command
      ->add_option("--read-gb-s", ops.read_gb_s,
                   "the device's measured read bandwidth in GB/s: shows which share of it an op reaches")
      ->check(number_range(0.0, 1e9).description(""))
      ->type_name("X")
      ->group(group);
  command->add_option("--tflop-s", ops.tflop_s, "the device's measured rate in TFLOP/s, for the same")
      ->check(number_range(0.0, 1e9).description(""))
      ->type_name("X")
      ->group(group);
  command->add_flag("--json", ops.json, "print JSON");
  memory->excludes(sharing);
  for (CLI::Option* report : {memory, sharing})
    for (const char* name : {"--tokens", "--positions", "--decoding", "--decoding-positions", "--every-op", "--program",
                             "--read-gb-s", "--tflop-s", "--json"})
      report->excludes(command->get_option(name));
  add_engine_options(*command, options->engine);
  CLI::Option* device = command->get_option("--device");
  program->needs(device);
  CLI::Option* sequences = command->get_option("--sequences");
  command->footer(
      "Without --device, ops are counted and not run. Examples:\n"
      "  llmrt explain model.gguf --tokens 1,512\n"
      "  llmrt explain model.gguf --tokens 1 --sequences 8 --device auto\n"
      "  llmrt explain model.gguf --tokens 256 --positions 4096 --decoding 32 --device auto\n"
      "  llmrt explain model.gguf --tokens 1 --device auto --program\n"
      "  llmrt explain --memory model.gguf --context 4096 --sequences 32\n"
      "  llmrt explain --sharing");
  command->callback([options, model, device, sequences] {
    if (options->sharing) {
      fmt::print("{}", print_compatibility());
      return;
    }
    if (model->count() == 0) throw CLI::RequiredError("--model");
    if (options->memory) return explain_memory(*options);
    OpenModel open = open_model(options->model);
    options->ops.engine = engine_config(options->engine);
    options->ops.num_sequences = sequences->count() ? options->engine.config.sequences_max : 1;
    if (device->count()) options->ops.device = options->engine.device;
    if (Status status = explain_ops(open.model, options->ops); !status) fail(status.error());
  });
}

}  // namespace llmrt::cli
