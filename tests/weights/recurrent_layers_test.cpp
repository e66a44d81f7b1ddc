// Aim: recurrent layers are where a file says and have the sizes that it says; what cannot be is refused with what was
// expected and found; and the rows that ops read are those of the file's tensors. Method: metadata of small models, and
// tensors of zeros of whatever shape is asked for.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>

#include "core/model/assemble.h"
#include "core/model/decoder.h"
#include "core/model/read_metadata.h"
#include "core/weights/weight_bytes.h"
#include "tests/weights/changed_file.h"

using namespace llmrt;
using namespace llmrt::test;
using Catch::Matchers::ContainsSubstring;

namespace {

using Change = std::function<void(GgufBytes&)>;

Result<ModelConfig> config_of(const char* architecture, const Change& change) {
  GgufBytes file;
  const std::string prefix = std::string(architecture) + ".";
  file.u32(prefix + "block_count", 4);
  file.u32(prefix + "context_length", 64);
  file.u32(prefix + "embedding_length", 32);
  file.u32(prefix + "feed_forward_length", 48);
  file.u32(prefix + "attention.head_count", 2);
  file.f32(prefix + "attention.layer_norm_rms_epsilon", 1e-5f);
  change(file);
  const std::string bytes = file.build();
  auto source = parse_weight_source(as_span(bytes));
  if (!source) return source.error();
  return read_config(*find_architecture(architecture), source->metadata);
}

void short_convs(GgufBytes& file) {
  file.array<uint32_t>("lfm2.attention.head_count_kv", kU32, {0, 1, 0, 1});
  file.u32("lfm2.shortconv.l_cache", 3);
}

struct DeltaSizes {
  uint32_t conv = 4, keys = 2, values = 4, state = 8, inner = 48;
};
Change delta(const DeltaSizes& sizes) {
  return [sizes](GgufBytes& file) {
    file.u32("qwen35.attention.head_count_kv", 1);
    file.u32("qwen35.ssm.conv_kernel", sizes.conv);
    file.u32("qwen35.ssm.group_count", sizes.keys);
    file.u32("qwen35.ssm.time_step_rank", sizes.values);
    file.u32("qwen35.ssm.state_size", sizes.state);
    file.u32("qwen35.ssm.inner_size", sizes.inner);
  };
}

std::string refusal(const Result<ModelConfig>& config) {
  REQUIRE_FALSE(config.ok());
  return config.error().message;
}

std::vector<bool> recurrent_of(const ModelConfig& config) {
  std::vector<bool> out;
  for (const LayerSpec& layer : config.layers) out.push_back(is_recurrent(layer.attention));
  return out;
}

// Zeros of the shape that is asked for, in ssm_in each row's number; only `present` is there of what is optional.
// `bad`: ones in that tensor.
class Zeros final : public TensorSource {
 public:
  Zeros(ModelStorage& storage, std::vector<std::string> present, std::string bad = "")
      : storage_(storage), present_(std::move(present)), bad_(std::move(bad)) {}
  bool has(const std::string& name) const override {
    return std::ranges::any_of(present_, [&](const std::string& part) { return name.ends_with(part); });
  }
  Result<WeightTensor> take(const std::string& name, uint64_t rows, uint64_t columns, bool) override {
    std::vector<float> numbers(rows * columns, name == bad_ ? 1.0f : 0.0f);
    for (size_t i = 0; i < numbers.size() && name.ends_with("ssm_in.weight"); ++i)
      numbers[i] = static_cast<float>(i / columns);
    WeightTensor tensor = storage_.own(name, std::move(numbers));
    tensor.rows = rows;
    tensor.columns = columns;
    return tensor;
  }
  Result<WeightTensor> take_stack(const std::string& name, uint64_t count, uint64_t rows, uint64_t columns) override {
    return take(name, count * rows, columns, false);
  }

 private:
  ModelStorage& storage_;
  std::vector<std::string> present_;
  std::string bad_;
};

uint64_t first_number(const WeightTensor& tensor, uint64_t row) {
  std::vector<float> numbers(tensor.columns);
  copy_weight_bytes(tensor, row * tensor.bytes_row(), std::as_writable_bytes(std::span(numbers)));
  return static_cast<uint64_t>(numbers[0]);
}

Status assemble(const ModelConfig& config, std::vector<std::string> present, Model* model, std::string bad = "") {
  model->config = config;
  model->config.vocab_size = 8;
  model->config.rope_freqs = {std::vector<float>(8)};
  const auto storage = std::make_shared<ModelStorage>();
  Zeros tensors(*storage, std::move(present), std::move(bad));
  return assemble_weights(*find_architecture(config.architecture), tensors, storage, model);
}

}  // namespace

