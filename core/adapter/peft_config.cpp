#include "core/adapter/peft_config.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

#include "core/adapter/adapter_builder.h"
#include "core/ops/adapter_ops.h"
#include "core/weights/metadata.h"

namespace llmrt {
namespace {

constexpr const char* kConfigFile = "adapter_config.json";
constexpr size_t kExpressionsMax = 64;  // of a file, those that are names apart

// Keys that say how an adapter was trained, or repeat others.
constexpr std::string_view kWithoutEffect[] = {
    "base_model_name_or_path", "revision",     "task_type",      "auto_mapping",
    "inference_mode",          "peft_version", "lora_dropout",   "megatron_core",
    "qalora_group_size",       "eva_config",   "runtime_config", "velora_config"};
constexpr std::string_view kRead[] = {"peft_type",
                                      "r",
                                      "lora_alpha",
                                      "target_modules",
                                      "target_parameters",
                                      "exclude_modules",
                                      "rank_pattern",
                                      "alpha_pattern",
                                      "use_rslora",
                                      "layers_to_transform",
                                      "layers_pattern",
                                      "init_lora_weights",
                                      "bias",
                                      "alora_invocation_tokens"};
// What is computed only as if these were absent, false, empty or null.
constexpr std::string_view kRefused[] = {
    "use_dora",           "lora_bias",       "fan_in_fan_out",    "modules_to_save", "trainable_token_indices",
    "layer_replication",  "use_qalora",      "use_bdlora",        "loftq_config",    "corda_config",
    "lora_ga_config",     "megatron_config", "monteclora_config", "arrow_config",    "kasa_config",
    "ensure_weight_tying"};
// Ways to begin the training that leave the model's own weights as they are.
constexpr std::string_view kPlainStarts[] = {"gaussian", "eva", "orthogonal", "mica"};

template <typename... Args>
Error refused_peft(fmt::format_string<Args...> format, Args&&... args) {
  return refused_adapter("{}: {}", kConfigFile, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Error bad_peft(fmt::format_string<Args...> format, Args&&... args) {
  return bad_adapter("{}: {}", kConfigFile, fmt::format(format, std::forward<Args>(args)...));
}

bool is_nothing(const JsonTree& value) {
  if (const bool* flag = value.boolean()) return !*flag;
  if (value.items() != nullptr) return value.items()->empty();
  if (value.members() != nullptr) return value.members()->empty();
  return value.is_null();
}

Status check_keys(const JsonTree& tree) {
  const auto is_in = [](std::span<const std::string_view> list, std::string_view name) {
    return std::ranges::find(list, name) != list.end();
  };
  for (const JsonMember& member : *tree.members()) {
    if (is_in(kWithoutEffect, member.name) || is_in(kRead, member.name)) continue;
    if (is_in(kRefused, member.name)) {
      if (!is_nothing(member.value))
        return refused_peft("{}: expected none, found {}", member.name, member.value.describe());
    } else if (!member.value.is_null()) {
      return refused_peft("{}: not a key that is known here, found {}", printable(member.name),
                          member.value.describe());
    }
  }
  return {};
}

Status check_start(const JsonTree& tree) {
  constexpr const char* kKey = "init_lora_weights";
  const JsonTree* start = tree.find(kKey);
  if (start == nullptr || start->boolean() != nullptr) return {};
  if (start->string() != nullptr && std::ranges::find(kPlainStarts, *start->string()) != std::end(kPlainStarts))
    return {};
  return refused_peft("{}: expected a way to begin that leaves the model's weights as they are, found {}", kKey,
                      start->describe());
}

// Absent or null: false.
Result<bool> read_flag(const JsonTree& tree, const char* key) {
  const JsonTree* found = tree.find(key);
  if (found == nullptr) return false;
  if (found->boolean() == nullptr) return bad_peft("{}: expected true or false, found {}", key, found->describe());
  return *found->boolean();
}

Result<uint64_t> read_rank(const JsonTree& value, const std::string& shown) {
  const int64_t* rank = value.integer();
  if (rank == nullptr || *rank < 1)
    return bad_peft("{}: expected a positive integer, found {}", shown, value.describe());
  if (*rank > int64_t{kAdapterRankMax})
    return refused_peft("{}: expected at most {}, found {}", shown, kAdapterRankMax, *rank);
  return static_cast<uint64_t>(*rank);
}

Result<double> read_alpha(const JsonTree& value, const std::string& shown) {
  double alpha = 0;
  if (!value.number(&alpha) || !std::isfinite(alpha))
    return bad_peft("{}: expected a number, found {}", shown, value.describe());
  return alpha;
}

// A text is a list of one.
Result<std::vector<std::string>> read_names(const JsonTree& value, const char* key) {
  if (value.string() != nullptr) return std::vector<std::string>{*value.string()};
  if (value.items() == nullptr || value.items()->size() > kPeftNamesMax)
    return bad_peft("{}: expected a list of up to {} names, found {}", key, kPeftNamesMax, value.describe());
  std::vector<std::string> names;
  for (const JsonTree& name : *value.items()) {
    if (name.string() == nullptr || name.string()->empty())
      return bad_peft("{}: expected names, found {}", key, name.describe());
    names.push_back(*name.string());
  }
  return names;
}

Status read_modules(const JsonTree& tree, const char* key, PeftModules* modules) {
  const JsonTree* found = tree.find(key);
  if (found == nullptr) return {};
  if (found->string() == nullptr) {
    auto names = read_names(*found, key);
    if (!names) return names.error();
    modules->names = *std::move(names);
    std::ranges::sort(modules->names);
    return {};
  }
  if (std::string lower = *found->string(); true) {
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (lower == "all-linear") {
      modules->all_linear = true;
      return {};
    }
  }
  auto pattern = NamePattern::create(*found->string(), fmt::format("{}: {}", kConfigFile, key));
  if (!pattern) return pattern.error();
  modules->pattern.push_back(*std::move(pattern));
  return {};
}

bool is_name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
}

// rank_pattern or alpha_pattern, in the file's order: the first that matches counts.
template <typename ReadValue>
Status read_rules(const JsonTree& tree, const char* key, size_t* num_expressions, ReadValue read_value,
                  std::vector<PeftRule>* rules) {
  const JsonTree* found = tree.find(key);
  if (found == nullptr) return {};
  if (found->members() == nullptr || found->members()->size() > kPeftPatternsMax)
    return bad_peft("{}: expected an object of up to {} members, found {}", key, kPeftPatternsMax, found->describe());
  for (const JsonMember& member : *found->members()) {
    const std::string shown = fmt::format("{}: {}", key, printable(member.name));
    auto value = read_value(member.value, shown);
    if (!value) return value.error();
    PeftRule rule;
    rule.value = static_cast<double>(*value);
    std::string_view expression = member.name;
    rule.from_start = expression.starts_with('^');
    if (rule.from_start) expression.remove_prefix(1);
    if (!expression.empty() && std::ranges::all_of(expression, is_name_char)) {
      rule.literal = expression;
    } else {
      if (++*num_expressions > kExpressionsMax)
        return refused_peft("{}: expected at most {} expressions, found more", key, kExpressionsMax);
      // As PEFT wraps it.
      auto pattern = NamePattern::create("(.*\\.)?(" + member.name + ")$", fmt::format("{}: {}", kConfigFile, key));
      if (!pattern) return pattern.error();
      rule.pattern.push_back(*std::move(pattern));
    }
    rules->push_back(std::move(rule));
  }
  return {};
}

Result<bool> matches(const PeftRule& rule, std::string_view module) {
  if (!rule.pattern.empty()) return rule.pattern.front().matches(module);
  if (module.size() < rule.literal.size()) return false;
  const size_t begin = module.size() - rule.literal.size();
  if (begin > 0 && (rule.from_start || module[begin - 1] != '.')) return false;
  for (size_t i = 0; i < rule.literal.size(); ++i)
    if (rule.literal[i] != '.' && rule.literal[i] != module[begin + i]) return false;
  return true;
}

// That of the first rule that matches, or `otherwise`.
Result<double> value_of(const std::vector<PeftRule>& rules, std::string_view module, double otherwise) {
  for (const PeftRule& rule : rules) {
    auto is_match = matches(rule, module);
    if (!is_match) return is_match.error();
    if (*is_match) return rule.value;
  }
  return otherwise;
}

// The number behind "<list>." in a module's name, the first one; `list` empty: any name.
std::optional<int64_t> layer_behind(std::string_view module, std::string_view list) {
  for (size_t begin = 0; begin < module.size();) {
    const size_t dot = module.find('.', begin), end = module.find('.', dot == std::string_view::npos ? dot : dot + 1);
    if (dot == std::string_view::npos || end == std::string_view::npos) return {};
    const std::string_view name = module.substr(begin, dot - begin), digits = module.substr(dot + 1, end - dot - 1);
    int64_t layer = 0;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), layer);
    const bool is_number = error == std::errc() && stop == digits.data() + digits.size() && layer >= 0;
    // Without a name for the list, PEFT asks for something in front of it.
    if (is_number && (list.empty() ? begin > 0 : name == list)) return layer;
    begin = dot + 1;
  }
  return {};
}

}  // namespace

