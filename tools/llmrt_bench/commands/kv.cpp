// llmrt-bench kv: what a quantised KV cache costs in quality, apart from what quantised weights cost. For each context
// length a table: float and quantised weights by KV dtypes, each cell beside float weights with KV in f16.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/base/sha256.h"
#include "core/text/tokenizer.h"
#include "core/weights/row_codec.h"
#include "tools/llmrt_bench/commands/commands.h"
#include "tools/llmrt_bench/kv/kv_quality.h"
#include "tools/llmrt_bench/kv/kv_run.h"
#include "tools/llmrt_bench/kv/kv_table.h"
#include "tools/llmrt_bench/kv/recoded_model.h"
#include "tools/llmrt_bench/record/record.h"

namespace llmrt::bench {
namespace {

struct Options {
  std::string model, text_path, quantised_path, json_path;
  std::string device = "auto", encoding = "q4_0";
  std::vector<std::string> kv_dtypes{"f16", "int8"}, contexts{"512", "4096", "max"};
  uint32_t positions = 16, scored = 256;
};

// f16 comes first whether it is named or not: it is the reference.
Result<std::vector<KvDType>> parse_dtypes(const std::vector<std::string>& names) {
  std::vector<KvDType> dtypes{KvDType::kF16};
  for (const std::string& name : names) {
    const Result<KvDType> dtype = kv_dtype_of(name);
    if (!dtype) return dtype.error();
    if (std::ranges::find(dtypes, *dtype) == dtypes.end()) dtypes.push_back(*dtype);
  }
  return dtypes;
}

// Ascending, each once.
Result<std::vector<uint32_t>> parse_contexts(const Options& options, uint32_t context_max) {
  const uint32_t least = options.positions + kAttentionQueries;
  std::vector<uint32_t> contexts;
  for (const std::string& text : options.contexts) {
    uint32_t context = context_max;
    if (text != "max") {
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), context);
      if (error != std::errc() || end != text.data() + text.size() || context < least)
        return make_error(ErrorCode::kInvalidArgument,
                          "--contexts: expected numbers of tokens from {} up or max, found {}", least, text);
    }
    contexts.push_back(context);
  }
  std::ranges::sort(contexts);
  contexts.erase(std::unique(contexts.begin(), contexts.end()), contexts.end());
  return contexts;
}

// Takes out the contexts that the model or the text is too short for, and says so.
Status keep_fitting(uint32_t context_max, size_t num_tokens, std::vector<uint32_t>* contexts,
                    std::vector<std::string>* left_out) {
  std::erase_if(*contexts, [&](uint32_t context) {
    if (context > context_max)
      left_out->push_back(fmt::format("{} tokens: the model was trained for {}", context, context_max));
    else if (context + 1 > num_tokens)
      left_out->push_back(
          fmt::format("{} tokens: expected a text of at least {} tokens, found {}", context, context + 1, num_tokens));
    else
      return false;
    return true;
  });
  if (contexts->empty())
    return make_error(ErrorCode::kInvalidArgument, "contexts: none fits: {}", fmt::join(*left_out, "; "));
  return {};
}

Status check_comparable(const Model& a, const Model& b) {
  const auto shape = [](const Model& m) {
    const LayerSpec& layer = m.config.layers.front();
    return fmt::format("{} layers, {} heads and {} kv heads of {}, {} tokens", m.config.num_layers(), layer.num_heads,
                       layer.num_kv_heads, layer.head_dim, m.config.vocab_size);
  };
  if (shape(a) != shape(b))
    return make_error(ErrorCode::kInvalidArgument, "--quantised: {}: expected {}, found {}", b.path, shape(a),
                      shape(b));
  if (!b.vocabulary || a.vocabulary->tokens != b.vocabulary->tokens)
    return make_error(ErrorCode::kInvalidArgument, "--quantised: {}: expected the vocabulary of {}, found another",
                      b.path, a.path);
  return {};
}

Result<std::vector<TokenId>> read_tokens(const std::string& path, const Vocabulary& vocabulary) {
  Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::create(vocabulary);
  if (!tokenizer) return tokenizer.error();
  const Result<std::string> text = read_text(path);
  if (!text) return text.error();
  if (text->empty())
    return make_error(ErrorCode::kInvalidArgument, "text: {}: expected text, found nothing that can be read", path);
  return (*tokenizer)->encode(*text);
}

