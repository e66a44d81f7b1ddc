#include "core/grammar/schema/numbers_in_schemas.h"

namespace llmrt {
namespace {

RegexId digits_from(RegexPool* pool, char first) {
  ByteSet set;
  for (char digit = first; digit <= '9'; ++digit) set.set(static_cast<uint8_t>(digit));
  return pool->bytes(set);
}

// \.0+, or nothing.
RegexId zero_fraction(RegexPool* pool) {
  return pool->optional(pool->concat(pool->literal("."), pool->repeat(pool->literal("0"), 1, kNoBound)));
}

RegexId positive_integers(RegexPool* pool) {
  return pool->concat(digits_from(pool, '1'), pool->star(digits_from(pool, '0')));
}

}  // namespace

NumberSet integer_numbers(RegexPool* pool) {
  const RegexId texts =
      pool->either(pool->literal("0"), pool->concat(pool->optional(pool->literal("-")), positive_integers(pool)));
  return {pool->concat(texts, zero_fraction(pool)), texts};
}

NumberSet one_number(RegexPool* pool, std::string_view decimal) {
  const RegexId text = pool->literal(decimal);
  const bool has_fraction = decimal.find('.') != decimal.npos;
  return {pool->concat(text, has_fraction ? pool->star(pool->literal("0")) : zero_fraction(pool)), text};
}

}  // namespace llmrt
