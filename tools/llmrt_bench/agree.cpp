// llmrt-bench agree: do backends give the same answers? Each device scores the same text (log-probability of every
// token, windows of 512) and writes greedy continuations; saved results of another machine join by --with.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backends/backends.h"
#include "core/base/sha256.h"
#include "core/engine/engine.h"
#include "core/text/tokenizer.h"
#include "tools/llmrt_bench/commands.h"
#include "tools/llmrt_bench/saved_record.h"

namespace llmrt::bench {
namespace {

struct Options {
  std::string model, text_path, json_path;
  std::vector<std::string> devices{"auto"}, saved;
  uint32_t window = 512, prompt_tokens = 32, output = 48, num_prompts = 8;
  std::string kv_dtype = "f16";
};

struct GreedyStep {
  int32_t token;
  float margin;
};

// What one device said.
struct Answers {
  Caps caps;
  std::vector<float> logprobs;                  // of the text's tokens, but the first of each window
  std::vector<std::vector<GreedyStep>> greedy;  // by prompt

  std::string device() const { return fmt::format("{} {}", caps.device_id, caps.device_name); }
  double nll() const {
    double sum = 0;
    for (float logprob : logprobs) sum -= logprob;
    return logprobs.empty() ? 0 : sum / static_cast<double>(logprobs.size());
  }
};

class AnswerSink final : public EventSink {
 public:
  void on_events(std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events) {
      if (event.is_prompt && event.has_logprob) logprobs.push_back(event.logprob);
      if (event.token >= 0 && !event.is_prompt) {
        const auto& top = event.top_logprobs;
        steps.push_back({event.token, top.size() > 1 ? top[0].logprob - top[1].logprob : 0.0f});
      }
      if (event.error) error = event.error;
      if (event.finish != FinishReason::kNone) finished = true;
    }
  }
  std::vector<float> logprobs;
  std::vector<GreedyStep> steps;
  std::optional<Error> error;
  bool finished = false;
};

Result<std::shared_ptr<AnswerSink>> finish(Engine* engine, Request request) {
  auto sink = std::make_shared<AnswerSink>();
  request.sink = sink;
  Result<RequestId> id = engine->submit(std::move(request));
  if (!id) return id.error();
  while (!sink->finished)
    if (Result<bool> worked = engine->tick(); !worked) return worked.error();
  engine->drained(*id);
  if (sink->error) return *sink->error;
  return sink;
}

Result<Answers> ask_device(const Options& options, KvDType kv_dtype, const std::string& device,
                           std::shared_ptr<const Model> model, std::shared_ptr<const Tokenizer> tokenizer,
                           std::span<const TokenId> text) {
  Result<std::unique_ptr<Backend>> backend = open_device(device);
  if (!backend) return backend.error();
  EngineConfig config;
  config.context_max = std::max(options.window, options.prompt_tokens + options.output) + 16;
  config.sequences_max = 4;
  config.kv_dtype = kv_dtype;
  config.prefix_cache = PrefixCacheKind::kOff;  // devices are compared in all that they compute
  SteadyClock clock;
  Answers answers;
  answers.caps = (*backend)->caps();
  Result<std::unique_ptr<Engine>> engine = Engine::create(config, model, tokenizer, std::move(*backend), &clock, {});
  if (!engine) return engine.error();
  for (size_t first = 0; first < text.size(); first += options.window) {
    const auto window = text.subspan(first, std::min<size_t>(options.window, text.size() - first));
    if (window.size() < 2) break;
    Request request;
    request.prompt.assign(window.begin(), window.end());
    request.max_tokens = 0;
    request.sampling.prompt_logprobs = true;
    request.sampling.logprobs = 0;
    auto sink = finish(engine->get(), std::move(request));
    if (!sink) return sink.error();
    answers.logprobs.insert(answers.logprobs.end(), (*sink)->logprobs.begin(), (*sink)->logprobs.end());
  }
  for (uint32_t i = 0; i < options.num_prompts; ++i) {
    const size_t first = i * (text.size() / (options.num_prompts + 1));
    if (first + options.prompt_tokens > text.size()) break;
    const auto prompt = text.subspan(first, options.prompt_tokens);
    Request request;
    request.prompt.assign(prompt.begin(), prompt.end());
    request.max_tokens = options.output;
    request.sampling.temperature = 0;
    request.sampling.logprobs = 2;
    request.stop.ignore_eos = true;
    auto sink = finish(engine->get(), std::move(request));
    if (!sink) return sink.error();
    answers.greedy.push_back((*sink)->steps);
  }
  return answers;
}

RecordRow to_row(const Answers& answers) {
  boost::json::array logprobs, greedy;
  for (float logprob : answers.logprobs) logprobs.push_back(logprob);
  for (const auto& steps : answers.greedy) {
    boost::json::array path;
    for (const GreedyStep& step : steps) path.push_back(boost::json::array{step.token, step.margin});
    greedy.push_back(std::move(path));
  }
  return {"answers",
          answers.caps.device_id,
          {{"nll", "nats", answers.nll()}},
          {{"logprobs", std::move(logprobs)}, {"greedy", std::move(greedy)}}};
}

// Other weights and KV dtypes may join, other tokens may not.
Status read_saved(const std::string& path, const boost::json::object& work, std::vector<Answers>* all) {
  const Result<SavedRecord> record = read_record(path);
  if (!record) return record.error();
  if (record->command != "agree")
    return make_error(ErrorCode::kInvalidArgument, "--with: {}: expected a record of agree, found one of {}", path,
                      record->command);
  for (const char* name : {"text_digest", "window", "prompts", "prompt", "output"})
    if (const auto* found = record->work.if_contains(name); !found || *found != work.at(name))
      return make_error(ErrorCode::kInvalidArgument, "--with: {}: {}: expected {}, found {}", path, name,
                        boost::json::serialize(work.at(name)), found ? boost::json::serialize(*found) : "none");
  try {
    for (const RecordRow& row : record->rows) {
      Answers answers;
      const auto device = std::ranges::find(record->devices, row.device, &Caps::device_id);
      if (device != record->devices.end()) answers.caps = *device;
      for (const auto& logprob : row.details.at("logprobs").as_array())
        answers.logprobs.push_back(logprob.to_number<float>());
      for (const auto& path_value : row.details.at("greedy").as_array()) {
        auto& steps = answers.greedy.emplace_back();
        for (const auto& step : path_value.as_array())
          steps.push_back({step.at(0).to_number<int32_t>(), step.at(1).to_number<float>()});
      }
      all->push_back(std::move(answers));
    }
  } catch (const std::exception& error) {
    return make_error(ErrorCode::kCorruptFile, "--with: {}: {}", path, error.what());
  }
  return {};
}

void print_pair(const Answers& a, const Answers& b) {
  double max_diff = 0, sum_diff = 0;
  const size_t common = std::min(a.logprobs.size(), b.logprobs.size());
  for (size_t i = 0; i < common; ++i) {
    const double diff = std::fabs(a.logprobs[i] - b.logprobs[i]);
    max_diff = std::max(max_diff, diff);
    sum_diff += diff;
  }
  int num_different = 0;
  float worst_margin = 0;
  std::string divergences;
  for (size_t p = 0; p < std::min(a.greedy.size(), b.greedy.size()); ++p) {
    for (size_t s = 0; s < std::min(a.greedy[p].size(), b.greedy[p].size()); ++s) {
      if (a.greedy[p][s].token == b.greedy[p][s].token) continue;
      const float margin = std::min(a.greedy[p][s].margin, b.greedy[p][s].margin);
      ++num_different;
      worst_margin = std::max(worst_margin, margin);
      divergences += fmt::format(" prompt {} step {} margin {:.4f};", p, s, margin);
      break;
    }
  }
  fmt::print("{} against {}\n", a.device(), b.device());
  fmt::print("  log-probabilities of {} tokens: mean difference {:.5f}, largest {:.5f}; mean NLL {:.5f} and {:.5f}\n",
             common, common ? sum_diff / static_cast<double>(common) : 0, max_diff, a.nll(), b.nll());
  fmt::print("  greedy: {} of {} paths differ, worst margin {:.4f}{}\n", num_different,
             std::min(a.greedy.size(), b.greedy.size()), worst_margin, divergences);
}

Status run(const Options& options) {
  const Result<KvDType> kv = kv_dtype_of(options.kv_dtype);
  if (!kv) return kv.error();
  Result<std::shared_ptr<const Model>> model = load_model(options.model);
  if (!model) return model.error();
  if (!(*model)->vocabulary)
    return make_error(ErrorCode::kUnsupported, "{}: a synthetic model has no tokenizer; agree needs a text",
                      options.model);
  Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::create(*(*model)->vocabulary);
  if (!tokenizer) return tokenizer.error();
  const Result<std::string> text = read_text(options.text_path);
  if (!text) return text.error();
  const std::vector<TokenId> tokens = (*tokenizer)->encode(*text);
  std::shared_ptr<const Tokenizer> shared_tokenizer = std::move(*tokenizer);
  boost::json::object work = model_work(**model, *kv);
  work["text_digest"] = to_hex(Sha256().add_all(std::span<const TokenId>(tokens)).finish());
  work["window"] = options.window;
  work["prompts"] = options.num_prompts;
  work["prompt"] = options.prompt_tokens;
  work["output"] = options.output;
  Result<Record> record =
      Record::create("agree", work, {{"model", options.model}, {"text", options.text_path}}, options.json_path);
  if (!record) return record.error();
  std::vector<Answers> all;
  for (const std::string& device : options.devices) {
    Result<Answers> answers = ask_device(options, *kv, device, *model, shared_tokenizer, tokens);
    if (!answers) return answers.error();
    fmt::print("{}: mean NLL {:.5f} over {} tokens\n", answers->device(), answers->nll(), answers->logprobs.size());
    record->add_device(answers->caps);
    record->add(to_row(*answers));
    all.push_back(std::move(*answers));
  }
  for (const std::string& path : options.saved)
    if (Status status = read_saved(path, work, &all); !status) return status.error();
  for (size_t a = 0; a < all.size(); ++a)
    for (size_t b = a + 1; b < all.size(); ++b) print_pair(all[a], all[b]);
  return record->finish();
}

}  // namespace

void add_agree_command(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("agree", "Compare the answers of devices: log-probabilities, NLL, greedy paths");
  command->add_option("-m,--model", options->model, "GGUF file")->required();
  command->add_option("-t,--text", options->text_path, "Text file to score")->required();
  command->add_option("-d,--device", options->devices, "Devices to compare (repeat)")->capture_default_str();
  command->add_option("--with", options->saved, "Saved results (--json) of other machines, of the same work, to join");
  command->add_option("--window", options->window, "Tokens of a window")->capture_default_str();
  command->add_option("--prompts", options->num_prompts, "Greedy continuations")->capture_default_str();
  command->add_option("-n,--output", options->output, "Tokens of each continuation")->capture_default_str();
  command->add_option("--kv", options->kv_dtype, fmt::format("KV cache dtype: {}", kKvDTypeNames))
      ->capture_default_str();
  command->add_option("--json", options->json_path, "Save the results for --with");
  on_parsed(command, exit_code, [options] { return run(*options); });
}

}  // namespace llmrt::bench
