// The tokens under the parser's eye, and the nodes it makes of them.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/jinja/ast.h"
#include "core/jinja/lexer.h"

namespace llmrt::jinja {

using Words = std::initializer_list<std::string_view>;

class TokenStream {
 public:
  explicit TokenStream(std::string_view source) : tokens_(tokenize(source)) {}

 protected:
  // Counts nesting while it lives.
  class Nest {
   public:
    explicit Nest(TokenStream& stream) : stream_(stream) {
      if (++stream_.nesting_ > kNestingMax) {
        fail_syntax(stream_.token().at, "expected at most {} nested blocks and brackets, found more", kNestingMax);
      }
    }
    ~Nest() { --stream_.nesting_; }

   private:
    TokenStream& stream_;
  };

  const Token& token() const { return tokens_[next_]; }
  const Token& look() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  const Token& take() { return tokens_[next_ + 1 < tokens_.size() ? next_++ : next_]; }

  static bool is_operator(const Token& token, std::string_view text) {
    return token.kind == TokenKind::kOperator && token.text == text;
  }
  static bool is_name(const Token& token, std::string_view text) {
    return token.kind == TokenKind::kName && token.text == text;
  }
  bool at_operator(std::string_view text) const { return is_operator(token(), text); }
  bool at_name(std::string_view text) const { return is_name(token(), text); }
  bool at_any_name(Words words) const {
    return token().kind == TokenKind::kName && std::ranges::find(words, token().text) != words.end();
  }
  bool skip_operator(std::string_view text) { return at_operator(text) && (take(), true); }
  bool skip_name(std::string_view text) { return at_name(text) && (take(), true); }

  static std::string describe(const Token& token);
  [[noreturn]] void expected(std::string_view what) const;
  void expect_operator(std::string_view text);
  void expect_kind(TokenKind kind, std::string_view what);
  std::string expect_name();

  template <typename Node>
  std::unique_ptr<Node> make(Position at) {
    auto node = std::make_unique<Node>();
    node->at = at;
    return node;
  }

  // Every expression passes here once its parts are counted. A chain such as a + b + c is a deep tree, too.
  template <typename Node>
  static std::unique_ptr<Node> finish(std::unique_ptr<Node> node) {
    if (node->depth > kTreeDepthMax) {
      fail_syntax(node->at, "expected at most {} nested operations, found more", kTreeDepthMax);
    }
    return node;
  }

  static void deepen(int& depth, const ExpressionPtr& part) { depth = std::max(depth, part ? part->depth + 1 : 1); }
  static int depth_of(const ArgumentList& arguments);

 private:
  std::vector<Token> tokens_;
  size_t next_ = 0;
  int nesting_ = 0;
};

}  // namespace llmrt::jinja
