// adapter_config.json: which modules are targets, which ranks and scales they have, and what is refused by name.
#include "core/adapter/peft_config.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

using namespace llmrt;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr const char* kQ0 = "model.layers.0.self_attn.q_proj";
constexpr const char* kQ12 = "model.layers.12.self_attn.q_proj";
constexpr const char* kUp2 = "model.layers.2.mlp.up_proj";

Result<PeftConfig> read(const std::string& members) {
  const std::string text = R"({"peft_type":"LORA")" + (members.empty() ? "" : "," + members) + "}";
  auto tree = parse_json_tree(text, "adapter_config.json");
  REQUIRE(tree.ok());
  return PeftConfig::read(*tree);
}
PeftConfig config_of(const std::string& members) {
  auto config = read(members);
  INFO((config.ok() ? "" : config.error().message));
  REQUIRE(config.ok());
  return *config;
}
bool has(const PeftConfig& config, std::string_view module) {
  const auto found = config.has(module);
  REQUIRE(found.ok());
  return *found;
}
void expect_refused(const std::string& members, const std::string& message, ErrorCode code = ErrorCode::kUnsupported) {
  INFO(members);
  const auto config = read(members);
  REQUIRE_FALSE(config.ok());
  CHECK_THAT(config.error().message, ContainsSubstring("adapter_config.json: " + message));
  CHECK(config.error().code == code);
  CHECK(config.error().message.size() < 600);
}

}  // namespace

TEST_CASE("targets are ends of names at a dot, whole names, expressions for whole names, or all but the head") {
  const PeftConfig ends = config_of(R"("target_modules":["q_proj","mlp.up_proj"])");
  CHECK(has(ends, kQ0));
  CHECK(has(ends, kUp2));
  CHECK(has(ends, "q_proj"));
  CHECK_FALSE(has(ends, "model.layers.0.self_attn.xq_proj"));
  CHECK_FALSE(has(ends, "model.layers.0.shared.up_proj"));
  CHECK_FALSE(has(ends, "model.layers.0.q_proj.inner"));
  const PeftConfig pattern = config_of(R"("target_modules":"model\\.layers\\.(0|2)\\..*(q|up)_proj")");
  CHECK(has(pattern, kQ0));
  CHECK(has(pattern, kUp2));
  CHECK_FALSE(has(pattern, kQ12));
  CHECK_FALSE(has(pattern, "a.model.layers.0.q_proj"));
  CHECK_FALSE(has(pattern, "model.layers.0.q_proj.inner"));
  const PeftConfig all = config_of(R"("target_modules":"All-Linear")");
  CHECK(has(all, kQ0));
  CHECK_FALSE(has(all, "lm_head"));
  CHECK_FALSE(has(config_of(""), kQ0));
  CHECK_FALSE(has(config_of(R"("target_modules":["q_proj"],"exclude_modules":["layers.0.self_attn.q_proj"])"), kQ0));
  CHECK(has(config_of(R"("target_modules":["q_proj"],"exclude_modules":".*layers\\.0\\..*")"), kQ12));
  CHECK_FALSE(has(config_of(R"("target_modules":["q_proj"],"exclude_modules":".*layers\\.0\\..*")"), kQ0));
}

