// llmrt-bench serve: load against a server, or against an engine in process, and what its users would see of it.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "backends/backends.h"
#include "core/base/sha256.h"
#include "tools/llmrt_bench/adapters/random_adapter.h"
#include "tools/llmrt_bench/commands/commands.h"
#include "tools/llmrt_bench/load/adapter_mix.h"
#include "tools/llmrt_bench/load/agents.h"
#include "tools/llmrt_bench/load/arrivals.h"
#include "tools/llmrt_bench/load/engine_load.h"
#include "tools/llmrt_bench/load/load_progress.h"
#include "tools/llmrt_bench/load/load_report.h"
#include "tools/llmrt_bench/load/structured.h"
#include "tools/llmrt_bench/model/engine_run.h"
#include "tools/llmrt_bench/serving/vocabulary.h"
#include "tools/number_range.h"
#include "tools/sampling_values.h"

namespace llmrt::bench {
namespace {

// Lengths as of ShareGPT: the means, 161 and 338 tokens, are those that vLLM's paper gives for it; the spread is ours.
constexpr const char* kShareGptPrompt = "lognormal:88:1.1:4:1024";
constexpr const char* kShareGptOutput = "lognormal:225:0.9:4:1024";
constexpr uint32_t kIdsBelow = 30'000;  // most vocabularies have them

struct Options {
  std::string model, device = "auto", kv_dtype = "f16";
  uint32_t sequences = 256, context = 0, chunk_tokens = 0;
  std::string url, model_name;
  std::vector<std::string> headers;
  bool is_chat = false, sends_ids = false;
  double timeout_s = 600;

  std::string workload, save_workload, sharegpt, tokenizer;
  std::string prompt_tokens = "128", output_tokens = "64", arrivals = "poisson";
  StructureShares structure;
  AdapterMix adapters;
  uint32_t adapter_rank = 16, adapter_slots = 8;
  std::string save_adapters;
  AgentShape agents;
  bool is_like_sharegpt = false;
  uint32_t requests = 64, seed = 1, warmup = 2;
  uint32_t concurrency = 0;
  double rate = 0;
  // Said to every server: some have defaults of their own.
  SamplingValues sampling = SamplingValues().set("temperature", 0).set("top_p", 1);
  LoadSlo slo;
  std::string json_path;
};

class ModelTokens final : public TokenCounter {
 public:
  explicit ModelTokens(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}
  size_t count(std::string_view text) const override {
    return tokenizer_->encode(text, {.parse_special = false, .add_bos = false}).size();
  }