Result<bool> PeftModules::has(std::string_view module) const {
  if (all_linear) return module != "lm_head" && !module.ends_with(".lm_head");
  if (!pattern.empty()) return pattern.front().matches(module);
  for (std::string_view end = module;;) {
    if (std::ranges::binary_search(names, end)) return true;
    const size_t dot = end.find('.');
    if (dot == std::string_view::npos) return false;
    end.remove_prefix(dot + 1);
  }
}

Result<PeftConfig> PeftConfig::read(const JsonTree& tree) {
  if (tree.members() == nullptr) return bad_peft("expected an object, found {}", tree.describe());
  const JsonTree* type = tree.find("peft_type");
  if (type == nullptr || type->string() == nullptr || *type->string() != "LORA")
    return refused_peft("peft_type: expected \"LORA\", found {}", type == nullptr ? "nothing" : type->describe());
  if (auto s = check_keys(tree); !s) return s.error();
  if (auto s = check_start(tree); !s) return s.error();
  if (const JsonTree* bias = tree.find("bias"); bias != nullptr && (!bias->string() || *bias->string() != "none"))
    return refused_peft("bias: expected \"none\", found {}", bias->describe());
  PeftConfig config;
  if (auto s = read_modules(tree, "target_modules", &config.targets_); !s) return s.error();
  if (auto s = read_modules(tree, "exclude_modules", &config.excluded_); !s) return s.error();
  config.excluded_.all_linear = false;
  if (const JsonTree* parameters = tree.find("target_parameters"); parameters != nullptr && !parameters->is_null()) {
    if (parameters->items() == nullptr)
      return bad_peft("target_parameters: expected a list of names, found {}", parameters->describe());
    if (auto s = read_modules(tree, "target_parameters", &config.parameters_); !s) return s.error();
  }
  if (const JsonTree* rank = tree.find("r")) {
    auto read = read_rank(*rank, "r");
    if (!read) return read.error();
    config.rank_ = *read;
  }
  if (const JsonTree* alpha = tree.find("lora_alpha")) {
    auto read = read_alpha(*alpha, "lora_alpha");
    if (!read) return read.error();
    config.alpha_ = *read;
  }
  size_t num_expressions = 0;
  if (auto s = read_rules(tree, "rank_pattern", &num_expressions, read_rank, &config.ranks_); !s) return s.error();
  if (auto s = read_rules(tree, "alpha_pattern", &num_expressions, read_alpha, &config.alphas_); !s) return s.error();
  auto stabilised = read_flag(tree, "use_rslora");
  if (!stabilised) return stabilised.error();
  config.is_rank_stabilised_ = *stabilised;
  if (auto s = config.read_layers(tree); !s) return s.error();
  return config;
}

