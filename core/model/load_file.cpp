#include "core/model/load_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/model/architectures.h"
#include "core/model/assemble.h"
#include "core/model/check_vocabulary.h"
#include "core/model/draft_head.h"
#include "core/model/layer_rope.h"
#include "core/model/read_metadata.h"

namespace llmrt {

namespace {

// Tensors of a file, each checked as it is taken; remembers which were, as one that is left over means a model that
// this decoder does not compute.
class FileTensors final : public TensorSource {
 public:
  explicit FileTensors(const WeightSource& source) : source_(source), is_taken_(source.tensors.size(), false) {}

  bool has(const std::string& name) const override { return source_.find(name) != nullptr; }

  Result<WeightTensor> take(const std::string& name, uint64_t rows, uint64_t columns, bool is_vector) override {
    return take_shape(name, {columns, rows, 1, 1}, is_vector);
  }

  Result<WeightTensor> take_stack(const std::string& name, uint64_t count, uint64_t rows, uint64_t columns) override {
    return take_shape(name, {columns, rows, count, 1}, false);
  }
  // Those of the layers [first, first + count), which nothing else takes: whatever an architecture has there. An
  // encoding that is not known is none to refuse a model for that does not read it.
  std::vector<WeightTensor> take_drafts(uint32_t first, uint32_t count) {
    std::vector<WeightTensor> drafts;
    for (size_t i = 0; i < is_taken_.size(); ++i) {
      const SourceTensor& tensor = source_.tensors[i];
      const auto layer = tensor_names::layer_of(tensor.name);
      if (is_taken_[i] || !layer || *layer < first || *layer - first >= count) continue;
      is_taken_[i] = true;
      if (tensor.encoding) drafts.push_back(weight_of(tensor));
    }
    return drafts;
  }
  // Result: how many tensors are left out, all of them of parts that read images.
  Result<size_t> expect_all_taken(const Architecture& architecture) const {
    size_t num_left_out = 0;
    for (size_t i = 0; i < is_taken_.size(); ++i) {
      if (is_taken_[i]) continue;
      if (!architecture.has_images || !tensor_names::is_of_images(source_.tensors[i].name))
        return make_error(ErrorCode::kUnsupported, "unsupported model: tensor {}: {} has no such tensor, file has {}",
                          printable(source_.tensors[i].name), architecture.name, describe(source_.tensors[i]));
      ++num_left_out;
    }
    return num_left_out;
  }

 private:
  Result<WeightTensor> take_shape(const std::string& name, const std::array<uint64_t, 4>& dims, bool is_vector) {
    const auto expected = [&] {
      if (is_vector) return fmt::format("[{}] f32", dims[0]);
      return dims[2] == 1 ? fmt::format("[{}, {}]", dims[0], dims[1])
                          : fmt::format("[{}, {}, {}]", dims[0], dims[1], dims[2]);
    };
    const SourceTensor* found = source_.find(name);
    if (found == nullptr)
      return make_error(ErrorCode::kCorruptFile, "missing tensor: {}: expected {}, found nothing", name, expected());
    if (found->dims != dims)
      return make_error(ErrorCode::kCorruptFile, "shape mismatch: {}: expected {}, file has {}", name, expected(),
                        describe(*found));
    if (!found->encoding || (is_vector && (found->encoding != Encoding::kF32 || found->generate)))
      return make_error(ErrorCode::kUnsupported, "unsupported encoding: {}: expected {}, file has {}", name,
                        is_vector ? "f32" : "one of llmrt's encodings", describe(*found));
    is_taken_[static_cast<size_t>(found - source_.tensors.data())] = true;
    WeightTensor tensor = weight_of(*found);
    if (is_vector) {
      if (auto status = check_finite(name, *found); !status) return status.error();
    }
    return tensor;
  }

  static WeightTensor weight_of(const SourceTensor& found) {
    WeightTensor tensor;
    tensor.name = found.name;
    tensor.encoding = *found.encoding;
    tensor.rows = found.dims[1] * found.dims[2];
    tensor.columns = found.dims[0];
    tensor.data = found.generate ? nullptr : found.bytes.data();
    tensor.generate = found.generate;
    return tensor;
  }