 private:
  const Tokenizer* tokenizer_;
};

Result<std::unique_ptr<Tokenizer>> tokenizer_of(const Model& model) {
  if (!model.vocabulary)
    return make_error(ErrorCode::kInvalidArgument, "{}: expected a model with a vocabulary, found none", model.path);
  return Tokenizer::create(*model.vocabulary);
}

Result<std::vector<LoadItem>> read_sharegpt(const Options& options, Draws* draws) {
  const std::string path = options.tokenizer.empty() ? options.model : options.tokenizer;
  if (path.empty())
    return make_error(ErrorCode::kInvalidArgument, "--sharegpt: expected --tokenizer GGUF to count its tokens with");
  Result<std::shared_ptr<const Model>> model = load_model(path);
  if (!model) return model.error();
  Result<std::unique_ptr<Tokenizer>> tokenizer = tokenizer_of(**model);
  if (!tokenizer) return tokenizer.error();
  Result<std::string> text = read_text(options.sharegpt);
  if (!text) return text.error();
  return parse_sharegpt(*text, ModelTokens(tokenizer->get()), options.requests, draws);
}

Result<std::vector<LoadItem>> make_items(const Options& options, Draws* draws) {
  if (!options.workload.empty()) {
    Result<std::string> text = read_text(options.workload);
    if (!text) return text.error();
    return parse_work(*text, options.workload);
  }
  if (!options.sharegpt.empty()) return read_sharegpt(options, draws);
  Result<Lengths> prompt =
      parse_lengths("--prompt-tokens", options.is_like_sharegpt ? kShareGptPrompt : options.prompt_tokens);
  if (!prompt) return prompt.error();
  Result<Lengths> output =
      parse_lengths("--output-tokens", options.is_like_sharegpt ? kShareGptOutput : options.output_tokens);
  if (!output) return output.error();
  return make_work(options.requests, *prompt, *output, draws);
}

// With arrivals, or without them for a closed loop.
Result<std::vector<LoadItem>> make_load(const Options& options) {
  Result<ArrivalPattern> pattern = parse_arrivals("--arrivals", options.arrivals);
  if (!pattern) return pattern.error();
  Draws draws(options.seed);
  Result<std::vector<LoadItem>> items = make_items(options, &draws);
  if (!items) return items.error();
  if (options.structure.schemas + options.structure.tools > 1)
    return make_error(ErrorCode::kInvalidArgument, "--structured and --tools: expected at most 1 together, found {:g}",
                      options.structure.schemas + options.structure.tools);
  if (options.structure.schemas + options.structure.tools > 0) {
    Draws structure(uint64_t{options.seed} << 16);
    add_structure(options.structure, &structure, &*items);
  }
  AdapterDraws adapters(options.adapters, uint64_t{options.seed} << 48);
  if (options.adapters.count > 0)
    for (LoadItem& item : *items) item.adapter = adapters.next();
  if (options.sends_ids)
    for (LoadItem& item : *items) item.ids = draws.tokens(item.prompt_tokens, kIdsBelow);
  if (options.rate > 0) {
    Draws gaps(~uint64_t{options.seed});
    const std::vector<double> times_s = pattern->times_s(items->size(), options.rate, &gaps);
    if (!times_s.empty() && times_s.back() > kArrivalMaxS)
      return make_error(ErrorCode::kInvalidArgument,
                        "--rate: expected the last of {} arrivals within {:.0f} s, found it after {:.3g} s",
                        times_s.size(), kArrivalMaxS, times_s.back());
    for (size_t i = 0; i < times_s.size(); ++i) (*items)[i].arrival_s = rounded_s(times_s[i]);
  } else if (options.concurrency > 0) {
    for (LoadItem& item : *items) item.arrival_s.reset();
  }
  return items;
}

Status save(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) return make_error(ErrorCode::kIo, "--save-workload: cannot write {}", path);
  return {};
}

// How a run comes upon its requests: 0 = at their arrivals.
uint32_t concurrency_of(const Options& options, const std::vector<LoadItem>& items) {
  constexpr uint32_t kDefault = 8;
  if (items.front().arrival_s) return 0;
  return options.concurrency > 0 ? options.concurrency : kDefault;
}

std::string load_name(const Options& options, const std::vector<LoadItem>& items) {
  if (const uint32_t concurrency = concurrency_of(options, items)) return fmt::format("closed loop of {}", concurrency);
  return options.rate > 0 ? fmt::format("{} arrivals, {:g} a second", options.arrivals, options.rate)
                          : "recorded arrivals";
}

// Of the first request's lengths, in other words than any request's.
std::vector<LoadItem> warm_up_items(const Options& options, const std::vector<LoadItem>& items) {
  Draws draws(uint64_t{options.seed} << 32);
  std::vector<LoadItem> out(options.warmup, items.front());
  for (LoadItem& item : out) {
    item.arrival_s.reset();
    item.schema = nullptr;
    item.tools.clear();
    item.tool_choice = nullptr;
    item.prompt_tokens = std::max(1u, item.prompt_tokens);
    item.prompt = make_words(item.prompt_tokens, &draws);
  }
  return out;
}

std::string digest_of(const std::string& text) {
  std::string out;
  for (const auto byte : Sha256().add_bytes(std::as_bytes(std::span(text))).finish())
    out += fmt::format("{:02x}", byte);
  return out;
}

Result<Record> make_record(const Options& options, const std::vector<LoadItem>& items, boost::json::object settings) {
  boost::json::object work{{"workload_sha256", digest_of(format_work(items))},
                           {"num_requests", items.size()},
                           {"load", load_name(options, items)},
                           {"route", options.is_chat ? "chat" : "completions"}};
  options.sampling.write(&work);
  settings["warmup_requests"] = options.warmup;
  settings["seed"] = options.seed;
  for (const auto& [name, limit_ms] : {std::pair{"slo_ttft_ms", options.slo.ttft_ms},
                                       {"slo_tpot_ms", options.slo.tpot_ms},
                                       {"slo_e2e_ms", options.slo.e2e_ms}})
    if (limit_ms) settings[name] = *limit_ms;
  return Record::create("serve", std::move(work), std::move(settings), options.json_path);
}

// The highest number that any of them names.
uint32_t num_adapters_of(const std::vector<LoadItem>& items) {
  return std::ranges::max_element(items, {}, &LoadItem::adapter)->adapter;
}

// Prints and records; without a single answer the run has failed.
Status tell(const Options& options, Record* record, const std::string& device, const std::vector<LoadItem>& items,
            const std::vector<Outcome>& outcomes) {
  const Summary summary = summarize(outcomes, options.slo);
  const StructureCounts structure = count_structure(items, outcomes);
  const std::vector<AdapterCount> adapters = count_adapters(items, outcomes);
  fmt::print("{}{}{}", load_text(summary, options.slo), structure_text(structure), adapters_text(adapters));
  for (const auto& [name, count] : summary.failures) {
    const auto first = std::ranges::find(outcomes, name, &Outcome::failure_text);
    fmt::print("first {}: {}\n", name, first->failure_detail);
  }
  RecordRow row = load_row(load_name(options, items), device, summary, outcomes, options.slo);
  if (!structure.is_empty()) row.details["structure"] = structure_json(structure);
  if (!adapters.empty()) row.details["adapters"] = adapters_json(adapters);
  record->add(std::move(row));
  if (Status status = record->finish(); !status) return status;
  if (summary.num_completed == 0) return make_error(ErrorCode::kIo, "no request was answered");
  return {};
}

Result<std::pair<std::string, std::string>> header_of(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == 0 || colon == std::string::npos || text.find_first_of("\r\n") != std::string::npos)
    return make_error(ErrorCode::kInvalidArgument, "--header: expected NAME: VALUE, found {}", text);
  const size_t value = std::min(text.find_first_not_of(' ', colon + 1), text.size());
  return std::pair{text.substr(0, colon), text.substr(value)};
}

