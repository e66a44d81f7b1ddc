// llmrt-bench agree: do backends give the same answers? Each device scores the same text (log-probability of every
// token, windows of 512) and writes greedy continuations; answers that other machines saved are joined.
#include <fmt/format.h>

#include <algorithm>

#include "backends/backends.h"
#include "core/base/sha256.h"
#include "core/engine/engine.h"
#include "core/text/tokenizer.h"
#include "tools/llmrt_bench/agree/agreement.h"
#include "tools/llmrt_bench/commands/commands.h"
#include "tools/llmrt_bench/kv/kv_run.h"
#include "tools/llmrt_bench/record/time_left.h"

namespace llmrt::bench {
namespace {

constexpr uint32_t kTopMax = 20;
// A step that decodes one token takes about as long as that many tokens of a prompt; for the time left only.
constexpr double kDecodedWeight = 8;

struct Options {
  std::vector<std::string> records;  // saved answers alone; else a model on devices
  std::string model, text_path, json_path, logits_dtype;
  std::vector<std::string> devices{"auto"}, saved;
  uint32_t window = 512, prompt_tokens = 32, output = 48, num_prompts = 8;
  uint32_t tokens_max = 0;  // of the text; 0 = all
  uint32_t top = kTopMax;
  std::string kv_dtype = "f16";
  bool any_weights = false;
};

// What the devices are asked.
struct Work {
  const Options& options;
  KvDType kv_dtype;
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<TokenId> text;

  // Each has a token to score.
  std::vector<std::span<const TokenId>> windows() const {
    std::vector<std::span<const TokenId>> all;
    for (size_t first = 0; first + 1 < text.size(); first += options.window)
      all.push_back(std::span(text).subspan(first, std::min<size_t>(options.window, text.size() - first)));
    return all;
  }
  double weight() const {
    const double scored = static_cast<double>(text.size()) * (options.logits_dtype.empty() ? 1 : 2);
    return scored + options.num_prompts * (options.prompt_tokens + kDecodedWeight * options.output);
  }
};

class AnswerSink final : public EventSink {
 public:
  explicit AnswerSink(Answers* answers) : answers_(answers) {}
  void on_events(std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events) {
      const auto& top = event.top_logprobs;
      if (event.is_prompt && event.has_logprob) {
        answers_->tokens.push_back(event.token);
        answers_->logprobs.push_back(event.logprob);
        if (!top.empty()) answers_->top.push_back(top);
      }
      if (event.token >= 0 && !event.is_prompt)
        answers_->greedy.back().push_back({event.token, top.size() > 1 ? top[0].logprob - top[1].logprob : 0.0f});
      if (event.error) error = event.error;
      if (event.finish != FinishReason::kNone) finished = true;
    }
  }
  std::optional<Error> error;
  bool finished = false;

