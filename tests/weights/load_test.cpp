// Aim: a model file becomes exactly the configuration, groups and vocabulary that it describes, or an error that names
// what is wrong with it. Method: a tiny whole model, made wrong in one place a case; real files where there are some.

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>

#include "core/model/decoder.h"
#include "core/model/load_file.h"
#include "core/model/model.h"
#include "core/model/model_digest.h"
#include "tests/text/colliding_names.h"
#include "tests/weights/changed_file.h"

using namespace llmrt;
using namespace llmrt::test;
using Catch::Matchers::ContainsSubstring;

namespace {

GgufBytes::Tensor& tensor(GgufBytes& file, std::string_view name) {
  for (auto& candidate : file.tensors)
    if (candidate.name == name) return candidate;
  throw std::runtime_error("no such tensor");
}
void remove_tensor(GgufBytes& file, std::string_view name) {
  std::erase_if(file.tensors, [&](const auto& candidate) { return candidate.name == name; });
}

std::vector<float> floats(const Model& model, WeightId id) {
  const WeightTensor& weights = model.weights.tensors.at(id);
  REQUIRE(weights.encoding == Encoding::kF32);
  std::vector<float> out(weights.columns * weights.rows);
  std::memcpy(out.data(), weights.data, out.size() * sizeof(float));
  return out;
}

struct WrongModel {
  const char* name;
  ErrorCode code;
  const char* message;
  std::function<void(GgufBytes&)> spoil;
};

const WrongModel kWrongModels[] = {
    {"unknown architecture", ErrorCode::kUnsupported, "found \"gemma2\"",
     [](auto& f) { replace_pair(f, "general.architecture", [&] { f.string("general.architecture", "gemma2"); }); }},
    {"no architecture", ErrorCode::kCorruptFile, "missing metadata: general.architecture",
     [](auto& f) { remove_pair(f, "general.architecture"); }},
    {"experts without their number", ErrorCode::kCorruptFile, "missing metadata: llama.expert_used_count",
     [](auto& f) { f.u32("llama.expert_count", 8); }},
    {"experts by another key", ErrorCode::kUnsupported, "llama.moe_every_n_layers: not a key that this decoder knows",
     [](auto& f) { f.u32("llama.moe_every_n_layers", 2); }},
    {"sliding window", ErrorCode::kUnsupported,
     "llama.attention.sliding_window: expected none below the context of 64, found 32",
     [](auto& f) { f.u32("llama.attention.sliding_window", 32); }},
    {"windows in a pattern without a width", ErrorCode::kCorruptFile,
     "missing metadata: llama.attention.sliding_window: expected the window of layer 0",
     [](auto& f) { f.u32("llama.attention.sliding_window_pattern", 6); }},
    {"scaled logits", ErrorCode::kUnsupported, "llama.logit_scale: scaled logits: expected 1, found 0.5",
     [](auto& f) { f.f32("llama.logit_scale", 0.5f); }},
    {"not causal", ErrorCode::kUnsupported, "llama.attention.causal: expected true",
     [](auto& f) { f.boolean("llama.attention.causal", false); }},
    {"another kind of norm", ErrorCode::kUnsupported, "llama.attention.layer_norm_epsilon: not a key",
     [](auto& f) { f.f32("llama.attention.layer_norm_epsilon", 1e-5f); }},
    {"rotation in sections", ErrorCode::kUnsupported, "llama.rope.dimension_sections: not a key",
     [](auto& f) {
       f.template array<int32_t>("llama.rope.dimension_sections", kI32, {16, 24, 24, 0});
     }},
    {"an embedding model", ErrorCode::kUnsupported, "llama.pooling_type: an embedding model: expected 0, found 3",
     [](auto& f) { f.u32("llama.pooling_type", 3); }},
    {"a model in several files", ErrorCode::kUnsupported,
     "split.count: this is part 1 of 3; models in one file are supported: merge the parts",
     [](auto& f) { f.u32("split.count", 3); }},
    {"a later part of a model", ErrorCode::kUnsupported,
     "split.no: this is part 2 of 2; models in one file are supported: merge the parts with llama.cpp's "
     "llama-gguf-split --merge, beginning with part 1 (...-00001-of-00002.gguf)",
     [](auto& f) {
       f.pairs.clear();  // a later part has nothing else
       f.u32("split.no", 1);
       f.u32("split.count", 2);
     }},
    {"an adapter", ErrorCode::kUnsupported, "general.type: expected a model, found an adapter (LoRA)",
     [](auto& f) {
       remove_pair(f, "llama.block_count");
       f.string("general.type", "adapter");
     }},
    {"an importance matrix", ErrorCode::kUnsupported, "general.type: expected a model, found an importance matrix",
     [](auto& f) {
       f.pairs.clear();
       f.string("general.type", "imatrix");
     }},
    {"a projector", ErrorCode::kUnsupported, "general.type: expected a model, found a projector",
     [](auto& f) { f.string("general.type", "mmproj"); }},
    {"an older projector", ErrorCode::kUnsupported, "general.architecture: expected a model, found a projector",
     [](auto& f) { replace_pair(f, "general.architecture", [&] { f.string("general.architecture", "clip"); }); }},
    {"no layers", ErrorCode::kCorruptFile, "llama.block_count: expected an integer in [1, 1024], found u32 0",
     [](auto& f) { replace_pair(f, "llama.block_count", [&] { f.u32("llama.block_count", 0); }); }},
    {"more layers than tensors", ErrorCode::kCorruptFile, "missing tensor: blk.1.attn_norm.weight",
     [](auto& f) { replace_pair(f, "llama.block_count", [&] { f.u32("llama.block_count", 2); }); }},
    {"fewer layers than tensors", ErrorCode::kUnsupported, "tensor blk.1.attn_norm.weight: llama has no such tensor",
     [](auto& f) { f.tensor_f32("blk.1.attn_norm.weight", {32}); }},
    {"heads that do not divide", ErrorCode::kCorruptFile, "expected a multiple of head_count_kv 3, found 2",
     [](auto& f) {
       replace_pair(f, "llama.attention.head_count_kv", [&] { f.u32("llama.attention.head_count_kv", 3); });
     }},
    {"odd head width", ErrorCode::kUnsupported, "key_length: expected an even number",
     [](auto& f) { f.u32("llama.attention.key_length", 15); }},
    {"v wider than k", ErrorCode::kUnsupported, "value_length: expected key_length 16, found 32",
     [](auto& f) { f.u32("llama.attention.value_length", 32); }},
    {"rotation wider than the head", ErrorCode::kCorruptFile, "rope.dimension_count: expected an even number up to 16",
     [](auto& f) { f.u32("llama.rope.dimension_count", 32); }},
    {"no epsilon", ErrorCode::kCorruptFile, "missing metadata: llama.attention.layer_norm_rms_epsilon",
     [](auto& f) { remove_pair(f, "llama.attention.layer_norm_rms_epsilon"); }},
    {"width against the embedding", ErrorCode::kCorruptFile,
     "shape mismatch: token_embd.weight: expected [64, 8], file has [32, 8] f32",
     [](auto& f) { replace_pair(f, "llama.embedding_length", [&] { f.u32("llama.embedding_length", 64); }); }},
    {"FFN width against its tensor", ErrorCode::kCorruptFile,
     "shape mismatch: blk.0.ffn_gate.weight: expected [32, 64], file has [32, 48] f32",
     [](auto& f) { replace_pair(f, "llama.feed_forward_length", [&] { f.u32("llama.feed_forward_length", 64); }); }},
    {"missing embedding", ErrorCode::kCorruptFile, "missing tensor: token_embd.weight",
     [](auto& f) { remove_tensor(f, "token_embd.weight"); }},
    {"missing norm", ErrorCode::kCorruptFile, "missing tensor: output_norm.weight: expected [32] f32",
     [](auto& f) { remove_tensor(f, "output_norm.weight"); }},
    {"transposed tensor", ErrorCode::kCorruptFile, "blk.0.ffn_down.weight: expected [48, 32], file has [32, 48]",
     [](auto& f) {
       tensor(f, "blk.0.ffn_down.weight").dims = {32, 48};
     }},
    {"norm in f16", ErrorCode::kUnsupported, "blk.0.ffn_norm.weight: expected f32, file has [32] f16",
     [](auto& f) {
       tensor(f, "blk.0.ffn_norm.weight") = {"blk.0.ffn_norm.weight", {32}, 1, std::string(64, '\0'), {}, {}};
     }},
    {"encoding without kernels", ErrorCode::kUnsupported,
     "blk.0.attn_k.weight: expected one of llmrt's encodings, file has [32, 16] iq4_nl",
     [](auto& f) {
       tensor(f, "blk.0.attn_k.weight") = {"blk.0.attn_k.weight", {32, 16}, 20, std::string(18 * 16, '\0'), {}, {}};
     }},
    {"NaN in a norm", ErrorCode::kCorruptFile, "bad tensor: output_norm.weight: element 0: expected a finite number",
     [](auto& f) {
       remove_tensor(f, "output_norm.weight");
       f.tensor_f32("output_norm.weight", {32}, std::numeric_limits<float>::quiet_NaN());
     }},
    {"q bias without k bias", ErrorCode::kCorruptFile, "missing tensor: blk.0.attn_k.bias: expected [16] f32",
     [](auto& f) { f.tensor_f32("blk.0.attn_q.bias", {32}); }},
    {"tensor of another architecture", ErrorCode::kUnsupported,
     "tensor blk.0.attn_q_norm.weight: llama has no such tensor",
     [](auto& f) { f.tensor_f32("blk.0.attn_q_norm.weight", {16}); }},
    {"a scale of cached keys without one of values", ErrorCode::kCorruptFile,
     "missing tensor: blk.0.attn_v_cache.scale: expected [1] f32",
     [](auto& f) { f.tensor_f32("blk.0.attn_k_cache.scale", {1}); }},
    {"a scale of cached values without one of keys", ErrorCode::kUnsupported,
     "tensor blk.0.attn_v_cache.scale: llama has no such tensor",
     [](auto& f) { f.tensor_f32("blk.0.attn_v_cache.scale", {1}); }},
    {"a negative scale of cached keys", ErrorCode::kCorruptFile,
     "bad tensor: blk.0.attn_k_cache.scale: expected a scale in [1e-12, 1e12], found -1",
     [](auto& f) { f.tensor_f32("blk.0.attn_k_cache.scale", {1}, -1.0f); }},
    {"unknown rope scaling", ErrorCode::kUnsupported, "expected none, linear, llama3 or yarn, found \"longrope\"",
     [](auto& f) { f.string("llama.rope.scaling.type", "longrope"); }},
    {"rope factors of the wrong length", ErrorCode::kCorruptFile, "shape mismatch: rope_freqs.weight: expected [8] f32",
     [](auto& f) { f.tensor_f32("rope_freqs.weight", {16}); }},
    {"rope factors of 0", ErrorCode::kCorruptFile, "rope_freqs.weight: expected factors in",
     [](auto& f) { f.tensor_f32("rope_freqs.weight", {8}, 0.0f); }},
    {"vocab_size against the embedding", ErrorCode::kCorruptFile, "llama.vocab_size: expected the 8 rows",
     [](auto& f) { f.u32("llama.vocab_size", 9); }},
    {"tokens against the embedding", ErrorCode::kCorruptFile,
     "tokens: expected 8 tokens, one a row of the embedding, found 2",
     [](auto& f) {
       replace_pair(f, "tokenizer.ggml.tokens", [&] { f.strings("tokenizer.ggml.tokens", {"a", "b"}); });
     }},
    {"types against tokens", ErrorCode::kCorruptFile, "token_type: expected 8 elements, one a token, found 1",
     [](auto& f) {
       replace_pair(f, "tokenizer.ggml.token_type",
                    [&] { f.template array<int32_t>("tokenizer.ggml.token_type", kI32, {1}); });
     }},
    {"type 7", ErrorCode::kCorruptFile, "token_type: element 0",
     [](auto& f) {
       replace_pair(f, "tokenizer.ggml.token_type", [&] {
         f.template array<int32_t>("tokenizer.ggml.token_type", kI32, {7, 1, 1, 1, 1, 1, 1, 1});
       });
     }},
    {"tokens without merges", ErrorCode::kCorruptFile, "missing metadata: tokenizer.ggml.merges",
     [](auto& f) { remove_pair(f, "tokenizer.ggml.merges"); }},
    {"SentencePiece without scores", ErrorCode::kCorruptFile, "missing metadata: tokenizer.ggml.scores",
     [](auto& f) { replace_pair(f, "tokenizer.ggml.model", [&] { f.string("tokenizer.ggml.model", "llama"); }); }},
    {"scores against tokens", ErrorCode::kCorruptFile, "scores: expected 8 elements, one a token, found 1",
     [](auto& f) {
       replace_pair(f, "tokenizer.ggml.model", [&] { f.string("tokenizer.ggml.model", "llama"); });
       f.template array<float>("tokenizer.ggml.scores", kF32, {0.5f});
     }},
    {"NaN score", ErrorCode::kCorruptFile, "scores: element 0: expected a finite number",
     [](auto& f) {
       replace_pair(f, "tokenizer.ggml.model", [&] { f.string("tokenizer.ggml.model", "llama"); });
       f.template array<float>("tokenizer.ggml.scores", kF32,
                               std::vector<float>(8, std::numeric_limits<float>::quiet_NaN()));
     }},
    {"eos beyond the vocabulary", ErrorCode::kCorruptFile, "eos_token_id: expected an integer in [0, 7], found u32 8",
     [](auto& f) { replace_pair(f, "tokenizer.ggml.eos_token_id", [&] { f.u32("tokenizer.ggml.eos_token_id", 8); }); }},
    {"add_bos without bos", ErrorCode::kCorruptFile, "bos_token_id: add_bos_token asks for it",
     [](auto& f) { f.boolean("tokenizer.ggml.add_bos_token", true); }},
    {"unknown tokenizer", ErrorCode::kUnsupported, "expected gpt2 or llama, found \"t5\"",
     [](auto& f) { replace_pair(f, "tokenizer.ggml.model", [&] { f.string("tokenizer.ggml.model", "t5"); }); }},
};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

TEST_CASE("the tiny model loads as it was written") {
  const std::string bytes = tiny_model().build();
  const auto loaded = load(bytes);
  REQUIRE(loaded.ok());
  const Model& model = **loaded;
  const ModelConfig& config = model.config;
  CHECK(config.architecture == "llama");
  CHECK(config.name == "tiny");
  CHECK(config.num_layers() == 1);
  CHECK(config.width == 32);
  CHECK(config.layers.front().ffn_width == 48);
  CHECK(config.layers.front().num_heads == 2);
  CHECK(config.layers.front().num_kv_heads == 1);
  CHECK(config.layers.front().head_dim == 16);
  CHECK(config.layers.front().rope.dim == 16);
  CHECK(config.layers.front().rope.pairing == RopePairing::kInterleaved);
  CHECK(config.rope_freqs.at(0).size() == 8);
  CHECK(config.rope_freqs.at(0)[1] == Catch::Approx(std::pow(10000.0, -0.125)));
  CHECK(config.layers.front().attention_scale == 0.25f);
  CHECK(config.vocab_size == 8);
  CHECK_FALSE(config.layers.front().qk_norm);
  CHECK(model.encoding == "f32");
  REQUIRE(model.rope_freqs.size() == 1);
  CHECK(floats(model, model.rope_freqs.front()) == config.rope_freqs.front());

  const WeightGroup& qkv = model.weights.groups.at(model.layers.at(0).qkv);
  CHECK(qkv.rows == 64);
  CHECK(qkv.columns == 32);
  CHECK(qkv.bias == -1);
  REQUIRE(qkv.segments.size() == 3);
  CHECK(model.weights.tensors.at(qkv.segments[1].tensor).name == "blk.0.attn_k.weight");
  const WeightGroup& head = model.weights.groups.at(model.head);
  REQUIRE(head.segments.size() == 1);
  CHECK(head.segments[0].tensor == model.embedding);  // tied
  CHECK(head.rows == 8);
  std::vector<std::string> names;  // what explain calls its matmuls
  for (const WeightGroup& group : model.weights.groups) names.push_back(group.name);
  CHECK(names == std::vector<std::string>{"blk.0.qkv", "blk.0.attn_output", "blk.0.gate_up", "blk.0.down", "head"});

  REQUIRE(model.vocabulary.has_value());
  CHECK(model.vocabulary->model == "gpt2");
  CHECK(model.vocabulary->tokens[6] == "ab");
  CHECK(model.vocabulary->types[7] == TokenType::kControl);
  CHECK(model.vocabulary->merges == std::vector<std::string>{"a b"});
  CHECK(model.vocabulary->eos == 7);
  CHECK(model.vocabulary->bos == -1);
  CHECK_FALSE(model.vocabulary->add_bos);
}

TEST_CASE("models that are wrong or unknown are refused by name") {
  for (const WrongModel& wrong : kWrongModels) {
    INFO(wrong.name);
    GgufBytes file = tiny_model();
    wrong.spoil(file);
    const std::string bytes = file.build();
    const auto model = load(bytes);
    REQUIRE_FALSE(model.ok());
    CHECK(model.error().code == wrong.code);
    CHECK_THAT(model.error().message, ContainsSubstring(wrong.message));
  }
}

TEST_CASE("scales of an fp8 KV cache go with the ops of their layer") {
  GgufBytes file = tiny_model();
  file.tensor_f32("blk.0.attn_k_cache.scale", {1}, 0.25f);
  file.tensor_f32("blk.0.attn_v_cache.scale", {1}, 0.5f);
  const std::string bytes = file.build(), plain_bytes = tiny_model().build();
  const auto model = load(bytes), plain = load(plain_bytes);
  REQUIRE(model.ok());
  REQUIRE(plain.ok());
  CHECK((*model)->has_kv_scales);
  CHECK_FALSE((*plain)->has_kv_scales);
  CHECK(model_digest(**model) != model_digest(**plain));
  int num_ops = 0;
  for (const Op& op : build_forward(**model, Caps{}, 1).ops) {
    const KvTensorScales* scales = nullptr;
    if (const auto* write = std::get_if<KvWrite>(&op)) scales = &write->scales;
    if (const auto* attention = std::get_if<PagedAttention>(&op)) scales = &attention->scales;
    if (scales == nullptr) continue;
    CHECK(scales->k == 0.25f);
    CHECK(scales->v == 0.5f);
    ++num_ops;
  }
  CHECK(num_ops == 2);
}

TEST_CASE("keys at their neutral value change nothing") {
  GgufBytes file = tiny_model();
  file.u32("llama.expert_count", 0);
  file.u32("llama.expert_used_count", 0);
  file.u32("llama.attention.sliding_window", 1u << 20);
  file.f32("llama.attn_logit_softcapping", 0);
  file.f32("llama.logit_scale", 1);
  file.boolean("llama.use_parallel_residual", false);
  file.boolean("llama.attention.causal", true);
  const std::string bytes = file.build();
  const auto model = load(bytes);
  REQUIRE(model.ok());
  CHECK((*model)->config.layers.front().window == 0);
  CHECK((*model)->config.layers.front().soft_cap == 0);
}

TEST_CASE("a model file cut at any byte is refused") {
  const std::string whole = tiny_model().build();
  REQUIRE(load(whole).ok());
  const size_t data_begin = whole.rfind("output_norm.weight") + 64;  // beyond, every byte is the same case
  for (size_t size = 0; size < data_begin; ++size) {
    INFO("cut at byte " << size);
    const std::string cut(whole.data(), size);
    CHECK_FALSE(load(cut).ok());
  }
  for (size_t size = data_begin; size < whole.size(); size += 997)
    CHECK_FALSE(load(std::string(whole.data(), size)).ok());
}

TEST_CASE("an own head, biases and mixed encodings become groups") {
  GgufBytes file = tiny_model();
  file.tensor_f32("output.weight", {32, 8});
  file.tensor_f32("blk.0.attn_q.bias", {32}, 1.0f);
  file.tensor_f32("blk.0.attn_k.bias", {16}, 2.0f);
  file.tensor_f32("blk.0.attn_v.bias", {16}, 3.0f);
  file.tensor_f32("blk.0.ffn_down.bias", {32}, 4.0f);
  file.tensor_f32("blk.0.ffn_gate.bias", {48}, 5.0f);
  file.tensor_f32("blk.0.ffn_up.bias", {48}, 6.0f);
  tensor(file, "blk.0.attn_v.weight") = {"blk.0.attn_v.weight", {32, 16}, 8, std::string(34 * 16, '\0'), {}, {}};
  const std::string bytes = file.build();
  const auto loaded = load(bytes);
  REQUIRE(loaded.ok());
  const Model& model = **loaded;
  const LayerWeights& layer = model.layers.at(0);
  CHECK(model.weights.groups.at(model.head).segments[0].tensor != model.embedding);
  const WeightGroup& qkv = model.weights.groups.at(layer.qkv);
  CHECK(model.weights.tensors.at(qkv.segments[0].tensor).encoding == Encoding::kF32);
  CHECK(model.weights.tensors.at(qkv.segments[2].tensor).encoding == Encoding::kQ8_0);
  const auto bias = floats(model, qkv.bias);
  REQUIRE(bias.size() == 64);
  CHECK(bias[31] == 1.0f);
  CHECK(bias[32] == 2.0f);
  CHECK(bias[48] == 3.0f);
  CHECK(floats(model, model.weights.groups.at(layer.gate_up).bias)[48] == 6.0f);
  CHECK(floats(model, model.weights.groups.at(layer.down).bias)[0] == 4.0f);
  CHECK(model.weights.groups.at(layer.output).bias == -1);
}

TEST_CASE("marks of fill-in-the-middle are read by their newer and older names; one past the end is none") {
  GgufBytes file = tiny_model();
  file.u32("tokenizer.ggml.fim_pre_token_id", 3);
  file.u32("tokenizer.ggml.prefix_token_id", 1);
  file.u32("tokenizer.ggml.suffix_token_id", 4);
  file.u32("tokenizer.ggml.fim_mid_token_id", 5);
  file.u32("tokenizer.ggml.fim_rep_token_id", 8);
  file.u32("tokenizer.ggml.padding_token_id", 8);
  const std::string bytes = file.build();
  const auto model = load(bytes);
  if (!model) FAIL(model.error().message);
  const Vocabulary& vocabulary = *(*model)->vocabulary;
  CHECK((vocabulary.fim.prefix == 3 && vocabulary.fim.suffix == 4 && vocabulary.fim.middle == 5));
  CHECK((vocabulary.fim.repo == -1 && vocabulary.fim.file == -1 && vocabulary.pad == -1));
}

TEST_CASE("a file without a tokenizer has no vocabulary") {
  GgufBytes file = tiny_model();
  for (const char* key : {"tokenizer.ggml.model", "tokenizer.ggml.tokens"}) remove_pair(file, key);
  const std::string bytes = file.build();
  const auto model = load(bytes);
  REQUIRE(model.ok());
  CHECK_FALSE((*model)->vocabulary.has_value());
}

namespace {

// ChatML tokens of the given types behind the tiny model's vocabulary.
GgufBytes chat_model(int32_t start_type, int32_t end_type, const std::string& chat_template) {
  GgufBytes file = tiny_model();
  for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.eos_token_id"})
    remove_pair(file, key);
  file.strings("tokenizer.ggml.tokens", {"a", "b", "c", "d", "<|im_start|>", "<|im_end|>", "ab", "<end>"});
  file.array<int32_t>("tokenizer.ggml.token_type", kI32, {1, 1, 1, 1, start_type, end_type, 1, 3});
  file.u32("tokenizer.ggml.eos_token_id", 7);
  file.string("tokenizer.chat_template", chat_template);
  return file;
}

std::vector<std::string> warnings_of(const GgufBytes& file, std::vector<TokenType>* types = nullptr) {
  const std::string bytes = file.build();
  const auto model = load(bytes);
  if (!model) FAIL(model.error().message);
  if (types) *types = (*model)->vocabulary->types;
  return (*model)->warnings;
}

constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";

}  // namespace

TEST_CASE("a file without a pre-tokenizer's name is loaded with a warning that tells what is assumed") {
  GgufBytes file = tiny_model();
  CHECK(warnings_of(file).empty());
  remove_pair(file, "tokenizer.ggml.pre");
  REQUIRE(warnings_of(file).size() == 1);
  CHECK_THAT(warnings_of(file)[0], ContainsSubstring("tokenizer.ggml.pre: missing: gpt-2 is assumed"));
  CHECK_THAT(warnings_of(file)[0], !ContainsSubstring("beginning-of-text"));
  file.u32("tokenizer.ggml.bos_token_id", 7);
  CHECK_THAT(warnings_of(file)[0], ContainsSubstring("no beginning-of-text token is added"));
  file.boolean("tokenizer.ggml.add_bos_token", false);
  CHECK_THAT(warnings_of(file)[0], !ContainsSubstring("beginning-of-text"));
}

TEST_CASE("turn tokens that are typed normal are control tokens where the template spells them") {
  std::vector<TokenType> types;
  CHECK(warnings_of(chat_model(3, 3, kChatMl), &types).empty());
  CHECK(warnings_of(chat_model(4, 4, kChatMl), &types).empty());
  CHECK(types[4] == TokenType::kUserDefined);

  const auto warnings = warnings_of(chat_model(1, 1, kChatMl), &types);
  REQUIRE(warnings.size() == 2);
  CHECK(warnings[0] ==
        "tokenizer.ggml.token_type: token 4 \"<|im_start|>\" is typed normal; the chat template spells it: it is taken "
        "as "
        "a control token");
  CHECK_THAT(warnings[1], ContainsSubstring("token 5 \"<|im_end|>\""));
  CHECK(types[4] == TokenType::kControl);
  CHECK(types[5] == TokenType::kControl);
  CHECK(types[0] == TokenType::kNormal);
}

TEST_CASE("turn tokens that no template spells are told, those that a key names are control tokens") {
  std::vector<TokenType> types;
  auto warnings = warnings_of(chat_model(1, 1, "{{ messages[0].content }}"), &types);
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], ContainsSubstring("token 5 \"<|im_end|>\" has the name of a token that ends a turn"));
  CHECK(types[5] == TokenType::kNormal);

  GgufBytes file = chat_model(1, 1, "{{ messages[0].content }}");
  replace_pair(file, "tokenizer.ggml.eos_token_id", [&] { file.u32("tokenizer.ggml.eos_token_id", 5); });
  warnings = warnings_of(file, &types);
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], ContainsSubstring("tokenizer.ggml.eos_token_id names it"));
  CHECK(types[5] == TokenType::kControl);

  replace_pair(file, "tokenizer.ggml.eos_token_id", [&] { file.u32("tokenizer.ggml.eos_token_id", 6); });
  CHECK_THAT(warnings_of(file, &types)[0],
             ContainsSubstring("token 6 \"ab\", which tokenizer.ggml.eos_token_id names"));
  CHECK(types[6] == TokenType::kNormal);
}