// A server that answers.
Result<std::unique_ptr<HttpLoad>> open_url(const Options& options, const std::vector<LoadItem>& items) {
  Result<HttpTarget> parsed = parse_url(options.url);
  if (!parsed) return parsed.error();
  for (const std::string& text : options.headers) {
    Result<std::pair<std::string, std::string>> header = header_of(text);
    if (!header) return header.error();
    parsed->headers.push_back(*header);
  }
  parsed->model = options.model_name;
  parsed->num_adapters = num_adapters_of(items);
  parsed->is_chat = options.is_chat;
  parsed->sampling.clear();
  options.sampling.write(&parsed->sampling);
  parsed->timeout_s = options.timeout_s;
  Result<std::unique_ptr<HttpLoad>> load = HttpLoad::open(*std::move(parsed));
  if (!load) return load;
  if (Status status = (*load)->find_model(); !status) return status.error();
  for (const LoadItem& item : warm_up_items(options, items))
    if (Status status = (*load)->probe(item); !status) return status.error();
  return load;
}

void tell_target(const HttpTarget& target) {
  if (!target.forces_length) fmt::print("the server does not take ignore_eos and min_tokens: answers may end early\n");
  if (!target.asks_usage) fmt::print("the server does not take stream_options: tokens are counted by chunks\n");
}

Status run_url(const Options& options, const std::vector<LoadItem>& items) {
  Result<std::unique_ptr<HttpLoad>> load = open_url(options, items);
  if (!load) return load.error();
  const HttpTarget& target = (*load)->target();
  Result<Record> record = make_record(options, items,
                                      {{"url", options.url},
                                       {"model", target.model},
                                       {"forces_length", target.forces_length},
                                       {"asks_usage", target.asks_usage}});
  if (!record) return record.error();
  fmt::print("{}, model {}, {}: {}\n", options.url, printable(target.model), options.is_chat ? "chat" : "completions",
             load_name(options, items));
  tell_target(target);
  const SteadyClock clock;
  std::vector<Outcome> outcomes;
  {
    LoadProgress progress("serve", items.size(), &clock);
    outcomes =
        (*load)->run(items, concurrency_of(options, items), [&](const Outcome* outcome) { progress.update(outcome); });
  }
  return tell(options, &*record, "", items, outcomes);
}