TEST_CASE("layers_to_transform counts beside ends of names, not beside whole names and expressions") {
  const std::string layers = R"(,"layers_to_transform":[0,2])";
  CHECK(has(config_of(R"("target_modules":["q_proj","up_proj"])" + layers), kUp2));
  CHECK_FALSE(has(config_of(R"("target_modules":["q_proj"])" + layers), kQ12));
  CHECK(has(config_of(R"("target_modules":["model.layers.12.self_attn.q_proj"])" + layers), kQ12));
  CHECK(has(config_of(R"("target_modules":".*q_proj")" + layers), kQ12));
  CHECK(has(config_of(R"("target_modules":["q_proj"],"layers_to_transform":12)"), kQ12));
  CHECK(has(config_of(R"("target_modules":["q_proj"],"layers_to_transform":[])"), kQ12));
  const std::string lists = R"("target_modules":["q_proj"],"layers_to_transform":[12],"layers_pattern":)";
  CHECK(has(config_of(lists + R"("layers")"), kQ12));
  CHECK(has(config_of(lists + R"(["h","layers"])"), kQ12));
  CHECK_FALSE(has(config_of(lists + R"("h")"), kQ12));
  // The first number behind a name counts, not one of an expert.
  CHECK_FALSE(has(config_of(R"("target_modules":["up"],"layers_to_transform":[3])"), "model.layers.1.experts.3.up"));
}

TEST_CASE("the first pattern that matches the end of a name gives its rank and alpha") {
  const PeftConfig config =
      config_of(R"("r":16,"lora_alpha":32,"rank_pattern":{"q_proj":4,"layers.0.self_attn.q_proj":8,)"
                R"("^model.layers.2.mlp.up_proj":2,"^layers.1.mlp.up_proj":1},)"
                R"("alpha_pattern":{"(q|k)_proj":8,"layers.\\d+.mlp":1})");
  CHECK(*config.rank_of(kQ0) == 4);
  CHECK(*config.rank_of(kUp2) == 2);
  CHECK(*config.rank_of("model.layers.1.mlp.up_proj") == 16);
  CHECK(*config.rank_of("model.layers.0.self_attn.xq_proj") == 16);
  CHECK(*config.scale_of(kQ0) == 2);
  CHECK(*config.scale_of("model.layers.0.self_attn.v_proj") == 2);
  CHECK(*config.scale_of(kUp2) == 16);  // 32 / 2: "mlp" is not the end
  CHECK(*config_of(R"("r":16,"lora_alpha":6,"use_rslora":true)").scale_of(kQ0) == 1.5);
  const PeftConfig usual = config_of("");
  CHECK(*usual.rank_of(kQ0) == 8);
  CHECK(*usual.scale_of(kQ0) == 1);
}

