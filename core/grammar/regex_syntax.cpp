#include "core/grammar/regex_syntax.h"

#include <array>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "core/base/utf8.h"
#include "core/grammar/character_classes.h"
#include "core/grammar/utf8_ranges.h"

namespace llmrt {
namespace {

// The texts that an expression matches, apart by whether the match must begin where the text does and end where it
// does: texts[begin][end].
struct Matches {
  std::array<std::array<RegexId, 2>, 2> texts = {};  // kNothing
  bool is_character = false;                         // one character: its repetitions may be many

  static Matches of(RegexId regex, bool is_character = false) {
    Matches matches;
    matches.texts[0][0] = regex;
    matches.is_character = is_character;
    return matches;
  }
  bool has_anchors() const {
    return texts[0][1] != RegexPool::kNothing || texts[1][0] != RegexPool::kNothing ||
           texts[1][1] != RegexPool::kNothing;
  }
};

class RegexReader {
 public:
  RegexReader(RegexPool* pool, std::string_view pattern) : pool_(*pool), pattern_(pattern) {}

  Result<Matches> read() {
    Result<Matches> all = read_choice(0);
    if (!all.ok()) return all;
    if (at_ < pattern_.size()) return invalid("expected the end, found \")\"");
    return all;
  }

 private:
  template <typename... Args>
  Error invalid(fmt::format_string<Args...> format, Args&&... args) const {
    return make_error(ErrorCode::kInvalidArgument, "regular expression, offset {}: {}", at_,
                      fmt::format(format, std::forward<Args>(args)...));
  }
  Error refused(std::string_view what, size_t at) const {
    return make_error(ErrorCode::kUnsupportedSchema, "regular expression, offset {}: {} not supported", at, what);
  }

