#include "core/model/synthetic.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "core/model/architectures.h"
#include "core/model/assemble.h"
#include "core/model/rope_frequencies.h"
#include "core/model/synthetic_vocabulary.h"
#include "core/weights/random_weights.h"

namespace llmrt {

namespace {

struct Shape {
  const char* name;
  const char* architecture;
  uint32_t num_layers, width, ffn_width, num_heads, num_kv_heads, head_dim, vocab_size, context_max;
  float rope_base, rms_eps;
  bool is_tied;         // the head is the embedding
  bool llama3_scaling;  // factor 8 over 8,192 positions, bands 1 and 4
};

constexpr Shape kShapes[] = {
    {"smollm2-135m", "llama", 30, 576, 1536, 9, 3, 64, 49152, 8192, 1e5f, 1e-5f, true, false},
    {"qwen3-0.6b", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1e6f, 1e-6f, true, false},
    {"llama-3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 5e5f, 1e-5f, false, true},
    {"qwen3-8b", "qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 40960, 1e6f, 1e-6f, false, false},
};

// A shape with an encoding, checked.
struct Recipe {
  const Shape* shape;
  const Architecture* architecture;
  Encoding encoding;
};

Result<Recipe> find_recipe(std::string_view shape_name, std::string_view encoding) {
  const auto shape = std::find_if(std::begin(kShapes), std::end(kShapes),
                                  [&](const Shape& candidate) { return shape_name == candidate.name; });
  if (shape == std::end(kShapes))
    return make_error(ErrorCode::kNotFound, "no such synthetic shape: expected {}, found \"{}\"",
                      fmt::join(synthetic_shapes(), ", "), printable(shape_name));
  const auto parsed = parse_encoding(encoding);
  if (!parsed) {
    std::vector<std::string> names;
    for (const auto& known : kEncodingGeometry) names.push_back(known.name);
    return make_error(ErrorCode::kUnsupported, "no such encoding: expected {}, found \"{}\"", fmt::join(names, ", "),
                      printable(encoding));
  }
  return Recipe{shape, find_architecture(shape->architecture), *parsed};
}

RopeParameters rope_parameters(const Shape& shape) {
  RopeParameters parameters;
  parameters.rope_dim = shape.head_dim;
  parameters.base = shape.rope_base;
  if (!shape.llama3_scaling) return parameters;
  parameters.factor = 8;
  parameters.original_context = 8192;
  parameters.divisors = llama3_divisors(parameters);  // as files have it, so that the written file is the same model
  return parameters;
}

ModelConfig make_config(const Recipe& recipe) {
  const Shape& shape = *recipe.shape;
  ModelConfig config;
  config.architecture = shape.architecture;
  config.name = fmt::format("synthetic {}", shape.name);
  config.width = shape.width;
  config.vocab_size = shape.vocab_size;
  config.context_max = shape.context_max;
  config.rms_eps = shape.rms_eps;
  config.rope_freqs = {rope_frequencies(rope_parameters(shape))};
  LayerSpec layer;
  layer.num_heads = shape.num_heads;
  layer.num_kv_heads = shape.num_kv_heads;
  layer.head_dim = layer.rope.dim = shape.head_dim;
  layer.attention_scale = static_cast<float>(1 / std::sqrt(double(shape.head_dim)));
  layer.qk_norm = recipe.architecture->qk_norm;
  layer.rope.pairing = recipe.architecture->rope_pairing;
  layer.ffn_width = shape.ffn_width;
  config.layers.assign(shape.num_layers, layer);
  assign_cache_groups(config.layers);
  return config;
}

bool ends_with(const std::string& name, const char* tensor) {
  return name.ends_with(fmt::format(".{}.weight", tensor));
}

// The layers whose v and down matrices get more bits: the first and last eighth and every third between.
bool has_more_bits(const std::string& name, uint32_t num_layers) {
  uint32_t layer = 0;
  std::from_chars(name.data() + std::strlen("blk."), name.data() + name.size(), layer);
  const uint32_t eighth = num_layers / 8;
  return layer < eighth || layer >= 7 * num_layers / 8 || (layer - eighth) % 3 == 2;
}

Encoding tensor_encoding(const Recipe& recipe, const std::string& name, uint64_t columns) {
  Encoding encoding = recipe.encoding;
  if (!is_quantized(encoding) || encoding == Encoding::kQ8_0) return encoding;
  const std::string head =
      recipe.shape->is_tied ? tensor_names::kEmbedding : fmt::format("{}.weight", tensor_names::kHead);
  const bool is_mix = encoding == Encoding::kQ4_K || encoding == Encoding::kQ5_K;
  const bool is_v_or_down = ends_with(name, tensor_names::kV) || ends_with(name, tensor_names::kDown);
  if (name == head || (is_mix && is_v_or_down && has_more_bits(name, recipe.shape->num_layers)))
    encoding = Encoding::kQ6_K;
  if (columns % geometry(encoding).elements_block == 0) return encoding;
  switch (encoding) {
    case Encoding::kQ4_K:
      return Encoding::kQ5_0;
    case Encoding::kQ5_K:
      return Encoding::kQ5_1;
    default:
      return Encoding::kQ8_0;
  }
}

class RandomTensors final : public TensorSource {
 public:
  RandomTensors(const Recipe& recipe, ModelStorage& storage) : recipe_(recipe), storage_(storage) {}

  bool has(const std::string& name) const override {
    const bool is_head = name == fmt::format("{}.weight", tensor_names::kHead);
    return !name.ends_with(".bias") && !name.ends_with("_cache.scale") && !(is_head && recipe_.shape->is_tied);
  }

  Result<WeightTensor> take(const std::string& name, uint64_t rows, uint64_t columns, bool is_vector) override {
    if (is_vector) return storage_.own(name, norm_weights(columns, seed_of(name)));
    return random(name, rows, columns);
  }
  Result<WeightTensor> take_stack(const std::string& name, uint64_t count, uint64_t rows, uint64_t columns) override {
    return random(name, count * rows, columns);
  }

 private:
  uint64_t seed_of(const std::string& name) const { return hash_name(name, hash_name(recipe_.shape->name)); }
  WeightTensor random(const std::string& name, uint64_t rows, uint64_t columns) const {
    WeightTensor tensor;
    tensor.name = name;
    tensor.encoding = tensor_encoding(recipe_, name, columns);
    tensor.rows = rows;
    tensor.columns = columns;
    tensor.generate = random_weights(tensor.encoding, columns, seed_of(name), 1 / std::sqrt(static_cast<double>(columns)));
    return tensor;
  }

  // Between 0.875 and 1.125: none alike, so that a norm applied to the wrong column shows.
  static std::vector<float> norm_weights(uint64_t columns, uint64_t seed) {
    std::vector<float> weights(columns);
    for (uint64_t i = 0; i < columns; ++i) {
      const uint64_t hash = hash_name({reinterpret_cast<const char*>(&i), sizeof(i)}, seed);
      weights[i] = 0.875f + static_cast<float>(hash >> 40) * 0x1p-26f;
    }
    return weights;
  }

  const Recipe& recipe_;
  ModelStorage& storage_;
};

Result<std::shared_ptr<Model>> make_model(const Recipe& recipe, const std::string& path) {
  auto model = std::make_shared<Model>();
  model->path = path;
  model->config = make_config(recipe);
  auto storage = std::make_shared<ModelStorage>();
  RandomTensors tensors(recipe, *storage);
  if (auto status = assemble_weights(*recipe.architecture, tensors, storage, model.get()); !status)
    return status.error();
  model->encoding = encoding_name(recipe.encoding);
  return model;
}

// The numbers of llama.cpp's file types, by encoding; k-quants are the "medium" mixes.
uint32_t file_type(Encoding encoding) {
  constexpr uint32_t kFileTypes[kNumEncodings] = {0, 1, 32, 2, 3, 8, 9, 7, 15, 17, 18};
  return kFileTypes[static_cast<int>(encoding)];
}

void add_metadata(const Recipe& recipe, const ModelConfig& config, GgufWriter* writer) {
  const std::string prefix = config.architecture + ".";
  writer->add_string("general.architecture", config.architecture);
  writer->add_string("general.type", "model");
  writer->add_string("general.name", config.name);
  writer->add_u32("general.file_type", file_type(recipe.encoding));
  writer->add_u32("general.quantization_version", 2);
  const LayerSpec& layer = config.layers.front();  // all are alike
  writer->add_u32(prefix + "block_count", config.num_layers());
  writer->add_u32(prefix + "context_length", config.context_max);
  writer->add_u32(prefix + "embedding_length", config.width);
  writer->add_u32(prefix + "feed_forward_length", layer.ffn_width);
  writer->add_u32(prefix + "attention.head_count", layer.num_heads);
  writer->add_u32(prefix + "attention.head_count_kv", layer.num_kv_heads);
  writer->add_u32(prefix + "attention.key_length", layer.head_dim);
  writer->add_u32(prefix + "attention.value_length", layer.head_dim);
  writer->add_f32(prefix + "attention.layer_norm_rms_epsilon", config.rms_eps);
  writer->add_f32(prefix + "rope.freq_base", recipe.shape->rope_base);
  writer->add_u32(prefix + "rope.dimension_count", layer.rope.dim);
  writer->add_u32(prefix + "vocab_size", config.vocab_size);
  add_placeholder_vocabulary(config.vocab_size, writer);
}

}  // namespace

std::vector<std::string> synthetic_shapes() {
  std::vector<std::string> names;
  for (const Shape& shape : kShapes) names.push_back(shape.name);
  return names;
}

Result<std::shared_ptr<const Model>> make_synthetic(const std::string& path) {
  std::string_view rest = std::string_view(path).substr(kSyntheticPrefix.size());
  const size_t colon = rest.find(':');
  if (colon == std::string_view::npos)
    return make_error(ErrorCode::kInvalidArgument,
                      "bad model name: expected synthetic:<shape>:<encoding>, found \"{}\"", printable(path));
  auto recipe = find_recipe(rest.substr(0, colon), rest.substr(colon + 1));
  if (!recipe) return recipe.error();
  auto model = make_model(*recipe, path);
  if (!model) return model.error();
  return std::shared_ptr<const Model>(*std::move(model));
}

Status write_synthetic_gguf(const std::string& shape, const std::string& encoding, const std::string& file,
                            const WriteProgress& progress) {
  auto recipe = find_recipe(shape, encoding);
  if (!recipe) return recipe.error();
  auto model = make_model(*recipe, "");
  if (!model) return model.error();
  GgufWriter writer;
  add_metadata(*recipe, (*model)->config, &writer);
  ModelStorage storage;
  WeightTensor divisors;
  if (recipe->shape->llama3_scaling) {
    divisors = storage.own(tensor_names::kRopeFactors, rope_parameters(*recipe->shape).divisors);
    writer.add_tensor(divisors);
  }
  const auto& tensors = (*model)->weights.tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (static_cast<WeightId>(i) != (*model)->rope_freqs.front()) writer.add_tensor(tensors[i]);
  }
  return writer.write(file, progress);
}

}  // namespace llmrt
