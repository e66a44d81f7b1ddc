#include "core/grammar/numbers.h"

#include <algorithm>
#include <charconv>

namespace llmrt {
namespace {

constexpr uint64_t kDivisorMax = 1ull << 53;
constexpr uint64_t kFractionWorkMax = 4000;  // remainders times digits of a divisor with a fraction

RegexId digit(RegexPool* pool, char first, char last) {
  ByteSet set;
  for (char c = first; c <= last; ++c) set.set(static_cast<uint8_t>(c));
  return pool->bytes(set);
}
RegexId digits(RegexPool* pool, uint32_t min, uint32_t max) {
  return pool->repeat(digit(pool, '0', '9'), min, max);
}
RegexId any_digits(RegexPool* pool) {
  return digits(pool, 0, RegexPool::kUnbounded);
}
// Nothing, or a point and digits.
RegexId any_fraction(RegexPool* pool) {
  return pool->optional(pool->concat(pool->literal("."), digits(pool, 1, RegexPool::kUnbounded)));
}
RegexId zeros(RegexPool* pool) {
  return pool->star(pool->literal("0"));
}
RegexId zero(RegexPool* pool) {
  return pool->concat(pool->literal("0"), zero_fraction(pool));
}
RegexId whole_numbers(RegexPool* pool) {
  return pool->either(pool->literal("0"), positive_integers(pool));
}
RegexId all_magnitudes(RegexPool* pool) {
  return pool->concat(whole_numbers(pool), any_fraction(pool));
}

RegexId concat(RegexPool* pool, std::initializer_list<RegexId> parts) {
  return pool->concat(std::span(parts.begin(), parts.size()));
}

RegexId equal(RegexPool* pool, const Decimal& bound) {
  const RegexId whole = pool->literal(bound.whole);
  if (bound.fraction.empty()) return pool->concat(whole, zero_fraction(pool));
  return concat(pool, {whole, pool->literal("." + bound.fraction), zeros(pool)});
}

// Magnitudes above the bound's.
RegexId above(RegexPool* pool, const Decimal& bound) {
  const std::string& whole = bound.whole;
  const auto length = static_cast<uint32_t>(whole.size());
  std::vector<RegexId> found = {
      concat(pool, {digit(pool, '1', '9'), digits(pool, length, RegexPool::kUnbounded), any_fraction(pool)})};
  for (uint32_t i = 0; i < length; ++i) {
    if (whole[i] == '9') continue;
    found.push_back(concat(pool, {pool->literal(whole.substr(0, i)), digit(pool, static_cast<char>(whole[i] + 1), '9'),
                                  digits(pool, length - i - 1, length - i - 1), any_fraction(pool)}));
  }
  const RegexId same_whole = pool->literal(whole + ".");
  const std::string& fraction = bound.fraction;
  for (size_t i = 0; i < fraction.size(); ++i) {
    if (fraction[i] == '9') continue;
    found.push_back(concat(pool, {same_whole, pool->literal(fraction.substr(0, i)),
                                  digit(pool, static_cast<char>(fraction[i] + 1), '9'), any_digits(pool)}));
  }
  found.push_back(
      concat(pool, {same_whole, pool->literal(fraction), zeros(pool), digit(pool, '1', '9'), any_digits(pool)}));
  return pool->either(found);
}

// Magnitudes below the bound's, zero among them.
RegexId below(RegexPool* pool, const Decimal& bound) {
  const std::string& whole = bound.whole;
  const auto length = static_cast<uint32_t>(whole.size());
  std::vector<RegexId> found;
  if (length > 1) {
    const RegexId shorter =
        pool->either(pool->literal("0"), pool->concat(digit(pool, '1', '9'), digits(pool, 0, length - 2)));
    found.push_back(pool->concat(shorter, any_fraction(pool)));
  }
  for (uint32_t i = 0; i < length; ++i) {
    const char least = i == 0 && length > 1 ? '1' : '0';
    if (whole[i] <= least) continue;
    found.push_back(
        concat(pool, {pool->literal(whole.substr(0, i)), digit(pool, least, static_cast<char>(whole[i] - 1)),
                      digits(pool, length - i - 1, length - i - 1), any_fraction(pool)}));
  }
  const std::string& fraction = bound.fraction;
  if (!fraction.empty()) found.push_back(pool->literal(whole));
  for (size_t i = 0; i < fraction.size(); ++i) {
    const RegexId same = pool->literal(whole + "." + fraction.substr(0, i));
    if (i > 0) found.push_back(same);
    if (fraction[i] > '0') {
      found.push_back(concat(pool, {same, digit(pool, '0', static_cast<char>(fraction[i] - 1)), any_digits(pool)}));
    }
  }
  return pool->either(found);
}

RegexId negated(RegexPool* pool, RegexId magnitudes) {
  return pool->concat(pool->literal("-"), pool->except(magnitudes, zero(pool)));
}

// Of a divisor m / 10^s: digits before the point leave a remainder, those behind it must make up for it.
RegexId multiples_with_fraction(RegexPool* pool, uint64_t m, uint32_t s) {
  std::vector<uint64_t> shifted(s + 1);  // 10^i mod m
  shifted[0] = 1 % m;
  for (uint32_t i = 1; i <= s; ++i) shifted[i] = shifted[i - 1] * 10 % m;
  std::vector<RegexId> found;
  for (uint64_t r = 0; r < m; ++r) {
    const uint64_t wanted = (m - r * shifted[s] % m) % m;
    std::vector<RegexId> fractions;
    if (wanted == 0) fractions.push_back(zero_fraction(pool));
    for (uint32_t k = 1; k <= s; ++k) {
      for (uint64_t x = 0; x < m; ++x) {
        if (x * shifted[s - k] % m != wanted) continue;
        fractions.push_back(concat(
            pool,
            {pool->literal("."), pool->both(pool->digits_with_remainder(m, x), digits(pool, k, k)), zeros(pool)}));
      }
    }
    const RegexId whole = pool->both(pool->digits_with_remainder(m, r), whole_numbers(pool));
    found.push_back(pool->concat(whole, pool->either(fractions)));
  }
  return pool->either(found);
}

}  // namespace

std::optional<Decimal> Decimal::parse(std::string_view text) {
  Decimal number;
  if (text.starts_with('-')) {
    number.is_negative = true;
    text.remove_prefix(1);
  }
  const auto take_digits = [&] {
    const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
    const std::string taken(text.substr(0, end));
    text.remove_prefix(end);
    return taken;
  };
  std::string whole = take_digits(), fraction;
  if (whole.empty() || whole.size() > kDigitsMax) return std::nullopt;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    fraction = take_digits();
    if (fraction.empty() || fraction.size() > kDigitsMax) return std::nullopt;
  }
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    if (text.starts_with('+')) text.remove_prefix(1);
    int exponent = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), exponent);
    if (error != std::errc() || std::abs(exponent) > static_cast<int>(kDigitsMax)) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    for (; exponent > 0; --exponent) {
      whole += fraction.empty() ? '0' : fraction.front();
      if (!fraction.empty()) fraction.erase(0, 1);
    }
    for (; exponent < 0; ++exponent) {
      fraction.insert(fraction.begin(), whole.empty() ? '0' : whole.back());
      if (!whole.empty()) whole.pop_back();
    }
  }
  if (!text.empty()) return std::nullopt;
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  while (fraction.ends_with('0')) fraction.pop_back();
  if (whole.size() > kDigitsMax || fraction.size() > kDigitsMax) return std::nullopt;
  number.whole = whole.empty() ? "0" : whole;
  number.fraction = fraction;
  if (number.is_zero()) number.is_negative = false;
  return number;
}

