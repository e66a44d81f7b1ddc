#include <boost/json.hpp>

#include <algorithm>
#include <map>

#include "core/base/checked_math.h"
#include "core/engine/pool_shapes.h"
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
    share.bytes += tensor.num_bytes();
  }
  return shares;
}

void print_json(const WeightSource& source, const Result<OpenModel>& open, const Status& servable) {
  boost::json::object metadata;
  for (const Metadata::Entry& entry : source.metadata.entries()) metadata[printable(entry.key)] = describe(entry.value);
  boost::json::array tensors;
  for (const SourceTensor& tensor : source.tensors)
    tensors.push_back({{"name", printable(tensor.name)},
                       {"encoding", tensor.encoding_name},
                       {"dims", boost::json::array(tensor.dims.begin(), tensor.dims.begin() + tensor.num_dims)},
                       {"bytes", tensor.num_bytes()}});
  boost::json::object out{{"container", source.container},
                          {"metadata", std::move(metadata)},
                          {"tensors", std::move(tensors)},
                          {"usable", servable.ok()}};
  if (!servable) out["reason"] = servable.error().message;
  if (open) out["warnings"] = boost::json::array(open->warnings.begin(), open->warnings.end());
  fmt::print("{}\n", boost::json::serialize(out));
}

// What attention and feed-forward parts look like: one line when all layers are alike, else one for each of them.
std::vector<std::string> layer_shapes(const ModelConfig& config) {
  const auto shape = [](const LayerSpec& layer) {
    const std::string attention = layer.num_heads == 0 ? attention_name(layer.attention)
                                                       : fmt::format("{} heads over {} KV heads of {}", layer.num_heads,
                                                                     layer.num_kv_heads, layer.head_dim);
    const ExpertSpec& experts = layer.experts;
    std::string ffn = layer.feed_forward == FeedForwardKind::kNone ? "none" : fmt::format("{}", layer.ffn_width);
    if (experts.count > 0) ffn += fmt::format(" in {} of {} experts", experts.used, experts.count);
    if (experts.shared_width > 0) ffn += fmt::format(" and {} beside them", experts.shared_width);
    return fmt::format("{}, feed-forward {}{}", attention, ffn,
                       layer.window > 0 ? fmt::format(", window {}", layer.window) : "");
  };
  std::vector<std::string> shapes;
  for (const LayerSpec& layer : config.layers) shapes.push_back(shape(layer));
  if (std::ranges::count(shapes, shapes.front()) == static_cast<std::ptrdiff_t>(shapes.size())) return {shapes.front()};
  for (size_t i = 0; i < shapes.size(); ++i) shapes[i] = fmt::format("layer {}: {}", i, shapes[i]);
  return shapes;
}

void print_model(const Model& model) {
  const ModelConfig& config = model.config;
  const std::vector<std::string> shapes = layer_shapes(config);
  fmt::print("\n{} {}, {} layers, width {}, {}vocabulary {}, context {}\n", config.architecture, config.name,
             config.num_layers(), config.width, shapes.size() == 1 ? shapes.front() + ", " : "", config.vocab_size,
             config.context_max);
  for (size_t i = 0; i < shapes.size() && shapes.size() > 1; ++i) fmt::print("  {}\n", shapes[i]);
  if (config.num_draft_layers > 0) fmt::print("  {}\n", drafts_text(model));
  const PoolShapes pools(config, {});
  const uint64_t token_bytes = pools.bytes_block() / pools.first().block_tokens;
  fmt::print("weights {}, KV cache {} a token in f16, {} for one full context\n", bytes_text(model.weights.bytes()),
             bytes_text(token_bytes),
             bytes_text(pools.bytes_of(ceil_div(config.context_max, pools.first().block_tokens))));
}

// What serve would say of the file; without a device, so not whether it finds room.
void print_judgement(const OpenModel& open) {
  for (const std::string& warning : open.warnings) fmt::print("warning: {}\n", warning);
  fmt::print("llmrt can run this model{}{}\n",
             !open.served.tokenizer       ? " with token ids alone, as it has no tokenizer"
             : !open.served.chat_template ? "; completions alone, as "
                                          : "",
             open.served.tokenizer && !open.served.chat_template ? open.served.no_chat_reason : "");
  if (!open.served.chat_template || !open.served.chat_format) return;
  const ChatFormat& format = *open.served.chat_format->format;
  fmt::print("chat format {} ({}): {}\n", format.name, format.models,
             format.has_calls() && format.has_thoughts() ? "tools, reasoning"
             : format.has_calls()                        ? "tools"
             : format.has_thoughts()                     ? "reasoning"
                                                         : "text alone");
}

void inspect(const Options& options) {
  Result<WeightSource> source = open_weight_source(options.path);
  if (!source) fail(source.error(), kBadModel);
  const Result<OpenModel> open = try_open_model({options.path, ""});
  const Status servable = open ? check_layers(open->model->config.layers) : Status(open.error());
  if (options.chat_template) {
    // The template is what one wants to see where something is wrong with it or with the rest.
    const auto text = source->metadata.string("tokenizer.chat_template", "");
    if (!text) fail(text.error(), kBadModel);
    fmt::print("{}\n", *text);
    if (!open) fail(open.error(), kBadModel);
    return;
  }
  if (options.json) {
    print_json(*source, open, servable);
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
    if (open) print_model(*open->model);
    if (open && servable) print_judgement(*open);
  }
  if (!servable) fail(servable.error(), kBadModel);
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
