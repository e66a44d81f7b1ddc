#include "core/grammar/formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/grammar/regex_syntax.h"

namespace llmrt {
namespace {

constexpr std::array<std::string_view, 15> kNames = {
    "regex", "date-time",     "date",         "time",         "duration",
    "email", "hostname",      "ipv4",         "ipv6",         "uuid",
    "uri",   "uri-reference", "uri-template", "json-pointer", "relative-json-pointer"};

std::string group(std::initializer_list<std::string> choices) {
  std::string all;
  for (const auto& choice : choices) all += (all.empty() ? "(?:" : "|") + choice;
  return all + ")";
}

std::string date() {
  const std::string leap_years = group({"\\d\\d(?:0[48]|[2468][048]|[13579][26])", "(?:[02468][048]|[13579][26])00"});
  return group({"\\d{4}-(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])", "\\d{4}-(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)",
                "\\d{4}-02-(?:0[1-9]|1\\d|2[0-8])", leap_years + "-02-29"});
}
std::string time() {
  const std::string hours_minutes = "(?:[01]\\d|2[0-3]):[0-5]\\d";
  return group({hours_minutes + ":[0-5]\\d(?:\\.\\d+)?(?:[Zz]|[+-]" + hours_minutes + ")",
                "23:59:60(?:\\.\\d+)?(?:[Zz]|[+-]00:00)"});
}
std::string duration() {
  const std::string seconds = "\\d+S", minutes = "\\d+M(?:" + seconds + ")?", hours = "\\d+H(?:" + minutes + ")?";
  const std::string times = "T" + group({hours, minutes, seconds});
  const std::string days = "\\d+D", months = "\\d+M(?:" + days + ")?", years = "\\d+Y(?:" + months + ")?";
  return "P" + group({group({days, months, years}) + "(?:" + times + ")?", times, "\\d+W"});
}

std::string ipv4() {
  const std::string octet = "(?:\\d|[1-9]\\d|1\\d\\d|2[0-4]\\d|25[0-5])";
  return octet + "(?:\\." + octet + "){3}";
}
std::string ipv6() {
  const std::string part = "[0-9A-Fa-f]{1,4}", low = group({part + ":" + part, ipv4()});
  const auto before = [&](int most) { return fmt::format("(?:(?:{0}:){{0,{1}}}{0})?::", part, most); };
  const auto parts = [&](int count) { return fmt::format("(?:{}:){{{}}}", part, count); };
  return group({parts(6) + low, "::" + parts(5) + low, "(?:" + part + ")?::" + parts(4) + low,
                before(1) + parts(3) + low, before(2) + parts(2) + low, before(3) + parts(1) + low, before(4) + low,
                before(5) + part, before(6)});
}

// Labels of letters, digits and hyphens; none has hyphens third and fourth, which only encoded names have.
std::string label() {
  return "(?:[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9-]?[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9-](?:[A-Za-z0-9][A-Za-z0-9-]|-[A-Za-"
         "z0-9])"
         "[A-Za-z0-9-]{0,58}[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9-](?:[A-Za-z0-9-][A-Za-z0-9]))";
}
std::string hostname() {
  return label() + "(?:\\." + label() + ")*";
}

std::string email() {
  const std::string atom = "[A-Za-z0-9!#$%&'*+\\/=?^_`{|}~-]+";
  const std::string quoted = "\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\"";
  return group({atom + "(?:\\." + atom + ")*", quoted}) + "@" +
         group({hostname(), "\\[" + ipv4() + "\\]", "\\[IPv6:" + ipv6() + "\\]"});
}

struct UriParts {
  std::string percent = "%[0-9A-Fa-f]{2}";
  std::string unreserved = "A-Za-z0-9._~\\-", marks = "!$&'()*+,;=";
  std::string path_char = "(?:[" + unreserved + marks + ":@]|" + percent + ")";
  std::string first_char = "(?:[" + unreserved + marks + "@]|" + percent + ")";  // of a path without a scheme
  std::string query = "(?:\\?(?:" + path_char + "|[\\/?])*)?", fragment = "(?:#(?:" + path_char + "|[\\/?])*)?";
  std::string host = group({"\\[" + group({ipv6(), "[vV][0-9A-Fa-f]+\\.[" + unreserved + marks + ":]+"}) + "\\]",
                            "(?:[" + unreserved + marks + "]|" + percent + ")*"});
  std::string authority =
      "\\/\\/(?:(?:[" + unreserved + marks + ":]|" + percent + ")*@)?" + host + "(?::\\d*)?(?:\\/" + path_char + "*)*";
  std::string absolute = "\\/(?:" + path_char + "+(?:\\/" + path_char + "*)*)?";
  std::string rootless = path_char + "+(?:\\/" + path_char + "*)*";
  std::string relative = first_char + "+(?:\\/" + path_char + "*)*";