// Rounds of all users, each behind prompts as long that are new to the server.
Status run_agents(Options options) {
  if (options.url.empty())
    return make_error(ErrorCode::kInvalidArgument,
                      "--workload agents: expected --url, as the engine alone has no chat "
                      "format");
  options.is_chat = true;
  Result<Lengths> input = parse_lengths("--prompt-tokens", options.prompt_tokens);
  if (!input) return input.error();
  Result<Lengths> output = parse_lengths("--output-tokens", options.output_tokens);
  if (!output) return output.error();
  AgentTalks talks(options.agents, *input, *output, options.seed);
  Draws draws(options.seed);
  Result<std::unique_ptr<HttpLoad>> load = open_url(options, make_work(1, *input, *output, &draws));
  if (!load) return load.error();
  const HttpTarget& target = (*load)->target();
  const AgentShape& shape = options.agents;
  boost::json::object work{{"users", shape.users},
                           {"turns", shape.turns},
                           {"system_tokens", shape.system_tokens},
                           {"input_tokens", options.prompt_tokens},
                           {"output_tokens", options.output_tokens},
                           {"seed", options.seed}};
  options.sampling.write(&work);
  Result<Record> record = Record::create("serve", {{"agents", std::move(work)}},
                                         {{"url", options.url}, {"model", target.model}}, options.json_path);
  if (!record) return record.error();
  fmt::print("{}, model {}: {} users who share a system prompt of {} tokens, {} turns\n", options.url,
             printable(target.model), shape.users, shape.system_tokens, shape.turns);
  tell_target(target);
  const SteadyClock clock;
  LoadProgress progress("serve", size_t{2} * shape.users * shape.turns, &clock);
  const auto on_outcome = [&](const Outcome* outcome) { progress.update(outcome); };
  std::vector<AgentTurn> turns;
  size_t num_answered = 0;
  for (uint32_t turn = 1; turn <= shape.turns; ++turn) {
    const std::vector<LoadItem> items = talks.next();
    const std::vector<Outcome> cold = (*load)->run(talks.others(), shape.users, on_outcome);
    const std::vector<Outcome> outcomes = (*load)->run(items, shape.users, on_outcome);
    talks.take(outcomes);
    turns.push_back(agent_turn(turn, outcomes, cold));
    num_answered += turns.back().num_answered;
    const Summary summary = summarize(outcomes, options.slo);
    RecordRow row = load_row(fmt::format("turn {}", turn), "", summary, outcomes, options.slo);
    row.details["agents"] = agent_turn_json(turns.back());
    record->add(std::move(row));
    for (const auto& [name, count] : summary.failures) fmt::print("turn {}: {} of {}\n", turn, count, name);
  }
  fmt::print("{}", agents_text(turns));
  if (Status status = record->finish(); !status) return status;
  if (num_answered == 0) return make_error(ErrorCode::kIo, "no request was answered");
  return {};
}