TEST_CASE("layers without KV heads are short convolutions, whose states are a group of their own") {
  const auto config = config_of("lfm2", short_convs);
  REQUIRE(config.ok());
  CHECK(recurrent_of(*config) == std::vector<bool>{true, false, true, false});
  const LayerSpec& layer = config->layers[0];
  CHECK((layer.attention == AttentionKind::kShortConv && layer.num_heads == 0 && layer.head_dim == 0));
  CHECK((layer.recurrent.conv_width == 3 && layer.recurrent.state_columns() == 5 * 32));
  CHECK(layer.ffn_width == 48);
  const std::vector<CacheGroup> groups = cache_groups(config->layers);
  REQUIRE(groups.size() == 2);
  CHECK((groups[0].num_layers == 2 && groups[0].state_columns == 0 && groups[0].head_dim == 16));
  CHECK((groups[1].num_layers == 2 && groups[1].state_columns == 160));
  CHECK(check_layers(config->layers).ok());
}

TEST_CASE("layers of a delta rule are those of an array, else all but every n-th") {
  auto config = config_of("qwen35", delta({}));
  REQUIRE(config.ok());
  CHECK(recurrent_of(*config) == std::vector<bool>{true, true, true, false});
  const RecurrentSpec& spec = config->layers[0].recurrent;
  CHECK((spec.key_dim == 8 && spec.value_dim == 12 && spec.conv_columns == 2 * 16 + 48));
  CHECK((spec.state_first() == 6 * 80 && spec.state_columns() == 480 + 4 * 8 * 12 + 2 * 20 * 8 + 4 * 15 * 12 + 4 * 20));
  CHECK(spec.order == KeyHeadOrder::kModulo);
  config = config_of("qwen35", [](GgufBytes& file) {
    delta({})(file);
    file.array<uint8_t>("qwen35.attention.recurrent_layers", kBool, {1, 0, 0, 1});
    file.u32("qwen35.full_attention_interval", 2);
    file.string("llmrt.value_head_order", "divided");
  });
  REQUIRE(config.ok());
  CHECK(recurrent_of(*config) == std::vector<bool>{true, false, false, true});
  CHECK(config->layers[0].recurrent.order == KeyHeadOrder::kDivided);
}

TEST_CASE("sizes of recurrent layers that cannot be are refused with what was found") {
  CHECK_THAT(refusal(config_of("lfm2",
                               [](GgufBytes& file) {
                                 file.array<uint32_t>("lfm2.attention.head_count_kv", kU32, {0, 0, 0, 0});
                                 file.u32("lfm2.shortconv.l_cache", 3);
                               })),
             ContainsSubstring("expected attention in some layer, found it in none"));
  CHECK_THAT(refusal(config_of("lfm2",
                               [](GgufBytes& file) {
                                 file.array<uint32_t>("lfm2.attention.head_count_kv", kU32, {0, 1, 0, 1});
                               })),
             ContainsSubstring("shortconv.l_cache"));
  CHECK_THAT(refusal(config_of("lfm2",
                               [](GgufBytes& file) {
                                 file.array<uint32_t>("lfm2.attention.head_count_kv", kU32, {0, 1, 0, 1});
                                 file.u32("lfm2.shortconv.l_cache", 9);
                               })),
             ContainsSubstring("shortconv.l_cache: expected"));
  CHECK_THAT(refusal(config_of("qwen35", delta({.values = 3}))),
             ContainsSubstring("ssm.time_step_rank: expected a multiple of group_count 2, found 3"));
  CHECK_THAT(refusal(config_of("qwen35", delta({.inner = 50}))),
             ContainsSubstring("ssm.inner_size: expected 4 heads of a multiple of 4 numbers up to 256, found 50"));
  CHECK_THAT(refusal(config_of("qwen35", delta({.inner = 4 * 260}))), ContainsSubstring("up to 256, found 1040"));
  CHECK_THAT(refusal(config_of("qwen35", delta({.state = 10}))),
             ContainsSubstring("ssm.state_size: expected a multiple of 4, found 10"));
  CHECK_THAT(refusal(config_of("qwen35", delta({.keys = 0}))), ContainsSubstring("ssm.group_count"));
  CHECK_THAT(refusal(config_of("qwen35",
                               [](GgufBytes& file) {
                                 delta({})(file);
                                 file.array<uint8_t>("qwen35.attention.recurrent_layers", kBool, {1, 0});
                               })),
             ContainsSubstring("attention.recurrent_layers: expected 4 elements, one a layer, found 2"));
  CHECK_THAT(refusal(config_of("qwen3", [](GgufBytes& file) { file.u32("qwen3.ssm.state_size", 8); })),
             ContainsSubstring("ssm.state_size: recurrent layers: expected 0"));
}

