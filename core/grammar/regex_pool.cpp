#include "core/grammar/regex_pool.h"

#include <algorithm>
#include <string>
#include <unordered_set>

#include "core/base/check.h"
#include "core/grammar/byte_partitions.h"
#include "core/grammar/utf8_ranges.h"
#include "core/grammar/word_interner.h"

namespace llmrt {
namespace {

using Kind = RegexPool::Form::Operator;

constexpr uint32_t kUnknown = UINT32_MAX;
constexpr uint32_t kNestingMax = 2000;   // of one derivative
constexpr size_t kSpelledOutMax = 64;    // bytes of a literal whose bytes are nodes of their own
constexpr size_t kWordsMax = 64u << 20;  // of all lists of alternatives

}  // namespace

struct RegexPool::Impl {
  explicit Impl(uint32_t max) : nodes_max(std::max(max, 16u)) {}

  // What is known of a node beside its words: kind, then by kind: bytes: 8 words; text: its number, offset; concat: two
  // nodes; either, both: nodes in order; not: a node; repeat: node, min, max; remainder: divisor (2 words), wanted
  // remainder (2), remainder so far (2), whether there was a digit.
  struct Info {
    bool accepts_empty, is_plain;  // plain: made without `both` and `complement`, so it has a text
    Answer has_text;
    BytePartitions::PartitionId partition;
    uint32_t next_first = kUnknown;  // in nexts; by class of bytes
    uint32_t fuel_spent = 0;         // on a search for a text, in vain
  };

  uint32_t nodes_max;
  WordInterner nodes;
  std::vector<Info> infos;
  std::vector<uint32_t> nexts;
  BytePartitions partitions;
  std::vector<std::string> texts;
  std::vector<RegexId> single_bytes = std::vector<RegexId>(256, kUnknown);
  bool has_failed = false;
  uint32_t nesting = 0;

  Kind kind(RegexId a) const { return static_cast<Kind>(nodes[a][0]); }
  std::span<const uint32_t> operands(RegexId a) const { return nodes[a].subspan(1); }
  const Info& info(RegexId a) const { return infos[a]; }

  RegexId add(Kind kind, std::span<const uint32_t> operands, auto&& make_info) {
    if (has_failed) return kNothing;
    std::vector<uint32_t> words = {static_cast<uint32_t>(kind)};
    words.insert(words.end(), operands.begin(), operands.end());
    const RegexId id = nodes.intern(words);
    if (id < infos.size()) return id;
    Info made = make_info();
    made.has_text = id == kNothing                        ? Answer::kNo
                    : made.is_plain || made.accepts_empty ? Answer::kYes
                                                          : Answer::kUnknown;
    infos.push_back(made);
    if (infos.size() >= nodes_max || nodes.held_bytes() > 4 * kWordsMax) has_failed = true;
    return id;
  }
  RegexId add(Kind kind, std::initializer_list<uint32_t> operands, auto&& make_info) {
    return add(kind, std::span(operands.begin(), operands.size()), make_info);
  }

  RegexId bytes(const ByteSet& set) {
    if (set.none()) return kNothing;
    std::vector<uint32_t> words(8, 0);
    for (size_t b = 0; b < 256; ++b) words[b / 32] |= static_cast<uint32_t>(set[b]) << (b % 32);
    return add(Kind::kBytes, words, [&] { return Info{false, true, {}, partitions.of_set(set)}; });
  }
  RegexId byte(uint8_t one) {
    if (single_bytes[one] == kUnknown) {
      ByteSet set;
      set.set(one);
      single_bytes[one] = bytes(set);
    }
    return has_failed ? kNothing : single_bytes[one];
  }
  ByteSet set_of(RegexId a) const {
    ByteSet set;
    const auto words = operands(a);
    for (size_t b = 0; b < 256; ++b) set[b] = (words[b / 32] >> (b % 32) & 1) != 0;
    return set;
  }
  RegexId text(uint32_t number, uint32_t offset) {
    const std::string& whole = texts[number];
    if (offset == whole.size()) return kEmpty;
    ByteSet first;
    first.set(static_cast<uint8_t>(whole[offset]));
    return add(Kind::kText, {number, offset}, [&] { return Info{false, true, {}, partitions.of_set(first)}; });
  }

  bool is_star_of(RegexId a, RegexId* part) const {
    if (kind(a) != Kind::kRepeat || operands(a)[1] != 0 || operands(a)[2] != kUnbounded) return false;
    *part = operands(a)[0];
    return true;
  }