Status run_engine(const Options& options, const std::vector<LoadItem>& items) {
  Result<std::shared_ptr<const Model>> model = load_model(options.model);
  if (!model) return model.error();
  const Result<KvDType> kv = kv_dtype_of(options.kv_dtype);
  if (!kv) return kv.error();
  std::unique_ptr<Tokenizer> tokenizer;
  if ((*model)->vocabulary) {
    Result<std::unique_ptr<Tokenizer>> made = tokenizer_of(**model);
    if (!made) return made.error();
    tokenizer = *std::move(made);
  }
  const uint32_t vocab_size = (*model)->config.vocab_size;
  Result<std::vector<EngineItem>> warm_up = tokenize(warm_up_items(options, items), tokenizer.get(), vocab_size);
  if (!warm_up) return warm_up.error();
  Result<std::vector<EngineItem>> asked = tokenize(items, tokenizer.get(), vocab_size);
  if (!asked) return asked.error();
  EngineConfig config;
  config.kv_dtype = *kv;
  config.sequences_max = options.sequences;
  config.chunk_tokens = options.chunk_tokens;
  config.context_max = options.context;
  const uint32_t num_adapters = num_adapters_of(items);
  config.adapters = {.slots = std::min(num_adapters, options.adapter_slots),
                     .rank_max = options.adapter_rank,
                     .planned_rank = options.adapter_rank};
  const SteadyClock clock;
  Result<EngineUnderTest> under = open_engine(options.device, *model, config, &clock);
  if (!under) return under.error();
  Engine* engine = under->engine.get();
  Result<Record> record = make_record(options, items,
                                      {{"model", (*model)->path},
                                       {"model_work", model_work(**model, *kv)},
                                       {"sequences_max", engine->config().sequences_max},
                                       {"chunk_tokens", options.chunk_tokens},
                                       {"adapter_rank", options.adapter_rank},
                                       {"adapter_slots", config.adapters.slots},
                                       {"context_max", engine->config().context_max}});
  if (!record) return record.error();
  record->add_device(engine->backend().caps());
  fmt::print("{}, {} on {}: {}\n", (*model)->path, kv_dtype_name(*kv), under->device_name, load_name(options, items));
  for (Result<bool> more = true; *more;) {  // as an idle server does
    more = engine->prepare_next();
    if (!more) return more.error();
  }
  const auto wait_until = [&](TimeNs then) { clock.sleep_until(then); };
  EngineLoadOptions load{.concurrency = 1, .sampling = options.sampling.params()};
  const std::vector<ReadyAdapter> adapters = make_ready_adapters(
      **model, num_adapters, options.adapter_rank, engine->backend().caps().activation_dtype, options.seed);
  load.adapters = adapters;
  if (auto warm = run_on_engine(engine, clock, wait_until, *warm_up, load, [](const Outcome*) {}); !warm)
    return warm.error();
  load.concurrency = concurrency_of(options, items);
  std::optional<GrammarSupply> grammars;
  if (std::ranges::any_of(items, &LoadItem::is_structured)) {
    Result<std::shared_ptr<const TokenVocabulary>> vocabulary = grammar_vocabulary(**model, "");
    if (!vocabulary) return vocabulary.error();
    load.grammars = &grammars.emplace(*std::move(vocabulary));
  }
  Result<std::vector<Outcome>> outcomes = std::vector<Outcome>();
  {
    LoadProgress progress("serve", items.size(), &clock);
    outcomes = run_on_engine(engine, clock, wait_until, *asked, load,
                             [&](const Outcome* outcome) { progress.update(outcome); });
  }
  if (!outcomes) return outcomes.error();
  return tell(options, &*record, under->device_id, items, *outcomes);
}

constexpr const char* kAgents = "agents";

Status save_adapters(const Options& options) {
  if (options.model.empty() || options.adapters.count == 0)
    return make_error(ErrorCode::kInvalidArgument,
                      "--save-adapters: expected -m, the model that they are of, and --adapters, how many");
  Result<std::shared_ptr<const Model>> model = load_model(options.model);
  if (!model) return model.error();
  return write_random_adapters(**model, options.adapters.count, options.adapter_rank, options.seed,
                               options.save_adapters);
}

Status run(const Options& options) {
  if (!options.save_adapters.empty()) return save_adapters(options);
  if (options.workload == kAgents) return run_agents(options);
  if (options.url.empty() && options.model.empty() && options.save_workload.empty())
    return make_error(ErrorCode::kInvalidArgument, "expected --url, -m or --save-workload, found none");
  Result<std::vector<LoadItem>> items = make_load(options);
  if (!items) return items.error();
  if (!options.save_workload.empty())
    if (Status status = save(options.save_workload, format_work(*items)); !status) return status;
  const bool has_tools = std::ranges::any_of(*items, [](const LoadItem& item) { return !item.tools.empty(); });
  if (!options.url.empty() && !options.is_chat && std::ranges::any_of(*items, &LoadItem::is_structured))
    return make_error(ErrorCode::kInvalidArgument, "schemas and tools: expected --chat, found completions");
  if (!options.model.empty() && has_tools)
    return make_error(ErrorCode::kInvalidArgument, "tools: expected --url, as the engine alone has no chat format");
  if (!options.url.empty()) return run_url(options, *items);
  return options.model.empty() ? Status() : run_engine(options, *items);
}

