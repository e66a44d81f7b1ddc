#include "core/model/synthetic.h"
#include "tools/llmrt/program.h"
#include "tools/llmrt/progress.h"

namespace llmrt::cli {

void add_synthesize(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("synthesize", "Write a model of a known shape with random weights to a GGUF file");
  struct Options {
    std::string shape, encoding, file;
  };
  const auto options = std::make_shared<Options>();
  command->add_option("shape", options->shape, fmt::format("{}", fmt::join(synthetic_shapes(), ", ")))
      ->required()
      ->type_name("SHAPE");
  command->add_option("encoding", options->encoding, "f32, f16, bf16, q4_0, q8_0, q4_k, ...")
      ->required()
      ->type_name("ENCODING");
  command->add_option("file", options->file)->required()->type_name("FILE");
  command->footer(
      "For speed and start-up tests: its answers mean nothing. Example:\n"
      "  llmrt synthesize llama-3.1-8b q4_k /tmp/8b.gguf");
  command->callback([options] {
    ProgressBar bar("writing " + options->file, /*quiet=*/false);
    const Status status = write_synthetic_gguf(options->shape, options->encoding, options->file,
                                               [&bar](uint64_t done, uint64_t total) { bar.update(done, total); });
    if (!status) fail(status.error(), status.error().code == ErrorCode::kIo ? kFailed : kUsage);
    bar.finish();
  });
}

}  // namespace llmrt::cli
