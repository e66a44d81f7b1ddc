#include "core/grammar/grammar_source.h"

#include <fmt/format.h>

#include "core/grammar/gbnf.h"
#include "core/grammar/lark.h"
#include "core/grammar/regex_syntax.h"

namespace llmrt {

std::string GrammarSource::key() const {
  std::string key = fmt::format("{} {} ", static_cast<int>(dialect), static_cast<int>(spaces));
  for (const std::string& choice : choices) key += fmt::format("{}:{}", choice.size(), choice);
  return key + (dialect == Dialect::kJsonSchema ? boost::json::serialize(schema) : text);
}

GrammarSource::Dialect grammar_dialect(std::string_view text) {
  return text.find("::=") != std::string_view::npos ? GrammarSource::Dialect::kGbnf : GrammarSource::Dialect::kLark;
}

Result<SymbolId> add_source(GrammarBuilder* builder, const GrammarSource& source, const GrammarNames& names,
                            SchemaNotes* notes) {
  const SchemaOptions options{.spaces = source.spaces};
  switch (source.dialect) {
    case GrammarSource::Dialect::kJsonObject:
      return add_any_json_object(builder, options);
    case GrammarSource::Dialect::kJsonSchema:
      return add_json_schema(builder, source.schema, options, notes);
    case GrammarSource::Dialect::kRegex: {
      Result<RegexId> regex = parse_regex(&builder->regexes(), source.text, {.anchored = true});
      if (!regex.ok()) return regex.error();
      return builder->terminal(*regex);
    }
    case GrammarSource::Dialect::kChoice: {
      std::vector<RegexId> texts;
      for (const std::string& choice : source.choices) texts.push_back(builder->regexes().literal(choice));
      return builder->terminal(builder->regexes().either(texts));
    }
    case GrammarSource::Dialect::kGbnf:
      return add_gbnf(builder, source.text, names);
    case GrammarSource::Dialect::kLark: {
      const auto add_json = [&](GrammarBuilder* to, const boost::json::value& schema) {
        return add_json_schema(to, schema, options, notes);
      };
      return add_lark(builder, source.text, {names, add_json});
    }
  }
  return GrammarBuilder::kNothing;
}

}  // namespace llmrt
