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

void print_json(const WeightSource& source, const Result<OpenModel>& open) {
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
                          {"usable", open.ok()}};
  if (!open) out["reason"] = open.error().message;
  if (open) out["warnings"] = boost::json::array(open->warnings.begin(), open->warnings.end());
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

// What serve would say of the file; without a device, so not whether it finds room.
void print_judgement(const OpenModel& open) {
  for (const std::string& warning : open.warnings) fmt::print("warning: {}\n", warning);
  fmt::print("llmrt can run this model{}{}\n",
             !open.served.tokenizer       ? " with token ids alone, as it has no tokenizer"
             : !open.served.chat_template ? "; completions alone, as "
                                          : "",
             open.served.tokenizer && !open.served.chat_template ? open.served.no_chat_reason : "");
}

void inspect(const Options& options) {
  Result<WeightSource> source = open_weight_source(options.path);
  if (!source) fail(source.error(), kBadModel);
  const Result<OpenModel> open = try_open_model({options.path, ""});
  if (options.chat_template) {
    // The template is what one wants to see where something is wrong with it or with the rest.
    const auto text = source->metadata.string("tokenizer.chat_template", "");
    if (!text) fail(text.error(), kBadModel);
    fmt::print("{}\n", *text);
    if (!open) fail(open.error(), kBadModel);
    return;
  }
  if (options.json) {
    print_json(*source, open);
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
    if (open) {
      print_model(*open->model);
      print_judgement(*open);
    }
  }
  if (!open) fail(open.error(), kBadModel);
}

}  // namespace

void add_inspect(CLI::App& app) {
  CLI::App* command = app.add_subcommand("inspect", "Show what is in a model file; needs no device");
  const auto options = std::make_shared<Options>();
  command->add_option("-m,--model,file", options->path, "GGUF file")->required()->type_name("FILE");
  command->add_flag("--tensors", options->tensors, "list every tensor");
  command->add_flag("--chat-template", options->chat_template, "print the chat template alone");
  command->add_flag("--json", options->json, "print JSON");
  command->footer(
      "Judges the file as serve does, and ends with its exit code: 3 when llmrt cannot run the model (the reason "
      "names\n"
      "key or tensor, what was expected and what was found). Warnings tell what the file leaves out or gets wrong.");
  command->callback([options] { inspect(*options); });
}

}  // namespace llmrt::cli
