#include "core/model/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace llmrt {

namespace {

constexpr double kTurn = 2 * std::numbers::pi;

// llama3: long waves are stretched whole, short ones not at all, those between in proportion.
double llama3_divisor(const RopeParameters& parameters, double frequency) {
  const double turns = parameters.original_context * frequency / kTurn;  // over the original context
  if (turns < parameters.low_freq_factor) return parameters.factor;
  if (turns > parameters.high_freq_factor) return 1;
  const double smooth =
      (turns - parameters.low_freq_factor) / (parameters.high_freq_factor - parameters.low_freq_factor);
  return 1 / ((1 - smooth) / parameters.factor + smooth);
}

// YaRN: the pair, as a real number, that makes `turns` turns over the original context.
double yarn_pair(const RopeParameters& parameters, double turns) {
  return parameters.rope_dim * std::log(parameters.original_context / (turns * kTurn)) /
         (2 * std::log(parameters.base));
}

// YaRN: pairs up to beta_fast keep their frequency, pairs from beta_slow on are stretched, a ramp lies between.
double yarn_frequency(const RopeParameters& parameters, uint32_t pair, double frequency) {
  const double begin = yarn_pair(parameters, parameters.beta_fast), end = yarn_pair(parameters, parameters.beta_slow);
  const double low = std::max(parameters.truncates ? std::floor(begin) : begin, 0.0);
  const double high = std::min(parameters.truncates ? std::ceil(end) : end, parameters.rope_dim - 1.0);
  const double stretched = std::clamp((pair - low) / std::max(high - low, 0.001), 0.0, 1.0);
  return frequency / parameters.factor * stretched + frequency * (1 - stretched);
}

double plain_frequency(const RopeParameters& parameters, uint32_t pair) {
  return std::pow(parameters.base, -2.0 * pair / parameters.rope_dim);
}

Result<RopeScaling> read_scaling_type(const Metadata& metadata, const std::string& prefix, bool has_factor) {
  const std::string key = prefix + "rope.scaling.type";
  auto type = metadata.string(key, has_factor ? "linear" : "none");
  if (!type) return type.error();
  if (*type == "none") return RopeScaling::kNone;
  if (*type == "linear") return RopeScaling::kLinear;
  if (*type == "llama3") return RopeScaling::kLlama3;
  if (*type == "yarn") return RopeScaling::kYarn;
  return make_error(ErrorCode::kUnsupported,
                    "unsupported rope scaling: {}: expected none, linear, llama3 or yarn, found \"{}\"", key,
                    printable(*type));
}

constexpr const char* kYarnLogMultiplier = "rope.scaling.yarn_log_multiplier";

// The YaRN variants that would need another formula.
Status check_yarn_variants(const Metadata& metadata, const std::string& prefix, bool is_latent) {
  struct Neutral {
    const char* key;
    double value;
  };
  for (const auto& [name, neutral] : {Neutral{"rope.scaling.yarn_ext_factor", 1}, {kYarnLogMultiplier, 0}}) {
    if (is_latent && name == std::string_view(kYarnLogMultiplier)) continue;  // read_latent.cpp
    auto value = metadata.number(prefix + name, -1e6, 1e6, neutral);
    if (!value) return value.error();
    if (*value != neutral)
      return make_error(ErrorCode::kUnsupported, "unsupported rope scaling: {}{}: expected {}, found {}", prefix, name,
                        neutral, *value);
  }
  return {};
}

}  // namespace

std::vector<float> llama3_divisors(const RopeParameters& parameters) {
  std::vector<float> divisors(parameters.rope_dim / 2);
  for (uint32_t i = 0; i < divisors.size(); ++i)
    divisors[i] = static_cast<float>(llama3_divisor(parameters, plain_frequency(parameters, i)));
  return divisors;
}

