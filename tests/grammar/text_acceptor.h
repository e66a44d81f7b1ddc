// Whether a grammar takes a text, byte by byte as a matcher does: for tests of front-ends.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "core/grammar/text_position.h"

namespace llmrt::fakes {

class TextAcceptor {
 public:
  // Takes the builder's expressions.
  TextAcceptor(GrammarBuilder* builder, SymbolId start) {
    builder->set_start(start);
    Result<Network> network = make_network(builder);
    if (!network) {
      LLMRT_CHECK(network.error().message == "no text is in the grammar", network.error().message);
      return;
    }
    states_.emplace(std::make_shared<const Network>(*std::move(network)), std::move(builder->regexes()));
  }

  // Null: no text is in the grammar.
  ParseStates* states() { return states_ ? &*states_ : nullptr; }

  bool accepts(std::string_view text) {
    const std::optional<TextPosition> position = after(text);
    return position && states_->accepts(position->state());
  }
  // A text of the grammar begins so.
  bool begins(std::string_view text) { return after(text).has_value(); }

 private:
  std::optional<TextPosition> after(std::string_view text) {
    if (!states_) return std::nullopt;
    TextPosition position(*states_);
    for (const char c : text) {
      if (!position.step(&*states_, static_cast<uint8_t>(c)) || !position.is_live(&*states_)) return std::nullopt;
    }
    LLMRT_CHECK(!states_->failed() && !position.failed(), "the texts of tests are small");
    return position;
  }

  std::optional<ParseStates> states_;
};

}  // namespace llmrt::fakes