  RegexId concat(RegexId a, RegexId b) {
    if (a == kNothing || b == kNothing) return kNothing;
    if (a == kEmpty) return b;
    if (b == kEmpty) return a;
    // The first part is never a concatenation itself.
    std::vector<RegexId> heads;
    for (; kind(a) == Kind::kConcat; a = operands(a)[1]) heads.push_back(operands(a)[0]);
    RegexId result = concat_head(a, b);
    for (; !heads.empty(); heads.pop_back()) result = concat_head(heads.back(), result);
    return result;
  }
  RegexId concat_head(RegexId a, RegexId b) {
    const RegexId b_head = kind(b) == Kind::kConcat ? operands(b)[0] : b;
    RegexId part;
    if (a == b_head && (a == kAnything || is_star_of(a, &part))) return b;
    if (a == kAnything && info(b).accepts_empty) return kAnything;
    const auto make = [&] {
      const bool both_empty = info(a).accepts_empty && info(b).accepts_empty;
      const auto partition =
          info(a).accepts_empty ? partitions.meet(info(a).partition, info(b).partition) : info(a).partition;
      return Info{both_empty, info(a).is_plain && info(b).is_plain, {}, partition};
    };
    return add(Kind::kConcat, {a, b}, make);
  }

  RegexId either(std::span<const RegexId> given) {
    std::vector<RegexId> parts;
    ByteSet set;
    bool accepts_empty = false;
    const auto take = [&](RegexId part) {
      if (kind(part) == Kind::kBytes) {
        set |= set_of(part);
      } else if (part != kNothing) {
        parts.push_back(part);
      }
    };
    for (const RegexId part : given) {
      if (kind(part) != Kind::kEither) {
        take(part);
        continue;
      }
      const auto inner = operands(part);
      for (size_t i = 0; i < inner.size(); ++i) take(operands(part)[i]);
    }
    if (const RegexId merged = bytes(set); merged != kNothing) parts.push_back(merged);
    std::ranges::sort(parts);
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
    for (const RegexId part : parts) {
      if (part == kAnything) return kAnything;
      if (part != kEmpty && info(part).accepts_empty) accepts_empty = true;
    }
    if (accepts_empty) std::erase(parts, kEmpty);
    if (parts.empty()) return kNothing;
    if (parts.size() == 1) return parts[0];
    return add(Kind::kEither, parts, [&] { return info_of_all(parts, false); });
  }

  Info info_of_all(const std::vector<RegexId>& parts, bool all) {
    Info made{all, !all, {}, BytePartitions::kOne};
    for (const RegexId part : parts) {
      const bool empty = info(part).accepts_empty;
      made.accepts_empty = all ? made.accepts_empty && empty : made.accepts_empty || empty;
      made.is_plain = made.is_plain && info(part).is_plain;
      made.partition = partitions.meet(made.partition, info(part).partition);
    }
    return made;
  }

  RegexId both(std::span<const RegexId> given) {
    std::vector<RegexId> parts;
    ByteSet set;
    set.set();
    bool has_set = false;
    const auto take = [&](RegexId part) {
      if (kind(part) == Kind::kBytes) {
        set &= set_of(part);
        has_set = true;
      } else if (part != kAnything) {
        parts.push_back(part);
      }
    };
    for (const RegexId part : given) {
      if (kind(part) != Kind::kBoth) {
        take(part);
        continue;
      }
      const auto inner = operands(part);
      for (size_t i = 0; i < inner.size(); ++i) take(operands(part)[i]);
    }
    if (has_set) parts.push_back(bytes(set));
    std::ranges::sort(parts);
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
    if (parts.empty()) return kAnything;
    if (parts[0] == kNothing) return kNothing;
    bool all_empty = true, has_empty = false;
    for (const RegexId part : parts) {
      all_empty = all_empty && info(part).accepts_empty;
      has_empty = has_empty || part == kEmpty;
      if (kind(part) == Kind::kNot && std::ranges::binary_search(parts, operands(part)[0])) return kNothing;
    }
    if (has_empty) return all_empty ? kEmpty : kNothing;
    if (parts.size() == 1) return parts[0];
    return add(Kind::kBoth, parts, [&] { return info_of_all(parts, true); });
  }

  RegexId complement(RegexId a) {
    if (a == kNothing) return kAnything;
    if (a == kAnything) return kNothing;
    if (kind(a) == Kind::kNot) return operands(a)[0];
    return add(Kind::kNot, {a}, [&] { return Info{!info(a).accepts_empty, false, {}, info(a).partition}; });
  }

