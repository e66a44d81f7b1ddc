#include <cstdio>

#include "tools/llmrt/help.h"
#include "tools/llmrt/hints.h"
#include "tools/llmrt/program.h"

namespace {

constexpr const char* kFirstSteps =
    "llmrt runs language models on GPUs, through CUDA and Vulkan. Three commands to begin with:\n"
    "\n"
    "  llmrt devices            list the devices of this machine\n"
    "  llmrt chat model.gguf    talk to a model\n"
    "  llmrt serve model.gguf   serve it over HTTP, as OpenAI's API does\n"
    "\n"
    "model.gguf is a model file that you have downloaded. llmrt --help lists all commands, llmrt COMMAND --help "
    "explains "
    "one.";

}  // namespace

int main(int argc, char** argv) {
  using namespace llmrt::cli;
  if (argc < 2) {
    fmt::print(stderr, "{}", help_paragraphs(kFirstSteps, help_width()));
    return kUsage;
  }
  CLI::App app{
      "llmrt serves language models on GPUs, through CUDA and Vulkan.\n"
      "\n"
      "A MODEL is a GGUF file, a Hugging Face folder with safetensors, or synthetic:SHAPE:ENCODING for random weights\n"
      "of a known shape.",
      "llmrt"};
  app.footer(
      "First steps:\n"
      "  llmrt devices                        list devices, and which one would be used\n"
      "  llmrt chat model.gguf                talk to a model\n"
      "  llmrt serve model.gguf               OpenAI's API on 127.0.0.1:8000\n"
      "  llmrt explain --memory model.gguf    how many sequences fit, and why\n"
      "\n"
      "Exit codes: 0 fine, 1 failed, 2 usage (llmrt without a command, too), 3 the model file is bad, 4 no device "
      "fits, "
      "5 the device was lost, 130 interrupted. With NO_COLOR, or when standard error is no terminal, progress bars are "
      "plain lines.\n"
      "llmrt COMMAND --help explains a command, llmrt --help-all all of them.");
  app.require_subcommand(1);
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_help_flag("-h,--help", "show this help");
  app.set_help_all_flag("--help-all", "show this help with all options");
  app.set_version_flag("--version", "llmrt " LLMRT_VERSION, "show the version");
  for (auto add : {add_devices, add_list, add_inspect, add_tokenize, add_complete, add_chat, add_serve, add_batch,
                   add_ps, add_stop, add_drain, add_explain, add_trace, add_synthesize, add_replay})
    add(app);
  try {
    std::vector<std::string> arguments = understood(app, {argv + 1, argv + argc});
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    app.parse(std::move(arguments));
  } catch (const CLI::Success& wish) {
    return app.exit(wish);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "error: {}; {} --help explains\n", plain_error(app, error), command_of(app));
    return kUsage;
  } catch (const Exit& exit) {
    std::fflush(stdout);
    return exit.code;
  } catch (const std::exception& error) {  // out of memory, most likely
    fmt::print(stderr, "error: {}\n", error.what());
    return kFailed;
  }
  return kFine;
}
