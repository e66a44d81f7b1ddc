#include "tools/llmrt/explain_ops.h"

#include "core/engine/pool_sizing.h"
#include "core/schedule/compatibility.h"
#include "tools/llmrt/program.h"

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
  const std::unique_ptr<Engine> engine = open_engine(open, options.engine, &clock, /*quiet=*/false);
  fmt::print("{}", print(engine->memory_plan(), engine->config().context_max, options.engine.config.sequences_max));
}

}  // namespace

void add_explain(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("explain", "Show what a step does, where the memory goes, or what may share a step");
  const auto options = std::make_shared<Options>();
  add_model_options(*command, options->model);
  command->add_flag("--memory", options->memory,
                    "the terms of the KV pool's size, measured on the device, and how many sequences fit");
  command->add_flag("--sharing", options->sharing,
                    "what requests may differ in and run in one step, and what needs another engine; of no MODEL");
  CLI::Option* model = command->get_option("model")->required(false);
  const char* group = "Steps";
  ExplainOptions& ops = options->ops;
  command->add_option("--tokens", ops.tokens, "tokens of each sequence in the step; one report each")
      ->delimiter(',')
      ->type_name("N,...")
      ->group(group);
  command->add_option("--positions", ops.context, "tokens already in the KV cache")
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  command->add_option("--decoding", ops.num_decoding, "sequences that decode one token beside those")
      ->type_name("N")
      ->group(group);
  command->add_option("--decoding-positions", ops.decoding_context, "their tokens already in the KV cache")
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  command->add_flag("--every-op", ops.every_op, "each op on its own line, instead of a sum by kind")->group(group);
  command->add_option("--read-gb-s", ops.read_gb_s, "the device's measured read bandwidth, for shares")
      ->type_name("X")
      ->group(group);
  command->add_option("--tflop-s", ops.tflop_s, "the device's measured rate, for shares")->type_name("X")->group(group);
  command->add_flag("--json", ops.json, "print JSON");
  add_engine_options(*command, options->engine);
  CLI::Option* device = command->get_option("--device");
  CLI::Option* sequences = command->get_option("--sequences");
  command->footer(
      "Without --device the ops are only counted. Examples:\n"
      "  llmrt explain model.gguf --tokens 1,512\n"
      "  llmrt explain model.gguf --tokens 1 --sequences 8 --device auto\n"
      "  llmrt explain model.gguf --tokens 256 --positions 4096 --decoding 32 --device auto\n"
      "  llmrt explain --memory model.gguf --context 4096 --sequences 32\n"
      "  llmrt explain --sharing");
  command->callback([options, model, device, sequences] {
    if (options->sharing) {
      fmt::print("{}", print_compatibility());
      return;
    }
    if (model->count() == 0) throw CLI::RequiredError("model");
    if (options->memory) return explain_memory(*options);
    OpenModel open = open_model(options->model);
    options->ops.engine = engine_config(options->engine);
    options->ops.num_sequences = sequences->count() ? options->engine.config.sequences_max : 1;
    if (device->count()) options->ops.device = options->engine.device;
    if (Status status = explain_ops(open.model, options->ops); !status) fail(status.error());
  });
}

}  // namespace llmrt::cli