TEST_CASE("rows of a delta rule lie in the same order whatever tensors hold them") {
  const auto config = config_of("qwen35", [](GgufBytes& file) {
    delta({})(file);
    file.string("llmrt.value_head_order", "divided");
  });
  REQUIRE(config.ok());
  Model apart, joined;
  REQUIRE(assemble(*config, {}, &apart).ok());
  REQUIRE(assemble(*config, {"ssm_in.weight", "ssm_ba.weight"}, &joined).ok());
  const auto group = [](const Model& model) {
    return model.weights.groups[static_cast<size_t>(model.layers[0].recurrent.in)];
  };
  CHECK(group(apart).rows == 80 + 48 + 2 * 4);
  CHECK(group(joined).rows == group(apart).rows);
  CHECK((!apart.config.layers[0].recurrent.gates_in_turn && joined.config.layers[0].recurrent.gates_in_turn));
  // Of each of the two key heads: 8 rows of q, 8 of k, 24 of v, 24 of z; each of one tensor, whose rows are gathered.
  std::vector<std::pair<uint64_t, uint64_t>> rows;
  for (const RowSegment& segment : group(joined).segments) rows.emplace_back(segment.row_begin, segment.num_rows);
  CHECK(rows == std::vector<std::pair<uint64_t, uint64_t>>{{0, 128}, {0, 8}});
  const WeightTensor& in = joined.weights.tensors[static_cast<size_t>(group(joined).segments[0].tensor)];
  std::vector<uint64_t> firsts;  // of eight rows each
  for (uint64_t row = 0; row < in.rows; row += 8) firsts.push_back(first_number(in, row));
  CHECK(firsts == std::vector<uint64_t>{0, 64, 8, 72, 16, 24, 32, 80, 88, 96, 40, 48, 56, 104, 112, 120});
}

TEST_CASE("what makes a state grow, or gates that are not in the rule's order, is refused") {
  const auto config = config_of("qwen35", delta({}));
  REQUIRE(config.ok());
  Model model;
  Status status = assemble(*config, {}, &model, "blk.1.ssm_a");
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().code == ErrorCode::kCorruptFile);
  CHECK_THAT(status.error().message, ContainsSubstring("bad tensor: blk.1.ssm_a: element 0: expected a number up to 0, "
                                                       "found 1"));
  Model other;
  status = assemble(*config, {"ssm_ba.weight"}, &other);
  REQUIRE_FALSE(status.ok());
  CHECK_THAT(status.error().message, ContainsSubstring("blk.0.ssm_ba.weight: expected ssm_beta and ssm_alpha"));
}

TEST_CASE("a list reads states in place of keys, and has no slots for them") {
  const auto config = config_of("lfm2", short_convs);
  REQUIRE(config.ok());
  Model model;
  REQUIRE(assemble(*config, {}, &model).ok());
  const OpList list = build_forward(model, Caps{}, 16);
  uint32_t convs = 0, writes = 0;
  for (const Op& op : list.ops) {
    if (const auto* conv = std::get_if<CausalConv>(&op)) {
      CHECK((conv->state.kv_group == 1 && conv->state.layer == convs && conv->width == 3 && !conv->silu));
      ++convs;
    }
    writes += std::holds_alternative<KvWrite>(op) ? 1 : 0;
    if (const auto* prepare = std::get_if<PrepareRows>(&op))
      CHECK((prepare->kv_slots[0] != kNoTensor && prepare->kv_slots[1] == kNoTensor));
  }
  CHECK((convs == 2 && writes == 2));
}