  RegexId repeat(RegexId a, uint32_t min, uint32_t max) {
    if (max == 0 || a == kEmpty) return kEmpty;
    if (min > max) return kNothing;
    if (a == kNothing) return min == 0 ? kEmpty : kNothing;
    if (a == kAnything) return kAnything;
    if (info(a).accepts_empty) min = 0;
    if (min == 1 && max == 1) return a;
    if (min == 0 && max == 1) return either({{a, kEmpty}});
    if (min == 0 && max == kUnbounded) {
      // (R*)* = (R+)* = (R?)* = R*: else derivatives of nested stars grow without end.
      while (kind(a) == Kind::kRepeat && operands(a)[1] <= 1 && operands(a)[2] == kUnbounded) a = operands(a)[0];
      if (kind(a) == Kind::kEither && std::ranges::binary_search(operands(a), kEmpty)) {
        std::vector<RegexId> parts(operands(a).begin(), operands(a).end());
        std::erase(parts, kEmpty);
        return repeat(either(parts), 0, kUnbounded);
      }
    }
    const auto make = [&] { return Info{min == 0, info(a).is_plain, {}, info(a).partition}; };
    return add(Kind::kRepeat, {a, min, max}, make);
  }

  RegexId remainder(uint64_t divisor, uint64_t wanted, uint64_t so_far, bool has_digit) {
    const auto low = [](uint64_t n) { return static_cast<uint32_t>(n); };
    const auto high = [](uint64_t n) { return static_cast<uint32_t>(n >> 32); };
    const auto make = [&] { return Info{has_digit && so_far == wanted, true, {}, partitions.of_digits()}; };
    return add(Kind::kRemainder,
               {low(divisor), high(divisor), low(wanted), high(wanted), low(so_far), high(so_far), has_digit}, make);
  }

  RegexId after(RegexId a, uint8_t byte) {
    const auto& classes = partitions[infos[a].partition];
    const uint8_t byte_class = classes.class_of[byte];
    if (infos[a].next_first == kUnknown) {
      infos[a].next_first = static_cast<uint32_t>(nexts.size());
      nexts.resize(nexts.size() + classes.representatives.size(), kUnknown);
    }
    const uint32_t place = infos[a].next_first + byte_class;
    if (nexts[place] != kUnknown) return nexts[place];
    if (++nesting > kNestingMax) has_failed = true;
    const RegexId next = has_failed ? kNothing : find_after(a, byte);
    --nesting;
    if (has_failed) return kNothing;
    return nexts[place] = next;
  }

  RegexId find_after(RegexId a, uint8_t byte) {
    const std::vector<uint32_t> parts(operands(a).begin(), operands(a).end());
    switch (kind(a)) {
      case Kind::kNothing:
      case Kind::kEmpty:
        return kNothing;
      case Kind::kAnything:
        return kAnything;
      case Kind::kBytes:
        return (parts[byte / 32] >> (byte % 32) & 1) != 0 ? kEmpty : kNothing;
      case Kind::kText:
        return static_cast<uint8_t>(texts[parts[0]][parts[1]]) == byte ? text(parts[0], parts[1] + 1) : kNothing;
      case Kind::kConcat: {
        const RegexId first = concat(after(parts[0], byte), parts[1]);
        return info(parts[0]).accepts_empty ? either({{first, after(parts[1], byte)}}) : first;
      }
      case Kind::kEither:
        return either(after_all(parts, byte));
      case Kind::kBoth:
        return both(after_all(parts, byte));
      case Kind::kNot:
        return complement(after(parts[0], byte));
      case Kind::kRepeat: {
        const uint32_t max = parts[2] == kUnbounded ? kUnbounded : parts[2] - 1;
        return concat(after(parts[0], byte), repeat(parts[0], parts[1] - (parts[1] > 0), max));
      }
      case Kind::kRemainder: {
        if (byte < '0' || byte > '9') return kNothing;
        const auto number = [&](size_t i) { return parts[i] | static_cast<uint64_t>(parts[i + 1]) << 32; };
        return remainder(number(0), number(2), (number(4) * 10 + (byte - '0')) % number(0), true);
      }
    }
    return kNothing;
  }
  std::vector<RegexId> after_all(const std::vector<RegexId>& parts, uint8_t byte) {
    std::vector<RegexId> nexts_of;
    for (const RegexId part : parts) nexts_of.push_back(after(part, byte));
    return nexts_of;
  }

