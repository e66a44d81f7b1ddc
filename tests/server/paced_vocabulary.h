// Vocabularies of a few thousand tokens made in code, with what real ones have: merges several deep, runs of blanks, a
// space before a word, special tokens, and a chat template in the manner of today's models (tools, calls, results,
// reasoning, a switch for thinking, documents).
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/text/byte_alphabet.h"
#include "core/text/tokenizer.h"

namespace llmrt::test {

inline constexpr const char* kPacedTemplate = R"(
{%- set ns = namespace(last_query=messages|length - 1, searching=true) %}
{%- if tools %}
  {{- '<|im_start|>system\n' }}
  {%- if messages[0].role == 'system' %}{{- messages[0].content ~ '\n\n' }}{%- endif %}
  {{- '# Tools\n\nYou may call one or more functions.\n<tools>' }}
  {%- for tool in tools %}{{- '\n' ~ (tool | tojson) }}{%- endfor %}
  {{- '\n</tools><|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
  {{- '<|im_start|>system\n' ~ messages[0].content ~ '<|im_end|>\n' }}
{%- endif %}
{%- for document in documents or [] %}
  {{- '[' ~ loop.index ~ '] ' }}
  {%- if document is mapping %}
    {%- for key, value in document | items %}{{- key ~ ': ' ~ value ~ '\n' }}{%- endfor %}
  {%- else %}{{- document | string | trim }}{%- endif %}
{%- endfor %}
{%- if date_string is defined %}{{- 'Today: ' ~ date_string | replace('a', 'aa') | upper ~ '\n' }}{%- endif %}
{%- for message in messages[::-1] %}
  {%- set index = messages|length - 1 - loop.index0 %}
  {%- if ns.searching and message.role == 'user' %}
    {%- set ns.searching = false %}{%- set ns.last_query = index %}
  {%- endif %}
{%- endfor %}
{%- for message in messages %}
  {%- if message.content is string %}{%- set content = message.content %}
  {%- else %}{%- set content = message.content | map(attribute='text') | join('') if message.content else '' %}
  {%- endif %}
  {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
    {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' }}
  {%- elif message.role == 'assistant' %}
    {%- set reasoning = message.reasoning_content or '' %}
    {%- if not reasoning and '</think>' in content %}
      {%- set reasoning = content.split('</think>')[0].split('<think>')[-1].strip('\n') %}
      {%- set content = content.split('</think>')[-1].lstrip('\n') %}
    {%- endif %}
    {{- '<|im_start|>assistant\n' }}
    {%- if loop.index0 > ns.last_query and reasoning %}{{- '<think>\n' + reasoning + '\n</think>\n\n' }}{%- endif %}
    {{- content }}
    {%- for call in message.tool_calls or [] %}
      {%- set function = call.function if call.function is defined else call %}
      {{- '\n<tool_call>\n{"name": "' ~ function.name ~ '", "arguments": ' }}
      {{- function.arguments if function.arguments is string else function.arguments | tojson }}
      {{- '}\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
  {%- elif message.role == 'tool' %}
    {%- if loop.first or loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
    {{- '\n<tool_response>\n' + content + '\n</tool_response>' }}
    {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\n' }}{%- endif %}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- '<|im_start|>assistant\n' }}
  {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}
{%- endif %})";

// A vocabulary, and which of its tokens are text that an answer may be made of.
struct PacedVocabulary {
  Vocabulary vocabulary;
  TokenId text_first = 0, text_end = 0;
};

// Pieces of letters: pairs, then pairs of pairs, shorter ones first. `join(left, right)` for each.
template <typename Join>
void join_letters(Join join) {
  std::vector<std::string> pairs;
  for (const char a : std::string_view("etaoinshrdlcum"))
    for (const char b : std::string_view("etaoinshrdlcum")) {
      join(std::string(1, a), std::string(1, b));
      pairs.push_back({a, b});
    }
  for (size_t i = 0; i < pairs.size(); ++i)
    for (size_t k = i % 13; k < pairs.size(); k += 13) join(pairs[i], pairs[k]);
}

inline PacedVocabulary paced_bpe() {
  PacedVocabulary made;
  Vocabulary& vocabulary = made.vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = "qwen2";
  for (int byte = 0; byte < 256; ++byte)
    vocabulary.tokens.emplace_back(byte_to_alphabet(static_cast<unsigned char>(byte)));
  made.text_first = static_cast<TokenId>(vocabulary.tokens.size());
  const std::string space(byte_to_alphabet(' ')), line(byte_to_alphabet('\n'));
  std::unordered_set<std::string> known;
  const auto join = [&](const std::string& left, const std::string& right) {
    vocabulary.merges.push_back(left + " " + right);
    if (known.insert(left + right).second) vocabulary.tokens.push_back(left + right);
  };
  join_letters(join);
  const size_t num_words = vocabulary.tokens.size();
  for (size_t i = 256; i < num_words; ++i) join(space, std::string(vocabulary.tokens[i]));
  made.text_end = static_cast<TokenId>(vocabulary.tokens.size());
  for (const std::string& blank : {space, line})
    for (std::string run = blank; run.size() <= 32 * blank.size(); run += run) join(run, run);
  vocabulary.types.assign(vocabulary.tokens.size(), TokenType::kNormal);
  const auto add = [&](const char* token, TokenType type) {
    vocabulary.tokens.emplace_back(token);
    vocabulary.types.push_back(type);
    return static_cast<TokenId>(vocabulary.tokens.size()) - 1;
  };
  vocabulary.pad = add("<|endoftext|>", TokenType::kControl);
  vocabulary.bos = add("<|im_start|>", TokenType::kControl);
  vocabulary.eos = add("<|im_end|>", TokenType::kControl);
  for (const char* tag : {"<think>", "</think>", "<tool_call>", "</tool_call>"}) add(tag, TokenType::kUserDefined);
  return made;
}

inline PacedVocabulary paced_sentencepiece() {
  PacedVocabulary made;
  Vocabulary& vocabulary = made.vocabulary;
  vocabulary.model = "llama";
  const auto add = [&](std::string token, TokenType type, float score) {
    vocabulary.tokens.push_back(std::move(token));
    vocabulary.types.push_back(type);
    vocabulary.scores.push_back(score);
    return static_cast<TokenId>(vocabulary.tokens.size()) - 1;
  };
  vocabulary.unk = add("<unk>", TokenType::kUnknown, 0);
  vocabulary.bos = add("<s>", TokenType::kControl, 0);
  vocabulary.eos = add("</s>", TokenType::kControl, 0);
  for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), TokenType::kByte, 0);
  made.text_first = static_cast<TokenId>(vocabulary.tokens.size());
  const std::string space = "\u2581";
  float score = 0;
  std::unordered_set<std::string> known;
  const auto piece = [&](const std::string& text) {
    if (known.insert(text).second) add(text, TokenType::kNormal, score -= 1);
  };
  join_letters([&](const std::string& left, const std::string& right) { piece(left + right); });
  const size_t num_words = vocabulary.tokens.size();
  for (size_t i = static_cast<size_t>(made.text_first); i < num_words; ++i)
    piece(space + std::string(vocabulary.tokens[i]));
  made.text_end = static_cast<TokenId>(vocabulary.tokens.size());
  for (std::string run = space + space; run.size() <= 16 * space.size(); run += space) piece(run);
  for (int byte = 0x20; byte < 0x7f; ++byte) piece(byte == ' ' ? space : std::string(1, static_cast<char>(byte)));
  vocabulary.eot = add("<|im_end|>", TokenType::kControl, 0);
  add("<|im_start|>", TokenType::kControl, 0);
  return made;
}

}  // namespace llmrt::test
