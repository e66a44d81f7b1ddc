// Aim: a Hugging Face folder becomes the model that a GGUF file of the same weights is, and whatever would change its
// text or lead outside of its files is refused by name. Equal answers are shown by tests/models/folder_test.py.
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <filesystem>
#include <fstream>

#include "core/model/model_digest.h"
#include "core/weights/hf_folder.h"
#include "tests/weights/changed_file.h"

namespace llmrt::test {
namespace {

using Catch::Matchers::ContainsSubstring;

constexpr uint32_t kWidth = 8, kFfn = 16, kVocab = 6;

// `text` with `from` replaced, which must be there.
std::string changed(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

const std::string kConfig = R"({"architectures":["Qwen2ForCausalLM"],"model_type":"qwen2","hidden_size":8,
  "num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,"intermediate_size":16,"vocab_size":6,
  "rms_norm_eps":1e-6,"rope_theta":1000000.0,"max_position_embeddings":64,"tie_word_embeddings":true,
  "hidden_act":"silu","torch_dtype":"bfloat16","sliding_window":32,"use_sliding_window":false,"rope_scaling":null})";
const std::string kTokenizer = R"({"version":"1.0","truncation":null,"padding":null,
  "added_tokens":[{"id":3,"content":"<|im_end|>","special":true,"lstrip":false,"rstrip":false,"single_word":false,
  "normalized":false}],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,
  "trim_offsets":true,"use_regex":true},"post_processor":null,"decoder":{"type":"ByteLevel"},
  "model":{"type":"BPE","dropout":null,"unk_token":null,"vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]}})";

struct Matrix {
  const char *hf, *gguf;
  uint32_t rows, columns;  // rows 0: a vector
};
constexpr Matrix kTensors[] = {
    {"model.embed_tokens.weight", "token_embd.weight", kVocab, kWidth},
    {"model.norm.weight", "output_norm.weight", 0, kWidth},
    {"model.layers.0.input_layernorm.weight", "blk.0.attn_norm.weight", 0, kWidth},
    {"model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight", 0, kWidth},
    {"model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight", 8, kWidth},
    {"model.layers.0.self_attn.k_proj.weight", "blk.0.attn_k.weight", 4, kWidth},
    {"model.layers.0.self_attn.v_proj.weight", "blk.0.attn_v.weight", 4, kWidth},
    {"model.layers.0.self_attn.q_proj.bias", "blk.0.attn_q.bias", 0, 8},
    {"model.layers.0.self_attn.k_proj.bias", "blk.0.attn_k.bias", 0, 4},
    {"model.layers.0.self_attn.v_proj.bias", "blk.0.attn_v.bias", 0, 4},
    {"model.layers.0.self_attn.o_proj.weight", "blk.0.attn_output.weight", kWidth, 8},
    {"model.layers.0.mlp.gate_proj.weight", "blk.0.ffn_gate.weight", kFfn, kWidth},
    {"model.layers.0.mlp.up_proj.weight", "blk.0.ffn_up.weight", kFfn, kWidth},
    {"model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight", kWidth, kFfn},
};

// Small numbers that differ by tensor and element, as bf16.
uint16_t bits_of(size_t tensor, size_t i) {
  return static_cast<uint16_t>(0x3d00 + 16 * tensor + i % 16);
}

std::string gguf_file() {
  GgufBytes file;
  file.string("general.architecture", "qwen2");
  for (const auto& [key, value] : {std::pair{"block_count", 1u},
                                   {"embedding_length", kWidth},
                                   {"feed_forward_length", kFfn},
                                   {"attention.head_count", 2u},
                                   {"attention.head_count_kv", 1u},
                                   {"context_length", 64u}})
    file.u32(std::string("qwen2.") + key, value);
  file.f32("qwen2.attention.layer_norm_rms_epsilon", 1e-6f);
  file.f32("qwen2.rope.freq_base", 1e6f);
  for (size_t t = 0; t < std::size(kTensors); ++t) {
    const Matrix& matrix = kTensors[t];
    std::string data;
    for (size_t i = 0; i < size_t{std::max(matrix.rows, 1u)} * matrix.columns; ++i) {
      const uint16_t bits = bits_of(t, i);
      data += matrix.rows > 0 ? raw(bits) : raw(static_cast<uint32_t>(bits) << 16);
    }
    std::vector<uint64_t> dims = {matrix.columns};
    if (matrix.rows > 0) dims.push_back(matrix.rows);
    file.tensors.push_back({matrix.gguf, dims, matrix.rows > 0 ? 30u : 0u, data, {}, {}});
  }
  return file.build();
}

// Those of the tensors whose number modulo `of` is `part`.
std::string safetensors_file(size_t part = 0, size_t of = 1) {
  std::string header = "{", data;
  for (size_t t = part; t < std::size(kTensors); t += of) {
    const Matrix& matrix = kTensors[t];
    const size_t begin = data.size();
    for (size_t i = 0; i < size_t{std::max(matrix.rows, 1u)} * matrix.columns; ++i) data += raw(bits_of(t, i));
    const std::string shape =
        matrix.rows > 0 ? fmt::format("[{},{}]", matrix.rows, matrix.columns) : fmt::format("[{}]", matrix.columns);
    header += fmt::format(R"({}"{}":{{"dtype":"BF16","shape":{},"data_offsets":[{},{}]}})",
                          header.size() > 1 ? "," : "", matrix.hf, shape, begin, data.size());
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return raw<uint64_t>(header.size()) + header + data;
}

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / fmt::format("llmrt_hf_test_{}", ::getpid())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
    write("config.json", kConfig);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  void remove(const std::string& name) const { std::filesystem::remove(path_ / name); }
  Result<std::shared_ptr<const Model>> load() const { return load_model(path_.string()); }
  std::string message() const {
    const auto model = load();
    REQUIRE_FALSE(model.ok());
    return model.error().message;
  }

 private:
  std::filesystem::path path_;
};

std::string texts_message(const std::string& config, const std::string& tokenizer = kTokenizer) {
  const auto source = read_hf_texts({config, tokenizer, {}, {}, {}});
  return source ? "" : source.error().message;
}

TEST_CASE("a folder is the model that a GGUF file of the same weights is") {
  const std::string bytes = gguf_file();
  const auto gguf = load(bytes);
  REQUIRE(gguf.ok());
  Folder folder;
  folder.write("model.safetensors", safetensors_file());
  folder.write("tokenizer.json", kTokenizer);
  folder.write("tokenizer_config.json", R"({"eos_token":{"content":"<|im_end|>"},"chat_template":"{{ 1 }}"})");
  const auto model = folder.load();
  CAPTURE(model ? "" : model.error().message);
  REQUIRE(model.ok());
  CHECK(model_digest(**model) == model_digest(**gguf));
  const Vocabulary& vocabulary = *(*model)->vocabulary;
  CHECK(vocabulary.tokens == std::vector<std::string>{"a", "b", "ab", "<|im_end|>", "[PAD4]", "[PAD5]"});
  CHECK(vocabulary.types[3] == TokenType::kControl);
  CHECK(vocabulary.types[4] == TokenType::kUnused);
  CHECK(vocabulary.merges == std::vector<std::string>{"a b"});
  CHECK(vocabulary.eos == 3);
  CHECK(vocabulary.pre == "gpt-2");
  CHECK(vocabulary.chat_template == "{{ 1 }}");
  const auto tokenizer = Tokenizer::create(vocabulary);
  REQUIRE(tokenizer.ok());
  CHECK((*tokenizer)->encode("aba<|im_end|>") == std::vector<TokenId>{2, 0, 3});
  folder.write("chat_template.jinja", "{{ 2 }}");
  CHECK((*folder.load())->vocabulary->chat_template == "{{ 2 }}");

  // The same in two files.
  folder.remove("model.safetensors");
  std::string map;
  for (size_t t = 0; t < std::size(kTensors); ++t)
    map += fmt::format(R"({}"{}":"{}.safetensors")", t > 0 ? "," : "", kTensors[t].hf, t % 2);
  const std::string index = R"({"weight_map":{)" + map + "}}";
  for (size_t part = 0; part < 2; ++part) folder.write(fmt::format("{}.safetensors", part), safetensors_file(part, 2));
  folder.write("model.safetensors.index.json", index);
  REQUIRE(folder.load().ok());
  CHECK(model_digest(**folder.load()) == model_digest(**gguf));

  const auto refuse_index = [&](const std::string& from, const std::string& to, const char* message) {
    folder.write("model.safetensors.index.json", changed(index, from, to));
    CHECK_THAT(folder.message(), ContainsSubstring(message));
  };
  refuse_index("\"0.safetensors", "\"../0.safetensors", "expected the name of a safetensors file");
  refuse_index("\"0.safetensors", "\"/etc/0.safetensors", "expected the name of a safetensors file");
  refuse_index("model.norm.weight", "model.other.weight", "tensor model.norm.weight: expected one that");
  refuse_index("\"weight_map\":{", "\"weight_map\":{\"x\":\"1.safetensors\",", "missing tensor: x");
  refuse_index("\"weight_map\":{", "\"weight_map\":{\"x\":\"2.safetensors\",", "2.safetensors");
  folder.remove("model.safetensors.index.json");
  CHECK_THAT(folder.message(), ContainsSubstring("without model.safetensors or model.safetensors.index.json"));
}

TEST_CASE("tensors that the model does not have, or lacks, are refused") {
  Folder folder;
  folder.write("model.safetensors", changed(safetensors_file(), "self_attn.o_proj", "self_attn.x_proj"));
  CHECK_THAT(folder.message(), ContainsSubstring("tensor model.layers.0.self_attn.x_proj.weight: qwen2 has no such"));
  folder.write("model.safetensors", changed(safetensors_file(), "model.layers.0.mlp.up", "model.layers.9.mlp.up"));
  CHECK_THAT(folder.message(), ContainsSubstring("tensor model.layers.9.mlp.up_proj.weight: qwen2 has no such"));
  folder.write("model.safetensors", safetensors_file());
  CHECK(folder.load().ok());  // without a tokenizer: ids alone
  folder.write("vocab.json", "{}");
  CHECK_THAT(folder.message(), ContainsSubstring("expected tokenizer.json, found vocab.json"));
  folder.remove("vocab.json");
  folder.write("config.json", changed(kConfig, "\"tie_word_embeddings\":true", "\"tie_word_embeddings\":false"));
  CHECK_THAT(folder.message(), ContainsSubstring("missing tensor: lm_head.weight"));
}

TEST_CASE("what a config says beyond the known is refused by name") {
  CHECK(texts_message(kConfig) == "");
  const std::pair<std::string, std::string> cases[] = {
      {R"("scale_emb":12,)", "scale_emb: not a key that is known here, found 12"},
      {R"("attention_bias":true,)", "attention_bias: expected false"},
      {R"("quantization_config":{"bits":4},)",
       "quantization_config.quant_method: expected one that is supported, found nothing"},
      {R"("layer_types":["sliding_attention"],)",
       "layer_types: expected full_attention alone, as sliding_window is not set"},
      {R"("partial_rotary_factor":0.5,)", "partial_rotary_factor: expected 1, found 0.5"},
      {R"("rope_parameters":{"rope_type":"dynamic","factor":2},)",
       "rope_type: expected default, linear, llama3 or yarn"},
      {R"("rope_parameters":{"rope_type":"yarn","factor":2,"mscale":1},)", "mscale: not a key"},
      {R"("rope_parameters":{"rope_type":"llama3","factor":8},)", "low_freq_factor: expected a number, found nothing"},
      {R"("rope_parameters":{"rope_type":"default","rope_theta":5.0},)", "rope_theta: expected 5"},
      {R"("head_dim":-1,)", "head_dim: expected an integer in [1, 2147483647], found -1"},
  };
  for (const auto& [added, message] : cases)
    CHECK_THAT(texts_message(changed(kConfig, "{", "{" + added)), ContainsSubstring(message));
  CHECK_THAT(texts_message(changed(kConfig, "silu", "gelu")), ContainsSubstring("hidden_act: expected silu"));
  CHECK_THAT(texts_message(changed(kConfig, "Qwen2For", "OtherFor")), ContainsSubstring("architectures: expected"));
  CHECK_THAT(texts_message(changed(kConfig, "\"qwen2\"", "\"gpt2\"")),
             ContainsSubstring("model_type: expected one of llama, mistral"));
  CHECK_THAT(texts_message("[]"), ContainsSubstring("config.json: expected an object"));
  CHECK_THAT(texts_message(std::string(5u << 20, ' ')), ContainsSubstring("expected at most 4194304 bytes"));
}

TEST_CASE("what a tokenizer does beyond the known is refused by name") {
  const std::tuple<std::string, std::string, std::string> cases[] = {
      {"\"normalizer\":null", "\"normalizer\":{\"type\":\"Lowercase\"}",
       "normalizer: expected none or NFC, found Lowercase"},
      {"\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}",
       "normalizer: expected none with the pre_tokenizer of gpt-2"},
      {"\"add_prefix_space\":false", "\"add_prefix_space\":true", "pre_tokenizer: expected the steps of"},
      {"\"type\":\"BPE\"", "\"type\":\"Unigram\"", "model.type: expected BPE, found \"Unigram\""},
      {"\"unk_token\"", "\"byte_fallback\":true,\"unk_token\"", "pre_tokenizer: expected none behind"},
      {"\"dropout\":null", "\"dropout\":0.5", "model.dropout: expected none, found 0.5"},
      {"\"lstrip\":false", "\"lstrip\":true", "lstrip: expected false, found true"},
      {"\"id\":3", "\"id\":6", "expected an id below the 6 rows of the embedding, found 6"},
      {"\"ab\":2", "\"ab\":-2", "expected an id below the 6 rows of the embedding, found -2"},
      {"\"ab\":2", "\"ab\":1", "model.vocab: id 1: expected one token"},
      {"[\"a\",\"b\"]", "[\"a \",\"b\"]", "element 0: expected two texts without spaces"},
      {"\"post_processor\":null", "\"post_processor\":{\"type\":\"BertProcessing\"}",
       "post_processor: expected ByteLevel"},
      {"\"unk_token\"", "\"ignore_merges\":true,\"unk_token\"", "model.ignore_merges: expected false"},
  };
  for (const auto& [from, to, message] : cases)
    CHECK_THAT(texts_message(kConfig, changed(kTokenizer, from, to)), ContainsSubstring(message));
}

// SentencePiece's: every byte, and pieces that two merges make.
std::string piece_tokenizer(const std::string& steps) {
  std::string vocab = R"("<unk>":0,"</s>":1,"\u2581":2,"a":3,"b":4,"ab":5,"\u2581ab":6)";
  for (int byte = 0; byte < 256; ++byte) vocab += fmt::format(",\"<0x{:02X}>\":{}", byte, 7 + byte);
  return R"({"added_tokens":[{"id":0,"content":"<unk>","special":true},{"id":1,"content":"</s>","special":true},
    {"id":270,"content":"<image>","special":true}],)" +
         steps + R"(,"model":{"type":"BPE","byte_fallback":true,"fuse_unk":true,"unk_token":"<unk>","vocab":{)" +
         vocab + R"(},"merges":[["a","b"],["\u2581","ab"]]}})";
}
const std::string kReplace = R"({"type":"Replace","pattern":{"String":" "},"content":"\u2581"})";
const std::string kPrepended =
    R"("normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"\u2581"},)" + kReplace + "]}";

