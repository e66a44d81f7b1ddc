#include "core/grammar/schema/numbers_in_schemas.h"

#include "core/grammar/numbers.h"

namespace llmrt {
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