std::vector<float> rope_frequencies(const RopeParameters& parameters) {
  std::vector<float> frequencies(parameters.rope_dim / 2);
  for (uint32_t i = 0; i < frequencies.size(); ++i) {
    double frequency = plain_frequency(parameters, i);
    if (!parameters.divisors.empty()) frequency /= parameters.divisors[i];
    switch (parameters.scaling) {
      case RopeScaling::kNone:
        break;
      case RopeScaling::kLinear:
        frequency /= parameters.factor;
        break;
      case RopeScaling::kLlama3:
        frequency /= llama3_divisor(parameters, frequency);
        break;
      case RopeScaling::kYarn:
        frequency = yarn_frequency(parameters, i, frequency);
        break;
    }
    frequencies[i] = static_cast<float>(frequency);
  }
  return frequencies;
}

Result<RopeParameters> read_rope_parameters(const Metadata& metadata, std::string_view prefix_view, uint32_t rope_dim,
                                            uint32_t context_max, const char* base_key) {
  const std::string prefix(prefix_view);
  RopeParameters parameters;
  parameters.rope_dim = rope_dim;
  std::optional<Error> error;
  const auto number = [&](const std::string& name, double min, double max, double fallback) {
    auto value = metadata.number(prefix + name, min, max, fallback);
    if (!value && !error) error = value.error();
    return value ? *value : fallback;
  };
  parameters.base = number(base_key, kRopeBaseMin, kRopeBaseMax, 10000);
  // Both spellings are kept: files from before rope.scaling.* say rope.scale_linear.
  parameters.factor = number("rope.scaling.factor", 0, 1e6, number("rope.scale_linear", 0, 1e6, 0));
  const bool has_factor = parameters.factor != 0;  // 0 says none, in either spelling
  if (!has_factor) parameters.factor = 1;
  if (error) return *error;
  auto scaling = read_scaling_type(metadata, prefix, has_factor);
  if (!scaling) return scaling.error();
  parameters.scaling = *scaling;
  auto original = metadata.integer(prefix + "rope.scaling.original_context_length", 1, 1u << 30, context_max);
  if (!original) return original.error();
  parameters.original_context = static_cast<double>(*original);
  parameters.magnitude = number("rope.scaling.attn_factor", 1e-3, 1e3, 1);
  if (*scaling == RopeScaling::kLlama3) {
    parameters.low_freq_factor = number("rope.scaling.low_freq_factor", 1e-3, 1e6, 1);
    parameters.high_freq_factor = number("rope.scaling.high_freq_factor", 1e-3, 1e6, 4);
    if (!error && parameters.high_freq_factor <= parameters.low_freq_factor)
      return make_error(ErrorCode::kCorruptFile,
                        "bad metadata: {}rope.scaling.high_freq_factor: expected above low_freq_factor {}, found {}",
                        prefix, parameters.low_freq_factor, parameters.high_freq_factor);
  }
  if (*scaling == RopeScaling::kYarn) {
    const bool is_latent = metadata.has(prefix + "attention.kv_lora_rank");
    if (auto status = check_yarn_variants(metadata, prefix, is_latent); !status) return status.error();
    auto truncates = metadata.boolean("llmrt.rope_yarn_truncate", true);  // a key of our own
    if (!truncates) return truncates.error();
    parameters.truncates = *truncates;
    parameters.beta_fast = number("rope.scaling.yarn_beta_fast", 1e-3, 1e6, 32);
    parameters.beta_slow = number("rope.scaling.yarn_beta_slow", 1e-3, 1e6, 1);
    // Where converters write it, it is Hugging Face's attention_factor: the whole magnitude.
    // Latent attention with a multiplier has it in the scale of scores instead.
    const bool is_in_scale = is_latent && number(kYarnLogMultiplier, 0, 100, 0) > 0;
    const double usual = parameters.factor > 1 && !is_in_scale ? 1 + 0.1 * std::log(parameters.factor) : 1.0;
    parameters.magnitude *= number("rope.scaling.yarn_attn_factor", 1e-3, 1e3, usual);
  }
  if (error) return *error;
  return parameters;
}

}  // namespace llmrt
