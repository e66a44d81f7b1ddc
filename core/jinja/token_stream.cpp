#include "core/jinja/token_stream.h"

namespace llmrt::jinja {

std::string TokenStream::describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData:
      return "text";
    case TokenKind::kVariableBegin:
      return "'{{'";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return "a number";
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kName:
    case TokenKind::kOperator:
      return "'" + token.text + "'";
  }
  return "";
}

void TokenStream::expected(std::string_view what) const {
  fail_syntax(token().at, "expected {}, found {}", what, describe(token()));
}

void TokenStream::expect_operator(std::string_view text) {
  if (!skip_operator(text)) {
    expected(fmt::format("'{}'", text));
  }
}

void TokenStream::expect_kind(TokenKind kind, std::string_view what) {
  if (token().kind != kind) {
    expected(what);
  }
  take();
}

std::string TokenStream::expect_name() {
  if (token().kind != TokenKind::kName) {
    expected("a name");
  }
  return take().text;
}

int TokenStream::depth_of(const ArgumentList& arguments) {
  int depth = 1;
  for (const ExpressionPtr& argument : arguments.positional) {
    deepen(depth, argument);
  }
  for (const auto& [name, argument] : arguments.named) {
    deepen(depth, argument);
  }
  deepen(depth, arguments.more_positional);
  deepen(depth, arguments.more_named);
  return depth;
}

}  // namespace llmrt::jinja