void add_target_options(CLI::App* command, Options* options) {
  CLI::Option* url =
      command->add_option("--url", options->url, "OpenAI-compatible server, http://HOST:PORT")->group("Target");
  command
      ->add_option("-m,--model", options->model, "Or an engine in process: GGUF file or synthetic:<shape>:<encoding>")
      ->excludes(url)
      ->group("Target");
  command->add_option("-d,--device", options->device, "Of the engine")->capture_default_str()->group("Target");
  command->add_option("--kv", options->kv_dtype, fmt::format("KV cache dtype of the engine: {}", kKvDTypeNames))
      ->capture_default_str()
      ->group("Target");
  command->add_option("--sequences", options->sequences, "That the engine runs at once")
      ->check(CLI::Range(1u, 65536u))
      ->capture_default_str()
      ->group("Target");
  command
      ->add_option("--chunk-tokens", options->chunk_tokens,
                   "Of the engine: prompt tokens of a step in which other sequences decode; 0 = by need")
      ->capture_default_str()
      ->group("Target");
  command->add_option("--context", options->context, "Tokens of a sequence on the engine; 0 = the model's")
      ->capture_default_str()
      ->group("Target");
  command->add_option("--adapter-slots", options->adapter_slots, "Adapters that the engine has on the device at once")
      ->check(CLI::Range(1u, kAdapterSlotsMax))
      ->capture_default_str()
      ->group("Target");
  command->add_option("--model-name", options->model_name, "As the server knows it; default: the first that it names")
      ->group("Target");
  command->add_option("--header", options->headers, "\"NAME: VALUE\" for the server (repeat)")->group("Target");
  auto* chat = command->add_flag("--chat", options->is_chat, "/v1/chat/completions instead of /v1/completions");
  chat->needs(url)->group("Target");
  command
      ->add_flag(
          "--ids", options->sends_ids,
          "Prompts are random token ids instead of words, for a server whose model has no tokenizer (llmrt's and "
          "vLLM's fields)")
      ->needs(url)
      ->excludes(chat)
      ->group("Target");
  command->add_option("--timeout-s", options->timeout_s, "Of a request to the server")
      ->check(number_range(0.01, 1e6))
      ->capture_default_str()
      ->group("Target");
  options->sampling.add_options(*command, "Target");
}