RegexId shortest_numbers(RegexPool* pool) {
  return pool->except(all_numbers(pool), concat(pool, {RegexPool::kAnything, pool->literal("."), RegexPool::kAnything,
                                                       pool->literal("0")}));
}
RegexId positive_integers(RegexPool* pool) {
  return pool->concat(digit(pool, '1', '9'), any_digits(pool));
}

RegexId zero_fraction(RegexPool* pool) {
  return pool->optional(pool->concat(pool->literal("."), pool->repeat(pool->literal("0"), 1, RegexPool::kUnbounded)));
}

RegexId all_numbers(RegexPool* pool) {
  return pool->either(all_magnitudes(pool), negated(pool, all_magnitudes(pool)));
}

RegexId numbers_at_least(RegexPool* pool, const Decimal& bound, bool exclusive) {
  if (!bound.is_negative) return exclusive ? above(pool, bound) : pool->either(above(pool, bound), equal(pool, bound));
  RegexId magnitudes = below(pool, bound);
  if (!exclusive) magnitudes = pool->either(magnitudes, equal(pool, bound));
  return pool->either(all_magnitudes(pool), negated(pool, magnitudes));
}

RegexId numbers_at_most(RegexPool* pool, const Decimal& bound, bool exclusive) {
  if (bound.is_negative) {
    return negated(pool, exclusive ? above(pool, bound) : pool->either(above(pool, bound), equal(pool, bound)));
  }
  const RegexId magnitudes = exclusive ? below(pool, bound) : pool->either(below(pool, bound), equal(pool, bound));
  return pool->either(magnitudes, negated(pool, all_magnitudes(pool)));
}

Result<RegexId> multiples_of(RegexPool* pool, const Decimal& divisor) {
  std::string significant = divisor.fraction.empty() ? divisor.whole : divisor.whole + divisor.fraction;
  uint32_t num_zeros = 0;  // behind the significant digits of a whole number
  while (divisor.fraction.empty() && significant.size() > 1 && significant.ends_with('0')) {
    significant.pop_back();
    ++num_zeros;
  }
  uint64_t m = 0;
  const auto [end, error] = std::from_chars(significant.data(), significant.data() + significant.size(), m);
  const uint64_t s = divisor.fraction.size();
  const bool is_told = error == std::errc() && m > 0 && m <= kDivisorMax &&
                       (s == 0 || (m <= kFractionWorkMax && m * m * s <= 64 * kFractionWorkMax));
  if (!is_told) {
    return make_error(ErrorCode::kUnsupportedSchema, "a divisor with so many digits is not supported");
  }
  RegexId magnitudes;
  if (s > 0) {
    magnitudes = multiples_with_fraction(pool, m, static_cast<uint32_t>(s));
  } else {
    const RegexId nonzero = concat(pool, {pool->both(pool->digits_with_remainder(m, 0), positive_integers(pool)),
                                          pool->repeat(pool->literal("0"), num_zeros, num_zeros)});
    magnitudes = pool->concat(pool->either(pool->literal("0"), nonzero), zero_fraction(pool));
  }
  return pool->either(magnitudes, negated(pool, magnitudes));
}

}  // namespace llmrt
