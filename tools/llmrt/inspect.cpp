#include <boost/json.hpp>

#include <map>

#include "core/engine/pool_sizing.h"
#include "core/weights/weight_source.h"
#include "tools/llmrt/program.h"

namespace llmrt::cli {
namespace {

struct Options {
  std::string path;
  bool json = false, tensors = false, chat_template = false;
};

std::string dims_text(const SourceTensor& tensor) {
  std::string text;
  for (int i = 0; i < tensor.num_dims; ++i)
    text += fmt::format("{}{}", i ? ", " : "", tensor.dims[static_cast<size_t>(i)]);
  return "[" + text + "]";
}

struct Share {
  uint64_t count = 0, bytes = 0;
};
std::map<std::string, Share> by_encoding(const WeightSource& source) {
  std::map<std::string, Share> shares;
  for (const SourceTensor& tensor : source.tensors) {
    Share& share = shares[tensor.encoding_name];
    ++share.count;
    share.bytes += tensor.bytes.size();
  }
  return shares;
}

void print_json(const WeightSource& source, const Result<std::shared_ptr<const Model>>& model) {
  boost::json::object metadata;
  for (const Metadata::Entry& entry : source.metadata.entries()) metadata[printable(entry.key)] = describe(entry.value);
  boost::json::array tensors;
  for (const SourceTensor& tensor : source.tensors)
    tensors.push_back({{"name", printable(tensor.name)},
                       {"encoding", tensor.encoding_name},
                       {"dims", boost::json::array(tensor.dims.begin(), tensor.dims.begin() + tensor.num_dims)},
                       {"bytes", tensor.bytes.size()}});
  boost::json::object out{{"container", source.container},
                          {"metadata", std::move(metadata)},
                          {"tensors", std::move(tensors)},
                          {"usable", model.ok()}};
  if (!model) out["reason"] = model.error().message;
  fmt::print("{}\n", boost::json::serialize(out));
}

void print_model(const Model& model) {
  const ModelConfig& config = model.config;
  fmt::print(
      "\n{} {}, {} layers, width {}, {} heads over {} KV heads of {}, feed-forward {}, vocabulary {}, context {}\n",
      config.architecture, config.name, config.num_layers, config.width, config.num_heads, config.num_kv_heads,
      config.head_dim, config.ffn_width, config.vocab_size, config.context_max);
  const KvGroup group = kv_group_of(config, {});
  const uint64_t token_bytes = group.bytes_block() / group.block_tokens;
  fmt::print("weights {}, KV cache {} a token in f16, {} for one full context\n", bytes_text(model.weights.bytes()),
             bytes_text(token_bytes), bytes_text(token_bytes * config.context_max));
}

void inspect(const Options& options) {
  Result<WeightSource> source = open_weight_source(options.path);
  if (!source) fail(source.error(), kBadModel);
  const Result<std::shared_ptr<const Model>> model = load_model(options.path);
  if (options.chat_template) {
    if (!model) fail(model.error(), kBadModel);
    fmt::print("{}\n", model.value()->vocabulary ? model.value()->vocabulary->chat_template : "");
    return;
  }
  if (options.json) {
    print_json(*source, model);
  } else {
    fmt::print("{}: {}\n\n", options.path, source->container);
    for (const Metadata::Entry& entry : source->metadata.entries())
      fmt::print("{:<44} {}\n", printable(entry.key), describe(entry.value));
    fmt::print("\n{} tensors\n", source->tensors.size());
    for (const auto& [encoding, share] : by_encoding(*source))
      fmt::print("  {:<6} {:>5}  {:>10}\n", encoding, share.count, bytes_text(share.bytes));
    if (options.tensors)
      for (const SourceTensor& tensor : source->tensors)
        fmt::print("  {:<40} {:<6} {}\n", printable(tensor.name), tensor.encoding_name, dims_text(tensor));
    if (model) print_model(**model);
  }
  if (!model) fail(model.error(), kBadModel);
}

}  // namespace

void add_inspect(CLI::App& app) {
  CLI::App* command = app.add_subcommand("inspect", "Show what is in a model file; needs no device");
  const auto options = std::make_shared<Options>();
  command->add_option("-m,--model,file", options->path, "GGUF file")->required()->type_name("FILE");
  command->add_flag("--tensors", options->tensors, "list every tensor");
  command->add_flag("--chat-template", options->chat_template, "print the chat template alone");
  command->add_flag("--json", options->json, "print JSON");
  command->footer("Exit code 3 when llmrt cannot run the model; the reason names key or tensor.");
  command->callback([options] { inspect(*options); });
}

}  // namespace llmrt::cli