void add_work_options(CLI::App* command, Options* options) {
  const char* group = "Work";
  CLI::Option* workload =
      command
          ->add_option("--workload", options->workload,
                       "JSON lines: arrival_s, prompt, prompt_tokens, output_tokens, schema, tools, tool_choice; or "
                       "the word agents: users who share a system prompt with tools and talk in turns")
          ->group(group);
  command->add_option("--users", options->agents.users, "Of --workload agents")
      ->check(CLI::Range(1u, 4096u))
      ->needs(workload)
      ->capture_default_str()
      ->group(group);
  command
      ->add_option("--turns", options->agents.turns,
                   "Of each user: -p new tokens, which -n tokens answer, behind all that was said before")
      ->check(CLI::Range(1u, 1000u))
      ->needs(workload)
      ->capture_default_str()
      ->group(group);
  command->add_option("--system-tokens", options->agents.system_tokens, "Of the system prompt that all users share")
      ->check(CLI::Range(1u, 1u << 20))
      ->needs(workload)
      ->capture_default_str()
      ->group(group);
  command
      ->add_option("--save-workload", options->save_workload,
                   "Write the requests to this file, for --workload; without --url and -m that is all")
      ->group(group);
  CLI::Option* sharegpt =
      command->add_option("--sharegpt", options->sharegpt, "ShareGPT's JSON: prompts, and answers' lengths")
          ->excludes(workload)
          ->group(group);
  command->add_option("--tokenizer", options->tokenizer, "GGUF file that counts ShareGPT's tokens; default: -m")
      ->needs(sharegpt)
      ->group(group);
  command
      ->add_flag("--sharegpt-like", options->is_like_sharegpt,
                 fmt::format("Lengths: prompts {}, answers {}", kShareGptPrompt, kShareGptOutput))
      ->excludes(workload)
      ->excludes(sharegpt)
      ->group(group);
  const char* lengths = "Words of a prompt; about as many tokens. N or lognormal:MEDIAN:SIGMA:MIN:MAX";
  command->add_option("-p,--prompt-tokens", options->prompt_tokens, lengths)->capture_default_str()->group(group);
  command
      ->add_option("-n,--output-tokens", options->output_tokens, "Of an answer, forced where the server can; as above")
      ->capture_default_str()
      ->group(group);
  command->add_option("--requests", options->requests, "Number of them, but for --workload")
      ->check(CLI::Range(1u, 1u << 24))
      ->capture_default_str()
      ->group(group);
  command
      ->add_option("--structured", options->structure.schemas,
                   "Share of the requests that ask for JSON by a schema of 20 fields or more, each by another one "
                   "(response_format); with --chat, or on the engine. Answers end by themselves: -n 512 leaves room")
      ->check(CLI::Range(0.0, 1.0))
      ->excludes(workload)
      ->group(group);
  command
      ->add_option("--tools", options->structure.tools,
                   "Share of the requests that have tools, tool_choice required and auto in turn; with --chat")
      ->check(CLI::Range(0.0, 1.0))
      ->excludes(workload)
      ->group(group);
  CLI::Option* adapters =
      command
          ->add_option("--adapters", options->adapters.count,
                       "Requests name one of so many low-rank adapters: those that the server lists with the model as "
                       "their parent, or random ones on the engine")
          ->check(CLI::Range(1u, kItemAdaptersMax))
          ->excludes(workload)
          ->group(group);
  command
      ->add_option("--zipf", options->adapters.zipf,
                   "The i-th adapter is asked for in proportion to 1 / i^ZIPF; 0: all equally often")
      ->check(number_range(0.0, 10.0))
      ->needs(adapters)
      ->capture_default_str()
      ->group(group);
  command->add_option("--adapter-rank", options->adapter_rank, "Of random adapters")
      ->check(CLI::Range(1u, kAdapterRankMax))
      ->capture_default_str()
      ->group(group);
  command
      ->add_option("--save-adapters", options->save_adapters,
                   "Write --adapters random adapters of the model -m to this folder, adapter_0001.gguf and so on, for "
                   "a server; that is all")
      ->needs(adapters)
      ->group(group);
  command->add_option("--seed", options->seed, "Of lengths, words and gaps")->capture_default_str()->group(group);
  command->add_option("--warmup", options->warmup, "Requests before, one at a time, that do not count")
      ->check(CLI::Range(1u, 1000u))
      ->capture_default_str()
      ->group(group);
}

void add_load_options(CLI::App* command, Options* options) {
  const char* group = "Load";
  CLI::Option* concurrency =
      command
          ->add_option("-c,--concurrency", options->concurrency,
                       "Closed loop: so many requests at any time; 8 where there are no arrivals")
          ->check(CLI::Range(1u, 1u << 16))
          ->group(group);
  CLI::Option* rate = command->add_option("--rate", options->rate, "Open loop: requests a second, on average")
                          ->check(number_range(1e-6, 1e6))
                          ->excludes(concurrency)
                          ->group(group);
  command->add_option("--arrivals", options->arrivals, fmt::format("With --rate: {}", kArrivalsForms))
      ->needs(rate)
      ->capture_default_str()
      ->group(group);
  for (const auto& [name, limit_ms, help] :
       {std::tuple{"--slo-ttft-ms", &options->slo.ttft_ms, "Goodput: to the first token, at most"},
        std::tuple{"--slo-tpot-ms", &options->slo.tpot_ms, "Goodput: between tokens on average, at most"},
        std::tuple{"--slo-e2e-ms", &options->slo.e2e_ms, "Goodput: to the end, at most"}})
    command->add_option(name, *limit_ms, help)->check(number_range(1e-3, 1e9))->group(group);
  command->add_option("--json", options->json_path, "Also write a record with every request to this file");
}

}  // namespace

void add_serve_command(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "serve", "Load against a server or an engine in process: TTFT, TPOT, ITL, e2e, goodput, failures");
  const auto options = std::make_shared<Options>();
  add_target_options(command, options.get());
  add_work_options(command, options.get());
  add_load_options(command, options.get());
  on_parsed(command, exit_code, [options] { return run(*options); });
}

}  // namespace llmrt::bench
