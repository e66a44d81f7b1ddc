#include "core/text/pre_tokenizer.h"

#include <pcre2.h>

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "core/base/check.h"

namespace llmrt {
namespace {

// Hugging Face's engine (Oniguruma) knows Unicode 16, PCRE2 10.42 Unicode 14: the letters and numbers assigned since
// are spelled out, so that both agree whatever PCRE2's version is. tests/text/hf_compare.py walks every code point.
constexpr const char* kLetter =
    R"(\p{L}\x{1c89}\x{1c8a}\x{a7cb}-\x{a7cd}\x{a7da}-\x{a7dc}\x{105c0}-\x{105f3}\x{10d4a}-\x{10d65})"
    R"(\x{10d6f}-\x{10d85}\x{10ec2}-\x{10ec4}\x{1123f}\x{11240}\x{11380}-\x{11389}\x{1138b}\x{1138e})"
    R"(\x{11390}-\x{113b5}\x{113b7}\x{113d1}\x{113d3}\x{11bc0}-\x{11be0}\x{11f02}\x{11f04}-\x{11f10})"
    R"(\x{11f12}-\x{11f33}\x{1342f}\x{13441}-\x{13446}\x{13460}-\x{143fa}\x{16100}-\x{1611d})"
    R"(\x{16d40}-\x{16d6c}\x{18cff}\x{1b132}\x{1b155}\x{1df25}-\x{1df2a}\x{1e030}-\x{1e06d})"
    R"(\x{1e4d0}-\x{1e4eb}\x{1e5d0}-\x{1e5ed}\x{1e5f0}\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})";
constexpr const char* kNumber =
    R"(\p{N}\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{11f50}-\x{11f59}\x{16130}-\x{16139})"
    R"(\x{16d70}-\x{16d79}\x{1ccf0}-\x{1ccf9}\x{1d2c0}-\x{1d2d3}\x{1e4f0}-\x{1e4f9}\x{1e5f1}-\x{1e5fa})";
// The kinds of letters, and what the patterns that tell them apart need besides.
constexpr const char* kUpper = R"(\p{Lu}\p{Lt}\x{1c89}\x{a7cb}\x{a7cc}\x{a7da}\x{a7dc}\x{10d50}-\x{10d65})";
constexpr const char* kLower = R"(\p{Ll}\x{1c8a}\x{a7cd}\x{a7db}\x{10d70}-\x{10d85}\x{1df25}-\x{1df2a})";
// Modifiers, and letters without case.
constexpr const char* kCaseless =
    R"(\p{Lm}\p{Lo}\x{105c0}-\x{105f3}\x{10d4a}-\x{10d4f}\x{10d6f}\x{10ec2}-\x{10ec4}\x{1123f}\x{11240})"
    R"(\x{11380}-\x{11389}\x{1138b}\x{1138e}\x{11390}-\x{113b5}\x{113b7}\x{113d1}\x{113d3}\x{11bc0}-\x{11be0})"
    R"(\x{11f02}\x{11f04}-\x{11f10}\x{11f12}-\x{11f33}\x{1342f}\x{13441}-\x{13446}\x{13460}-\x{143fa})"
    R"(\x{16100}-\x{1611d}\x{16d40}-\x{16d6c}\x{18cff}\x{1b132}\x{1b155}\x{1e030}-\x{1e06d}\x{1e4d0}-\x{1e4eb})"
    R"(\x{1e5d0}-\x{1e5ed}\x{1e5f0}\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})";
constexpr const char* kMark =
    R"(\p{M}\x{897}\x{cf3}\x{ece}\x{10d69}-\x{10d6d}\x{10efc}-\x{10eff}\x{11241}\x{113b8}-\x{113c0}\x{113c2})"
    R"(\x{113c5}\x{113c7}-\x{113ca}\x{113cc}-\x{113d0}\x{113d2}\x{113e1}\x{113e2}\x{11f00}\x{11f01}\x{11f03})"
    R"(\x{11f34}-\x{11f3a}\x{11f3e}-\x{11f42}\x{11f5a}\x{13440}\x{13447}-\x{13455}\x{1611e}-\x{1612f}\x{1e08f})"
    R"(\x{1e4ec}-\x{1e4ef}\x{1e5ee}\x{1e5ef})";
constexpr const char* kPunctuation =
    R"(\p{P}\x{1b4e}\x{1b4f}\x{1b7f}\x{10d6e}\x{113d4}\x{113d5}\x{113d7}\x{113d8}\x{11b00}-\x{11b09}\x{11be1})"
    R"(\x{11f43}-\x{11f4f}\x{16d6d}-\x{16d6f}\x{1e5ff})";
constexpr const char* kSymbol =
    R"(\p{S}\x{2427}-\x{2429}\x{2ffc}-\x{2fff}\x{31e4}\x{31e5}\x{31ef}\x{10d8e}\x{10d8f}\x{1cc00}-\x{1ccef})"
    R"(\x{1cd00}-\x{1ceb3}\x{1f6dc}\x{1f774}-\x{1f776}\x{1f77b}-\x{1f77f}\x{1f7d9}\x{1f8b2}-\x{1f8bb}\x{1f8c0})"
    R"(\x{1f8c1}\x{1fa75}-\x{1fa77}\x{1fa87}-\x{1fa89}\x{1fa8f}\x{1faad}-\x{1faaf}\x{1fabb}-\x{1fabf}\x{1fac6})"
    R"(\x{1face}\x{1facf}\x{1fada}-\x{1fadc}\x{1fadf}\x{1fae8}\x{1fae9}\x{1faf7}\x{1faf8}\x{1fbcb}-\x{1fbef})";
// The smollm digit splitter asks Rust's standard library, which knows Unicode 17's numbers as well.
constexpr const char* kNumberSinceUnicode16 = R"(\x{11de0}-\x{11de9}\x{16ff4}-\x{16ff6})";
// White_Space as Oniguruma has it: PCRE2's \s also holds U+180E.
constexpr const char* kSpace = R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr const char* kContractions = "'s|'t|'re|'ve|'m|'ll|'d";

std::string gpt2_pattern() {
  return fmt::format("{contractions}| ?[{L}]+| ?[{N}]+| ?[^{s}{L}{N}]+|[{s}]+(?![^{s}])|[{s}]+",
                     fmt::arg("contractions", kContractions), fmt::arg("L", kLetter), fmt::arg("N", kNumber),
                     fmt::arg("s", kSpace));
}

// Two steps in one: first every number alone, then GPT-2's expression between them (so a number ends the text).
std::string smollm_pattern() {
  const std::string number = std::string(kNumber) + kNumberSinceUnicode16;
  return fmt::format("[{N}]|{contractions}| ?[{L}]+| ?[^{s}{L}{N}]+|[{s}]+(?![^{s}{N}])|[{s}]+",
                     fmt::arg("contractions", kContractions), fmt::arg("L", kLetter), fmt::arg("N", number),
                     fmt::arg("s", kSpace));
}

// Llama 3 and Qwen 2 differ in how many digits go together.
std::string llama3_pattern(const char* digits) {
  return fmt::format(
      "(?i:{contractions})|[^\\r\\n{L}{N}]?[{L}]+|[{N}]{digits}| ?[^{s}{L}{N}]+[\\r\\n]*|[{s}]*[\\r\\n]+"
      "|[{s}]+(?![^{s}])|[{s}]+",
      fmt::arg("contractions", kContractions), fmt::arg("L", kLetter), fmt::arg("N", kNumber),
      fmt::arg("digits", digits), fmt::arg("s", kSpace));
}

std::string llama_bpe_pattern() {
  return llama3_pattern("{1,3}");
}
std::string qwen2_pattern() {
  return llama3_pattern("");
}

// As Qwen 2, with marks among the letters.
std::string qwen35_pattern() {
  return fmt::format(
      "(?i:{contractions})|[^\\r\\n{L}{N}]?[{L}{M}]+|[{N}]| ?[^{s}{L}{M}{N}]+[\\r\\n]*|[{s}]*[\\r\\n]+"
      "|[{s}]+(?![^{s}])|[{s}]+",
      fmt::arg("contractions", kContractions), fmt::arg("L", kLetter), fmt::arg("M", kMark), fmt::arg("N", kNumber),
      fmt::arg("s", kSpace));
}

// o200k and Tekken: a word is capitals, then small letters, so a capital begins another.
std::string cased_pattern(const char* digits, const std::string& behind_words) {
  const std::string head = fmt::format("{}{}{}", kUpper, kCaseless, kMark);
  const std::string tail = fmt::format("{}{}{}", kLower, kCaseless, kMark);
  return fmt::format(
      "[^\\r\\n{L}{N}]?[{head}]*[{tail}]+{behind}|[^\\r\\n{L}{N}]?[{head}]+[{tail}]*{behind}|[{N}]{digits}"
      "| ?[^{s}{L}{N}]+[\\r\\n/]*|[{s}]*[\\r\\n]+|[{s}]+(?![^{s}])|[{s}]+",
      fmt::arg("L", kLetter), fmt::arg("N", kNumber), fmt::arg("head", head), fmt::arg("tail", tail),
      fmt::arg("behind", behind_words), fmt::arg("digits", digits), fmt::arg("s", kSpace));
}
std::string gpt4o_pattern() {
  return cased_pattern("{1,3}", fmt::format("(?i:{})?", kContractions));
}
std::string tekken_pattern() {
  return cased_pattern("", "");
}

// Three steps in one: numbers, then runs of Chinese characters and Japanese syllables (C), then the rest between them,
// so both end a text. What no alternative of the steps takes (controls, unassigned ones) is a piece up to what one
// does.
std::string deepseek_v3_pattern() {
  return fmt::format(
      "[{N}]{{1,3}}|[{C}]+|[!-/:-@\\[-`{{-~][A-Za-z]+|[^\\r\\n{L}{P}{S}{N}{C}]?(?:(?![{C}])[{L}{M}])++"
      "| ?(?:(?![{C}])[{P}{S}])++[\\r\\n]*|[{s}]*[\\r\\n]+|[{s}]+(?![^{s}{N}{C}])|[{s}]+"
      "|(?:[^{L}{M}{N}{P}{S}{s}{C}](?!(?![{C}])[{L}{M}]))++",
      fmt::arg("L", kLetter), fmt::arg("M", kMark), fmt::arg("N", kNumber), fmt::arg("P", kPunctuation),
      fmt::arg("S", kSymbol), fmt::arg("C", R"(\x{3040}-\x{30ff}\x{4e00}-\x{9fa5})"), fmt::arg("s", kSpace));
}

struct Kind {
  std::string_view name;
  std::string (*pattern)();
  bool ignore_merges;
  bool nfc;
  bool adds_bos;  // where the file does not say
};
// The aliases are those of which llama.cpp's source says that they share the expression. Smaug's merges are not
// ignored.
constexpr Kind kKinds[] = {
    {"", gpt2_pattern, false, false, false},
    {"gpt-2", gpt2_pattern, false, false, false},
    {"smollm", smollm_pattern, false, false, false},
    {"llama-bpe", llama_bpe_pattern, true, false, true},
    {"llama3", llama_bpe_pattern, true, false, true},
    {"llama-v3", llama_bpe_pattern, true, false, true},
    {"falcon3", llama_bpe_pattern, true, false, true},
    {"falcon-h1", llama_bpe_pattern, true, false, true},
    {"lfm2", llama_bpe_pattern, true, false, true},
    {"glm4", llama_bpe_pattern, true, false, false},
    {"midm-2.0", llama_bpe_pattern, true, false, true},
    {"smaug-bpe", llama_bpe_pattern, false, false, false},
    {"qwen2", qwen2_pattern, false, true, false},
    {"deepseek-r1-qwen", qwen2_pattern, false, true, false},
    {"qwen35", qwen35_pattern, false, true, false},
    {"gpt-4o", gpt4o_pattern, false, false, false},
    {"llama4", gpt4o_pattern, false, false, false},
    {"kanana2", gpt4o_pattern, false, false, false},
    {"tekken", tekken_pattern, true, false, true},
    {"deepseek-v3", deepseek_v3_pattern, false, false, false},
};

}  // namespace

struct PreTokenizer::Regex {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  ~Regex() {
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }
};

PreTokenizer::PreTokenizer(std::unique_ptr<Regex> regex) : regex_(std::move(regex)) {}
PreTokenizer::~PreTokenizer() = default;

bool PreTokenizer::usually_adds_bos(std::string_view name) {
  for (const Kind& kind : kKinds)
    if (kind.name == name) return kind.adds_bos;
  return false;
}

Result<std::unique_ptr<PreTokenizer>> PreTokenizer::create(std::string_view name) {
  for (const Kind& kind : kKinds) {
    if (kind.name != name) {
      continue;
    }
    auto regex = std::make_unique<Regex>();
    int error = 0;
    PCRE2_SIZE offset = 0;
    const std::string pattern = kind.pattern();
    regex->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &error, &offset, nullptr);
    LLMRT_CHECK(regex->code != nullptr, "a built-in pre-tokenizer pattern does not compile");
    pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);  // without JIT the interpreter serves, slower
    // A long run of blanks backtracks once a byte, which is linear: no limit below the text's own length may stop it.
    regex->context = pcre2_match_context_create(nullptr);
    LLMRT_CHECK(regex->context != nullptr, "out of memory for a pre-tokenizer");
    pcre2_set_match_limit(regex->context, UINT32_MAX);
    pcre2_set_depth_limit(regex->context, UINT32_MAX);
    pcre2_set_heap_limit(regex->context, UINT32_MAX);
    std::unique_ptr<PreTokenizer> made(new PreTokenizer(std::move(regex)));
    made->ignore_merges_ = kind.ignore_merges;
    made->nfc_ = kind.nfc;
    return made;
  }
  std::string known;
  for (const Kind& kind : kKinds) {
    known += kind.name.empty() ? "" : fmt::format("{}{}", known.empty() ? "" : ", ", kind.name);
  }
  return make_error(ErrorCode::kUnsupported, "unsupported tokenizer: tokenizer.ggml.pre: expected one of {}, found {}",
                    known, name);
}

void PreTokenizer::split(std::string_view text, const std::function<bool(std::string_view)>& visit) const {
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> match(pcre2_match_data_create(1, nullptr),
                                                                             pcre2_match_data_free);
  LLMRT_CHECK(match != nullptr, "out of memory for a match");
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
  for (size_t pos = 0; pos < text.size(); pos = range[1]) {
    // The alternatives of every pattern cover every character, so a match begins where the last one ended.
    const uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
    int rc = pcre2_match(regex_->code, subject, text.size(), pos, options, match.get(), regex_->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(regex_->code, subject, text.size(), pos, options | PCRE2_NO_JIT, match.get(), regex_->context);
    }
    LLMRT_CHECK(rc >= 0 && range[0] == pos && range[1] > pos, "a pre-tokenizer pattern left a gap");
    if (!visit(text.substr(pos, range[1] - pos))) {
      return;
    }
  }
}

}  // namespace llmrt