TEST_CASE("what llmrt does not compute is refused by the name of its field") {
  const std::pair<const char*, const char*> kRefused[] = {
      {R"("use_dora":true)", "use_dora: expected none, found true"},
      {R"("lora_bias":true)", "lora_bias: expected none, found true"},
      {R"("bias":"all")", "bias: expected \"none\""},
      {R"("fan_in_fan_out":true)", "fan_in_fan_out: expected none"},
      {R"("modules_to_save":["lm_head"])", "modules_to_save: expected none"},
      {R"("trainable_token_indices":[1])", "trainable_token_indices: expected none"},
      {R"("layer_replication":[[0,4],[2,5]])", "layer_replication: expected none"},
      {R"("use_qalora":true)", "use_qalora: expected none"},
      {R"("use_bdlora":{"nblocks":2})", "use_bdlora: expected none"},
      {R"("loftq_config":{"loftq_bits":4})", "loftq_config: expected none"},
      {R"("corda_config":{"corda_method":"ipm"})", "corda_config: expected none"},
      {R"("lora_ga_config":{"direction":"ArBr"})", "lora_ga_config: expected none"},
      {R"("arrow_config":{"top_k":3})", "arrow_config: expected none"},
      {R"("kasa_config":{"beta":1})", "kasa_config: expected none"},
      {R"("monteclora_config":{"a":1})", "monteclora_config: expected none"},
      {R"("megatron_config":{"a":1})", "megatron_config: expected none"},
      {R"("ensure_weight_tying":true)", "ensure_weight_tying: expected none"},
      {R"("init_lora_weights":"pissa")", "init_lora_weights: expected a way to begin"},
      {R"("init_lora_weights":"pissa_niter_16")", "init_lora_weights: expected a way to begin"},
      {R"("init_lora_weights":"olora")", "init_lora_weights: expected a way to begin"},
      {R"("init_lora_weights":"corda")", "init_lora_weights: expected a way to begin"},
      {R"("init_lora_weights":"loftq")", "init_lora_weights: expected a way to begin"},
      {R"("init_lora_weights":"lora_ga")", "init_lora_weights: expected a way to begin"},
      {R"("init_lora_weights":3)", "init_lora_weights: expected a way to begin"},
      {R"("use_something_new":false)", "use_something_new: not a key that is known here, found false"},
      {R"("rank_pattern":{"q_proj":256})", "rank_pattern: q_proj: expected at most 128, found 256"},
      {R"("target_modules":"(q_proj")", "target_modules: expected a regular expression"},
      {R"("target_modules":"(*LIMIT_MATCH=1)q")", "target_modules: expected a regular expression"},
      {R"("layers_pattern":"a(b")", "layers_pattern: expected the name of a list of layers"},
  };
  for (const auto& [members, message] : kRefused) expect_refused(members, message);
  const std::pair<const char*, const char*> kBad[] = {
      {R"("r":"4")", "r: expected a positive integer"},
      {R"("r":-1)", "r: expected a positive integer"},
      {R"("lora_alpha":"x")", "lora_alpha: expected a number"},
      {R"("rank_pattern":{"q":1.5})", "rank_pattern: q: expected a positive integer"},
      {R"("rank_pattern":[1])", "rank_pattern: expected an object"},
      {R"("target_modules":[1])", "target_modules: expected names"},
      {R"("target_modules":{"q":1})", "target_modules: expected a list"},
      {R"("use_rslora":1)", "use_rslora: expected true or false"},
      {R"("layers_to_transform":["a"])", "layers_to_transform: expected integers"},
      {R"("target_parameters":"mlp.experts.gate_up_proj")", "target_parameters: expected a list of names"},
      {R"("target_parameters":[3])", "target_parameters: expected names, found 3"},
  };
  for (const auto& [members, message] : kBad) expect_refused(members, message, ErrorCode::kCorruptFile);
  for (const char* start : {"true", "false", "\"gaussian\"", "\"eva\"", "\"orthogonal\"", "\"mica\"", "null"})
    CHECK(read(fmt::format(R"("init_lora_weights":{})", start)).ok());
  // Absent, false, empty and null are the same.
  CHECK(read(R"("use_dora":false,"modules_to_save":null,"loftq_config":{},"target_parameters":[],"use_bdlora":null)")
            .ok());
  for (const char* type : {R"({"peft_type":"LOHA"})", R"({"r":4})", R"({"peft_type":1})", "[]", "3"}) {
    auto tree = parse_json_tree(type, "adapter_config.json");
    REQUIRE(tree.ok());
    CHECK_FALSE(PeftConfig::read(*tree).ok());
  }
}

TEST_CASE("an expression that takes too many steps is an error, not a wait") {
  const std::string_view many_as = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
  const PeftConfig config = config_of(R"("target_modules":"((a+)+)+b")");
  CHECK_FALSE(config.has(fmt::format("{}bx", many_as)).ok());
  const PeftConfig rank = config_of(R"("rank_pattern":{"((a|aa)+)+c":4},"target_modules":["q"])");
  CHECK_FALSE(rank.rank_of(fmt::format("{}cx", many_as)).ok());
  std::string many;
  for (int i = 0; i < 65; ++i) many += fmt::format("{}\"a{}+\":1", i > 0 ? "," : "", i);
  expect_refused(R"("rank_pattern":{)" + many + "}", "rank_pattern: expected at most 64 expressions");
  std::string names;
  for (int i = 0; i < 2000; ++i) names += fmt::format("{}\"model.layers.{}.q\":1", i > 0 ? "," : "", i);
  CHECK(*config_of(R"("rank_pattern":{)" + names + "}").rank_of("model.layers.1999.q") == 1);
}