 private:
  Answers* answers_;
};

Status finish(Engine* engine, Request request, Answers* answers) {
  auto sink = std::make_shared<AnswerSink>(answers);
  request.sink = sink;
  Result<RequestId> id = engine->submit(std::move(request));
  if (!id) return id.error();
  while (!sink->finished)
    if (Result<bool> worked = engine->tick(); !worked) return worked.error();
  engine->drained(*id);
  if (sink->error) return *sink->error;
  return {};
}

Status score_text(Engine* engine, const Work& work, TimeLeft* left, Answers* answers) {
  for (const auto window : work.windows()) {
    left->begin(answers->name + ": text");
    Request request;
    request.prompt.assign(window.begin(), window.end());
    request.max_tokens = 0;
    request.sampling.prompt_logprobs = true;
    request.sampling.logprobs = static_cast<int32_t>(work.options.top);
    if (Status status = finish(engine, std::move(request), answers); !status) return status;
    left->done(static_cast<double>(window.size()));
  }
  return {};
}

Status continue_prompts(Engine* engine, const Work& work, TimeLeft* left, Answers* answers) {
  const Options& options = work.options;
  for (uint32_t i = 0; i < options.num_prompts; ++i) {
    const size_t first = i * (work.text.size() / (options.num_prompts + 1));
    if (first + options.prompt_tokens > work.text.size()) break;
    left->begin(answers->name + ": greedy continuations");
    const auto prompt = std::span(work.text).subspan(first, options.prompt_tokens);
    Request request;
    request.prompt.assign(prompt.begin(), prompt.end());
    request.max_tokens = options.output;
    request.sampling.temperature = 0;
    request.sampling.logprobs = 2;
    request.stop.ignore_eos = true;
    answers->greedy.emplace_back();
    if (Status status = finish(engine, std::move(request), answers); !status) return status;
    left->done(options.prompt_tokens + kDecodedWeight * options.output);
  }
  return {};
}

Result<Answers> ask_device(const Work& work, std::unique_ptr<Backend> backend, TimeLeft* left) {
  const Options& options = work.options;
  EngineConfig config;
  config.context_max = std::max(options.window, options.prompt_tokens + options.output) + 16;
  config.sequences_max = 4;
  config.kv_dtype = work.kv_dtype;
  config.prefix_cache = PrefixCacheKind::kOff;  // devices are compared in all that they compute
  SteadyClock clock;
  Answers answers;
  answers.device_id = backend->caps().device_id;
  answers.name = fmt::format("{} {}", backend->caps().device_id, backend->caps().device_name);
  Result<std::unique_ptr<Engine>> engine =
      Engine::create(config, work.model, work.tokenizer, std::move(backend), &clock, {});
  if (!engine) return engine.error();
  if (Status status = score_text(engine->get(), work, left, &answers); !status) return status.error();
  if (Status status = continue_prompts(engine->get(), work, left, &answers); !status) return status.error();
  return answers;
}

// The engine keeps logits on the device, so the text is run once more without it.
Result<LogitsFile> save_logits(const Work& work, std::unique_ptr<Backend> backend, const std::string& name,
                               TimeLeft* left) {
  std::string device_id = backend->caps().device_id;
  std::ranges::replace(device_id, ':', '-');
  const uint32_t vocab_size = work.model->config.vocab_size;
  LogitsWriter writer(fmt::format("{}.{}.logits", work.options.json_path, device_id),
                      work.options.logits_dtype == "f16" ? DType::kF16 : DType::kF32, vocab_size);
  auto run = KvRun::create(std::move(backend), work.model, work.options.window);
  if (!run) return run.error();
  if (Status status = (*run)->set_cache(work.kv_dtype, work.options.window); !status) return status.error();
  for (const auto window : work.windows()) {
    left->begin(name + ": logits");
    const auto num_tokens = static_cast<uint32_t>(window.size());
    const auto add = [&](uint32_t first, std::span<const float> logits) {
      for (uint32_t row = 0; row < logits.size() / vocab_size; ++row)
        if (first + row + 1 < num_tokens) writer.add(logits.subspan(uint64_t{row} * vocab_size, vocab_size));
    };
    if (Status status = (*run)->run(window, num_tokens, add, [](uint32_t) {}); !status) return status.error();
    left->done(num_tokens);
  }
  return writer.finish();
}

Result<Answers> ask(const Work& work, const std::string& device, Record* record, TimeLeft* left) {
  Result<std::unique_ptr<Backend>> backend = open_device(device);
  if (!backend) return backend.error();
  record->add_device((*backend)->caps());
  Result<Answers> answers = ask_device(work, std::move(*backend), left);
  if (!answers || work.options.logits_dtype.empty()) return answers;
  backend = open_device(device);
  if (!backend) return backend.error();
  Result<LogitsFile> logits = save_logits(work, std::move(*backend), answers->name, left);
  if (!logits) return logits.error();
  answers->logits = *logits;
  return answers;
}

void print_pair(size_t a, size_t b, const Agreement& pair) {
  const auto number = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.3g}", *value) : std::string("-");
  };
  fmt::print("| {:>5} | {:>10} | {:>10} | {:>7} | {:>9} | {:>12.3g} | {:>12.3g} | {:>7} | {:>12.4f} |\n",
             fmt::format("{}, {}", a + 1, b + 1), number(pair.mean_kl), number(pair.greatest_kl),
             !pair.mean_kl   ? "-"
             : pair.is_whole ? "whole"
                             : "listed",
             pair.same_best ? fmt::format("{:.2f} %", 100 * *pair.same_best) : "-", pair.mean_difference,
             pair.greatest_difference, fmt::format("{} of {}", pair.divergences.size(), pair.num_paths),
             pair.worst_margin());
}

