#include "core/model/synthetic.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <deque>

#include "core/model/architectures.h"
#include "core/model/assemble.h"
#include "core/model/draft_head.h"
#include "core/model/layer_rope.h"
#include "core/model/read_metadata.h"
#include "core/model/rope_frequencies.h"
#include "core/model/synthetic_shapes.h"
#include "core/model/synthetic_vocabulary.h"
#include "core/weights/canonical_metadata.h"
#include "core/weights/random_weights.h"

namespace llmrt {

namespace {

// A shape with an encoding, checked.
struct Recipe {
  std::shared_ptr<const Shape> shape;
  const Architecture* architecture;
  Encoding encoding;
  uint32_t num_working;  // layers; those behind them add nothing
};

// "SHAPE", "SHAPE@4" (its first four layers), "SHAPE@4+" (all of them, but those behind the fourth add nothing).
struct ShapeName {
  std::string_view shape;
  uint32_t num_layers = 0;  // 0 = all
  bool keeps_rest = false;
};

Result<ShapeName> parse_name(std::string_view text) {
  const size_t at = text.find('@');
  if (at == std::string_view::npos) return ShapeName{text};
  ShapeName name{text.substr(0, at)};
  std::string_view count = text.substr(at + 1);
  name.keeps_rest = count.ends_with('+');
  if (name.keeps_rest) count.remove_suffix(1);
  const auto [end, failure] = std::from_chars(count.data(), count.data() + count.size(), name.num_layers);
  if (failure == std::errc() && end == count.data() + count.size() && name.num_layers > 0) return name;
  return make_error(ErrorCode::kInvalidArgument, "bad synthetic shape: expected a number of layers behind @, found {}",
                    printable(text));
}

// The tensors that add to the stream in layers that should not.
bool adds_nothing(const Recipe& recipe, const std::string& name) {
  using namespace tensor_names;
  const std::optional<uint32_t> layer = layer_of(name);
  if (!layer || *layer < recipe.num_working) return false;
  const std::string_view last = std::string_view(name).substr(name.find('.', std::strlen("blk.")) + 1);
  const std::string_view part = last.substr(0, last.find('.'));
  return part == kOutput || part == kDown || part == kExpertDown || part == kSharedDown;
}

Result<Recipe> find_recipe(std::string_view text, std::string_view encoding) {
  const Result<ShapeName> name = parse_name(text);
  if (!name) return name.error();
  const std::string_view shape_name = name->shape;
  const Shape* shape = find_shape(shape_name);
  if (shape == nullptr)
    return make_error(ErrorCode::kNotFound, "no such synthetic shape: expected {}, found \"{}\"",
                      fmt::join(synthetic_shapes(), ", "), printable(shape_name));
  const auto parsed = parse_encoding(encoding);
  if (!parsed) {
    std::vector<std::string> names;
    for (const auto& known : kEncodingGeometry) names.push_back(known.name);
    return make_error(ErrorCode::kUnsupported, "no such encoding: expected {}, found \"{}\"", fmt::join(names, ", "),
                      printable(encoding));
  }
  auto own = std::make_shared<Shape>(*shape);
  const uint32_t num_working = name->num_layers > 0 ? name->num_layers : shape->num_layers;
  const bool has_parts = std::string_view(shape->parts).size() > 0;
  if (num_working > shape->num_layers || (name->num_layers > 0 && has_parts))
    return make_error(ErrorCode::kInvalidArgument, "bad synthetic shape: expected at most {} layers{}, found {}",
                      shape->num_layers, has_parts ? ", all of them as they are of several kinds" : "",
                      printable(text));
  if (!name->keeps_rest) own->num_layers = num_working;
  own->has_draft_layer &= name->num_layers == 0;
  return Recipe{std::move(own), find_architecture(shape->architecture), *parsed, num_working};
}

bool ends_with(const std::string& name, const char* tensor) {
  return name.ends_with(fmt::format(".{}.weight", tensor));
}

// Those of experts, and of one that is a part of their stack.
bool is_expert_stack(const Architecture& architecture, const std::string& name) {
  return name.ends_with("_exps.weight") ||
         (architecture.shared_experts == SharedExperts::kGated && name.ends_with("_shexp.weight"));
}

// Numbers of recurrent layers, which quantisers leave alone: they are stored in f32, between an eighth less and an
// eighth more than this. A rate of decay is below 0.
std::optional<float> middle_of(const std::string& name) {
  using namespace tensor_names;
  if (name.ends_with(fmt::format(".{}", kStateDecay))) return -0.5f;
  if (name.ends_with(fmt::format(".{}", kStateSkip))) return 1.0f;
  if (name.ends_with(fmt::format(".{}", kStateNorm))) return 1.0f;
  if (ends_with(name, kStateConv) || name.ends_with(fmt::format(".{}", kShortConv))) return 0.25f;
  if (name.ends_with(fmt::format(".{}", kSharedRouter))) return 0.0f;
  return {};
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
  if (ends_with(name, tensor_names::kRouter)) return Encoding::kF32;  // quantisers leave it alone
  if (!is_quantized(encoding) || encoding == Encoding::kQ8_0) return encoding;
  // In a file of experts in mxfp4 the other matrices have q8_0.
  if (encoding == Encoding::kMXFP4 && recipe.architecture->experts == Presence::kAlways &&
      !is_expert_stack(*recipe.architecture, name))
    return Encoding::kQ8_0;
  const std::string head =
      recipe.shape->is_tied ? tensor_names::kEmbedding : fmt::format("{}.weight", tensor_names::kHead);
  if (encoding == Encoding::kFP8 && (name == head || name == tensor_names::kEmbedding)) return Encoding::kBF16;
  const bool is_mix = encoding == Encoding::kQ4_K || encoding == Encoding::kQ5_K;
  const bool is_v_or_down = ends_with(name, tensor_names::kV) || ends_with(name, tensor_names::kDown) ||
                            ends_with(name, tensor_names::kExpertDown) || ends_with(name, tensor_names::kSharedDown);
  if (name == head || (is_mix && is_v_or_down && has_more_bits(name, recipe.shape->num_layers)))
    encoding = encoding == Encoding::kMXFP4 ? Encoding::kQ8_0 : Encoding::kQ6_K;
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

// Random tensors of what is asked for; remembers them, as a file of the model has the same.
class RandomTensors final : public TensorSource {
 public:
  struct Made {
    WeightTensor tensor;
    uint64_t count;  // of the matrices in a stack
  };

  RandomTensors(const Recipe& recipe, ModelStorage& storage) : recipe_(recipe), storage_(storage) {}

  // What is optional: a head of its own, divisors of frequencies, and what files of an architecture always have.
  bool has(const std::string& name) const override {
    if (name == tensor_names::kRopeFactors) return recipe_.shape->llama3_scaling;
    const Architecture& architecture = *recipe_.architecture;
    if (name.ends_with(fmt::format(".{}", tensor_names::kExpertCorrection)))
      return architecture.is_latent || architecture.expert_scoring == ExpertScoring::kSigmoid;
    if (ends_with(name, "nextn.shared_head_norm")) return true;
    if (ends_with(name, tensor_names::kDeltaBetaAlpha)) return std::string_view(architecture.name) == "qwen3next";
    return name == fmt::format("{}.weight", tensor_names::kHead) && !recipe_.shape->is_tied;
  }

  Result<WeightTensor> take(const std::string& name, uint64_t rows, uint64_t columns, bool is_vector) override {
    if (name == tensor_names::kRopeFactors) return keep(storage_.own(name, divisors()), 1);
    const std::optional<float> middle = middle_of(name);
    if (name.ends_with(".bias") && adds_nothing(recipe_, name))
      return keep(storage_.own(name, std::vector<float>(rows * columns)), 1);
    if (!is_vector && !middle && !name.ends_with(".bias")) return keep(random(name, rows, columns), 1);
    // Norms are near 1, what is added near 0.
    WeightTensor tensor =
        storage_.own(name, vector(rows * columns, seed_of(name), middle.value_or(is_norm(name) ? 1.0f : 0.0f)));
    tensor.rows = rows;
    tensor.columns = columns;
    return keep(std::move(tensor), 1);
  }
  Result<WeightTensor> take_stack(const std::string& name, uint64_t count, uint64_t rows, uint64_t columns) override {
    return keep(random(name, count * rows, columns), count);
  }
  const std::deque<Made>& made() const { return made_; }

 private:
  // A layer that drafts asks for some of the model's once more.
  WeightTensor keep(WeightTensor tensor, uint64_t count) {
    const auto is_same = [&](const Made& made) { return made.tensor.name == tensor.name; };
    if (std::ranges::none_of(made_, is_same)) made_.push_back({tensor, count});
    return tensor;
  }
  uint64_t seed_of(const std::string& name) const { return hash_name(name, hash_name(recipe_.shape->name)); }

  WeightTensor random(const std::string& name, uint64_t rows, uint64_t columns) const {
    WeightTensor tensor;
    tensor.name = name;
    tensor.encoding = tensor_encoding(recipe_, name, columns);
    tensor.rows = rows;
    tensor.columns = columns;
    tensor.generate =
        random_weights(tensor.encoding, columns, seed_of(name), 1 / std::sqrt(static_cast<double>(columns)));
    // Zero bytes are zeros in every encoding.
    if (adds_nothing(recipe_, name))
      tensor.generate = [](uint64_t, std::span<std::byte> out) { std::ranges::fill(out, std::byte{0}); };
    return tensor;
  }

  static bool is_norm(const std::string& name) { return name.find("norm") != std::string::npos; }
  // Between an eighth less and an eighth more than the middle: none alike, so that one at the wrong column shows.
  static std::vector<float> vector(uint64_t columns, uint64_t seed, float middle) {
    std::vector<float> weights(columns);
    for (uint64_t i = 0; i < columns; ++i) {
      const uint64_t hash = hash_name({reinterpret_cast<const char*>(&i), sizeof(i)}, seed);
      weights[i] = middle - 0.125f + static_cast<float>(hash >> 40) * 0x1p-26f;
    }
    return weights;
  }

  // Factor 8 over 8,192 positions, bands 1 and 4.
  std::vector<float> divisors() const {
    RopeParameters parameters;
    parameters.rope_dim = recipe_.shape->head_dim;
    parameters.base = recipe_.shape->rope_base;
    parameters.factor = 8;
    parameters.original_context = 8192;
    return llama3_divisors(parameters);
  }

  const Recipe& recipe_;
  ModelStorage& storage_;
  std::deque<Made> made_;
};

// The metadata of the recipe, as a file has it.
Result<ModelConfig> make_config(const Recipe& recipe, TensorSource& tensors) {
  Metadata metadata;
  std::deque<std::string> kept;
  CanonicalMetadata out(&metadata, &kept);
  const std::string prefix = fmt::format("{}.", recipe.architecture->name);
  out.add_string("general.name", fmt::format("synthetic {}", recipe.shape->name));
  each_key(*recipe.shape, [&](const ShapeKey& key) {
    const std::vector<int32_t> numbers = recipe.shape->numbers_of(key);
    if (!numbers.empty())
      out.add_u32s(prefix + key.key, {numbers.begin(), numbers.end()});
    else if (key.text != nullptr)
      out.add_string(prefix + key.key, key.text);
    else if (key.is_integer)
      out.add_u64(prefix + key.key, static_cast<uint64_t>(key.value));
    else
      out.add_f64(prefix + key.key, static_cast<float>(key.value));
  });
  auto config = read_config(*recipe.architecture, metadata);
  if (!config) return config;
  config->vocab_size = recipe.shape->vocab_size;
  if (auto status = set_rope(*recipe.architecture, metadata, tensors, &*config); !status) return status.error();
  return config;
}

Result<std::shared_ptr<Model>> make_model(const Recipe& recipe, const std::string& path,
                                          const std::shared_ptr<ModelStorage>& storage, RandomTensors& tensors) {
  auto model = std::make_shared<Model>();
  model->path = path;
  auto config = make_config(recipe, tensors);
  if (!config) return config.error();
  model->config = *std::move(config);
  if (auto status = assemble_weights(*recipe.architecture, tensors, storage, model.get()); !status)
    return status.error();
  model->encoding = encoding_name(recipe.encoding);
  if (!recipe.shape->has_draft_layer) return model;
  auto head = assemble_draft_head(*recipe.architecture, tensors, storage, *model);
  if (!head) return head.error();
  model->draft_head = *std::move(head);
  for (const RandomTensors::Made& made : tensors.made())
    if (tensor_names::layer_of(made.tensor.name) == model->config.num_layers())
      model->draft_tensors.push_back(made.tensor);
  return model;
}

// The numbers of llama.cpp's file types, by encoding; k-quants are the "medium" mixes.
uint32_t file_type(Encoding encoding) {
  // fp8 has none: no file is written.
  constexpr uint32_t kFileTypes[kNumEncodings] = {0, 1, 32, 2, 3, 8, 9, 7, 15, 17, 18, 38, 0};
  return kFileTypes[static_cast<int>(encoding)];
}

void add_metadata(const Recipe& recipe, const ModelConfig& config, GgufWriter* writer) {
  const std::string prefix = config.architecture + ".";
  writer->add_string("general.architecture", config.architecture);
  writer->add_string("general.type", "model");
  writer->add_string("general.name", config.name);
  writer->add_u32("general.file_type", file_type(recipe.encoding));
  writer->add_u32("general.quantization_version", 2);
  each_key(*recipe.shape, [&](const ShapeKey& key) {
    const std::vector<int32_t> numbers = recipe.shape->numbers_of(key);
    if (!numbers.empty())
      writer->add_i32s(prefix + key.key, numbers);
    else if (key.text != nullptr)
      writer->add_string(prefix + key.key, key.text);
    else if (key.is_integer)
      writer->add_u32(prefix + key.key, static_cast<uint32_t>(key.value));
    else
      writer->add_f32(prefix + key.key, static_cast<float>(key.value));
  });
  add_placeholder_vocabulary(config.vocab_size, writer);
}

}  // namespace

std::vector<std::string> synthetic_shapes() {
  std::vector<std::string> names;
  for (const Shape& shape : shapes()) names.push_back(shape.name);
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
  const auto storage = std::make_shared<ModelStorage>();
  RandomTensors tensors(*recipe, *storage);
  auto model = make_model(*recipe, path, storage, tensors);
  if (!model) return model.error();
  return std::shared_ptr<const Model>(*std::move(model));
}

Status write_synthetic_gguf(const std::string& shape, const std::string& encoding, const std::string& file,
                            const WriteProgress& progress) {
  auto recipe = find_recipe(shape, encoding);
  if (!recipe) return recipe.error();
  const auto storage = std::make_shared<ModelStorage>();
  RandomTensors tensors(*recipe, *storage);
  auto model = make_model(*recipe, "", storage, tensors);
  if (!model) return model.error();
  GgufWriter writer;
  add_metadata(*recipe, (*model)->config, &writer);
  for (const RandomTensors::Made& made : tensors.made()) writer.add_tensor(made.tensor, made.count);
  return writer.write(file, progress);
}

}  // namespace llmrt
