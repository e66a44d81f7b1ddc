#include <cstdio>

#include "tools/llmrt/program.h"

int main(int argc, char** argv) {
  using namespace llmrt::cli;
  CLI::App app{
      "llmrt serves language models on GPUs, through CUDA and Vulkan.\n"
      "\n"
      "A MODEL is a GGUF file, or synthetic:SHAPE:ENCODING for random weights of a known shape.\n"};
  app.footer(
      "First steps:\n"
      "  llmrt devices                        what this machine has, and what would be chosen\n"
      "  llmrt chat model.gguf                talk to a model\n"
      "  llmrt serve model.gguf               an OpenAI-compatible server on 127.0.0.1:8000\n"
      "  llmrt explain --memory model.gguf    how many sequences fit, and why\n"
      "\n"
      "Exit codes: 0 fine, 1 failed, 2 usage, 3 the model file is bad, 4 no device fits, 5 the device was lost,\n"
      "130 interrupted. NO_COLOR and a standard error that is no terminal turn bars into plain lines.\n"
      "llmrt COMMAND --help explains a command.");
  app.require_subcommand(1);
  app.set_version_flag("--version", "llmrt " LLMRT_VERSION);
  app.get_formatter()->column_width(38);
  app.failure_message([](const CLI::App* command, const CLI::Error& error) {
    return fmt::format("error: {}; {} --help explains\n", error.what(),
                       command->get_name().empty() ? "llmrt" : "llmrt COMMAND");
  });
  for (auto add : {add_devices, add_inspect, add_tokenize, add_complete, add_chat, add_serve, add_explain, add_trace,
                   add_synthesize, add_replay})
    add(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& error) {
    if (argc > 1 && argv[1][0] != '-' && app.get_subcommands().empty())
      fmt::print(stderr, "error: unknown command: {}: llmrt --help lists them\n", argv[1]);
    else
      app.exit(error);
    return kUsage;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kFine : kUsage;
  } catch (const Exit& exit) {
    std::fflush(stdout);
    return exit.code;
  } catch (const std::exception& error) {  // out of memory, most likely
    fmt::print(stderr, "error: {}\n", error.what());
    return kFailed;
  }
  return kFine;
}