TEST_CASE("SentencePiece's tokenizer.json: bytes, merges as scores and as themselves, ends of answers") {
  const std::string config =
      changed(changed(kConfig, "\"vocab_size\":6", "\"vocab_size\":271"), "{", R"({"eos_token_id":1,)");
  const auto source = read_hf_texts({config, piece_tokenizer(kPrepended), {}, R"({"eos_token_id":[1,0,5,4]})", {}});
  CAPTURE(source ? "" : source.error().message);
  REQUIRE(source.ok());
  const Metadata& metadata = source->metadata;
  CHECK(*metadata.string("tokenizer.ggml.model") == "llama");
  CHECK(*metadata.boolean("tokenizer.ggml.add_space_prefix"));
  CHECK_FALSE(metadata.has("llmrt.space_prefix"));
  const auto types = metadata.integers("tokenizer.ggml.token_type", 0, 6);
  REQUIRE(types.ok());
  CHECK((*types)[0] == 2);
  CHECK((*types)[1] == 3);
  CHECK((*types)[7 + 255] == 6);
  CHECK((*types)[264] == 5);
  const auto scores = metadata.floats("tokenizer.ggml.scores");
  REQUIRE(scores.ok());
  CHECK((*scores)[5] == 0);
  CHECK((*scores)[6] == -1);
  CHECK(metadata.strings("llmrt.piece_merges")->size() == 2);
  CHECK(*metadata.integer("tokenizer.ggml.eot_token_id", 0, 300) == 0);
  CHECK(*metadata.integers("llmrt.end_token_ids", 0, 300) == std::vector<int64_t>{0, 5, 4});

  const auto message = [&](const std::string& steps) {
    const auto read = read_hf_texts({config, piece_tokenizer(steps), {}, {}, {}});
    return read ? std::string(*read->metadata.string("llmrt.space_prefix", "none")) : read.error().message;
  };
  const auto metaspace = [](const std::string& more) {
    return R"("pre_tokenizer":{"type":"Metaspace","replacement":"\u2581",)" + more + "}";
  };
  CHECK(message("\"normalizer\":" + kReplace) == "none");
  CHECK(message(metaspace(R"("prepend_scheme":"first","split":false)")) == "first_unless_blank");
  CHECK(message(metaspace(R"("prepend_scheme":"always","split":false)")) == "unless_blank");
  CHECK_THAT(message(metaspace(R"("prepend_scheme":"first")")), ContainsSubstring("split false"));
  CHECK_THAT(message(kPrepended + "," + metaspace(R"("prepend_scheme":"first","split":false)")),
             ContainsSubstring("pre_tokenizer: expected none behind"));
  CHECK_THAT(message(R"("normalizer":{"type":"Precompiled"})"), ContainsSubstring("found Precompiled"));
  CHECK_THAT(message(kPrepended + R"(,"decoder":{"type":"Fuse"})"), ContainsSubstring("decoder: expected Strip"));
  CHECK_THAT(message(kPrepended + R"(,"decoder":{"type":"WordPiece"})"), ContainsSubstring("found WordPiece"));
  const auto changed_tokenizer = [&](const std::string& from, const std::string& to) {
    const auto read = read_hf_texts({config, changed(piece_tokenizer(kPrepended), from, to), {}, {}, {}});
    return read ? "" : read.error().message;
  };
  CHECK_THAT(changed_tokenizer("\"<0x41>\"", "\"x\""), ContainsSubstring("found none of byte 65"));
  CHECK_THAT(changed_tokenizer(R"("</s>","special":true)", R"("</s>","special":true,"normalized":true)"),
             ContainsSubstring("\"</s>\": normalized: expected false"));
}

TEST_CASE("long-context scaling is held against what it may be") {
  const auto scaled = [](const std::string& scaling) {
    return texts_message(changed(kConfig, "\"rope_scaling\":null", "\"rope_scaling\":{" + scaling + "}"));
  };
  CHECK(scaled(R"("rope_type":"yarn","factor":4,"truncate":false,"attention_factor":null,"beta_fast":16)") == "");
  CHECK_THAT(scaled(R"("rope_type":"yarn","factor":0.5)"), ContainsSubstring("factor: expected at least 1, found 0.5"));
  CHECK_THAT(scaled(R"("rope_type":"yarn","factor":4,"beta_fast":1,"beta_slow":2)"),
             ContainsSubstring("beta_fast: expected above beta_slow 2"));
  CHECK_THAT(scaled(R"("rope_type":"yarn","factor":4,"attention_factor":0)"),
             ContainsSubstring("attention_factor: expected above 0"));
  CHECK_THAT(scaled(R"("rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":1,
    "original_max_position_embeddings":64)"),
             ContainsSubstring("high_freq_factor: expected above low_freq_factor 4"));
}

}  // namespace
}  // namespace llmrt::test