  // Norms and biases are few; a not-finite number there would spoil every token.
  static Status check_finite(const std::string& name, const SourceTensor& tensor) {
    for (size_t i = 0; i < tensor.bytes.size() / sizeof(float); ++i) {
      float value;
      std::memcpy(&value, tensor.bytes.data() + i * sizeof(float), sizeof(float));
      if (!std::isfinite(value))
        return make_error(ErrorCode::kCorruptFile, "bad tensor: {}: element {}: expected a finite number, found {}",
                          name, i, value);
    }
    return {};
  }

  const WeightSource& source_;
  std::vector<bool> is_taken_;
};

// The embedding's rows, which the tokenizer and <arch>.vocab_size must agree with.
Result<uint32_t> read_vocab_size(const WeightSource& source, const ModelConfig& config) {
  constexpr uint64_t kVocabMax = 1u << 24;
  const SourceTensor* embedding = source.find(tensor_names::kEmbedding);
  if (embedding == nullptr)
    return make_error(ErrorCode::kCorruptFile, "missing tensor: {}: expected [{}, vocabulary], found nothing",
                      tensor_names::kEmbedding, config.width);
  const uint64_t rows = embedding->dims[1];
  if (rows > kVocabMax)
    return make_error(ErrorCode::kCorruptFile, "shape mismatch: {}: expected at most {} rows, file has {}",
                      tensor_names::kEmbedding, kVocabMax, describe(*embedding));
  const std::string key = config.architecture + ".vocab_size";
  auto stated = source.metadata.integer(key, 1, kVocabMax, rows);
  if (!stated) return stated.error();
  if (*stated != rows)
    return make_error(ErrorCode::kCorruptFile, "bad metadata: {}: expected the {} rows of {}, found {}", key, rows,
                      tensor_names::kEmbedding, *stated);
  return static_cast<uint32_t>(rows);
}

}  // namespace

Result<std::shared_ptr<const Model>> load_from_source(const WeightSource& source, std::string path) {
  if (auto status = expect_whole_model(source.metadata); !status) return status.error();
  auto architecture = read_architecture(source.metadata);
  if (!architecture) return architecture.error();
  auto config = read_config(**architecture, source.metadata);
  if (!config) return config.error();
  auto vocab_size = read_vocab_size(source, *config);
  if (!vocab_size) return vocab_size.error();
  config->vocab_size = *vocab_size;

  auto model = std::make_shared<Model>();
  model->path = std::move(path);
  auto vocabulary = read_vocabulary(source.metadata, *vocab_size);
  if (!vocabulary) return vocabulary.error();
  model->vocabulary = *std::move(vocabulary);
  if (model->vocabulary) model->warnings = check_vocabulary(source.metadata, &*model->vocabulary);

  FileTensors tensors(source);
  if (auto status = set_rope(**architecture, source.metadata, tensors, &*config); !status) return status.error();
  model->config = *std::move(config);
  auto storage = std::make_shared<ModelStorage>();
  storage->source = source.owner;
  if (auto status = assemble_weights(**architecture, tensors, storage, model.get()); !status) return status.error();
  model->draft_tensors = tensors.take_drafts(model->config.num_layers(), model->config.num_draft_layers);
  if (model->config.num_draft_layers > 0) {
    auto head = assemble_draft_head(**architecture, tensors, storage, *model);
    if (head)
      model->draft_head = *std::move(head);
    else
      model->draft_head_lack = head.error().message;
  }
  auto num_left_out = tensors.expect_all_taken(**architecture);
  if (!num_left_out) return num_left_out.error();
  if (*num_left_out > 0)
    model->warnings.push_back(
        fmt::format("{} tensors of parts that read images are left out: text alone is read", *num_left_out));
  model->encoding = main_encoding(model->weights);
  return std::shared_ptr<const Model>(std::move(model));
}

}  // namespace llmrt
