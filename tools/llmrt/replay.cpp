#include <boost/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "core/sample_trace/replay.h"
#include "server/fields.h"
#include "server/structure_source.h"
#include "tools/llmrt/program.h"
#include "tools/llmrt/progress.h"

namespace llmrt::cli {
namespace {

struct Options {
  std::string trace;
  ModelOptions model;
  EngineOptions engine;
  bool json = false, any_model = false;
  const CLI::Option* kv_dtype = nullptr;
};

SampleTrace read_trace(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) fail(kUsage, fmt::format("{}: expected a sample trace that can be read", path));
  Result<SampleTrace> trace = parse_sample_trace(text.view());
  if (!trace) fail(kUsage, fmt::format("{}: {}", path, trace.error().message));
  return std::move(*trace);
}

std::string margin_text(float margin) {
  return std::isinf(margin) ? "no other token" : fmt::format("margin {:.3g}", margin);
}

std::string verdict_text(const ReplayedBranch& branch) {
  std::string text;
  if (branch.first) {
    const Divergence& first = *branch.first;
    text = fmt::format("first at position {}: recorded {} ({}), drawn {} ({})", first.position, first.recorded,
                       margin_text(first.recorded_margin), first.drawn, margin_text(first.drawn_margin));
  }
  if (branch.num_other_masks > 0)
    text += fmt::format("{}other masks at {} positions", text.empty() ? "" : "; ", branch.num_other_masks);
  if (branch.error) text += (text.empty() ? "" : "; ") + branch.error->message;
  return text.empty() ? "all equal" : text;
}

boost::json::value margin_json(float margin) {
  return std::isinf(margin) ? boost::json::value(nullptr) : boost::json::value(static_cast<double>(margin));
}

void print_json(const SampleTrace& trace, const std::vector<ReplayedBranch>& branches) {
  for (size_t i = 0; i < branches.size(); ++i) {
    const ReplayedBranch& branch = branches[i];
    boost::json::object line{{"branch", i},
                             {"tokens", branch.num_drawn},
                             {"diverged", branch.num_diverged},
                             {"first", nullptr},
                             {"other_masks", branch.num_other_masks},
                             {"drafts_proposed", trace.branches[i].num_proposed()},
                             {"drafts_accepted", trace.branches[i].num_accepted()},
                             {"logprob_difference_max", branch.logprob_difference_max},
                             {"error", nullptr}};
    if (branch.first)
      line["first"] = {{"position", branch.first->position},
                       {"recorded", branch.first->recorded},
                       {"drawn", branch.first->drawn},
                       {"recorded_margin", margin_json(branch.first->recorded_margin)},
                       {"drawn_margin", margin_json(branch.first->drawn_margin)}};
    if (branch.error) line["error"] = branch.error->message;
    fmt::print("{}\n", boost::json::serialize(line));
  }
}

void print_table(const SampleTrace& trace, const std::vector<ReplayedBranch>& branches) {
  fmt::print("{:>6} {:>7} {:>9} {:>11}  {}\n", "branch", "tokens", "diverged", "d logprob", "verdict");
  for (size_t i = 0; i < branches.size(); ++i)
    fmt::print("{:>6} {:>7} {:>9} {:>11.2g}  {}\n", i, branches[i].num_drawn, branches[i].num_diverged,
               branches[i].logprob_difference_max, verdict_text(branches[i]));
  uint64_t num_drawn = 0, num_diverged = 0, num_recorded = 0, num_proposed = 0, num_accepted = 0;
  for (const TracedBranch& branch : trace.branches) {
    num_recorded += branch.draws.size();
    num_proposed += branch.num_proposed();
    num_accepted += branch.num_accepted();
  }
  for (const ReplayedBranch& branch : branches) {
    num_drawn += branch.num_drawn;
    num_diverged += branch.num_diverged;
  }
  fmt::print("{} of {} recorded tokens drawn again, {} equal\n", num_drawn, num_recorded, num_drawn - num_diverged);
  if (num_proposed > 0)
    fmt::print("recorded with drafts: {} proposed, {} right; drawn again without\n", num_proposed, num_accepted);
}

// The constraints that the trace tells of; what cannot be made is said, and its branch then is not equal.
ConstraintOf constraints_of(const OpenModel& open) {
  return [&open](const TracedBranch& branch) -> std::shared_ptr<const TokenConstraint> {
    if (branch.request.constraint_source.empty() || !open.served.grammars) return nullptr;
    auto made = server::make_constraint(branch.request.constraint_source, open.served);
    if (!made) fmt::print(stderr, "warning: {}\n", made.error().message);
    return made ? *made : nullptr;
  };
}

void run(Options options) {
  const SampleTrace trace = read_trace(options.trace);
  if (options.model.path.empty()) options.model.path = trace.origin.model;
  if (options.kv_dtype->count() == 0) {
    if (!parse_kv_dtype(trace.origin.kv_dtype))
      fail(kUsage, fmt::format("{}: kv_dtype: expected one that is known, found {}", options.trace,
                               server::shown_name(trace.origin.kv_dtype)));
    options.engine.kv_dtype = trace.origin.kv_dtype;
  }
  OpenModel open = open_model(options.model);
  const SteadyClock clock;
  const std::unique_ptr<Engine> engine =
      open_engine(open, options.engine, &clock, options.json ? silent_log().get() : nullptr);
  const SampleTraceOrigin here = trace_origin(*engine);
  if (here.model_digest != trace.origin.model_digest && !options.any_model)
    fail(kUsage, fmt::format("another model: expected the one with digest {}, found {}; --any-model compares anyway",
                             server::shown_name(trace.origin.model_digest), here.model_digest));
  if (!options.json)
    fmt::print(stderr, "recorded on {}, replayed on {}\n", server::shown_name(trace.origin.device), here.device);
  const auto has_grammar = [](const TracedBranch& branch) { return !branch.request.constraint_source.empty(); };
  if (open.served.tokenizer && std::ranges::any_of(trace.branches, has_grammar))
    open.served.grammars = std::make_shared<GrammarCompiler>(TokenVocabulary::create(*open.served.tokenizer));
  ProgressBar bar("drawing again", options.json, "tokens");
  Result<std::vector<ReplayedBranch>> branches = replay(
      *engine, trace, [&bar](uint64_t done, uint64_t total) { bar.update(done, total); }, constraints_of(open),
      [&open](const TracedBranch&) { return only_adapter(open.served); });
  bar.finish();
  if (!branches) fail(branches.error());
  if (options.json)
    print_json(trace, *branches);
  else
    print_table(trace, *branches);
  if (!std::ranges::all_of(*branches, &ReplayedBranch::is_equal)) throw Exit{kFailed};
}

}  // namespace

void add_replay(CLI::App& app) {
  CLI::App* command = app.add_subcommand("replay", "Draw the tokens of a sample trace again, and compare");
  const auto options = std::make_shared<Options>();
  command->add_option("trace", options->trace, "file that --sample-trace wrote")->required()->type_name("TRACE");
  command->add_option("-m,--model", options->model.path, "the model's file; default: the path in the trace")
      ->type_name("MODEL");
  command->add_flag("--any-model", options->any_model, "accept a model with another digest");
  command->add_flag("--json", options->json, "print one JSON object for each branch");
  add_engine_options(*command, options->engine);
  add_adapter_option(*command, options->engine);
  move_rare_options(*command);
  options->kv_dtype = command->get_option("--kv-dtype");
  command->footer(
      "Each token is drawn again with the recorded parameters, after the recorded tokens before it. The exit code is 0 "
      "when all tokens are equal and 1 when one differs; its margin (winner minus runner-up) then tells how near the "
      "two "
      "were. Example:\n"
      "  llmrt complete model.gguf 'Once upon a time' --sample-trace trace.jsonl\n"
      "  llmrt replay trace.jsonl --device vulkan:0");
  command->callback([options] { run(*options); });
}

}  // namespace llmrt::cli
