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

// The letters with case of DeepSeek-LLM's tokenizer.json, which lists them.
constexpr const char* kCasedLetter =
    R"(A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}\x{295}-\x{2af})"
    R"(\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1})"
    R"(\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5})"
    R"(\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a})"
    R"(\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b})"
    R"(\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc})"
    R"(\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107})"
    R"(\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124}\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134})"
    R"(\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4})"
    R"(\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787})"
    R"(\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a})"
    R"(\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2})"
    R"(\x{118a0}-\x{118df}\x{1e900}-\x{1e943})";
constexpr const char* kEastAsian = R"(\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff})";

// Steps that each cut the pieces of the one before, matches and what lies between them alike. No two of them can be one
// expression: an East Asian character parts a run of letters or punctuation that an earlier step made.
std::vector<std::string> deepseek_passes(const std::string& letters, const std::string& punctuation) {
  return {"[\\r\\n]", fmt::format("[{}]?[{}]+", kSpace, letters), fmt::format("[{}]?[{}]+", kSpace, punctuation),
          fmt::format("[{}]+", kEastAsian), fmt::format("[{}{}]", kNumber, kNumberSinceUnicode16)};
}
std::vector<std::string> deepseek_coder_passes() {
  return deepseek_passes(kLetter, kPunctuation);
}
std::vector<std::string> deepseek_llm_passes() {
  std::vector<std::string> passes =
      deepseek_passes(kCasedLetter, R"(!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002})");
  // Blanks that end a piece; looked for where a run of them begins, so that long runs take linear time.
  passes.insert(passes.begin() + 3, fmt::format("(?<![{s}])[{s}]++$", fmt::arg("s", kSpace)));
  return passes;
}

template <std::string (*pattern)()>
std::vector<std::string> one() {
  return {pattern()};
}

struct Kind {
  std::string_view name;
  std::vector<std::string> (*passes)();
  bool ignore_merges;
  bool nfc;
  bool adds_bos;  // where the file does not say
};
// The aliases are those of which llama.cpp's source says that they share the expression. Smaug's merges are not
// ignored.
constexpr Kind kKinds[] = {
    {"", one<gpt2_pattern>, false, false, false},
    {"gpt-2", one<gpt2_pattern>, false, false, false},
    {"smollm", one<smollm_pattern>, false, false, false},
    {"llama-bpe", one<llama_bpe_pattern>, true, false, true},
    {"llama3", one<llama_bpe_pattern>, true, false, true},
    {"llama-v3", one<llama_bpe_pattern>, true, false, true},
    {"falcon3", one<llama_bpe_pattern>, true, false, true},
    {"falcon-h1", one<llama_bpe_pattern>, true, false, true},
    {"lfm2", one<llama_bpe_pattern>, true, false, true},
    {"glm4", one<llama_bpe_pattern>, true, false, false},
    {"midm-2.0", one<llama_bpe_pattern>, true, false, true},
    {"smaug-bpe", one<llama_bpe_pattern>, false, false, false},
    {"qwen2", one<qwen2_pattern>, false, true, false},
    {"deepseek-r1-qwen", one<qwen2_pattern>, false, true, false},
    {"qwen35", one<qwen35_pattern>, false, true, false},
    {"gpt-4o", one<gpt4o_pattern>, false, false, false},
    {"llama4", one<gpt4o_pattern>, false, false, false},
    {"kanana2", one<gpt4o_pattern>, false, false, false},
    {"tekken", one<tekken_pattern>, true, false, true},
    {"deepseek-v3", one<deepseek_v3_pattern>, false, false, false},
    {"deepseek-llm", deepseek_llm_passes, false, false, false},
    {"deepseek-coder", deepseek_coder_passes, false, false, false},
};

}  // namespace

struct PreTokenizer::Regex {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;

  Regex() = default;
  Regex(const Regex&) = delete;
  ~Regex() {
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }
};

// Where a pass found something; passes share one.
struct PreTokenizer::Match {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  const PCRE2_SIZE* range = nullptr;

  Match() {
    LLMRT_CHECK(data != nullptr, "out of memory for a match");
    range = pcre2_get_ovector_pointer(data);
  }
  Match(const Match&) = delete;
  ~Match() { pcre2_match_data_free(data); }
};

PreTokenizer::PreTokenizer(std::vector<std::unique_ptr<Regex>> passes) : passes_(std::move(passes)) {}
PreTokenizer::~PreTokenizer() = default;

bool PreTokenizer::usually_adds_bos(std::string_view name) {
  for (const Kind& kind : kKinds)
    if (kind.name == name) return kind.adds_bos;
  return false;
}

std::unique_ptr<PreTokenizer::Regex> PreTokenizer::compile(const std::string& pattern) {
  auto regex = std::make_unique<Regex>();
  int error = 0;
  PCRE2_SIZE offset = 0;
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
  return regex;
}

Result<std::unique_ptr<PreTokenizer>> PreTokenizer::create(std::string_view name) {
  for (const Kind& kind : kKinds) {
    if (kind.name != name) {
      continue;
    }
    std::vector<std::unique_ptr<Regex>> passes;
    for (const std::string& pattern : kind.passes()) passes.push_back(compile(pattern));
    std::unique_ptr<PreTokenizer> made(new PreTokenizer(std::move(passes)));
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

void PreTokenizer::split(std::string_view text, const Visit& visit) const {
  split(text, 0, visit, Match());
}

bool PreTokenizer::split(std::string_view text, size_t pass, const Visit& visit, const Match& match) const {
  if (pass == passes_.size()) return visit(text);
  const Regex& regex = *passes_[pass];
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const auto next = [&](size_t begin, size_t end) {
    return begin == end || split(text.substr(begin, end - begin), pass + 1, visit, match);
  };
  for (size_t pos = 0; pos < text.size();) {
    const uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
    int rc = pcre2_match(regex.code, subject, text.size(), pos, options, match.data, regex.context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(regex.code, subject, text.size(), pos, options | PCRE2_NO_JIT, match.data, regex.context);
    }
    const bool may_leave_gaps = passes_.size() > 1;
    if (rc == PCRE2_ERROR_NOMATCH && may_leave_gaps) return next(pos, text.size());
    const size_t begin = match.range[0], end = match.range[1];  // a later pass overwrites them
    LLMRT_CHECK(rc >= 0 && begin >= pos && end > begin, "a pre-tokenizer pattern failed");
    // The alternatives of a lone pattern cover every character, so a match begins where the last one ended.
    LLMRT_CHECK(may_leave_gaps || begin == pos, "a pre-tokenizer pattern left a gap");
    if (!next(pos, begin) || !next(begin, end)) return false;
    pos = end;
  }
  return true;
}

}  // namespace llmrt