RecordRow to_row(const Answers& a, const Answers& b, const Agreement& pair) {
  RecordRow row{fmt::format("{} against {}", a.name, b.name), "", {}};
  row.values = {{"nll_a", "nats", a.nll()},
                {"nll_b", "nats", b.nll()},
                {"mean_difference", "nats", pair.mean_difference},
                {"greatest_difference", "nats", pair.greatest_difference},
                {"paths", "paths", static_cast<double>(pair.num_paths)},
                {"paths_that_differ", "paths", static_cast<double>(pair.divergences.size())},
                {"worst_margin", "nats", pair.worst_margin()}};
  if (pair.mean_kl) {
    row.values.push_back({"mean_kl", "nats", *pair.mean_kl});
    row.values.push_back({"greatest_kl", "nats", *pair.greatest_kl});
    row.values.push_back({"same_best", "share", *pair.same_best});
    row.details["kl_of"] = pair.is_whole ? "whole" : "listed";
  }
  return row;
}

Status compare_all(const std::vector<Answers>& all, Record* record) {
  if (all.size() < 2) return {};
  std::string divergences;
  fmt::print(
      "\n| pair  | mean KL    | largest KL | KL of   | same best | mean |dlogp| | most |dlogp| | paths   | "
      "worst margin |\n|------:|-----------:|-----------:|--------:|----------:|-------------:|-------------:|"
      "--------:|-------------:|\n");
  for (size_t a = 0; a < all.size(); ++a)
    for (size_t b = a + 1; b < all.size(); ++b) {
      Result<Agreement> pair = compare_answers(all[a], all[b]);
      if (!pair) return pair.error();
      print_pair(a, b, *pair);
      record->add(to_row(all[a], all[b], *pair));
      for (const Divergence& at : pair->divergences)
        divergences += fmt::format("  {}, {}: prompt {} step {}: token {} by {:.4f} and token {} by {:.4f}\n", a + 1,
                                   b + 1, at.prompt_idx, at.step_idx, at.a.token, at.a.margin, at.b.token, at.b.margin);
    }
  if (!divergences.empty())
    fmt::print("First tokens of greedy paths that differ, and each one's margin over its second best:\n{}",
               divergences);
  return {};
}

void print_answers(size_t idx, const Answers& answers) {
  fmt::print("{}: {}: mean NLL {:.5f} over {} tokens\n", idx + 1, answers.name, answers.nll(), answers.logprobs.size());
}

Result<Work> make_work(const Options& options) {
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
  std::vector<TokenId> tokens = (*tokenizer)->encode(*text);
  if (options.tokens_max > 0 && tokens.size() > options.tokens_max) tokens.resize(options.tokens_max);
  return Work{options, *kv, *model, std::move(*tokenizer), std::move(tokens)};
}

boost::json::object to_json(const Work& work) {
  boost::json::object json = model_work(*work.model, work.kv_dtype);
  json["text_digest"] = to_hex(Sha256().add_all(std::span<const TokenId>(work.text)).finish());
  json["window"] = work.options.window;
  json["prompts"] = work.options.num_prompts;
  json["prompt"] = work.options.prompt_tokens;
  json["output"] = work.options.output;
  return json;
}

Status join(const std::string& path, const std::string& first_name, const boost::json::object& first_work,
            bool any_weights, std::vector<Answers>* all) {
  const Result<SavedRecord> record = read_record(path);
  if (!record) return record.error();
  Result<std::vector<Answers>> answers = read_answers(*record);
  if (!answers) return answers.error();
  if (Status status = check_same_work(first_name, first_work, path, record->work, any_weights); !status) return status;
  for (Answers& one : *answers) {
    print_answers(all->size(), one);
    all->push_back(std::move(one));
  }
  return {};
}