// Both kinds of weights. What a file holds quantised counts as its decoded numbers: they are the float model.
Result<std::vector<std::pair<std::string, std::shared_ptr<const Model>>>> open_weights(const Options& options,
                                                                                       std::string* notes) {
  Result<std::shared_ptr<const Model>> file = load_model(options.model);
  if (!file) return file.error();
  if (!(*file)->vocabulary)
    return make_error(ErrorCode::kUnsupported, "{}: a synthetic model has no tokenizer; kv needs a text",
                      options.model);
  const std::shared_ptr<const Model> floats = as_floats(*file);
  *notes += (*file)->encoding == floats->encoding
                ? fmt::format("float: {} as in the file\n", floats->encoding)
                : fmt::format("float: {} decoded from the file's {}, which thereby counts as exact\n", floats->encoding,
                              (*file)->encoding);
  if (!options.quantised_path.empty()) {
    Result<std::shared_ptr<const Model>> other = load_model(options.quantised_path);
    if (!other) return other.error();
    if (Status status = check_comparable(*floats, **other); !status) return status.error();
    *notes += fmt::format("{}: {} as in the file\n", (*other)->encoding, options.quantised_path);
    return {{{"float", floats}, {(*other)->encoding, *other}}};
  }
  const std::optional<Encoding> encoding = parse_encoding(options.encoding);
  if (!encoding)
    return make_error(ErrorCode::kInvalidArgument, "--quantise: expected an encoding such as q4_0 or q8_0, found {}",
                      options.encoding);
  Result<std::shared_ptr<const Model>> quantised = quantise(floats, *encoding);
  if (!quantised) return quantised.error();
  *notes += fmt::format("{}: the float weights rounded to nearest, token embedding and head to q8_0\n",
                        encoding_name(*encoding));
  return {{{"float", floats}, {encoding_name(*encoding), *quantised}}};
}

boost::json::object work_of(const KvQualityPlan& plan) {
  boost::json::array weights;
  for (const auto& [name, model] : plan.weights) weights.push_back(model_work(*model));
  return {{"weights", std::move(weights)},
          {"text_digest", to_hex(Sha256().add_all(std::span<const int32_t>(plan.tokens)).finish())},
          {"scored", plan.scored_max},
          {"positions", plan.positions},
          {"queries", kAttentionQueries}};
}

Status run(const Options& options) {
  KvQualityPlan plan;
  plan.device = options.device;
  plan.positions = options.positions;
  plan.scored_max = options.scored;
  std::string notes;
  auto weights = open_weights(options, &notes);
  if (!weights) return weights.error();
  plan.weights = std::move(*weights);
  auto dtypes = parse_dtypes(options.kv_dtypes);
  if (!dtypes) return dtypes.error();
  plan.kv_dtypes = std::move(*dtypes);
  uint32_t context_max = ~0u;
  for (const auto& [name, model] : plan.weights) context_max = std::min(context_max, model->config.context_max);
  auto contexts = parse_contexts(options, context_max);
  if (!contexts) return contexts.error();
  plan.contexts = std::move(*contexts);
  auto tokens = read_tokens(options.text_path, *plan.weights.front().second->vocabulary);
  if (!tokens) return tokens.error();
  plan.tokens = std::move(*tokens);
  std::vector<std::string> left_out;
  if (Status status = keep_fitting(context_max, plan.tokens.size(), &plan.contexts, &left_out); !status) return status;
  for (const std::string& text : left_out) fmt::print(stderr, "left out: {}\n", text);

  Result<Record> record =
      Record::create("kv", work_of(plan),
                     {{"model", options.model}, {"quantised", options.quantised_path}, {"text", options.text_path}},
                     options.json_path);
  if (!record) return record.error();
  Result<KvQuality> quality = measure_kv_quality(plan);
  if (!quality) return quality.error();
  quality->left_out.insert(quality->left_out.begin(), left_out.begin(), left_out.end());
  fmt::print("{} on {} {}, {}\n{}", options.model, quality->caps.device_id, quality->caps.device_name,
             options.text_path, notes);
  fmt::print("reference of KL and agreement: float weights, KV f16\n");
  for (const KvContext& context : quality->contexts)
    fmt::print("\n{} tokens; KL and NLL of the last {}, the {} keys that the last {} queries attend to most\n{}",
               context.num_tokens, context.num_scored, plan.positions, kAttentionQueries, print(plan, context));
  for (const std::string& text : quality->left_out) fmt::print("\nleft out: {}\n", text);
  add_rows(plan, *quality, &*record);
  return record->finish();
}

}  // namespace

void add_kv_command(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "kv", "What a quantised KV cache costs in quality, apart from quantised weights: KL, NLL, most-attended keys");
  command->add_option("-m,--model", options->model, "GGUF file; its weights, decoded, are the float model")->required();
  command->add_option("-t,--text", options->text_path, "Text file, read from its start")->required();
  command->add_option("-d,--device", options->device, "Device to run on")->capture_default_str();
  command
      ->add_option("--kv", options->kv_dtypes,
                   fmt::format("KV cache dtypes, commas between: {}; f16 is always there", kKvDTypeNames))
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--contexts", options->contexts, "Lengths in tokens, commas between; max = the model's longest")
      ->delimiter(',')
      ->capture_default_str();
  auto* quantise =
      command->add_option("--quantise", options->encoding,
                          "Quantised weights are the float ones rounded to q4_0, q4_1, q5_0, q5_1, q8_0, mxfp4 or fp8");
  quantise->capture_default_str();
  command->add_option("--quantised", options->quantised_path, "Quantised weights are those of this GGUF file")
      ->excludes(quantise);
  command->add_option("--positions", options->positions, "Most-attended keys of each query and head")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--scored", options->scored, "Positions of a context whose logits are compared: its last ones")
      ->check(CLI::Range(kAttentionQueries, 65536u))
      ->capture_default_str();
  command->add_option("--json", options->json_path, "Also write the figures to this file");
  on_parsed(command, exit_code, [options] { return run(*options); });
}

}  // namespace llmrt::bench
