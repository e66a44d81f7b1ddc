#include "core/grammar/character_classes.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/grammar/script_ranges.h"

namespace llmrt {
namespace {

struct Category {
  std::string_view short_name, long_name;
  uint32_t members;  // a bit for each value of utf8proc_category_t
};

constexpr uint32_t bit(utf8proc_category_t category) {
  return 1u << static_cast<uint32_t>(category);
}
constexpr uint32_t kCased = bit(UTF8PROC_CATEGORY_LU) | bit(UTF8PROC_CATEGORY_LL) | bit(UTF8PROC_CATEGORY_LT);
constexpr uint32_t kLetters = kCased | bit(UTF8PROC_CATEGORY_LM) | bit(UTF8PROC_CATEGORY_LO);
constexpr uint32_t kMarks = bit(UTF8PROC_CATEGORY_MN) | bit(UTF8PROC_CATEGORY_MC) | bit(UTF8PROC_CATEGORY_ME);
constexpr uint32_t kNumbers = bit(UTF8PROC_CATEGORY_ND) | bit(UTF8PROC_CATEGORY_NL) | bit(UTF8PROC_CATEGORY_NO);
constexpr uint32_t kPunctuation = bit(UTF8PROC_CATEGORY_PC) | bit(UTF8PROC_CATEGORY_PD) | bit(UTF8PROC_CATEGORY_PS) |
                                  bit(UTF8PROC_CATEGORY_PE) | bit(UTF8PROC_CATEGORY_PI) | bit(UTF8PROC_CATEGORY_PF) |
                                  bit(UTF8PROC_CATEGORY_PO);
constexpr uint32_t kSymbols =
    bit(UTF8PROC_CATEGORY_SM) | bit(UTF8PROC_CATEGORY_SC) | bit(UTF8PROC_CATEGORY_SK) | bit(UTF8PROC_CATEGORY_SO);
constexpr uint32_t kSeparators = bit(UTF8PROC_CATEGORY_ZS) | bit(UTF8PROC_CATEGORY_ZL) | bit(UTF8PROC_CATEGORY_ZP);
constexpr uint32_t kOther = bit(UTF8PROC_CATEGORY_CC) | bit(UTF8PROC_CATEGORY_CF) | bit(UTF8PROC_CATEGORY_CS) |
                            bit(UTF8PROC_CATEGORY_CO) | bit(UTF8PROC_CATEGORY_CN);

// The names of UAX 44.
constexpr Category kCategories[] = {
    {"L", "Letter", kLetters},
    {"LC", "Cased_Letter", kCased},
    {"Lu", "Uppercase_Letter", bit(UTF8PROC_CATEGORY_LU)},
    {"Ll", "Lowercase_Letter", bit(UTF8PROC_CATEGORY_LL)},
    {"Lt", "Titlecase_Letter", bit(UTF8PROC_CATEGORY_LT)},
    {"Lm", "Modifier_Letter", bit(UTF8PROC_CATEGORY_LM)},
    {"Lo", "Other_Letter", bit(UTF8PROC_CATEGORY_LO)},
    {"M", "PlaceMark", kMarks},
    {"Mn", "Nonspacing_Mark", bit(UTF8PROC_CATEGORY_MN)},
    {"Mc", "Spacing_Mark", bit(UTF8PROC_CATEGORY_MC)},
    {"Me", "Enclosing_Mark", bit(UTF8PROC_CATEGORY_ME)},
    {"N", "Number", kNumbers},
    {"Nd", "Decimal_Number", bit(UTF8PROC_CATEGORY_ND)},
    {"Nd", "digit", bit(UTF8PROC_CATEGORY_ND)},
    {"Nl", "Letter_Number", bit(UTF8PROC_CATEGORY_NL)},
    {"No", "Other_Number", bit(UTF8PROC_CATEGORY_NO)},
    {"P", "Punctuation", kPunctuation},
    {"P", "punct", kPunctuation},
    {"Pc", "Connector_Punctuation", bit(UTF8PROC_CATEGORY_PC)},
    {"Pd", "Dash_Punctuation", bit(UTF8PROC_CATEGORY_PD)},
    {"Ps", "Open_Punctuation", bit(UTF8PROC_CATEGORY_PS)},
    {"Pe", "Close_Punctuation", bit(UTF8PROC_CATEGORY_PE)},
    {"Pi", "Initial_Punctuation", bit(UTF8PROC_CATEGORY_PI)},
    {"Pf", "Final_Punctuation", bit(UTF8PROC_CATEGORY_PF)},
    {"Po", "Other_Punctuation", bit(UTF8PROC_CATEGORY_PO)},
    {"S", "Symbol", kSymbols},
    {"Sm", "Math_Symbol", bit(UTF8PROC_CATEGORY_SM)},
    {"Sc", "Currency_Symbol", bit(UTF8PROC_CATEGORY_SC)},
    {"Sk", "Modifier_Symbol", bit(UTF8PROC_CATEGORY_SK)},
    {"So", "Other_Symbol", bit(UTF8PROC_CATEGORY_SO)},
    {"Z", "Separator", kSeparators},
    {"Zs", "Space_Separator", bit(UTF8PROC_CATEGORY_ZS)},
    {"Zl", "Line_Separator", bit(UTF8PROC_CATEGORY_ZL)},
    {"Zp", "Paragraph_Separator", bit(UTF8PROC_CATEGORY_ZP)},
    {"C", "Other", kOther},
    {"Cc", "Control", bit(UTF8PROC_CATEGORY_CC)},
    {"Cf", "Format", bit(UTF8PROC_CATEGORY_CF)},
    {"Co", "Private_Use", bit(UTF8PROC_CATEGORY_CO)},
    {"Cn", "Unassigned", bit(UTF8PROC_CATEGORY_CN)},
};

// The categories of all code points, as ranges of equal ones; made once.
struct CategoryRun {
  char32_t first, last;
  uint32_t member;
};
const std::vector<CategoryRun>& category_runs() {
  static const std::vector<CategoryRun> runs = [] {
    std::vector<CategoryRun> all;
    for (char32_t c = 0; c <= 0x10ffff; ++c) {
      const uint32_t member = bit(utf8proc_category(static_cast<utf8proc_int32_t>(c)));
      if (!all.empty() && all.back().member == member) {
        all.back().last = c;
      } else {
        all.push_back({c, c, member});
      }
    }
    return all;
  }();
  return runs;
}

CodePointRanges ranges_of(uint32_t members) {
  CodePointRanges ranges;
  for (const CategoryRun& run : category_runs()) {
    if ((run.member & members) == 0) continue;
    if (!ranges.empty() && ranges.back().second + 1 == run.first) {
      ranges.back().second = run.last;
    } else {
      ranges.emplace_back(run.first, run.last);
    }
  }
  return ranges;
}

std::optional<CodePointRanges> script_ranges(std::string_view name) {
  const auto names = script_names();
  const auto it = std::ranges::find_if(names, [&](const auto& each) { return name == each.code || name == each.name; });
  if (it == names.end()) return std::nullopt;
  CodePointRanges ranges;
  const auto runs = script_runs();
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].script != it - names.begin()) continue;
    ranges.emplace_back(runs[i].first, i + 1 < runs.size() ? runs[i + 1].first - 1 : 0x10ffff);
  }
  return ranges;
}

}  // namespace

CodePointRanges named_class(char name) {
  switch (name) {
    case 'd':
      return {{'0', '9'}};
    case 'w':
      return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    default:
      return {{'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
              {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
  }
}

std::optional<CodePointRanges> unicode_property(std::string_view name) {
  if (name == "Any") return CodePointRanges{{0, 0x10ffff}};
  if (name == "ASCII") return CodePointRanges{{0, 0x7f}};
  for (const std::string_view prefix : {"gc=", "General_Category="}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  for (const std::string_view prefix : {"sc=", "Script="}) {
    if (name.starts_with(prefix)) return script_ranges(name.substr(prefix.size()));
  }
  for (const Category& category : kCategories) {
    if (name == category.short_name || name == category.long_name) return ranges_of(category.members);
  }
  return std::nullopt;
}

}  // namespace llmrt