Status join_saved(const Options& options) {
  const Result<SavedRecord> first = read_record(options.records.front());
  if (!first) return first.error();
  Result<Record> record =
      Record::create("agree", first->work, {{"records", boost::json::value_from(options.records)}}, options.json_path);
  if (!record) return record.error();
  std::vector<Answers> all;
  for (const std::string& path : options.records)
    if (Status status = join(path, first->path, first->work, options.any_weights, &all); !status) return status;
  if (all.size() < 2)
    return make_error(ErrorCode::kInvalidArgument, "{}: expected answers of at least two devices, found {}",
                      fmt::join(options.records, ", "), all.size());
  if (Status status = compare_all(all, &*record); !status) return status;
  return record->finish();
}

Status run(const Options& options) {
  if (!options.records.empty()) return join_saved(options);
  const Result<Work> work = make_work(options);
  if (!work) return work.error();
  const boost::json::object work_json = to_json(*work);
  Result<Record> record =
      Record::create("agree", work_json, {{"model", options.model}, {"text", options.text_path}}, options.json_path);
  if (!record) return record.error();
  TimeLeft left(work->weight() * static_cast<double>(options.devices.size()));
  std::vector<Answers> all;
  for (const std::string& device : options.devices) {
    Result<Answers> answers = ask(*work, device, &*record, &left);
    if (!answers) return answers.error();
    left.clear();
    print_answers(all.size(), *answers);
    record->add(to_row(*answers));
    all.push_back(std::move(*answers));
  }
  for (const std::string& path : options.saved)
    if (Status status = join(path, "this run", work_json, options.any_weights, &all); !status) return status;
  if (Status status = compare_all(all, &*record); !status) return status;
  return record->finish();
}

}  // namespace

void add_agree_command(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "agree", "Compare the answers of devices, or saved ones: log-probabilities, NLL, KL, greedy paths");
  auto* records = command->add_option("RECORD", options->records, "Saved answers (--json) to compare; no device runs");
  auto* model = command->add_option("-m,--model", options->model, "GGUF file")->excludes(records);
  auto* text = command->add_option("-t,--text", options->text_path, "Text file to score")->excludes(records);
  model->needs(text);
  text->needs(model);
  command->add_option("-d,--device", options->devices, "Devices to compare (repeat)")->capture_default_str();
  command->add_option("--with", options->saved, "Saved answers (--json) of other machines, of the same work, to join")
      ->excludes(records);
  command->add_flag("--any-weights", options->any_weights, "Join answers of other weights with the same tokens, too");
  command->add_option("--window", options->window, "Tokens of a window")
      ->check(CLI::Range(2u, 1u << 20))
      ->capture_default_str();
  command->add_option("--tokens", options->tokens_max, "Of the text: its first ones; 0 = all")->capture_default_str();
  command->add_option("--top", options->top, "Likeliest tokens to save of each position")
      ->check(CLI::Range(0u, kTopMax))
      ->capture_default_str();
  command->add_option("--prompts", options->num_prompts, "Greedy continuations")->capture_default_str();
  command->add_option("-n,--output", options->output, "Tokens of each continuation")->capture_default_str();
  command->add_option("--kv", options->kv_dtype, fmt::format("KV cache dtype: {}", kKvDTypeNames))
      ->capture_default_str();
  auto* json = command->add_option("--json", options->json_path, "Save the answers");
  command
      ->add_option("--logits", options->logits_dtype,
                   "Save the logits of all positions, too, in a file for each device beside that of --json: f16 or f32")
      ->check(CLI::IsMember({"f16", "f32"}))
      ->needs(json)
      ->excludes(records);
  command->footer(
      "KL(first || second) of a pair: of whole logits where both have them; else of the tokens that both list (--top) "
      "with all others as one, which is at most the whole.");
  on_parsed(command, exit_code, [options]() -> Status {
    if (options->records.empty() && options->model.empty())
      return make_error(ErrorCode::kInvalidArgument,
                        "agree: expected saved answers, or --model and --text; found none");
    return run(*options);
  });
}

}  // namespace llmrt::bench
