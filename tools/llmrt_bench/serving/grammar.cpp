// Rows that each follow a JSON schema of their own beside plain rows: tokens a second of a full batch in which an
// answer that ends is replaced at once by another request, with another schema. The answers of the plain rows are as
// long as those of the grammars' rows, in the same order, so that both have the same prompts to compute. Plain rows and
// grammars take turns on one engine, so that drift hits them alike.
#include <fmt/format.h>

#include <algorithm>

#include "tools/llmrt_bench/record/stats.h"
#include "tools/llmrt_bench/serving/closed_batch.h"
#include "tools/llmrt_bench/serving/grammar_supply.h"
#include "tools/llmrt_bench/serving/parts.h"
#include "tools/llmrt_bench/serving/vocabulary.h"

namespace llmrt::bench {
namespace {

// Of the plain rows' tokens a second. On a processor masks are made by the cores that compute.
constexpr double kLeastShareGpu = 0.97, kLeastShareCpu = 0.95;

EngineConfig config_of(const Bench& bench, uint32_t num_rows) {
  EngineConfig config;
  config.kv_dtype = bench.options.kv_dtype;
  config.prefix_cache = PrefixCacheKind::kOff;
  config.sequences_max = num_rows;
  const uint32_t warm_up_tokens = num_rows + 32;  // Drive::warm_up
  config.context_max = std::max(warm_up_tokens, bench.options.grammar_prompt + bench.options.grammar_output);
  config.kv_tokens = uint64_t{num_rows} * (config.context_max + config.block_tokens) * 33 / 32;
  return config;
}

struct Rounds {
  std::vector<double> plain_tok_s, grammar_tok_s, ratios;
  std::vector<double> plain_tpots_ms, grammar_tpots_ms, compile_ms;
  std::vector<Turn> grammars;
  double plain_rows = 0, grammar_rows = 0;  // in use, means
};

void add_round(Turn grammar, Turn plain, Rounds* rounds) {
  const auto append = [](std::vector<double>* all, const std::vector<double>& some) {
    all->insert(all->end(), some.begin(), some.end());
  };
  rounds->plain_tok_s.push_back(plain.tok_s);
  rounds->grammar_tok_s.push_back(grammar.tok_s);
  rounds->ratios.push_back(plain.tok_s > 0 ? grammar.tok_s / plain.tok_s : 0);
  append(&rounds->plain_tpots_ms, plain.tpots_ms);
  append(&rounds->grammar_tpots_ms, grammar.tpots_ms);
  append(&rounds->compile_ms, grammar.compile_ms);
  rounds->plain_rows += plain.rows_in_use;
  rounds->grammar_rows += grammar.rows_in_use;
  rounds->grammars.push_back(std::move(grammar));
}

std::string list_of(const std::vector<double>& values, int digits) {
  std::string out;
  for (const double value : values) out += fmt::format("{}{:.{}f}", out.empty() ? "" : ", ", value, digits);
  return out;
}

// Figures of masks and of compiling, over all rounds.
void tell_masks(const Bench& bench, uint32_t num_rows, const Rounds& rounds) {
  size_t num_answers = 0, num_whole = 0, num_parsed = 0, num_tokens = 0;
  uint64_t made = 0, found = 0, cpu_us = 0, parked = 0;
  double wait_ms = 0, waited_ms = 0;
  for (const Turn& turn : rounds.grammars) {
    num_answers += turn.lengths.size();
    num_whole += turn.num_whole;
    num_parsed += turn.num_parsed;
    for (const uint32_t length : turn.lengths) num_tokens += length;
    made += turn.masks_made;
    found += turn.masks_found;
    cpu_us += turn.mask_cpu_us;
    parked += turn.num_parked;
    wait_ms += turn.mask_wait_ms;
    waited_ms = std::max(waited_ms, turn.compile_waited_ms);
  }
  const auto per = [](auto part, auto whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
  };
  const auto name = [&](const char* what) { return fmt::format("grammar {}: {}", num_rows, what); };
  Figure whole{name("whole answers that fit"), per(num_parsed, num_whole), "x",
               fmt::format("{} of {} answers ended by their grammar, the others by length; {:.0f} tokens each",
                           num_whole, num_answers, per(num_tokens, num_answers))};
  if (num_whole > 0) whole.target = at_least(1);
  bench.report.add(whole);
  bench.report.add({name("CPU of a mask"), per(cpu_us, made), "us",
                    fmt::format("{} made, {} found, {:.2f} CPU us a token", made, found, per(cpu_us, num_tokens))});
  bench.report.add({name("parked draws"), per(parked, num_tokens) * 100, "%",
                    fmt::format("{} of {} tokens; steps waited {:.1f} ms for masks", parked, num_tokens, wait_ms)});
  bench.report.add({name("compile, p50"), quantile(rounds.compile_ms, 0.5), "ms",
                    fmt::format("CPU; p99 {:.2f} ms, {} schemas; asked for at most {:.1f} ms before it was ready",
                                quantile(rounds.compile_ms, 0.99), rounds.compile_ms.size(), waited_ms)});
}

void tell(const Bench& bench, uint32_t num_rows, const Rounds& rounds) {
  const auto count = static_cast<double>(rounds.ratios.size());
  bench.report.add(
      {fmt::format("plain rows: {}", num_rows), median(rounds.plain_tok_s), "tok/s",
       fmt::format("rounds {}; {:.1f} rows in use", list_of(rounds.plain_tok_s, 1), rounds.plain_rows / count)});
  bench.report.add(
      {fmt::format("rows with grammars: {}", num_rows), median(rounds.grammar_tok_s), "tok/s",
       fmt::format("rounds {}; {:.1f} rows in use", list_of(rounds.grammar_tok_s, 1), rounds.grammar_rows / count)});
  bench.report.add({fmt::format("grammars / plain, rows: {}", num_rows), median(rounds.ratios), "x",
                    fmt::format("median of rounds {}", list_of(rounds.ratios, 3)), at_least(bench.caps.is_cpu ? kLeastShareCpu : kLeastShareGpu)});
  for (const auto& [share, label] : {std::pair{0.5, "p50"}, {0.99, "p99"}}) {
    const double plain_ms = quantile(rounds.plain_tpots_ms, share), ms = quantile(rounds.grammar_tpots_ms, share);
    bench.report.add({fmt::format("plain TPOT {}, rows: {}", label, num_rows), plain_ms, "ms"});
    bench.report.add({fmt::format("grammar TPOT {}, rows: {}", label, num_rows), ms, "ms",
                      fmt::format("{:.3f} x plain", plain_ms > 0 ? ms / plain_ms : 0)});
  }
  tell_masks(bench, num_rows, rounds);
}

Status compare(const Bench& bench, GrammarSupply* supply, uint32_t num_rows, Draws* schemas) {
  const ServingOptions& options = bench.options;
  Result<std::unique_ptr<Engine>> engine = bench.make_engine(config_of(bench, num_rows));
  if (!engine) return engine.error();
  if (Status status = Drive(engine->get(), &bench.clock).warm_up(num_rows); !status) return status;
  constexpr uint32_t kWarmUpTokens = 16;
  const uint32_t warm_up_tokens = std::min(kWarmUpTokens, options.grammar_output);
  const auto batch = [&](uint64_t seed) {
    const BatchSpec spec{num_rows, options.grammar_prompt, seed};
    return std::make_unique<ClosedBatch>(engine->get(), bench.clock, bench.wait_until, spec);
  };
  if (auto warm = batch(0)->run_grammars(supply, num_rows, warm_up_tokens, schemas); !warm) return warm.error();
  // Rows that end one by one: steps of many sizes, which backends prepare when they first come.
  std::vector<uint32_t> lengths;
  for (uint32_t i = 0; i < 4 * num_rows; ++i) lengths.push_back(1 + i * 7 % std::min(64u, options.grammar_output));
  if (Result<Turn> warm = batch(0)->run_plain(lengths); !warm) return warm.error();
  Rounds rounds;
  for (uint32_t round = 0; round < options.grammar_rounds; ++round) {
    const size_t num_requests = size_t{num_rows} * options.grammar_answers;
    auto grammar = batch(round + 1)->run_grammars(supply, num_requests, options.grammar_output, schemas);
    if (!grammar) return grammar.error();
    Result<Turn> plain = batch(round + 1)->run_plain(grammar->lengths);
    if (!plain) return plain.error();
    bench.report.progress(fmt::format("{} rows, round {} of {}: grammars {:.1f} tok/s, plain {:.1f}", num_rows,
                                      round + 1, options.grammar_rounds, grammar->tok_s, plain->tok_s));
    add_round(*std::move(grammar), *std::move(plain), &rounds);
  }
  tell(bench, num_rows, rounds);
  return {};
}

}  // namespace

Status grammar_part(const Bench& bench) {
  Result<std::shared_ptr<const TokenVocabulary>> vocabulary =
      grammar_vocabulary(bench.model, bench.options.vocabulary_path);
  if (!vocabulary) return vocabulary.error();
  GrammarSupply supply(*std::move(vocabulary), bench.options.grammar_spaces);
  Draws schemas(bench.options.batching.seed);
  for (const uint32_t num_rows : bench.options.grammar_rows)
    if (Status status = compare(bench, &supply, num_rows, &schemas); !status) return status;
  return {};
}

}  // namespace llmrt::bench
