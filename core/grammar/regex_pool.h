// Regular expressions over bytes, as nodes that are made once (hash-consed): equal expressions have equal ids, so a
// derivative is a state of a lazily built automaton. And, or and not are native (Brzozowski 1964; Owens, Reppy, Turon
// 2009, "Regular-expression derivatives re-examined"). Texts are bytes; code points are given as UTF-8.
//
// One thread at a time. Bounded: beyond nodes_max nodes every new expression is kNothing and failed() is true; whoever
// builds checks it at the end.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace llmrt {

using RegexId = uint32_t;
using ByteSet = std::bitset<256>;
using CodePointRange = std::pair<char32_t, char32_t>;  // both inside

class RegexPool {
 public:
  static constexpr RegexId kNothing = 0;   // no text
  static constexpr RegexId kEmpty = 1;     // the empty text
  static constexpr RegexId kAnything = 2;  // every text, whatever its bytes
  static constexpr uint32_t kUnbounded = UINT32_MAX;
  static constexpr uint32_t kNodesMax = 500'000;

  explicit RegexPool(uint32_t nodes_max = kNodesMax);
  ~RegexPool();
  RegexPool(RegexPool&&) noexcept;

  RegexId bytes(const ByteSet& set);
  RegexId literal(std::string_view text);
  // One code point of these ranges (in any order, they may overlap), as UTF-8; surrogates are left out.
  RegexId code_points(std::span<const CodePointRange> ranges);
  RegexId any_code_point();

  RegexId concat(RegexId a, RegexId b);
  RegexId concat(std::span<const RegexId> parts);
  RegexId either(RegexId a, RegexId b);
  RegexId either(std::span<const RegexId> parts);
  RegexId both(RegexId a, RegexId b);
  RegexId both(std::span<const RegexId> parts);
  RegexId complement(RegexId a);  // every text of bytes that is not in a
  RegexId except(RegexId a, RegexId b) { return both(a, complement(b)); }
  // At least `min`, at most `max` times (kUnbounded): a counter in the node, never unrolled.
  RegexId repeat(RegexId a, uint32_t min, uint32_t max);
  RegexId star(RegexId a) { return repeat(a, 0, kUnbounded); }
  RegexId optional(RegexId a) { return repeat(a, 0, 1); }
  // Decimal digits (at least one) whose number leaves `remainder` when divided by `divisor`; divisor <= 2^53.
  RegexId digits_with_remainder(uint64_t divisor, uint64_t remainder);

  bool accepts_empty(RegexId a) const;
  // What may follow `byte`: {w : byte w in a}. Memoised.
  RegexId after(RegexId a, uint8_t byte);
  RegexId after(RegexId a, std::string_view text);
  bool matches(RegexId a, std::string_view text) { return accepts_empty(after(a, text)); }

  enum class Answer : uint8_t { kNo, kYes, kUnknown };
  // Whether some text is in `a`: follows derivatives, at most `fuel` new states. What was found out is remembered.
  Answer has_text(RegexId a, uint32_t fuel);
  // Whether every text of `a` is in `b`.
  Answer contains(RegexId b, RegexId a, uint32_t fuel) { return negate(has_text(except(a, b), fuel)); }
  // Bytes behind which the same may follow: for walks over all bytes. class_of[byte] counts from 0; representatives[c]
  // is one byte of class c. Until the next call that makes expressions.
  struct ByteClasses {
    std::vector<uint8_t> representatives;
    uint8_t class_of[256];
  };
  const ByteClasses& byte_classes(RegexId a);
  // The classes by their number: expressions with equal classes have one. Few numbers stand for many expressions.
  uint32_t byte_classes_id(RegexId a) const;
  const ByteClasses& byte_classes_of(uint32_t id) const;
  // Behind which the same may follow in both.
  const ByteClasses& byte_classes(RegexId a, RegexId b);
  // Made without `both` and `complement`: it has a text, and so has whatever is left of it, unless that is kNothing.
  bool is_positive(RegexId a) const;

  // How an expression is made, for walks over its parts.
  struct Form {
    enum class Operator : uint8_t {
      kNothing,
      kEmpty,
      kAnything,
      kBytes,
      kText,
      kConcat,
      kEither,
      kBoth,
      kNot,
      kRepeat,
      kRemainder
    };
    Operator is;
    std::vector<RegexId> parts;  // of kText: what follows it, or none
    ByteSet set;                 // of kBytes
    std::string text;            // of kText
    uint32_t min = 0, max = 0;   // of kRepeat
  };
  Form form(RegexId a) const;

  bool failed() const;
  void fail();  // as if there were no room
  uint32_t num_nodes() const;
  size_t held_bytes() const;

 private:
  static Answer negate(Answer a) { return a == Answer::kUnknown ? a : a == Answer::kYes ? Answer::kNo : Answer::kYes; }
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace llmrt
