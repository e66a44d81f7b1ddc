#include "core/weights/hf_quantization.h"

#include "core/weights/encoding.h"
#include "core/weights/hf_json.h"

namespace llmrt {
namespace {

constexpr const char* kSupported = "fp8, compressed-tensors with floats of 8 bits, modelopt's FP8, or mxfp4";

template <typename... Args>
Error refused_quantization(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kUnsupported, "unsupported quantization: {} (supported: {})",
                    fmt::format(format, std::forward<Args>(args)...), kSupported);
}

// [rows, columns] of a block; none: no grid.
Status read_block(const JsonTree* block, std::string_view place, HfQuantization* out) {
  if (block == nullptr) return {};
  const JsonTree::Items* sides = block->items();
  constexpr int64_t kSideMax = 1 << 20;
  const int64_t* rows = sides != nullptr && sides->size() == 2 ? (*sides)[0].integer() : nullptr;
  const int64_t* columns = sides != nullptr && sides->size() == 2 ? (*sides)[1].integer() : nullptr;
  const int64_t multiple = geometry(Encoding::kFP8).elements_block;
  if (rows == nullptr || columns == nullptr || *rows < 1 || *rows > kSideMax || *columns < 1 || *columns > kSideMax ||
      *columns % multiple != 0)
    return refused_quantization(
        "{}: expected [rows, a multiple of {} columns], found {}", place, multiple,
        rows != nullptr && columns != nullptr ? fmt::format("[{}, {}]", *rows, *columns) : block->describe());
  out->block_rows = static_cast<uint32_t>(*rows);
  out->block_columns = static_cast<uint32_t>(*columns);
  return {};
}

// {"weights": {"num_bits": 8, "type": "float", "strategy": ...}} of each group.
Status read_groups(const JsonTree& config, HfQuantization* out) {
  constexpr std::string_view kPlace = "quantization_config.config_groups";
  const JsonTree* groups = config.find("config_groups");
  if (groups == nullptr || groups->members() == nullptr || groups->members()->empty())
    return refused_quantization("{}: expected an object, found {}", kPlace, shown(groups));
  for (const JsonMember& group : *groups->members()) {
    const JsonTree* weights = group.value.find("weights");
    const JsonTree* bits = weights == nullptr ? nullptr : weights->find("num_bits");
    const std::string_view strategy = text_of(weights, "strategy");
    if (text_of(weights, "type") != "float" || bits == nullptr || bits->integer() == nullptr || *bits->integer() != 8)
      return refused_quantization("{}.{}.weights: expected floats of 8 bits, found {} of {} bits", kPlace,
                                  printable(group.name), printable(text_of(weights, "type")), shown(bits));
    if (strategy != "tensor" && strategy != "channel" && strategy != "block")
      return refused_quantization("{}.{}.weights.strategy: expected tensor, channel or block, found \"{}\"", kPlace,
                                  printable(group.name), printable(strategy));
    if (strategy != "block") continue;
    if (auto status = read_block(weights->find("block_structure"), "block_structure", out); !status) return status;
  }
  return {};
}

Status read_compressed_tensors(const JsonTree& config, HfQuantization* out) {
  const std::string_view format = text_of(&config, "format");
  if (format != "float-quantized" && format != "naive-quantized")
    return refused_quantization("quantization_config.format: expected float-quantized, found \"{}\"",
                                printable(format));
  const JsonTree* sparsity = config.find("sparsity_config");
  if (const std::string_view sparse = text_of(sparsity, "format"); !sparse.empty() && sparse != "dense")
    return refused_quantization("quantization_config.sparsity_config.format: expected dense, found \"{}\"",
                                printable(sparse));
  if (const JsonTree* transform = config.find("transform_config");
      transform != nullptr && transform->members() != nullptr && !transform->members()->empty())
    return refused_quantization("quantization_config.transform_config: expected none, found {}", transform->describe());
  return read_groups(config, out);
}

Status check_modelopt(const JsonTree& config, std::string_view place) {
  if (text_of(&config, "quant_algo") == "FP8") return {};
  return refused_quantization("{}.quant_algo: expected FP8, found {}", place, shown(config.find("quant_algo")));
}

}  // namespace

Result<HfQuantization> read_hf_quantization(const JsonTree* quantization_config, const JsonTree* hf_quant_config) {
  HfQuantization out;
  if (quantization_config == nullptr) {
    if (hf_quant_config == nullptr) return out;
    const JsonTree* inner = hf_quant_config->find("quantization");
    if (inner == nullptr) return refused_quantization("hf_quant_config.json: quantization: found nothing");
    if (auto status = check_modelopt(*inner, "hf_quant_config.json: quantization"); !status) return status.error();
    return out;
  }
  Status status;
  const std::string_view method = text_of(quantization_config, "quant_method");
  if (method == "fp8") {
    if (const std::string_view format = text_of(quantization_config, "fmt"); !format.empty() && format != "e4m3")
      return refused_quantization("quantization_config.fmt: expected e4m3, found \"{}\"", printable(format));
    status = read_block(quantization_config->find("weight_block_size"), "quantization_config.weight_block_size", &out);
  } else if (method == "compressed-tensors") {
    status = read_compressed_tensors(*quantization_config, &out);
  } else if (method == "modelopt") {
    status = check_modelopt(*quantization_config, "quantization_config");
  } else if (method != "mxfp4") {
    return refused_quantization("quantization_config.quant_method: expected one that is supported, found {}",
                                shown(quantization_config->find("quant_method")));
  }
  if (!status) return status.error();
  return out;
}

}  // namespace llmrt
