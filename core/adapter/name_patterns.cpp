#include "core/adapter/name_patterns.h"

#include <pcre2.h>

#include <utility>

#include "core/base/check.h"
#include "core/weights/metadata.h"

namespace llmrt {
namespace {

constexpr uint32_t kMatchStepsMax = 1u << 15, kMatchDepthMax = 1u << 13, kMatchKibMax = 4096;
constexpr uint32_t kNestingMax = 64;

std::string text_of_pcre2(int code) {
  char text[128] = {};
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
  return text;
}

}  // namespace

struct NamePattern::Code {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;

  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() {
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }
};

Result<NamePattern> NamePattern::create(std::string_view expression, std::string field) {
  const auto refuse = [&](const std::string& why) {
    return make_error(ErrorCode::kUnsupported,
                      "unsupported adapter: {}: expected a regular expression of names, found {}: {}", field,
                      printable(expression), why);
  };
  if (expression.size() > kNamePatternBytesMax) return refuse(fmt::format("more than {} bytes", kNamePatternBytesMax));
  if (expression.starts_with("(*")) return refuse("a verb");
  auto code = std::make_shared<Code>();
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> limits(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  LLMRT_CHECK(limits != nullptr, "memory for a regular expression");
  pcre2_set_parens_nest_limit(limits.get(), kNestingMax);
  int error = 0;
  size_t at = 0;
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                             PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_NEVER_BACKSLASH_C | PCRE2_NEVER_UTF, &error,
                             &at, limits.get());
  if (code->code == nullptr) return refuse(text_of_pcre2(error));
  code->context = pcre2_match_context_create(nullptr);
  LLMRT_CHECK(code->context != nullptr, "memory for a regular expression");
  pcre2_set_match_limit(code->context, kMatchStepsMax);
  pcre2_set_depth_limit(code->context, kMatchDepthMax);
  pcre2_set_heap_limit(code->context, kMatchKibMax);
  return NamePattern(std::move(code), std::move(field));
}

Result<bool> NamePattern::matches(std::string_view name) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(pcre2_match_data_create(1, nullptr),
                                                                                 &pcre2_match_data_free);
  LLMRT_CHECK(data != nullptr, "memory for a match");
  const int found = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0, data.get(),
                                code_->context);
  if (found >= 0) return true;
  if (found == PCRE2_ERROR_NOMATCH) return false;
  return make_error(ErrorCode::kUnsupported,
                    "unsupported adapter: {}: expected an expression that is matched in few steps, found one that is "
                    "not: {}",
                    field_, text_of_pcre2(found));
}

}  // namespace llmrt