Status PeftConfig::read_layers(const JsonTree& tree) {
  const auto read_integers = [&](const JsonTree& value, const char* key, std::vector<int64_t>* out) -> Status {
    if (value.integer() != nullptr) {
      out->push_back(*value.integer());
      return {};
    }
    if (value.items() == nullptr || value.items()->size() > kPeftNamesMax)
      return bad_peft("{}: expected a list of up to {} integers, found {}", key, kPeftNamesMax, value.describe());
    for (const JsonTree& item : *value.items()) {
      if (item.integer() == nullptr) return bad_peft("{}: expected integers, found {}", key, item.describe());
      out->push_back(*item.integer());
    }
    return {};
  };
  if (const JsonTree* layers = tree.find("layers_to_transform")) {
    if (auto s = read_integers(*layers, "layers_to_transform", &layers_); !s) return s;
    std::ranges::sort(layers_);
  }
  if (const JsonTree* lists = tree.find("layers_pattern")) {
    auto names = read_names(*lists, "layers_pattern");
    if (!names) return names.error();
    layer_lists_ = *std::move(names);
    std::erase(layer_lists_, "");
    for (const std::string& name : layer_lists_)
      if (!std::ranges::all_of(name, [](char c) { return c != '.' && is_name_char(c); }))
        return refused_peft("layers_pattern: expected the name of a list of layers, found {}", printable(name));
  }
  if (const JsonTree* tokens = tree.find("alora_invocation_tokens")) {
    constexpr const char* kKey = "alora_invocation_tokens";
    if (auto s = read_integers(*tokens, kKey, &invocation_tokens_); !s) return s;
    if (invocation_tokens_.empty()) return bad_peft("{}: expected tokens, found an empty list", kKey);
  }
  return {};
}

