// Masks against brute force: in every state that a walk meets, a token is allowed exactly when its bytes lead on. A
// compiled grammar: forks, ends, tokens by id, threads.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <random>
#include <set>
#include <string>

#include "core/grammar/gbnf.h"
#include "core/grammar/grammar_compiler.h"

namespace llmrt {
namespace {

constexpr int32_t kEnd = 0, kSpecial = 1;

// Every byte, and random pieces of text as JSON has them.
std::shared_ptr<const TokenVocabulary> make_vocabulary(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::string> bytes = {"", ""};
  for (int b = 0; b < 256; ++b) bytes.push_back(std::string(1, static_cast<char>(b)));
  const std::vector<std::string> pieces = {"{\"",  "\":", "\",\"", "\"}",  "a",        "bc",      "name",
                                           "1",    "23",  "]",     "true", "null",     ",",       " ",
                                           "\n  ", "\\n", "\\u",   "[[",   "\xc3\xa9", "\xf0\x9f"};
  for (int i = 0; i < 3000; ++i) {
    std::string token;
    for (size_t n = 1 + random() % 6; n > 0; --n) token += pieces[random() % pieces.size()];
    bytes.push_back(token);
  }
  // Plain ones of every length, some of wide characters.
  for (int i = 0; i < 600; ++i) {
    std::string token;
    for (int n = 1 + i % 60; n > 0; --n) token += random() % 8 == 0 ? "\xc3\xa9" : random() % 2 == 0 ? "a" : "b";
    bytes.push_back(token);
  }
  return std::make_shared<TokenVocabulary>(std::move(bytes), std::vector<int32_t>{kEnd});
}

constexpr const char* kJson = R"(
root ::= object
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" (pair ("," pair)*)? "}"
pair ::= string ":" value
array ::= "[" (value ("," value)*)? "]"
string ::= "\"" ([^"\\\x00-\x1f] | "\\" ["\\nu])* "\""
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)?
)";
constexpr const char* kBounded =
    R"(root ::= "{\"name\":\"" [^"\\\x00-\x1f]{0,45} "\",\"" [a-z]{3,5} "\":" [0-9]+ "}" <[1]>?)";
// Lengths that are nearer and farther than tokens reach, and such that others take plain text beside.
constexpr const char* kLengths = R"(
root ::= "{\"" ([^"\\\x00-\x1f]{0,12} "\"" | [^"\\\x00-\x1f]{3,400} "\"" | [ab]{2,21} "\"" | [a-z]{200,300} "!" | x)
x ::= "[" ([^"\\\x00-\x1f] | "\\" ["\\nu])? "\"" [^"\\\x00-\x1f]{0,35} "\"" "a"{0,3} [ab]{0,40})";
constexpr const char* kFree = R"(root ::= [^\x00]* <[1]> ("a" | "bc" | "name")+)";

Status build(GrammarBuilder* builder, const std::string& text) {
  Result<SymbolId> start = add_gbnf(builder, text, {.find_special = {}, .vocabulary_size = 4000});
  if (!start.ok()) return start.error();
  builder->set_start(*start);
  return {};
}

TEST_CASE("a mask is what trying every token says") {
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto vocabulary = make_vocabulary(seed);
  for (const char* text : {kJson, kBounded, kLengths, kFree}) {
    GrammarBuilder builder;
    REQUIRE(build(&builder, text).ok());
    Result<Network> network = make_network(&builder);
    REQUIRE(network.ok());
    ParseStates states(std::make_shared<const Network>(std::move(*network)), std::move(builder.regexes()));
    MaskMaker maker(vocabulary.get(), &states);
    RegexReach reach(vocabulary->trie().depth_max());
    ParseStates::StateId state = states.start();
    for (int step = 0; step < 200; ++step) {
      // Of the state that stands for it, as CompiledGrammar asks, with other masks made in between.
      const ParseStates::StateId near = states.within(&reach, state);
      REQUIRE(near != ParseStates::kDead);
      Result<TokenMaskPtr> mask =
          maker.make(step % 2 == 0 ? state : near, 1e9, [&] { REQUIRE(maker.make(states.start(), 1e9, [] {}).ok()); });
      REQUIRE(mask.ok());
      std::vector<int32_t> allowed;
      for (int32_t v = 0; v < static_cast<int32_t>(vocabulary->num_tokens()); ++v) {
        const bool is_named = states.network().named_tokens.contains(v);
        const bool may = v == kEnd       ? states.accepts(state)
                         : is_named      ? states.after_token(state, v) != ParseStates::kDead
                         : v == kSpecial ? false
                                         : states.after(state, vocabulary->bytes(v)) != ParseStates::kDead;
        if ((*mask)->allows(v) != may) FAIL(text << " step " << step << " token " << v << ": " << !may);
        if (may && v != kEnd) allowed.push_back(v);
      }
      if (allowed.empty()) {
        state = states.start();
        continue;
      }
      const int32_t token = allowed[random() % allowed.size()];
      state = states.network().named_tokens.contains(token) ? states.after_token(state, token)
                                                            : states.after(state, vocabulary->bytes(token));
    }
  }
}

TEST_CASE("states that differ only beyond the longest token have one mask") {
  const auto vocabulary = make_vocabulary(5);
  const auto figures = std::make_shared<MaskFigures>();
  GrammarBuilder builder;
  REQUIRE(build(&builder, "root ::= \"x\" [a-z]{0,1000} \"y\"").ok());
  const auto grammar = CompiledGrammar::create(&builder, vocabulary, nullptr, figures);
  REQUIRE(grammar.ok());
  const auto matcher = (*grammar)->start();
  REQUIRE(matcher->advance(2 + 'x'));
  std::set<TokenMaskPtr> masks;
  for (uint32_t chars = 0; chars <= 1000; ++chars) {
    NextTokens next = matcher->next();
    if (next.state == NextTokens::State::kLate) next = matcher->next();
    REQUIRE(next.mask);
    CHECK(next.mask->allows(2 + 'a') == (chars < 1000));
    CHECK(next.mask->allows(2 + 'y'));
    masks.insert(next.mask);
    if (chars < 1000) REQUIRE(matcher->advance(2 + 'a'));
  }
  // One for each length that is less than the longest token, and one for all others.
  CHECK(masks.size() == vocabulary->trie().depth_max() + 1);
}

TEST_CASE("answers drawn under masks are in the language, and end") {
  const auto vocabulary = make_vocabulary(5);
  GrammarCompiler compiler(vocabulary, {.mask_threads = 2});
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const GrammarJob job{"json", "", [](GrammarBuilder* builder) { return build(builder, kJson); }};
  const auto grammar = compiler.compile(job);
  REQUIRE(grammar.ok());
  CHECK(*compiler.compile(job) == *grammar);  // shared
  CHECK(*compiler.compile({"json", "a salt", job.build}) != *grammar);
  int num_ended = 0;
  for (int answer = 0; answer < 50; ++answer) {
    auto matcher = (*grammar)->start();
    std::string text;
    for (int step = 0; step < 400 && !matcher->ended(); ++step) {
      NextTokens next = matcher->next();
      for (int i = 0; i < 100 && next.state == NextTokens::State::kLate; ++i) {
        matcher->wait(std::chrono::milliseconds(100));
        next = matcher->next();
      }
      REQUIRE(next.state == NextTokens::State::kReady);
      std::vector<int32_t> allowed;
      for (int32_t v = 0; v < static_cast<int32_t>(vocabulary->num_tokens()); ++v) {
        if (next.mask->allows(v)) allowed.push_back(v);
      }
      CHECK(allowed.size() == next.mask->num_allowed());
      // Short tokens more often: answers end sooner.
      int32_t token = allowed[random() % allowed.size()];
      if (step > 20 && vocabulary->bytes(token).size() > 2) token = allowed[random() % allowed.size()];
      const auto fork = matcher->fork();
      REQUIRE(matcher->advance(token));
      CHECK(fork->next().mask == next.mask);  // it stands where it stood
      text += vocabulary->bytes(token);
    }
    num_ended += matcher->ended();
  }
  CHECK(num_ended > 0);
  CHECK(compiler.figures().num_masks_found > 0);
}

// As chat formats have it: their marks are excluded from plain text, and some of them end an answer.
TEST_CASE("an end token that a grammar excludes or names ends what is whole, and nothing else") {
  const auto vocabulary = make_vocabulary(6);
  GrammarCompiler compiler(vocabulary);
  const bool is_named = GENERATE(false, true);
  const auto grammar = compiler.compile(
      {"", "", [&](GrammarBuilder* builder) -> Status {
         builder->exclude_token(kEnd);
         const SymbolId middle =
             is_named ? builder->choice({builder->token(kEnd), builder->literal("c")}) : builder->literal("c");
         const SymbolId letters = builder->terminal(builder->regexes().repeat(builder->regexes().literal("a"), 0, 9));
         builder->set_start(builder->sequence({builder->literal("b"), middle, letters}));
         return builder->status();
       }});
  REQUIRE(grammar.ok());
  auto matcher = (*grammar)->start();
  const auto may_end = [&] {
    NextTokens next = matcher->next();
    while (next.state == NextTokens::State::kLate)
      matcher->wait(std::chrono::milliseconds(100)), next = matcher->next();
    return next.mask->allows(kEnd);
  };
  CHECK(!may_end());
  CHECK(!matcher->advance(kEnd));
  REQUIRE(matcher->advance(2 + 'b'));
  CHECK(may_end() == is_named);  // the grammar's own, in the middle
  REQUIRE(matcher->advance(is_named ? kEnd : 2 + 'c'));
  CHECK(!matcher->ended());
  REQUIRE(matcher->advance(2 + 'a'));
  CHECK(may_end());
  CHECK(matcher->advance(kEnd));
  CHECK(matcher->ended());
  CHECK(!matcher->advance(kEnd));
}

TEST_CASE("a matcher takes what its mask allows, and nothing else") {
  const auto vocabulary = make_vocabulary(5);
  GrammarCompiler compiler(vocabulary);
  const auto grammar =
      compiler.compile({"x", "", [](GrammarBuilder* builder) { return build(builder, "root ::= \"ab\" \"c\"?"); }});
  REQUIRE(grammar.ok());
  const auto matcher = (*grammar)->start();
  const int32_t a = 2 + 'a', b = 2 + 'b', c = 2 + 'c';
  CHECK_FALSE(matcher->advance(b));
  CHECK_FALSE(matcher->advance(kEnd));
  CHECK_FALSE(matcher->advance(kSpecial));
  CHECK_FALSE(matcher->advance(-1));
  CHECK_FALSE(matcher->advance(1'000'000));
  REQUIRE(matcher->advance(a));
  CHECK_FALSE(matcher->accepts());
  REQUIRE(matcher->advance(b));
  CHECK(matcher->accepts());
  CHECK_FALSE(matcher->ended());
  const auto other = matcher->fork();
  REQUIRE(matcher->advance(kEnd));
  CHECK(matcher->ended());
  CHECK_FALSE(matcher->advance(c));
  REQUIRE(other->advance(c));
  CHECK(other->ended());
}

TEST_CASE("where the text is fixed its longest token is told, however it may be cut") {
  std::vector<std::string> bytes = {"", ""};
  for (int b = 0; b < 256; ++b) bytes.push_back(std::string(1, static_cast<char>(b)));
  const std::vector<std::string> pieces = {"{\"", "transaction", "action", "\":"};
  bytes.insert(bytes.end(), pieces.begin(), pieces.end());
  const auto vocabulary = std::make_shared<TokenVocabulary>(std::move(bytes), std::vector<int32_t>{kEnd});
  GrammarCompiler compiler(vocabulary);
  const auto fixed_behind = [&](const char* text, const std::vector<int32_t>& tokens) {
    const auto grammar = compiler.compile({text, "", [&](GrammarBuilder* builder) { return build(builder, text); }});
    REQUIRE(grammar.ok());
    const auto matcher = (*grammar)->start();
    for (const int32_t token : tokens) REQUIRE(matcher->advance(token));
    NextTokens next = matcher->next();
    while (next.state == NextTokens::State::kLate)
      matcher->wait(std::chrono::milliseconds(100)), next = matcher->next();
    return matcher->fixed_token(*next.mask);
  };
  const auto byte = [](char c) { return 2 + static_cast<int32_t>(c); };
  constexpr int32_t kOpen = 258, kTransaction = 259, kColon = 261;
  constexpr const char* kObject = R"(root ::= "{\"transaction\":" [0-9]+ "}")";
  CHECK(fixed_behind(kObject, {}) == kOpen);
  CHECK(fixed_behind(kObject, {byte('{')}) == byte('"'));
  CHECK(fixed_behind(kObject, {kOpen}) == kTransaction);
  CHECK(fixed_behind(kObject, {kOpen, byte('t')}) == byte('r'));
  CHECK(fixed_behind(kObject, {kOpen, kTransaction}) == kColon);
  CHECK(fixed_behind(kObject, {kOpen, kTransaction, kColon}) == -1);
  CHECK(fixed_behind(kObject, {kOpen, kTransaction, kColon, byte('7')}) == -1);
  CHECK(fixed_behind(R"(root ::= "a" "b"?)", {byte('a')}) == -1);          // it may end here
  CHECK(fixed_behind(R"(root ::= "a" <[1]>? "b")", {byte('a')}) == -1);    // a token that stands for no text
  CHECK(fixed_behind(R"(root ::= "a" <[97]>? "aa")", {byte('a')}) == -1);  // one that the grammar names, '_'
}

TEST_CASE("compiling is bounded, told by name, and can be cancelled") {
  GrammarCompiler compiler(make_vocabulary(5), {.compile_ms_max = 20});
  const auto endless = [](GrammarBuilder* builder) -> Status {
    for (int i = 0; builder->status().ok(); ++i) builder->literal(std::to_string(i));
    return builder->status();
  };
  const auto timed_out = compiler.compile({"endless", "", endless});
  REQUIRE_FALSE(timed_out.ok());
  CHECK((timed_out.error().code == ErrorCode::kGrammarTimeout ||
         timed_out.error().code == ErrorCode::kGrammarTooComplex));
  const auto wrong =
      compiler.compile({"wrong", "", [](GrammarBuilder* builder) { return build(builder, "root ::= (\"a\""); }});
  CHECK(wrong.error().message == "GBNF grammar, line 1, column 14: expected ) at the end of a group");
  // A vocabulary that cannot write the text.
  GrammarCompiler poor(std::make_shared<TokenVocabulary>(std::vector<std::string>{"", "a"}, std::vector<int32_t>{0}));
  const auto dead = poor.compile({"b", "", [](GrammarBuilder* builder) { return build(builder, "root ::= \"b\""); }});
  CHECK(dead.error().code == ErrorCode::kEmptySupport);
}

TEST_CASE("GBNF that is hostile or wrong is refused in bounded time") {
  const auto refusal = [](const std::string& text) {
    GrammarBuilder builder;
    const Status status = build(&builder, text);
    if (status.ok()) {
      const auto network = make_network(&builder);
      return network.ok() ? std::string() : network.error().message;
    }
    return status.error().message;
  };
  CHECK(refusal("root ::= " + std::string(60'000, '(')).find("nested groups") != std::string::npos);
  CHECK(refusal("root ::= \"a\"{5000000000}").find("at most nine digits") != std::string::npos);
  CHECK(refusal("root ::= (\"a\" | root){2000}").find("at most 1024 repetitions") != std::string::npos);
  CHECK(refusal("root ::= x").find("\"x\" is used but not defined") != std::string::npos);
  CHECK(refusal("x ::= \"a\"").find("expected a rule \"root\"") != std::string::npos);
  CHECK(refusal("root ::= root").find("no text") != std::string::npos);
  CHECK(refusal("root ::= !<[3]>").find("not supported") != std::string::npos);
  CHECK(refusal("root ::= <[4000]>").find("below 4000") != std::string::npos);
  CHECK(refusal("root ::= \"\\q\"").find("unknown escape") != std::string::npos);
  CHECK(refusal("root ::= ((((\"a\"{1000}){1000}){1000}){1000}){1000}").empty());  // one expression: counters
  CHECK(refusal("root ::= a a\na ::= b b\nb ::= c c\nc ::= \"x\"\n# a comment\n").empty());
  CHECK(refusal("root ::= \"a\"\n  | \"b\"\n").empty());
}

}  // namespace
}  // namespace llmrt
