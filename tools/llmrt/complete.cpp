#include "server/api_answer.h"
#include "server/api_request.h"
#include "tools/llmrt/generate.h"
#include "tools/llmrt/screen_text.h"
#include "tools/number_range.h"

#include <random>

#include <unistd.h>

namespace llmrt::cli {
namespace {

constexpr uint32_t kMaxTokensDefault = 128;

struct Options {
  ModelOptions model;
  EngineOptions engine;
  SamplingOptions sampling;
  std::string prompt, file, sample_trace;
  std::vector<int32_t> ids;
  bool has_prompt = false, json = false, verbose = false;
};

// An argument, a file, or what is piped in.
std::string prompt_of(const Options& options) {
  if (options.has_prompt) return checked_text(options.prompt, "prompt");
  if (!options.file.empty()) return read_text(options.file);
  if (!has_piped_input())
    fail(kUsage, "prompt: expected a text to continue (as an argument, with --file, or piped in), found nothing");
  return read_text("-");
}

void complete(const Options& options) {
  catch_interrupts();
  OpenModel open = open_model(options.model);
  boost::json::object body;
  write_fields(options.sampling, body);
  if (options.sampling.max_tokens == 0) body["max_tokens"] = kMaxTokensDefault;
  body["return_token_ids"] = true;
  if (!options.ids.empty())
    body["prompt"] = boost::json::array(options.ids.begin(), options.ids.end());
  else
    body["prompt"] = prompt_of(options);
  const auto parse = [&] {
    auto parsed = server::parse_completion(body, open.served, std::random_device{}());
    if (const auto* error = std::get_if<server::ApiError>(&parsed)) fail(kUsage, error->message);
    return std::move(std::get<server::ApiRequest>(parsed));
  };
  check_writable(options.sample_trace, "--sample-trace");
  parse();  // what is wrong with it is told before weights are loaded
  const SteadyClock clock;
  const bool is_quiet = options.json || !options.verbose;
  const std::unique_ptr<Engine> engine =
      open_engine(open, options.engine, &clock, is_quiet ? silent_log().get() : nullptr);
  put_adapter(open.served, &body);
  server::ApiRequest request = parse();  // the engine's context may be the shorter one

  const bool stream = !options.json, to_screen = isatty(STDOUT_FILENO) == 1;
  AnswerText screen(0);  // what steers a terminal stays out of it
  const std::shared_ptr<TraceWriter> trace = open_trace(options.sample_trace, *engine);
  Result<Answer> answer = generate(
      *engine, open.served, std::move(request),
      [&](const std::string& text) {
        if (!stream) return;
        fmt::print("{}", to_screen ? screen.push(text) : text);
        std::fflush(stdout);
      },
      trace.get());
  if (trace)
    if (Status status = trace->flush(); !status) fail(status.error());
  if (!answer) fail(answer.error());
  if (options.json) {
    fmt::print("{}\n", boost::json::serialize(boost::json::object{
                           {"text", answer->text},
                           {"token_ids", boost::json::array(answer->token_ids.begin(), answer->token_ids.end())},
                           {"finish_reason", finish_reason_name(answer->finish)},
                           {"prompt_tokens", answer->num_prompt_tokens},
                           {"completion_tokens", answer->num_generated},
                           {"first_token_s", answer->first_token_s},
                           {"all_s", answer->all_s},
                           {"start_ns",
                            {{"begun", open.times.begun_ns},
                             {"model", open.times.model_ns},
                             {"device", open.times.device_ns},
                             {"weights", open.times.weights_ns},
                             {"engine", open.times.engine_ns},
                             {"first_token", answer->first_token_ns}}},
                           {"first_token_device_ms", answer->first_token_device_ms}}));
  } else if (open.served.tokenizer) {
    fmt::print("\n");
  } else {
    fmt::print("{}\n", fmt::join(answer->token_ids, ","));
  }
  std::fflush(stdout);
  tell_cut(*answer);
  if (options.verbose) fmt::print(stderr, "{}\n", speed_text(*answer));
  if (answer->was_interrupted) throw Exit{kInterrupted};
}

}  // namespace

void add_complete(CLI::App& app) {
  CLI::App* command = app.add_subcommand("complete", "Continue a text, without a chat's turns");
  const auto options = std::make_shared<Options>();
  add_model_options(*command, options->model);
  CLI::Option* prompt = command
                            ->add_option("--prompt,prompt", options->prompt,
                                         "text to continue; without it, --file or --ids: what is piped in")
                            ->type_name("TEXT");
  CLI::Option* file = command->add_option("--file", options->file, "read the text from a file, - for standard input")
                          ->type_name("PATH")
                          ->excludes(prompt);
  command->add_option("--ids", options->ids, "token ids to continue")
      ->delimiter(',')
      ->check(any_number<int32_t>())
      ->type_name("ID,...")
      ->excludes(prompt)
      ->excludes(file);
  command->add_flag("--json", options->json,
                    "print one JSON object at the end, with the times (CLOCK_MONOTONIC) at which each part of the "
                    "start ended");
  command
      ->add_option("--sample-trace", options->sample_trace,
                   "write how each token was drawn, as JSON lines; llmrt replay draws them again")
      ->type_name("FILE");
  command->add_flag("-v,--verbose", options->verbose, "also print device, memory and speed");
  add_sampling_options(*command, options->sampling, fmt::to_string(kMaxTokensDefault));
  options->engine.config.sequences_max = 1;  // unless asked for: pools and row state are sized by it
  add_engine_options(*command, options->engine);
  add_adapter_option(*command, options->engine);
  move_rare_options(*command);
  command->footer(
      "Special tokens in the text, such as <|im_end|>, are read as such. Examples:\n"
      "  llmrt complete model.gguf 'The capital of France is' --max-tokens 16\n"
      "  printf 'The capital of France is' | llmrt complete model.gguf");
  command->callback([options, prompt] {
    options->has_prompt = prompt->count() > 0;
    complete(*options);
  });
}

}  // namespace llmrt::cli