  std::string uri() const {
    return "[A-Za-z][A-Za-z0-9+.-]*:" + group({authority, absolute, rootless, ""}) + query + fragment;
  }
  std::string reference() const {
    return group({uri(), group({authority, absolute, relative, ""}) + query + fragment});
  }
};

std::string uri_template() {
  const std::string percent = "%[0-9A-Fa-f]{2}", name_char = "(?:[A-Za-z0-9_]|" + percent + ")";
  const std::string name = name_char + "(?:\\.?" + name_char + ")*";
  const std::string variable = name + "(?::[1-9]\\d{0,3}|\\*)?";
  return "(?:[^\\x00-\\x20\"'<>%\\\\^`{|}\\x7f]|" + percent + "|\\{[+#.\\/;?&=,!@|]?" + variable + "(?:," + variable +
         ")*\\})*";
}

// Patterns as ECMA-262 reads them with and without the u flag. Ranges and counts are in order where they are written
// here.
std::string regex_pattern() {
  std::string ranges = "|a-[a-z]|A-[A-Z]";
  for (char c = '0'; c <= '9'; ++c) ranges += fmt::format("|{}-[{}-9]", c, c);
  std::string counts = "\\d{1,4}|\\d{1,4},";
  for (char c = '0'; c <= '9'; ++c) counts += fmt::format("|{},[{}-9]", c, c);
  const std::string escape = "\\\\(?:[dDwWsSfnrtv^$\\\\.*+?()\\[\\]{}|\\/]|c[A-Za-z]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})";
  const std::string member = "(?:[^\\\\\\]\\[^&-]|" + escape + "|\\\\-" + ranges + ")";
  const std::string set = "\\[\\^?" + member + "+-?\\]";
  const std::string quantifier = "(?:(?:[*+?]|\\{(?:" + counts + ")\\})[?]?)?";
  std::string alternatives = "";
  for (int depth = 0; depth <= 3; ++depth) {
    std::string atoms = "[^\\^$\\\\.*+?()\\[\\]{}|]|\\.|" + escape + "|" + set;
    if (depth > 0) atoms += "|\\((?:\\?:)?" + alternatives + "\\)";
    const std::string term = "(?:(?:" + atoms + ")" + quantifier + "|\\^|\\$)";
    alternatives = "(?:" + term + "|\\|)*";
  }
  return alternatives;
}

constexpr const char* kJsonPointer = "(?:\\/(?:[^~\\/]|~[01])*)*";

// The pattern, and how many characters a text may have in all; 0: any number.
struct Pattern {
  std::string regex;
  uint32_t characters_max = 0;
};
std::optional<Pattern> pattern_of(std::string_view name) {
  if (name == "date-time") return Pattern{date() + "[Tt]" + time()};
  if (name == "date") return Pattern{date()};
  if (name == "time") return Pattern{time()};
  if (name == "duration") return Pattern{duration()};
  if (name == "email") return Pattern{email()};
  if (name == "hostname") return Pattern{hostname(), 253};
  if (name == "ipv4") return Pattern{ipv4()};
  if (name == "ipv6") return Pattern{ipv6()};
  if (name == "uuid") return Pattern{"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"};
  if (name == "uri") return Pattern{UriParts().uri()};
  if (name == "uri-reference") return Pattern{UriParts().reference()};
  if (name == "uri-template") return Pattern{uri_template()};
  if (name == "json-pointer") return Pattern{kJsonPointer};
  if (name == "relative-json-pointer") return Pattern{"(?:0|[1-9]\\d*)(?:#|" + std::string(kJsonPointer) + ")"};
  if (name == "regex") return Pattern{regex_pattern()};
  return std::nullopt;
}

}  // namespace

FormatKind format_kind(std::string_view name) {
  if (name == "regex" || name == "hostname") return FormatKind::kPartial;
  if (std::ranges::find(kNames, name) != std::end(kNames)) return FormatKind::kWhole;
  constexpr std::string_view kOthers[] = {"idn-email", "idn-hostname", "iri", "iri-reference"};
  return std::ranges::find(kOthers, name) != std::end(kOthers) ? FormatKind::kNotEnforced : FormatKind::kUnknown;
}

std::span<const std::string_view> format_names() {
  return kNames;
}

std::optional<RegexId> format_regex(RegexPool* pool, std::string_view name) {
  const auto pattern = pattern_of(name);
  if (!pattern) return std::nullopt;
  const Result<RegexId> regex = parse_regex(pool, pattern->regex, {.anchored = true});
  if (!regex.ok()) {
    LLMRT_CHECK(pool->failed(), regex.error().message);
    return RegexPool::kNothing;
  }
  if (pattern->characters_max == 0) return *regex;
  return pool->both(*regex, pool->repeat(pool->any_code_point(), 1, pattern->characters_max));
}

}  // namespace llmrt
