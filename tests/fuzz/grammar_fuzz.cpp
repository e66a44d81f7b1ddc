// Any bytes as a JSON schema, a regular expression, a GBNF or a Lark grammar, by the first byte. An error, or a grammar
// whose masks lead through 40 tokens: every token that a mask allows is taken, a mask is never empty, and a whole
// answer of a schema is JSON.
#include <boost/json.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/check.h"
#include "core/grammar/compiled_grammar.h"
#include "core/grammar/grammar_source.h"

namespace {

using namespace llmrt;

constexpr int kTokens = 40;

// All bytes, and some pieces of JSON.
std::shared_ptr<const TokenVocabulary> vocabulary() {
  static const auto made = [] {
    std::vector<std::string> bytes = {""};
    for (int b = 0; b < 256; ++b) bytes.push_back(std::string(1, static_cast<char>(b)));
    for (const char* piece :
         {"{\"", "\":", "\",\"", "\"}", "true", "null", "abc", "12", "]}", "[[", "\\u", "\xc3\xa9"}) {
      bytes.emplace_back(piece);
    }
    return std::make_shared<const TokenVocabulary>(std::move(bytes), std::vector<int32_t>{0});
  }();
  return made;
}

bool read_source(uint8_t kind, std::string_view text, GrammarSource* source) {
  constexpr GrammarSource::Dialect kDialects[] = {GrammarSource::Dialect::kJsonSchema, GrammarSource::Dialect::kRegex,
                                                  GrammarSource::Dialect::kGbnf, GrammarSource::Dialect::kLark};
  source->dialect = kDialects[kind % 4];
  source->text = text;
  if (source->dialect != GrammarSource::Dialect::kJsonSchema) return true;
  boost::system::error_code error;
  source->schema = boost::json::parse(text, error);
  return !error;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > 4096) return 0;
  GrammarSource source;
  if (!read_source(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1}, &source)) return 0;
  GrammarBuilder builder({.symbols_max = 20'000, .regex_nodes_max = 50'000});
  SchemaNotes notes;
  const GrammarNames names{[](std::string_view) { return -1; }, vocabulary()->num_tokens()};
  const Result<SymbolId> start = add_source(&builder, source, names, &notes);
  if (!start.ok()) return 0;
  builder.set_start(*start);
  const auto grammar = CompiledGrammar::create(&builder, vocabulary(), nullptr);
  if (!grammar.ok()) return 0;
  const auto matcher = (*grammar)->start();
  std::string text;
  for (int i = 0; i < kTokens && !matcher->ended(); ++i) {
    const NextTokens next = matcher->next();
    if (next.error) return 0;  // a limit
    LLMRT_CHECK(next.mask && next.mask->num_allowed() > 0, "a mask that allows nothing");
    // The allowed token that the input names, without the end.
    uint32_t wanted = data[static_cast<size_t>(i) % size] * 7919u % next.mask->num_allowed();
    int32_t token = -1;
    for (int32_t v = 0; token < 0 && v < static_cast<int32_t>(vocabulary()->num_tokens()); ++v) {
      if (next.mask->allows(v) && wanted-- == 0) token = v;
    }
    LLMRT_CHECK(matcher->advance(token), "a token that the mask allows is not taken");
    text += vocabulary()->bytes(token);
  }
  if (source.dialect == GrammarSource::Dialect::kJsonSchema && matcher->accepts()) {
    boost::system::error_code error;
    boost::json::parse(text, error);
    LLMRT_CHECK(!error, "a whole answer of a schema is JSON");
  }
  return 0;
}