  // Follows derivatives, the deepest first, to one that accepts the empty text. Low bytes go first: a character is then
  // one step more often than four.
  Answer search(RegexId a, uint32_t fuel) {
    if (fuel <= infos[a].fuel_spent) return Answer::kUnknown;
    infos[a].fuel_spent = fuel;
    struct Step {
      RegexId id;
      uint32_t from;
    };
    std::vector<Step> steps = {{a, kUnknown}};
    std::vector<uint32_t> open = {0};
    std::unordered_set<RegexId> seen = {a};
    while (!open.empty()) {
      const uint32_t at = open.back();
      open.pop_back();
      const RegexId id = steps[at].id;
      if (structural_answer(id) == Answer::kYes) {
        for (uint32_t i = at; i != kUnknown; i = steps[i].from) infos[steps[i].id].has_text = Answer::kYes;
        return Answer::kYes;
      }
      if (structural_answer(id) == Answer::kNo) continue;
      if (fuel-- == 0) return Answer::kUnknown;
      const auto representatives = partitions[infos[id].partition].representatives;
      for (size_t i = representatives.size(); i-- > 0;) {
        const RegexId next = after(id, representatives[i]);
        if (has_failed) return Answer::kUnknown;
        if (next == kNothing || !seen.insert(next).second) continue;
        open.push_back(static_cast<uint32_t>(steps.size()));
        steps.push_back({next, at});
      }
    }
    for (const Step& step : steps) infos[step.id].has_text = Answer::kNo;
    return Answer::kNo;
  }
  // What can be said without derivatives.
  Answer structural_answer(RegexId a) const {
    if (infos[a].has_text != Answer::kUnknown) return infos[a].has_text;
    const auto parts = operands(a);
    if (kind(a) == Kind::kRepeat) return infos[parts[0]].has_text;
    if (kind(a) == Kind::kConcat) {
      const Answer first = infos[parts[0]].has_text, second = infos[parts[1]].has_text;
      if (first == Answer::kNo || second == Answer::kNo) return Answer::kNo;
      return first == Answer::kYes ? second : Answer::kUnknown;
    }
    if (kind(a) != Kind::kEither) return Answer::kUnknown;
    bool all_no = true;
    for (const RegexId part : parts) {
      if (infos[part].has_text == Answer::kYes) return Answer::kYes;
      all_no = all_no && infos[part].has_text == Answer::kNo;
    }
    return all_no ? Answer::kNo : Answer::kUnknown;
  }
  // Parts first: a concatenation is followed through its parts one by one, not through all that they spell.
  Answer has_text(RegexId a, uint32_t fuel, uint32_t depth) {
    Answer answer = structural_answer(a);
    if (answer != Answer::kUnknown) return infos[a].has_text = answer;
    const Kind what = kind(a);
    if (depth > 0 && (what == Kind::kConcat || what == Kind::kEither || what == Kind::kRepeat)) {
      const std::vector<uint32_t> parts(operands(a).begin(), operands(a).end());
      const size_t num_parts = what == Kind::kRepeat ? 1 : parts.size();
      for (size_t i = 0; i < num_parts; ++i) {
        if (has_text(parts[i], fuel, depth - 1) == Answer::kYes && what == Kind::kEither) break;
      }
      answer = structural_answer(a);
    } else {
      answer = search(a, fuel);
    }
    return infos[a].has_text = answer;
  }
};

RegexPool::RegexPool(uint32_t nodes_max) : impl_(std::make_unique<Impl>(nodes_max)) {
  impl_->add(Kind::kNothing, {}, [] { return Impl::Info{false, false, {}, BytePartitions::kOne}; });
  impl_->add(Kind::kEmpty, {}, [] { return Impl::Info{true, true, {}, BytePartitions::kOne}; });
  impl_->add(Kind::kAnything, {}, [] { return Impl::Info{true, true, {}, BytePartitions::kOne}; });
}
RegexPool::~RegexPool() = default;
RegexPool::RegexPool(RegexPool&&) noexcept = default;

RegexId RegexPool::bytes(const ByteSet& set) {
  return impl_->bytes(set);
}

RegexId RegexPool::literal(std::string_view text) {
  if (impl_->has_failed) return kNothing;
  if (text.size() > kSpelledOutMax) {
    impl_->texts.emplace_back(text);
    return impl_->text(static_cast<uint32_t>(impl_->texts.size() - 1), 0);
  }
  RegexId result = kEmpty;
  for (size_t i = text.size(); i-- > 0;) result = impl_->concat(impl_->byte(static_cast<uint8_t>(text[i])), result);
  return result;
}

RegexId RegexPool::code_points(std::span<const CodePointRange> ranges) {
  std::vector<RegexId> sequences;
  for (const Utf8Sequence& sequence : utf8_sequences(ranges)) {
    RegexId result = kEmpty;
    for (size_t i = sequence.size(); i-- > 0;) {
      ByteSet set;
      for (uint32_t b = sequence[i].first; b <= sequence[i].second; ++b) set.set(b);
      result = impl_->concat(impl_->bytes(set), result);
    }
    sequences.push_back(result);
  }
  return impl_->either(sequences);
}

RegexId RegexPool::any_code_point() {
  const CodePointRange all[] = {{0, 0x10ffff}};
  return code_points(all);
}

RegexId RegexPool::concat(RegexId a, RegexId b) {
  return impl_->concat(a, b);
}
RegexId RegexPool::concat(std::span<const RegexId> parts) {
  RegexId result = kEmpty;
  for (size_t i = parts.size(); i-- > 0;) result = impl_->concat(parts[i], result);
  return result;
}
RegexId RegexPool::either(RegexId a, RegexId b) {
  return impl_->either({{a, b}});
}
RegexId RegexPool::either(std::span<const RegexId> parts) {
  return impl_->either(parts);
}
RegexId RegexPool::both(RegexId a, RegexId b) {
  return impl_->both({{a, b}});
}
RegexId RegexPool::both(std::span<const RegexId> parts) {
  return impl_->both(parts);
}
RegexId RegexPool::complement(RegexId a) {
  return impl_->has_failed ? kNothing : impl_->complement(a);
}
RegexId RegexPool::repeat(RegexId a, uint32_t min, uint32_t max) {
  return impl_->repeat(a, min, max);
}
RegexId RegexPool::digits_with_remainder(uint64_t divisor, uint64_t remainder) {
  LLMRT_CHECK(divisor > 0 && divisor <= (1ull << 53), "digits_with_remainder: the divisor's range");
  return impl_->remainder(divisor, remainder, 0, false);
}

bool RegexPool::accepts_empty(RegexId a) const {
  return impl_->info(a).accepts_empty;
}
RegexId RegexPool::after(RegexId a, uint8_t byte) {
  return impl_->after(a, byte);
}
RegexId RegexPool::after(RegexId a, std::string_view text) {
  for (const char c : text) a = impl_->after(a, static_cast<uint8_t>(c));
  return a;
}
RegexPool::Answer RegexPool::has_text(RegexId a, uint32_t fuel) {
  return impl_->has_text(a, fuel, 64);
}
const RegexPool::ByteClasses& RegexPool::byte_classes(RegexId a) {
  return impl_->partitions[impl_->info(a).partition];
}
uint32_t RegexPool::byte_classes_id(RegexId a) const {
  return impl_->info(a).partition;
}
const RegexPool::ByteClasses& RegexPool::byte_classes_of(uint32_t id) const {
  return impl_->partitions[id];
}
const RegexPool::ByteClasses& RegexPool::byte_classes(RegexId a, RegexId b) {
  return impl_->partitions[impl_->partitions.meet(impl_->info(a).partition, impl_->info(b).partition)];
}
bool RegexPool::is_positive(RegexId a) const {
  return impl_->info(a).is_plain;
}

RegexPool::Form RegexPool::form(RegexId a) const {
  const auto words = impl_->operands(a);
  Form out{.is = impl_->kind(a), .parts = {}, .set = {}, .text = {}};
  switch (impl_->kind(a)) {
    case Kind::kBytes:
      out.set = impl_->set_of(a);
      break;
    case Kind::kText:
      out.text = impl_->texts[words[0]].substr(words[1]);
      break;
    case Kind::kRepeat:
      out.parts = {words[0]};
      out.min = words[1];
      out.max = words[2];
      break;
    case Kind::kConcat:
    case Kind::kEither:
    case Kind::kBoth:
    case Kind::kNot:
      out.parts.assign(words.begin(), words.end());
      break;
    default:
      break;
  }
  return out;
}

bool RegexPool::failed() const {
  return impl_->has_failed;
}
void RegexPool::fail() {
  impl_->has_failed = true;
}
uint32_t RegexPool::num_nodes() const {
  return static_cast<uint32_t>(impl_->infos.size());
}
size_t RegexPool::held_bytes() const {
  size_t held = impl_->nodes.held_bytes() + impl_->infos.capacity() * sizeof(Impl::Info) + 4 * impl_->nexts.capacity() +
                impl_->partitions.held_bytes();
  for (const auto& text : impl_->texts) held += text.size();
  return held;
}

}  // namespace llmrt