TEST_CASE("markers of a template that are no tokens are told") {
  const auto warnings = warnings_of(
      chat_model(3, 3, "<|im_start|>{{ '<|user|>' }}<|end|> {% if a <|b %}|> {% endif %}<|{{ role }}|><|im_start|>"));
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], ContainsSubstring("tokenizer.chat_template: \"<|end|>\", \"<|user|>\" are no token"));
}

TEST_CASE("names that somebody chose to collide load as fast as others") {
  constexpr size_t kCount = 12000;
  const auto best_s = [&](const std::vector<std::string>& names) {
    GgufBytes file = tiny_model();
    for (const std::string& name : names) {
      file.u32(name, 1);
      file.tensors.push_back({name, {1}, 0, std::string(4, '\0'), {}, {}});
    }
    const std::string bytes = file.build();
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      const auto source = parse_weight_source(as_span(bytes));
      REQUIRE(source.ok());
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return best;
  };
  CHECK(best_s(colliding_names(kCount, /*reserved=*/false)) < 3 * best_s(random_names(kCount)));
}

TEST_CASE("SmolLM2 loads with the numbers of its file") {
  const std::string path = environment("LLMRT_TEST_MODEL");
  if (path.empty()) SKIP("LLMRT_TEST_MODEL is not set");
  const auto loaded = load_model(path);
  REQUIRE(loaded.ok());
  const Model& model = **loaded;
  const ModelConfig& config = model.config;
  CHECK(config.architecture == "llama");
  CHECK(config.num_layers() == 30);
  CHECK(config.width == 576);
  CHECK(config.layers.front().ffn_width == 1536);
  CHECK(config.layers.front().num_heads == 9);
  CHECK(config.layers.front().num_kv_heads == 3);
  CHECK(config.layers.front().head_dim == 64);
  CHECK(config.vocab_size == 49152);
  CHECK(config.context_max == 8192);
  CHECK(config.rms_eps == 1e-5f);
  CHECK(config.layers.front().rope.pairing == RopePairing::kInterleaved);
  CHECK(config.rope_freqs.at(0)[31] == Catch::Approx(std::pow(100000.0, -62.0 / 64)));
  CHECK(config.layers.front().rope.magnitude == 1.0f);
  CHECK(model.encoding == "q4_1");
  CHECK(model.weights.groups.at(model.head).segments[0].tensor == model.embedding);
  CHECK(model.weights.tensors.at(model.embedding).encoding == Encoding::kQ8_0);
  CHECK(model.weights.tensors.size() == 272 + 1);  // and the RoPE frequencies
  CHECK(model.weights.groups.size() == 30 * 4 + 1);
  CHECK(model.vocabulary->merges.size() == 48900);
  CHECK(model.vocabulary->pre == "smollm");
  CHECK(model.vocabulary->bos == 1);
  CHECK(model.vocabulary->eos == 2);
  CHECK_FALSE(model.vocabulary->add_bos);
  CHECK_THAT(model.vocabulary->chat_template, ContainsSubstring("named SmolLM"));
}

