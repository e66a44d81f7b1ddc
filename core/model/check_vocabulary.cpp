#include "core/model/check_vocabulary.h"

#include <algorithm>
#include <string_view>

#include "core/base/keyed_hash.h"
#include "core/text/tokenizer_base.h"

namespace llmrt {
namespace {

constexpr size_t kMarkersMax = 256;
constexpr size_t kMarkerBytesMax = 64;
constexpr size_t kNamesShown = 8;

struct Marker {
  TokenId id = -1;
};
using Markers = KeyedViewMap<Marker>;

// The texts in a template that look like turn tokens: <|...|>, the same with wide bars, and the known names of ends.
Markers markers_of(std::string_view source) {
  Markers markers;
  for (const auto& [open, close] :
       {std::pair<std::string_view, std::string_view>{"<|", "|>"}, {"<\xEF\xBD\x9C", "\xEF\xBD\x9C>"}}) {  // U+FF5C
    for (size_t at = source.find(open); at != std::string_view::npos && markers.size() < kMarkersMax;
         at = source.find(open, at + 1)) {
      const std::string_view rest = source.substr(at, kMarkerBytesMax);
      const size_t end = rest.find(close, open.size());
      const std::string_view marker = end == std::string_view::npos ? "" : rest.substr(0, end + close.size());
      // Neither code, nor one that begins inside another.
      if (marker.size() > open.size() + close.size() &&
          marker.find_first_of(" \n\t'\"{}%+\\") == std::string_view::npos &&
          marker.find('<', 1) == std::string_view::npos)
        markers.try_emplace(marker);
    }
  }
  for (const std::string_view name : end_of_turn_names())
    if (source.find(name) != std::string_view::npos) markers.try_emplace(name);
  return markers;
}

bool looks_special(std::string_view token) {
  return token.size() > 2 &&
         ((token.front() == '<' && token.back() == '>') || (token.front() == '[' && token.back() == ']'));
}

class Check {
 public:
  Check(const Metadata& metadata, Vocabulary* vocabulary) : metadata_(metadata), vocabulary_(*vocabulary) {}

  std::vector<std::string> run() {
    check_pre();
    Markers markers = markers_of(vocabulary_.chat_template);
    for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
      const auto found = markers.find(vocabulary_.tokens[i]);
      if (found == markers.end() || found->second.id >= 0) continue;
      found->second.id = static_cast<TokenId>(i);
      if (is_normal(found->second.id)) take_as_control(found->second.id, "the chat template spells it");
    }
    for (const auto& [key, id] : {std::pair{"tokenizer.ggml.bos_token_id", vocabulary_.bos},
                                  {"tokenizer.ggml.eos_token_id", vocabulary_.eos},
                                  {"tokenizer.ggml.eot_token_id", vocabulary_.eot}})
      if (id >= 0 && is_normal(id)) check_named(key, id);
    check_end_names();
    tell_missing(markers);
    return std::move(warnings_);
  }

 private:
  bool is_normal(TokenId id) const {
    return vocabulary_.types.empty() || vocabulary_.types[static_cast<size_t>(id)] == TokenType::kNormal;
  }
  std::string name_of(TokenId id) const {
    return fmt::format("token {} \"{}\"", id, printable(vocabulary_.tokens[static_cast<size_t>(id)]));
  }

  void take_as_control(TokenId id, std::string_view reason) {
    if (vocabulary_.types.empty()) vocabulary_.types.assign(vocabulary_.tokens.size(), TokenType::kNormal);
    vocabulary_.types[static_cast<size_t>(id)] = TokenType::kControl;
    warnings_.push_back(fmt::format("tokenizer.ggml.token_type: {} is typed normal; {}: it is taken as a control token",
                                    name_of(id), reason));
  }

  void check_pre() {
    if (vocabulary_.model != "gpt2" || !vocabulary_.pre.empty()) return;
    const bool loses_bos = vocabulary_.bos >= 0 && !metadata_.has("tokenizer.ggml.add_bos_token");
    warnings_.push_back(fmt::format(
        "tokenizer.ggml.pre: missing: gpt-2 is assumed; if the model was trained with another pre-tokenizer, texts "
        "become other tokens and answers get worse{}",
        loses_bos ? ". tokenizer.ggml.add_bos_token is missing too, and that name decides it: no beginning-of-text "
                    "token is added"
                  : ""));
  }

  void check_named(const char* key, TokenId id) {
    if (looks_special(vocabulary_.tokens[static_cast<size_t>(id)])) {
      take_as_control(id, fmt::format("{} names it", key));
      return;
    }
    warnings_.push_back(fmt::format(
        "tokenizer.ggml.token_type: {}, which {} names, is typed normal: it is text like any other, and shown",
        name_of(id), key));
  }

  void check_end_names() {
    const auto names = end_of_turn_names();
    const KeyedViewSet known(names.begin(), names.end());
    for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      if (is_normal(id) && id != vocabulary_.eos && id != vocabulary_.eot && known.contains(vocabulary_.tokens[i]))
        warnings_.push_back(fmt::format(
            "tokenizer.ggml.token_type: {} has the name of a token that ends a turn and is typed normal: it ends none",
            name_of(id)));
    }
  }

  void tell_missing(const Markers& markers) {
    std::vector<std::string> missing;
    for (const auto& [text, marker] : markers)
      if (marker.id < 0) missing.push_back("\"" + printable(text) + "\"");
    if (missing.empty()) return;
    std::ranges::sort(missing);
    const size_t num_missing = missing.size();
    missing.resize(std::min(num_missing, kNamesShown));
    warnings_.push_back(
        fmt::format("tokenizer.chat_template: {}{} {} no token of the vocabulary: the model gets it as plain text, "
                    "which it may not "
                    "have been trained with",
                    fmt::join(missing, ", "),
                    num_missing > kNamesShown ? fmt::format(" and {} more", num_missing - kNamesShown) : "",
                    num_missing == 1 ? "is" : "are"));
  }

  const Metadata& metadata_;
  Vocabulary& vocabulary_;
  std::vector<std::string> warnings_;
};

}  // namespace

std::vector<std::string> check_vocabulary(const Metadata& metadata, Vocabulary* vocabulary) {
  return Check(metadata, vocabulary).run();
}

}  // namespace llmrt
