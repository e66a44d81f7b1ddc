#include "core/weights/hf_steps.h"

#include <algorithm>
#include <array>

#include "core/weights/hf_json.h"

namespace llmrt {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";

// Steps that are Split by one expression each, then ByteLevel without its own.
struct SplitSteps {
  std::string_view name;
  bool has_nfc, ignores_merges;
  std::array<std::string_view, 6> regexes;  // empty ones at the end
};
constexpr std::string_view kDigits = "Digits";  // in place of an expression: the step that cuts every number alone
constexpr SplitSteps kSplitSteps[] = {
    {"llama-bpe",
     false,
     true,
     {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
    {"smaug-bpe",
     false,
     false,
     {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
    {"qwen2",
     true,
     false,
     {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
    {"qwen35",
     true,
     false,
     {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
    {"gpt-4o",
     false,
     false,
     {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
    {"tekken",
     false,
     true,
     {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
    {"deepseek-v3",
     false,
     false,
     {R"(\p{N}{1,3})", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
      R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
    {"deepseek-llm",
     false,
     false,
     {R"([\r\n])",
      R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)",
      R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)", "[一-龥ࠀ-一가-\uD7FF]+", kDigits}},
    {"deepseek-coder", false, false, {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", "[一-龥ࠀ-一가-\uD7FF]+", kDigits}},
};

bool is_byte_level(const JsonTree* step, bool use_regex) {
  return text_of(step, "type") == "ByteLevel" && is_flag(step, "add_prefix_space", false, true) &&
         is_flag(step, "use_regex", use_regex, true);
}

// Isolated: matches and what is between them are pieces. Removed and inverted: matches alone, which is the same where
// an expression leaves nothing out, as all those of one step do.
bool is_isolating_split(const JsonTree* step, bool is_only_one) {
  if (text_of(step, "type") != "Split") return false;
  const std::string_view behavior = text_of(step, "behavior");
  return (behavior == "Isolated" && is_flag(step, "invert", false, false)) ||
         (is_only_one && behavior == "Removed" && is_flag(step, "invert", true, false));
}

// Line ends inside an expression may be written as themselves.
std::string spelled_regex(const JsonTree* step) {
  std::string out;
  for (const char c : text_of(step->find("pattern"), "Regex")) {
    if (c == '\r' || c == '\n')
      out += c == '\r' ? "\\r" : "\\n";
    else
      out += c;
  }
  return out;
}

// The expressions of steps that are Splits and a ByteLevel; empty: they are not.
std::vector<std::string> split_regexes(const std::vector<const JsonTree*>& steps) {
  std::vector<std::string> regexes;
  if (steps.size() < 2 || steps.size() > 7 || !is_byte_level(steps.back(), false)) return {};
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    if (text_of(steps[i], "type") == kDigits && is_flag(steps[i], "individual_digits", true, false)) {
      regexes.emplace_back(kDigits);
      continue;
    }
    if (!is_isolating_split(steps[i], steps.size() == 2)) return {};
    regexes.push_back(spelled_regex(steps[i]));
  }
  return regexes;
}

bool has_regexes(const SplitSteps& known, const std::vector<std::string>& regexes) {
  for (size_t i = 0; i < known.regexes.size(); ++i)
    if (known.regexes[i] != (i < regexes.size() ? std::string_view(regexes[i]) : std::string_view())) return false;
  return !regexes.empty();
}

// "Replace" of a space by SentencePiece's mark.
bool is_space_to_mark(const JsonTree* step) {
  return text_of(step, "type") == "Replace" && text_of(step->find("pattern"), "String") == " " &&
         text_of(step, "content") == kSpaceMark;
}

Status read_piece_normalizer(const JsonTree& tokenizer, HfPieceSteps* out) {
  const auto steps = steps_of(tokenizer.find("normalizer"), "normalizers");
  const bool prepends =
      steps.size() == 2 && text_of(steps[0], "type") == "Prepend" && text_of(steps[0], "prepend") == kSpaceMark;
  if (!steps.empty() && !((prepends || steps.size() == 1) && is_space_to_mark(steps.back())))
    return refused_tokenizer(
        "normalizer: expected none, or Replace of spaces by U+2581, alone or behind Prepend of one, "
        "found {}",
        types_of(steps));
  out->adds_space = prepends;
  out->is_normalized = !steps.empty();
  return {};
}

Status read_metaspace(const JsonTree& step, HfPieceSteps* out) {
  const bool is_old = step.find("prepend_scheme") == nullptr;
  const std::string_view scheme =
      is_old ? (is_flag(&step, "add_prefix_space", true, true) ? "always" : "never") : text_of(&step, "prepend_scheme");
  if (text_of(&step, "replacement") != kSpaceMark || !is_flag(&step, "split", false, true) ||
      (scheme != "always" && scheme != "first" && scheme != "never"))
    return refused_tokenizer(
        "pre_tokenizer: expected Metaspace with the replacement U+2581, split false and a "
        "prepend_scheme always, first or never, found replacement {}, split {}, scheme {}",
        shown(step.find("replacement")), shown(step.find("split")), printable(scheme));
  out->adds_space = scheme != "never";
  if (out->adds_space) out->space_prefix = scheme == "first" ? "first_unless_blank" : "unless_blank";
  return {};
}

// What is made of the tokens again: the space that was put in front goes, and nothing else does.
Status check_piece_decoder(const JsonTree& tokenizer, const HfPieceSteps& steps) {
  bool strips = false;
  const auto decoders = steps_of(tokenizer.find("decoder"), "decoders");
  for (const JsonTree* step : decoders) {
    const std::string_view type = text_of(step, "type");
    const JsonTree *start = step->find("start"), *stop = step->find("stop");
    const bool is_strip = type == "Strip" && text_of(step, "content") == " " && start != nullptr && stop != nullptr &&
                          start->integer() != nullptr && *start->integer() == 1 && stop->integer() != nullptr &&
                          *stop->integer() == 0;
    const bool is_replace =
        type == "Replace" && text_of(step->find("pattern"), "String") == kSpaceMark && text_of(step, "content") == " ";
    if (!is_strip && !is_replace && type != "ByteFallback" && type != "Fuse" && type != "Metaspace")
      return refused_tokenizer(
          "decoder: expected Replace of U+2581, ByteFallback, Fuse and Strip of one space, found {}",
          types_of(decoders));
    strips = strips || is_strip || (type == "Metaspace" && !is_flag(step, "add_prefix_space", false, true));
  }
  if (!decoders.empty() && strips != steps.adds_space)
    return refused_tokenizer("decoder: expected {} of the space that {} put in front, found {}",
                             steps.adds_space ? "Strip" : "no Strip", steps.adds_space ? "is" : "is not",
                             types_of(decoders));
  return {};
}

}  // namespace

bool has_byte_fallback(const JsonTree& model) {
  return is_flag(&model, "byte_fallback", true, false);
}

Result<std::string_view> find_pre_name(const JsonTree& tokenizer, const JsonTree& model) {
  const auto normal = steps_of(tokenizer.find("normalizer"), "normalizers");
  const bool has_nfc = normal.size() == 1 && text_of(normal[0], "type") == "NFC";
  if (!normal.empty() && !has_nfc)
    return refused_tokenizer("normalizer: expected none or NFC, found {}", types_of(normal));
  const bool ignores_merges = is_flag(&model, "ignore_merges", true, false);
  const auto steps = steps_of(tokenizer.find("pre_tokenizer"), "pretokenizers");
  const std::vector<std::string> regexes = split_regexes(steps);
  SplitSteps found = {};
  if (steps.size() == 1 && is_byte_level(steps[0], true)) {
    found.name = "gpt-2";
  } else if (steps.size() == 2 && text_of(steps[0], "type") == "Digits" &&
             is_flag(steps[0], "individual_digits", true, false) && is_byte_level(steps[1], true)) {
    found.name = "smollm";
  } else {
    for (const SplitSteps& known : kSplitSteps)
      if (has_regexes(known, regexes) && (found.name.empty() || known.ignores_merges == ignores_merges)) found = known;
  }
  if (found.name.empty()) {
    std::string names = "gpt-2, smollm";
    for (const SplitSteps& known : kSplitSteps) names += fmt::format(", {}", known.name);
    return refused_tokenizer("pre_tokenizer: expected the steps of one of {}, found {}{}", names, types_of(steps),
                             regexes.empty() ? "" : " with the expression \"" + printable(regexes.back()) + "\"");
  }
  if (has_nfc != found.has_nfc)
    return refused_tokenizer("normalizer: expected {} with the pre_tokenizer of {}, found {}",
                             found.has_nfc ? "NFC" : "none", found.name, types_of(normal));
  if (ignores_merges != found.ignores_merges)
    return refused_tokenizer("model.ignore_merges: expected {} with the pre_tokenizer of {}", found.ignores_merges,
                             found.name);
  return found.name;
}

Result<HfPieceSteps> read_piece_steps(const JsonTree& tokenizer, const JsonTree& model) {
  HfPieceSteps out;
  if (auto status = read_piece_normalizer(tokenizer, &out); !status) return status.error();
  const auto steps = steps_of(tokenizer.find("pre_tokenizer"), "pretokenizers");
  // Gemma's files split at spaces, of which the normalizer has left none.
  const bool splits_nothing = steps.size() == 1 && text_of(steps[0], "type") == "Split" && out.is_normalized &&
                              text_of(steps[0]->find("pattern"), "String") == " " &&
                              is_flag(steps[0], "invert", false, false);
  const bool is_metaspace = steps.size() == 1 && text_of(steps[0], "type") == "Metaspace" && !out.is_normalized;
  if (is_metaspace) {
    if (auto status = read_metaspace(*steps[0], &out); !status) return status.error();
  } else if (!(steps.empty() && out.is_normalized) && !splits_nothing) {
    return refused_tokenizer(
        "pre_tokenizer: expected none behind a normalizer that replaces spaces, or Metaspace "
        "without one, found {}",
        types_of(steps));
  }
  if (is_flag(&model, "ignore_merges", true, false))
    return refused_tokenizer("model.ignore_merges: expected false with byte_fallback");
  if (auto status = check_piece_decoder(tokenizer, out); !status) return status.error();
  return out;
}

}  // namespace llmrt