TEST_CASE("Qwen2.5-Coder loads with the numbers of its file") {
  const std::string path = environment("LLMRT_TEST_MODEL_QWEN");
  if (path.empty()) SKIP("LLMRT_TEST_MODEL_QWEN is not set");
  const auto loaded = load_model(path);
  REQUIRE(loaded.ok());
  const Model& model = **loaded;
  const ModelConfig& config = model.config;
  CHECK(config.architecture == "qwen2");
  CHECK(config.num_layers() == 24);
  CHECK(config.width == 896);
  CHECK(config.layers.front().ffn_width == 4864);
  CHECK(config.layers.front().num_heads == 14);
  CHECK(config.layers.front().num_kv_heads == 2);
  CHECK(config.layers.front().head_dim == 64);
  CHECK(config.vocab_size == 151936);
  CHECK(config.context_max == 32768);
  CHECK(config.rms_eps == 1e-6f);
  CHECK(config.layers.front().rope.pairing == RopePairing::kHalves);
  CHECK(model.encoding == "q5_0");
  const WeightGroup& head = model.weights.groups.at(model.head);
  CHECK(head.segments[0].tensor != model.embedding);
  CHECK(model.weights.tensors.at(head.segments[0].tensor).encoding == Encoding::kQ8_0);
  CHECK(model.weights.tensors.at(model.embedding).encoding == Encoding::kQ5_0);
  const WeightGroup& qkv = model.weights.groups.at(model.layers.at(0).qkv);
  CHECK(model.weights.tensors.at(qkv.segments[0].tensor).encoding == Encoding::kQ5_0);
  CHECK(model.weights.tensors.at(qkv.segments[2].tensor).encoding == Encoding::kQ8_0);
  CHECK(floats(model, qkv.bias).size() == 896 + 2 * 128);
  CHECK(model.vocabulary->tokens.size() == 151936);
  CHECK(model.vocabulary->merges.size() == 151387);
  CHECK(model.vocabulary->pre == "qwen2");
  CHECK(model.vocabulary->eos == 151645);
}