// layers_to_transform counts beside a list of names alone.
Result<bool> PeftConfig::has(std::string_view module) const {
  auto is_excluded = excluded_.has(module);
  if (!is_excluded || *is_excluded) return is_excluded ? Result<bool>(false) : is_excluded;
  auto is_target = targets_.has(module);
  if (!is_target || !*is_target || layers_.empty() || !targets_.pattern.empty()) return is_target;
  // A name that is listed whole is a target in any layer.
  if (std::ranges::binary_search(targets_.names, module)) return true;
  return is_chosen_layer(module);
}

// PEFT looks at the ends of names alone: neither excluded modules nor chosen layers count.
bool PeftConfig::has_parameter(std::string_view parameter) const {
  const Result<bool> has = parameters_.has(parameter);
  return has && *has;
}

bool PeftConfig::is_chosen_layer(std::string_view module) const {
  std::optional<int64_t> layer;
  if (layer_lists_.empty()) layer = layer_behind(module, "");
  for (const std::string& list : layer_lists_)
    if (!layer) layer = layer_behind(module, list);
  return layer && std::ranges::binary_search(layers_, *layer);
}

Result<uint64_t> PeftConfig::rank_of(std::string_view module) const {
  auto rank = value_of(ranks_, module, static_cast<double>(rank_));
  if (!rank) return rank.error();
  return static_cast<uint64_t>(*rank);
}

// alpha / r, or alpha / sqrt(r); alpha as GGUF files have it, in f32.
Result<double> PeftConfig::scale_of(std::string_view module) const {
  auto alpha = value_of(alphas_, module, alpha_);
  auto rank = rank_of(module);
  if (!alpha) return alpha;
  if (!rank) return rank.error();
  const auto r = static_cast<double>(*rank);
  return static_cast<double>(static_cast<float>(*alpha)) / (is_rank_stabilised_ ? std::sqrt(r) : r);
}

}  // namespace llmrt