  char peek(size_t ahead = 0) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }
  bool at_end() const { return at_ >= pattern_.size(); }
  bool take_if(std::string_view what) {
    if (!pattern_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }

  void add(Matches* to, bool begin, bool end, RegexId regex) {
    to->texts[begin][end] = pool_.either(to->texts[begin][end], regex);
  }

  Matches concat(const Matches& a, const Matches& b) {
    Matches both;
    for (const bool a_begin : {false, true}) {
      for (const bool a_end : {false, true}) {
        for (const bool b_begin : {false, true}) {
          for (const bool b_end : {false, true}) {
            const RegexId left = a.texts[a_begin][a_end], right = b.texts[b_begin][b_end];
            if (left == RegexPool::kNothing || right == RegexPool::kNothing) continue;
            // An anchor between the two: the other side is empty.
            const bool left_is_empty = b_begin, right_is_empty = a_end;
            if (left_is_empty && !pool_.accepts_empty(left)) continue;
            if (right_is_empty && !pool_.accepts_empty(right)) continue;
            const RegexId first = left_is_empty ? RegexPool::kEmpty : left;
            const RegexId second = right_is_empty ? RegexPool::kEmpty : right;
            add(&both, a_begin || b_begin, a_end || b_end, pool_.concat(first, second));
          }
        }
      }
    }
    return both;
  }

  Result<Matches> read_choice(uint32_t depth) {
    if (depth > kPatternNestingMax)
      return refused(fmt::format("more than {} nested groups are", kPatternNestingMax), at_);
    std::array<std::array<std::vector<RegexId>, 2>, 2> choices;
    bool is_character = true, is_first = true;
    do {
      Result<Matches> one = read_sequence(depth);
      if (!one.ok()) return one;
      for (const bool begin : {false, true}) {
        for (const bool end : {false, true}) choices[begin][end].push_back(one->texts[begin][end]);
      }
      is_character = is_first && one->is_character;
      is_first = false;
    } while (take_if("|"));
    Matches all;
    for (const bool begin : {false, true}) {
      for (const bool end : {false, true}) all.texts[begin][end] = pool_.either(choices[begin][end]);
    }
    all.is_character = is_character;
    return all;
  }

  Result<Matches> read_sequence(uint32_t depth) {
    std::vector<Matches> parts;
    while (!at_end() && peek() != '|' && peek() != ')') {
      Result<Matches> part = read_term(depth);
      if (!part.ok()) return part;
      parts.push_back(*part);
    }
    if (parts.size() == 1) return parts[0];
    Matches sequence = Matches::of(RegexPool::kEmpty);
    for (size_t i = parts.size(); i-- > 0;) sequence = concat(parts[i], sequence);
    return sequence;
  }

  Result<Matches> read_term(uint32_t depth) {
    if (take_if("^")) return anchor(true);
    if (take_if("$")) return anchor(false);
    Result<Matches> atom = read_atom(depth);
    if (!atom.ok()) return atom;
    return read_quantifier(*atom);
  }
  static Matches anchor(bool begin) {
    Matches matches;
    matches.texts[begin][!begin] = RegexPool::kEmpty;
    return matches;
  }

  Result<Matches> read_quantifier(const Matches& atom) {
    const size_t begin = at_;
    uint32_t min = 0, max = RegexPool::kUnbounded;
    if (take_if("*")) {
    } else if (take_if("+")) {
      min = 1;
    } else if (take_if("?")) {
      max = 1;
    } else if (peek() == '{') {
      if (!read_bounds(&min, &max)) return invalid("expected {{m}}, {{m,}} or {{m,n}} with m <= n");
    } else {
      return atom;
    }
    take_if("?");  // lazy: the same texts
    if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{') return invalid("nothing to repeat");
    const uint32_t most = max == RegexPool::kUnbounded ? min : max;
    const uint32_t bound = atom.is_character ? kCharacterRepetitionMax : kPatternRepetitionMax;
    if (most > bound) return refused(fmt::format("more than {} repetitions are", bound), begin);
    if (!atom.has_anchors()) return Matches::of(pool_.repeat(atom.texts[0][0], min, max));
    if (max != 1) return refused("an anchor inside a repeated group is", begin);
    Matches optional = atom;
    if (min == 0) add(&optional, false, false, RegexPool::kEmpty);
    return optional;
  }

  bool read_bounds(uint32_t* min, uint32_t* max) {
    ++at_;
    const auto read_number = [&](uint32_t* number) {
      const size_t begin = at_;
      uint64_t value = 0;
      for (; peek() >= '0' && peek() <= '9'; ++at_) {
        value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(peek() - '0'), UINT32_MAX - 1);
      }
      *number = static_cast<uint32_t>(value);
      return at_ > begin;
    };
    if (!read_number(min)) return false;
    *max = *min;
    if (take_if(",") && !read_number(max)) *max = RegexPool::kUnbounded;
    return take_if("}") && *min <= *max;
  }

  Result<Matches> read_atom(uint32_t depth) {
    const size_t begin = at_;
    switch (peek()) {
      case '(':
        return read_group(depth);
      case '[':
        return read_class();
      case '.': {
        ++at_;
        const CodePointRange line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
        return Matches::of(pool_.code_points(other_ranges(line_ends)), true);
      }
      case '\\':
        return read_escape();
      case '*':
      case '+':
      case '?':
      case '{':
        return invalid("nothing to repeat");
      case '}':
      case ']':
        return invalid("a lone \"{}\": expected it behind a backslash", peek());
      default: {
        const Utf8Step step = decode_utf8(pattern_, begin);
        if (step.state != Utf8State::kValid) return invalid("expected UTF-8");
        at_ += step.num_bytes;
        return one(step.code_point);
      }
    }
  }
  Matches one(char32_t c) {
    const CodePointRange range[] = {{c, c}};
    return Matches::of(pool_.code_points(range), true);
  }

  Result<Matches> read_group(uint32_t depth) {
    const size_t begin = at_;
    ++at_;
    if (take_if("?")) {
      if (take_if(":")) {
      } else if (peek() == '<' && peek(1) != '=' && peek(1) != '!') {
        const size_t end = pattern_.find('>', at_);
        if (end == std::string_view::npos) return invalid("expected > behind the name of a group");
        at_ = end + 1;
      } else if (peek() == '=' || peek() == '!' || peek() == '<') {
        return refused(peek() == '<' ? "look-behind is" : "look-ahead is", begin);
      } else {
        return invalid("expected (?:, (?<name>, found (?{}", at_end() ? ' ' : peek());
      }
    }
    Result<Matches> inside = read_choice(depth + 1);
    if (!inside.ok()) return inside;
    if (!take_if(")")) return invalid("expected ) at the end of a group");
    return inside;
  }

  Result<Matches> read_escape() {
    const size_t begin = at_;
    const char kind = peek(1);
    if (kind == 'b' || kind == 'B') return refused("a word boundary is", begin);
    if ((kind >= '1' && kind <= '9') || kind == 'k') return refused("a back-reference is", begin);
    Result<CodePointRanges> ranges = read_class_escape();
    if (!ranges.ok()) return ranges.error();
    return Matches::of(pool_.code_points(*ranges), true);
  }

  Result<Matches> read_class() {
    ++at_;
    const bool is_negated = take_if("^");
    CodePointRanges all;
    while (peek() != ']' || at_end()) {
      if (at_end()) return invalid("expected ] at the end of a class");
      Result<CodePointRanges> first = read_class_atom();
      if (!first.ok()) return first.error();
      if (peek() == '-' && peek(1) != ']' && at_ + 1 < pattern_.size()) {
        ++at_;
        Result<CodePointRanges> last = read_class_atom();
        if (!last.ok()) return last.error();
        const bool are_characters = is_one(*first) && is_one(*last);
        if (!are_characters || first->front().first > last->front().first) {
          return invalid("a class: expected two characters in ascending order around -");
        }
        all.emplace_back(first->front().first, last->front().first);
      } else {
        all.insert(all.end(), first->begin(), first->end());
      }
    }
    ++at_;
    return Matches::of(pool_.code_points(is_negated ? other_ranges(all) : all), true);
  }
  static bool is_one(const CodePointRanges& ranges) {
    return ranges.size() == 1 && ranges[0].first == ranges[0].second;
  }

  Result<CodePointRanges> read_class_atom() {
    if (peek() == '\\') {
      if (peek(1) == 'b') {
        at_ += 2;
        return CodePointRanges{{'\b', '\b'}};
      }
      if (peek(1) == '-') {
        at_ += 2;
        return CodePointRanges{{'-', '-'}};
      }
      return read_class_escape();
    }
    const Utf8Step step = decode_utf8(pattern_, at_);
    if (step.state != Utf8State::kValid) return invalid("expected UTF-8");
    at_ += step.num_bytes;
    return CodePointRanges{{step.code_point, step.code_point}};
  }

  // From the backslash on.
  Result<CodePointRanges> read_class_escape() {
    const size_t begin = at_;
    ++at_;
    if (at_end()) return invalid("expected something behind the backslash");
    const char kind = pattern_[at_++];
    const auto one_of = [](char32_t c) { return CodePointRanges{{c, c}}; };
    switch (kind) {
      case 'd':
      case 'w':
      case 's':
        return named_class(kind);
      case 'D':
        return other_ranges(named_class('d'));
      case 'W':
        return other_ranges(named_class('w'));
      case 'S':
        return other_ranges(named_class('s'));
      case 't':
        return one_of('\t');
      case 'n':
        return one_of('\n');
      case 'v':
        return one_of('\v');
      case 'f':
        return one_of('\f');
      case 'r':
        return one_of('\r');
      case '0':
        if (peek() >= '0' && peek() <= '9') return invalid("expected \\0 without a further digit");
        return one_of(0);
      case 'c': {
        const char letter = peek();
        if (!((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z'))) {
          return invalid("expected a letter behind \\c");
        }
        ++at_;
        return one_of(static_cast<char32_t>(letter % 32));
      }
      case 'x':
      case 'u': {
        Result<char32_t> c = read_code_point(kind);
        if (!c.ok()) return c.error();
        return one_of(*c);
      }
      case 'p':
      case 'P':
        return read_property(begin, kind == 'P');
      default:
        // The u flag forbids to escape punctuation that means itself. Without the flag every engine reads the character.
        if (kind >= ' ' && kind < 0x7f && std::isalnum(static_cast<unsigned char>(kind)) == 0) {
          return one_of(static_cast<char32_t>(kind));
        }
        at_ = begin;
        return invalid("an unknown escape: expected no backslash before a letter or digit that means itself");
    }
  }

  std::optional<char32_t> read_hex(size_t digits) {
    char32_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      const char c = peek(i);
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return std::nullopt;
      value = 16 * value + static_cast<char32_t>(digit);
    }
    at_ += digits;
    return value;
  }

  Result<char32_t> read_code_point(char kind) {
    if (kind == 'u' && take_if("{")) {
      const size_t end = pattern_.find('}', at_);
      const size_t digits = end == std::string_view::npos ? 0 : end - at_;
      const auto value = digits >= 1 && digits <= 6 ? read_hex(digits) : std::nullopt;
      if (!value || *value > 0x10ffff || !take_if("}")) return invalid("expected \\u{{...}} with a code point");
      return *value;
    }
    const auto value = read_hex(kind == 'x' ? 2 : 4);
    if (!value) return invalid("expected {} hexadecimal digits behind \\{}", kind == 'x' ? 2 : 4, kind);
    // Two halves of a surrogate pair are one character.
    if (*value >= 0xd800 && *value < 0xdc00 && peek() == '\\' && peek(1) == 'u') {
      at_ += 2;
      const auto low = read_hex(4);
      if (low && *low >= 0xdc00 && *low < 0xe000) return 0x10000 + ((*value - 0xd800) << 10) + (*low - 0xdc00);
      return invalid("expected the second half of a surrogate pair");
    }
    return *value;
  }

  Result<CodePointRanges> read_property(size_t begin, bool is_negated) {
    const size_t end = peek() == '{' ? pattern_.find('}', at_) : std::string_view::npos;
    if (end == std::string_view::npos) return invalid("expected \\p{{...}}");
    const std::string_view name = pattern_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    const auto ranges = unicode_property(name);
    if (!ranges) {
      const bool is_shown = is_ascii(name) && name.size() <= 64;
      return refused(fmt::format("the property {} is", is_shown ? name : std::string_view("named here")), begin);
    }
    return is_negated ? other_ranges(*ranges) : *ranges;
  }

  RegexPool& pool_;
  std::string_view pattern_;
  size_t at_ = 0;
};

}  // namespace

Result<RegexId> parse_regex(RegexPool* pool, std::string_view pattern, const RegexSyntax& options) {
  if (pattern.size() > kPatternBytesMax) {
    return make_error(ErrorCode::kGrammarTooComplex, "regular expression: expected at most {} bytes, found {}",
                      kPatternBytesMax, pattern.size());
  }
  Result<Matches> matches = RegexReader(pool, pattern).read();
  if (!matches.ok()) return matches.error();
  const RegexId around = options.anchored ? RegexPool::kEmpty : pool->star(pool->any_code_point());
  RegexId whole = RegexPool::kNothing;
  for (const bool begin : {false, true}) {
    for (const bool end : {false, true}) {
      const RegexId parts[] = {begin ? RegexPool::kEmpty : around, matches->texts[begin][end],
                               end ? RegexPool::kEmpty : around};
      whole = pool->either(whole, pool->concat(parts));
    }
  }
  if (pool->failed()) {
    return make_error(ErrorCode::kGrammarTooComplex, "regular expression: expected fewer parts");
  }
  return whole;
}

}  // namespace llmrt
