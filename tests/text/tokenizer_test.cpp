// Tokenizers on small vocabularies written by hand; tests/text/*_compare.py hold the real ones against the reference
// libraries.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/text/byte_alphabet.h"
#include "core/text/merges.h"
#include "core/text/pre_tokenizer.h"
#include "core/text/tokenizer.h"
#include "tests/fakes/cpu_seconds.h"
#include "tests/text/colliding_names.h"

using namespace llmrt;

namespace {

// All bytes, then "he", "ll", "hell", "hello", " w", " hello" as merges make them, then special tokens.
Vocabulary byte_vocabulary(std::string pre = "gpt-2") {
  Vocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = std::move(pre);
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.tokens.emplace_back(byte_to_alphabet(static_cast<unsigned char>(byte)));
  }
  const std::string space(byte_to_alphabet(' '));
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {space, "hello"}, {"a", "a"}, {"aa", "aa"}, {space, space}};
  for (const auto& [left, right] : merges) {
    vocabulary.merges.push_back(left + " " + right);
    vocabulary.tokens.push_back(left + right);
  }
  vocabulary.types.assign(vocabulary.tokens.size(), TokenType::kNormal);
  const auto add = [&](const char* token, TokenType type) {
    vocabulary.tokens.emplace_back(token);
    vocabulary.types.push_back(type);
    return static_cast<TokenId>(vocabulary.tokens.size()) - 1;
  };
  vocabulary.bos = add("<|im_start|>", TokenType::kControl);
  vocabulary.eos = add("<|im_end|>", TokenType::kControl);
  add("<|im_end|>\n", TokenType::kControl);
  add("<tool>", TokenType::kUserDefined);
  add("<reponame>", TokenType::kControl);
  add("[PAD]", TokenType::kUnused);
  return vocabulary;
}

std::unique_ptr<Tokenizer> make(Vocabulary vocabulary) {
  auto made = Tokenizer::create(std::move(vocabulary));
  if (!made) {
    FAIL(made.error().message);
  }
  return std::move(made).value();
}

TokenId id_of(const Tokenizer& tokenizer, std::string_view token) {
  const auto& tokens = tokenizer.vocabulary().tokens;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] == token) {
      return static_cast<TokenId>(i);
    }
  }
  return -1;
}

std::vector<std::string> pieces_of(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::vector<std::string> pieces;
  for (const TokenId id : ids) {
    pieces.emplace_back(tokenizer.token_bytes(id, true));
  }
  return pieces;
}

using Pieces = std::vector<std::string>;

ErrorCode error_of(Vocabulary vocabulary) {
  const auto made = Tokenizer::create(std::move(vocabulary));
  REQUIRE_FALSE(made.ok());
  CHECK_FALSE(made.error().message.empty());
  return made.error().code;
}

}  // namespace

TEST_CASE("merges apply by rank, inside the pieces of the pre-tokenizer") {
  const auto tokenizer = make(byte_vocabulary());
  CHECK(pieces_of(*tokenizer, tokenizer->encode("hello hello hellhe", {})) ==
        Pieces{"hello", " hello", " ", "hell", "he"});
  CHECK(pieces_of(*tokenizer, tokenizer->encode("aaaaa", {})) == Pieces{"aaaa", "a"});
  CHECK(pieces_of(*tokenizer, tokenizer->encode("   hello", {})) == Pieces{"  ", " hello"});
  CHECK(tokenizer->encode("", {}).empty());
}

TEST_CASE("a special token in raw text is one token, the longest one") {
  const auto tokenizer = make(byte_vocabulary());
  CHECK(pieces_of(*tokenizer, tokenizer->encode("a<|im_end|>hello<|im_end|>\n", {})) ==
        Pieces{"a", "<|im_end|>", "hello", "<|im_end|>\n"});
  const auto plain = tokenizer->encode("<|im_end|><tool>", {.parse_special = false});
  CHECK(tokenizer->decode(plain) == "<|im_end|><tool>");
  CHECK(plain.back() == id_of(*tokenizer, "<tool>"));  // user defined tokens are text like any other
  CHECK(plain.size() == 11);
}

TEST_CASE("only template text becomes special tokens") {
  const auto tokenizer = make(byte_vocabulary());
  const std::vector<TextPiece> pieces = {{"<|im_", true},   {"start|>", true},    {"<|im_end|>", false}, {"<|im", true},
                                         {"_end|>", false}, {"<|im_end|>", true}, {"\n", false}};
  const std::vector<TokenId> ids = tokenizer->encode_pieces(pieces, true);
  const TokenId start = id_of(*tokenizer, "<|im_start|>");
  const TokenId end = id_of(*tokenizer, "<|im_end|>");
  CHECK(ids.front() == start);
  CHECK(std::count(ids.begin(), ids.end(), start) == 1);
  CHECK(std::count(ids.begin(), ids.end(), end) == 1);
  CHECK(ids[ids.size() - 2] == end);  // the newline behind it is data: the longer special token is not formed
  CHECK(tokenizer->decode(ids, true) == "<|im_start|><|im_end|><|im_end|><|im_end|>\n");
}

TEST_CASE("template and data pieces merge as one text") {
  const auto tokenizer = make(byte_vocabulary());
  const std::vector<TextPiece> pieces = {{"he", true}, {"llo", false}, {" hel", false}, {"lo", true}};
  CHECK(tokenizer->encode_pieces(pieces, false) == tokenizer->encode("hello hello", {}));
}

TEST_CASE("beginning and end tokens are added where the vocabulary asks for them") {
  Vocabulary vocabulary = byte_vocabulary();
  vocabulary.add_bos = true;
  vocabulary.add_eos = true;
  const auto tokenizer = make(vocabulary);
  CHECK(pieces_of(*tokenizer, tokenizer->encode("he", {})) == Pieces{"<|im_start|>", "he", "<|im_end|>"});
  CHECK(pieces_of(*tokenizer, tokenizer->encode("he", {.add_bos = false})) == Pieces{"he"});
  CHECK(tokenizer->decode(tokenizer->encode("he", {})) == "he");
}

TEST_CASE("end of generation is eos, eot and the control tokens that end a turn") {
  const auto tokenizer = make(byte_vocabulary());
  CHECK(tokenizer->is_end_of_generation(id_of(*tokenizer, "<|im_end|>")));
  CHECK(tokenizer->is_end_of_generation(id_of(*tokenizer, "<reponame>")));
  CHECK_FALSE(tokenizer->is_end_of_generation(id_of(*tokenizer, "<|im_start|>")));
  CHECK_FALSE(tokenizer->is_end_of_generation(-1));
  CHECK(tokenizer->end_of_generation_ids().size() == 2);
}

TEST_CASE("where answers are messages one after another, the end of one ends nothing") {
  Vocabulary vocabulary = byte_vocabulary();
  const auto add = [&](const char* token) {
    vocabulary.tokens.emplace_back(token);
    vocabulary.types.push_back(TokenType::kControl);
  };
  add("<|end|>");
  {
    const auto tokenizer = make(vocabulary);
    CHECK(tokenizer->is_end_of_generation(id_of(*tokenizer, "<|end|>")));
  }
  add("<|return|>");
  add("<|call|>");
  const auto tokenizer = make(vocabulary);
  CHECK_FALSE(tokenizer->is_end_of_generation(id_of(*tokenizer, "<|end|>")));
  CHECK(tokenizer->is_end_of_generation(id_of(*tokenizer, "<|return|>")));
  CHECK(tokenizer->is_end_of_generation(id_of(*tokenizer, "<|call|>")));
}

TEST_CASE("token bytes hide control tokens, unused ones and what is out of range") {
  const auto tokenizer = make(byte_vocabulary());
  CHECK(tokenizer->token_bytes(id_of(*tokenizer, "<|im_end|>")).empty());
  CHECK(tokenizer->token_bytes(id_of(*tokenizer, "<|im_end|>"), true) == "<|im_end|>");
  CHECK(tokenizer->token_bytes(id_of(*tokenizer, "<tool>")) == "<tool>");
  CHECK(tokenizer->token_bytes(id_of(*tokenizer, "[PAD]"), true).empty());
  CHECK(tokenizer->token_bytes(tokenizer->vocab_size(), true).empty());
  CHECK(tokenizer->token_bytes(-5, true).empty());
}

TEST_CASE("invalid UTF-8 is encoded as its replacement, missing bytes are dropped") {
  Vocabulary vocabulary = byte_vocabulary();
  const auto tokenizer = make(vocabulary);
  CHECK(tokenizer->encode("a\xF0\x9F\x92z\xFF", {}) == tokenizer->encode("a\xEF\xBF\xBDz\xEF\xBF\xBD", {}));
  vocabulary.tokens[static_cast<unsigned char>('z')] = "[gone]";
  const auto without_z = make(vocabulary);
  CHECK(pieces_of(*without_z, without_z->encode("azzaz", {})) == Pieces{"aa"});
}

TEST_CASE("pre-tokenizers cut digits and contractions in their own way") {
  const auto count = [](const char* pre, const char* text) {
    return make(byte_vocabulary(pre))->encode(text, {}).size();
  };
  CHECK(count("smollm", "aaaa1") == 2);
  CHECK(pieces_of(*make(byte_vocabulary("smollm")), make(byte_vocabulary("smollm"))->encode("  1", {})) ==
        Pieces{"  ", "1"});
  CHECK(pieces_of(*make(byte_vocabulary("gpt-2")), make(byte_vocabulary("gpt-2"))->encode("  1", {})) ==
        Pieces{" ", " ", "1"});
}

TEST_CASE("llama-bpe takes a whole word that is a token, whatever the merges") {
  Vocabulary vocabulary = byte_vocabulary("llama-bpe");
  vocabulary.tokens.emplace_back("whole");
  vocabulary.types.push_back(TokenType::kNormal);
  CHECK(make(vocabulary)->encode("whole", {}).size() == 1);
  vocabulary.pre = "gpt-2";
  CHECK(make(vocabulary)->encode("whole", {}).size() == 5);
  vocabulary.pre = "llama-bpe";
  vocabulary.types.back() = TokenType::kControl;
  CHECK(make(vocabulary)->encode("whole", {.parse_special = false}).size() == 5);
}

TEST_CASE("names of one pre-tokenizer cut alike, an unknown one is refused with all names") {
  const std::string text = "hello's 12345 \n\n  don't e\u0301 ++x\n";
  const auto encode = [&](const char* pre) { return make(byte_vocabulary(pre))->encode(text, {}); };
  CHECK(encode("deepseek-r1-qwen") == encode("qwen2"));
  CHECK(encode("llama3") == encode("llama-bpe"));
  for (const char* alias : {"llama-v3", "falcon3", "falcon-h1", "lfm2", "midm-2.0"})
    CHECK(encode(alias) == encode("llama-bpe"));
  CHECK(encode("smaug-bpe") == encode("llama-bpe"));
  const auto made = Tokenizer::create(byte_vocabulary("laguna"));
  REQUIRE_FALSE(made.ok());
  CHECK(made.error().code == ErrorCode::kUnsupported);
  CHECK(
      made.error().message ==
      "unsupported tokenizer: tokenizer.ggml.pre: expected one of gpt-2, smollm, llama-bpe, llama3, llama-v3, "
      "falcon3, falcon-h1, lfm2, glm4, midm-2.0, smaug-bpe, qwen2, deepseek-r1-qwen, qwen35, gpt-4o, llama4, kanana2, "
      "tekken, deepseek-v3, deepseek-llm, deepseek-coder, found laguna");
}

TEST_CASE("deepseek-llm cuts in steps, each the pieces of the one before") {
  const auto made = PreTokenizer::create("deepseek-llm");
  REQUIRE(made.ok());
  const auto pieces = [&](std::string_view text) {
    Pieces found;
    (*made)->split(text, [&](std::string_view piece) { return found.emplace_back(piece), true; });
    return found;
  };
  CHECK(pieces(" Hi 12.\r\n  x \n") == Pieces{" Hi", " ", "1", "2", ".", "\r", "\n", " ", " x", " ", "\n"});
  // An East Asian one in a run of letters with case, and a blank that counts as punctuation at the end of a piece.
  CHECK(pieces("a\u1e00b") == Pieces{"a", "\u1e00", "b"});
  CHECK(pieces("!\u3002\u3000") == Pieces{"!", "\u3002", "\u3000"});
  const std::string blanks(1 << 20, ' ');
  CHECK(pieces(blanks + "x").size() == 2);
}

TEST_CASE("qwen2 normalizes to NFC") {
  const auto tokenizer = make(byte_vocabulary("qwen2"));
  CHECK(tokenizer->decode(tokenizer->encode("e\u0301\u0323", {})) == "\u1eb9\u0301");
  CHECK(tokenizer->decode(tokenizer->encode("\u1100\u1161\u11a8", {})) == "\uac01");
  CHECK(tokenizer->decode(tokenizer->encode("\u1100\u1161\u11a7\u11a8", {})) == "\uac00\u11a7\u11a8");
}

TEST_CASE("one long run stays fast") {
  const auto tokenizer = make(byte_vocabulary("qwen2"));
  for (const std::string& unit : {std::string("a"), std::string(" "), std::string("\n"), std::string("\u0301\u0316")}) {
    std::string text;
    while (text.size() < 1 << 20) {
      text += unit;
    }
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<TokenId> ids = tokenizer->encode(text, {});
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    CHECK(tokenizer->decode(ids).size() == text.size());
    CHECK(seconds.count() < 60);  // quadratic would be hours
  }
}

TEST_CASE("a tokenizer serves several threads") {
  const auto tokenizer = make(byte_vocabulary("qwen2"));
  const std::string text = "hello hello <|im_end|> 123 e\u0301 aaaa";
  const std::vector<TokenId> expected = tokenizer->encode(text, {});
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t i = 0; i < wrong.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 200; ++round) {
        wrong[i] += tokenizer->encode(text, {}) != expected;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("a vocabulary that breaks its format is refused") {
  const auto broken = [](auto change) {
    Vocabulary vocabulary = byte_vocabulary();
    change(vocabulary);
    return error_of(std::move(vocabulary));
  };
  CHECK(broken([](Vocabulary& v) { v.model = "unigram"; }) == ErrorCode::kUnsupported);
  CHECK(broken([](Vocabulary& v) { v.pre = "klingon"; }) == ErrorCode::kUnsupported);
  CHECK(broken([](Vocabulary& v) { v.tokens.clear(); }) == ErrorCode::kCorruptFile);
  CHECK(broken([](Vocabulary& v) { v.types.pop_back(); }) == ErrorCode::kCorruptFile);
  CHECK(broken([](Vocabulary& v) { v.types[3] = static_cast<TokenType>(9); }) == ErrorCode::kCorruptFile);
  CHECK(broken([](Vocabulary& v) { v.eos = 100000; }) == ErrorCode::kCorruptFile);
  CHECK(broken([](Vocabulary& v) { v.bos = -2; }) == ErrorCode::kCorruptFile);
  CHECK(broken([](Vocabulary& v) { v.merges.emplace_back("ab"); }) == ErrorCode::kCorruptFile);
  CHECK(broken([](Vocabulary& v) { v.merges.emplace_back("x nothere"); }) == ErrorCode::kCorruptFile);
  CHECK(broken([](Vocabulary& v) { v.tokens[0] = std::string(20000, 'x'); }) == ErrorCode::kCorruptFile);
  CHECK(broken([](Vocabulary& v) { v.model = "llama"; }) == ErrorCode::kCorruptFile);  // no scores
}

// They are looked for at every byte of a text: "aaa...ab" would be compared with a long run of a's again and again.
TEST_CASE("a special or user-defined token of more than 1 KiB is refused, a normal one is not") {
  for (const TokenType type : {TokenType::kControl, TokenType::kUnknown, TokenType::kUserDefined}) {
    Vocabulary vocabulary = byte_vocabulary();
    vocabulary.tokens.emplace_back("b" + std::string(1023, 'a'));
    vocabulary.types.push_back(type);
    CHECK(Tokenizer::create(vocabulary).ok());
    vocabulary.tokens.back() += 'b';
    const auto made = Tokenizer::create(vocabulary);
    REQUIRE_FALSE(made.ok());
    CHECK(made.error().code == ErrorCode::kCorruptFile);
    CHECK(made.error().message ==
          "vocabulary: token 270: expected at most 1024 bytes of a special or user-defined token, found 1025");
    vocabulary.types.back() = TokenType::kNormal;
    CHECK(Tokenizer::create(vocabulary).ok());
  }
}

// A text of a's would be compared with such a token's whole length at every byte, and again at the next one.
TEST_CASE("special tokens that may begin inside each other many times are refused") {
  Vocabulary vocabulary = byte_vocabulary();
  vocabulary.tokens.emplace_back(256, 'a');
  vocabulary.types.push_back(TokenType::kUserDefined);
  CHECK(Tokenizer::create(vocabulary).ok());
  vocabulary.tokens.back() = std::string(257, 'a') + "b";
  const auto made = Tokenizer::create(vocabulary);
  REQUIRE_FALSE(made.ok());
  CHECK(made.error().code == ErrorCode::kCorruptFile);
  CHECK(
      made.error().message ==
      "vocabulary: special and user-defined tokens: expected at most 256 that may begin inside each other, found more");
}

TEST_CASE("special tokens of more bytes than a search may hold are refused") {
  Vocabulary vocabulary = byte_vocabulary();
  for (int i = 0; i < 8200; ++i) {
    vocabulary.tokens.push_back(fmt::format("{:04}{}", i, std::string(1020, 'x')));
    vocabulary.types.push_back(TokenType::kUserDefined);
  }
  const auto made = Tokenizer::create(vocabulary);
  REQUIRE_FALSE(made.ok());
  CHECK(
      made.error().message.starts_with("vocabulary: special and user-defined tokens: expected at most 8388608 bytes"));
}

namespace {

Vocabulary sentencepiece_vocabulary() {
  Vocabulary vocabulary;
  vocabulary.model = "llama";
  const auto add = [&](std::string token, TokenType type, float score = 0) {
    vocabulary.tokens.push_back(std::move(token));
    vocabulary.types.push_back(type);
    vocabulary.scores.push_back(score);
    return static_cast<TokenId>(vocabulary.tokens.size()) - 1;
  };
  vocabulary.unk = add("<unk>", TokenType::kUnknown);
  vocabulary.bos = add("<s>", TokenType::kControl);
  vocabulary.eos = add("</s>", TokenType::kControl);
  for (int byte = 0; byte < 256; ++byte) {
    add(fmt::format("<0x{:02X}>", byte), TokenType::kByte);
  }
  float score = -1;
  for (const char* piece : {"\u2581a", "ab", "\u2581ab", "abab", "\u2581", "a", "b"}) {
    add(piece, TokenType::kNormal, score--);
  }
  add("<tool>", TokenType::kUserDefined);
  vocabulary.add_bos = true;
  return vocabulary;
}

}  // namespace

TEST_CASE("sentencepiece merges by score and falls back to bytes") {
  const auto tokenizer = make(sentencepiece_vocabulary());
  const auto pieces = [&](std::string_view text) {
    return pieces_of(*tokenizer, tokenizer->encode(text, {.add_bos = false}));
  };
  CHECK(pieces("ab") == Pieces{" ab"});
  CHECK(pieces("aab") == Pieces{" a", "ab"});  // the better score goes first
  CHECK(pieces("bab") == Pieces{" ", "b", "ab"});
  CHECK(pieces("a\u00e9\n") == Pieces{" a", "\xC3", "\xA9", "\n"});
  CHECK(pieces("<tool>ab") == Pieces{"<tool>", " ab"});
  CHECK(pieces("").empty());
  CHECK(pieces("a</s>a") == Pieces{" a", "</s>", " a"});
  CHECK(tokenizer->encode("a", {}).front() == tokenizer->vocabulary().bos);
}

// "ab" has the better score, "bc" the better merge; "cd" has a score and no merge.
TEST_CASE("sentencepiece with merges joins the pairs that they name, in their order") {
  Vocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.tokens = {"<unk>", "\u2581", "a", "b", "c", "d", "ab", "bc", "cd"};
  vocabulary.types = {TokenType::kUnknown};
  vocabulary.types.resize(vocabulary.tokens.size(), TokenType::kNormal);
  vocabulary.scores = {0, 0, 0, 0, 0, 0, -1, -2, -3};
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.tokens.push_back(fmt::format("<0x{:02X}>", byte));
    vocabulary.types.push_back(TokenType::kByte);
    vocabulary.scores.push_back(0);
  }
  vocabulary.unk = 0;
  vocabulary.add_space_prefix = false;
  vocabulary.more_ends = {3, 4};
  const auto by_score = make(vocabulary);
  CHECK(by_score->encode("abcd", {}) == std::vector<TokenId>{6, 8});
  CHECK(by_score->is_end_of_generation(4));
  vocabulary.merges = {"b c", "a b"};
  const auto by_merges = make(vocabulary);
  CHECK(by_merges->encode("abcd", {}) == std::vector<TokenId>{2, 7, 5});
  CHECK(by_merges->encode("ab\u00e9", {}) == std::vector<TokenId>{6, 9 + 0xc3, 9 + 0xa9});
  const std::string long_text(100000, 'a');
  CHECK(by_merges->encode(long_text + "b", {}).size() == 100000);
  CHECK(by_merges->encode(long_text, {.tokens_max = 10}).size() == 11);

  const auto refused = [&](auto change) {
    Vocabulary changed = vocabulary;
    change(changed);
    const auto made = Tokenizer::create(changed);
    REQUIRE_FALSE(made.ok());
    return made.error().message;
  };
  CHECK(refused([](Vocabulary& v) { v.merges[0] = "b x"; }).find("expected tokens of the vocabulary") !=
        std::string::npos);
  CHECK(refused([](Vocabulary& v) { v.tokens.back() = "<0x00>"; }).find("all 256 bytes") != std::string::npos);
  CHECK(refused([](Vocabulary& v) { v.more_ends = {-1}; }).find("end tokens") != std::string::npos);
}

TEST_CASE("a space is put in front of every piece, or of the first one that has none") {
  Vocabulary vocabulary = sentencepiece_vocabulary();
  const auto text_of = [&](SpacePrefix prefix, std::string_view text) {
    vocabulary.space_prefix = prefix;
    const auto tokenizer = make(vocabulary);
    std::string out;  // as it is encoded, with the prefix
    for (const TokenId id : tokenizer->encode(text, {.add_bos = false})) out += tokenizer->token_bytes(id, true);
    return out;
  };
  using enum SpacePrefix;
  CHECK(text_of(kEveryPiece, " a") == "  a");
  CHECK(text_of(kUnlessBlank, " a") == " a");
  CHECK(text_of(kFirstUnlessBlank, "a") == " a");
  CHECK(text_of(kUnlessBlank, "a") == " a");
  CHECK(text_of(kEveryPiece, "a</s>a") == " a</s> a");
  CHECK(text_of(kUnlessBlank, "a</s>a") == " a</s> a");
  CHECK(text_of(kFirstUnlessBlank, "a</s>a") == " a</s>a");
  CHECK(text_of(kFirstUnlessBlank, "</s>a") == "</s>a");
}

TEST_CASE("sentencepiece decode strips the prefix and nothing else") {
  const auto tokenizer = make(sentencepiece_vocabulary());
  for (const std::string text : {"ab ab", " a", "  a b", "\u00e9\n", "a<tool>"}) {
    CHECK(tokenizer->decode(tokenizer->encode(text, {})) == text);
  }
  // As Hugging Face has it: the blank in front of the second piece of text stays.
  CHECK(tokenizer->decode(tokenizer->encode("a<tool>b", {})) == "a<tool> b");
  Vocabulary without_prefix = sentencepiece_vocabulary();
  without_prefix.add_space_prefix = false;
  const auto plain = make(without_prefix);
  CHECK(plain->decode(plain->encode(" a", {})) == " a");
}

TEST_CASE("sentencepiece refuses byte pieces and scores that break the format") {
  Vocabulary vocabulary = sentencepiece_vocabulary();
  vocabulary.tokens[3] = "<0xZZ>";
  CHECK(error_of(vocabulary) == ErrorCode::kCorruptFile);
  vocabulary = sentencepiece_vocabulary();
  vocabulary.scores[5] = std::numeric_limits<float>::quiet_NaN();
  CHECK(error_of(vocabulary) == ErrorCode::kCorruptFile);
}

namespace {

// The pieces of Llama 2 that the strings below need, at their ids, and three tokens that a fine-tune added.
Vocabulary llama2_with_added_tokens() {
  Vocabulary vocabulary;
  vocabulary.model = "llama";
  for (int id = 0; id < 32004; ++id) {
    vocabulary.tokens.push_back(fmt::format("[filler {}]", id));
    vocabulary.types.push_back(TokenType::kUnused);
    vocabulary.scores.push_back(static_cast<float>(-id));
  }
  const auto set = [&](TokenId id, const char* token, TokenType type) {
    vocabulary.tokens[static_cast<size_t>(id)] = token;
    vocabulary.types[static_cast<size_t>(id)] = type;
  };
  set(0, "<unk>", TokenType::kUnknown);
  set(1, "<s>", TokenType::kControl);
  set(2, "</s>", TokenType::kControl);
  vocabulary.unk = 0;
  vocabulary.bos = 1;
  vocabulary.eos = 2;
  for (int byte = 0; byte < 256; ++byte) {
    set(3 + byte, fmt::format("<0x{:02X}>", byte).c_str(), TokenType::kByte);
  }
  // In the order of their ids, which is the order of their scores.
  const std::pair<TokenId, const char*> pieces[] = {
      {259, "\u2581\u2581"}, {263, "\u2581a"},     {267, "se"},        {289, "\u2581b"},
      {318, "\u2581u"},      {502, "\u2581us"},    {671, "\u2581use"}, {375, "us"},
      {1509, "use"},         {1404, "\u2581user"}, {1792, "user"},     {1678, "\u2581\u2581\u2581\u2581"},
      {29871, "\u2581"},     {29872, "e"},         {29874, "a"},       {29878, "r"},
      {29879, "s"},          {29884, "u"},         {29890, "b"}};
  for (const auto& [id, piece] : pieces) {
    set(id, piece, TokenType::kNormal);
  }
  set(32001, "<|im_start|>", TokenType::kUserDefined);
  set(32002, "<tool_call>", TokenType::kUserDefined);
  set(32003, "    ", TokenType::kUserDefined);
  return vocabulary;
}

using Ids = std::vector<TokenId>;

}  // namespace

// The ids are those of Hugging Face's LlamaTokenizerFast (legacy); tests/text/added_compare.py asks it for more.
TEST_CASE("user-defined tokens are found in the raw text, each piece of text between them begins with a blank") {
  const auto tokenizer = make(llama2_with_added_tokens());
  const auto encode = [&](std::string_view text) { return tokenizer->encode(text, {.add_bos = false}); };
  CHECK(encode("<|im_start|>") == Ids{32001});
  CHECK(encode("a<tool_call>b") == Ids{263, 32002, 289});
  CHECK(encode("a    b") == Ids{263, 32003, 289});
  CHECK(encode("<|im_start|>user\n") == Ids{32001, 1404, 13});
  CHECK(encode("<|im_start|>user\n") == tokenizer->encode("<|im_start|>user\n", {.parse_special = false}));

  Vocabulary without_prefix = llama2_with_added_tokens();
  without_prefix.add_space_prefix = false;
  const auto plain = make(without_prefix);
  CHECK(plain->encode("a<tool_call>b", {}) == Ids{29874, 32002, 29890});
  CHECK(plain->encode("a     b", {}) == Ids{29874, 32003, 289});
  CHECK(plain->encode("<|im_start|>user\n", {}) == Ids{32001, 1792, 13});
}

TEST_CASE("a special token is found by its whole text, a user-defined one is not") {
  for (const Vocabulary& vocabulary : {byte_vocabulary(), sentencepiece_vocabulary()}) {
    const auto tokenizer = make(vocabulary);
    for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) {
      const auto i = static_cast<size_t>(id);
      const bool is_special = vocabulary.types[i] == TokenType::kControl || vocabulary.types[i] == TokenType::kUnknown;
      CHECK(tokenizer->find_special(vocabulary.tokens[i]) == (is_special ? id : -1));
    }
    CHECK(tokenizer->find_special("") == -1);
    CHECK(tokenizer->find_special("<|im_end|") == -1);
    CHECK(tokenizer->find_special("<|im_end|> ") == -1);
  }
}

namespace {

double seconds_of(const std::function<void()>& work) {
  const double begin = cpu_seconds();
  work();
  return cpu_seconds() - begin;
}

std::string repeated(std::string_view unit, size_t num_bytes) {
  std::string text;
  while (text.size() < num_bytes) {
    text += unit;
  }
  return text;
}

}  // namespace

TEST_CASE("a text within the most number of tokens is encoded as without it, a longer one gives one more") {
  std::vector<Vocabulary> vocabularies = {sentencepiece_vocabulary(), llama2_with_added_tokens()};
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    vocabularies.push_back(byte_vocabulary(pre));
  }
  vocabularies.push_back(byte_vocabulary());
  vocabularies.back().tokens['z'] = "[gone]";  // bytes that become nothing
  vocabularies.push_back(byte_vocabulary("llama-bpe"));
  vocabularies.back().tokens['z'] = "[gone]";
  vocabularies.back().tokens['q'] = "zazb";  // a whole word that holds such bytes
  vocabularies.push_back(byte_vocabulary());
  vocabularies.back().add_bos = vocabularies.back().add_eos = true;
  const std::string texts[] = {"",
                               repeated("zazb ", 40),
                               "a",
                               "hello hello <|im_end|>hello<tool> ab</s>",
                               repeated("a", 5000),
                               repeated(" ", 3000) + "z",
                               repeated("hell o", 4000),
                               repeated("<tool>", 600),
                               repeated("<|im_end|>ab", 700),
                               repeated("z", 300) + "ab",
                               repeated("\u1100\u1161\u11a8", 900),
                               repeated("e\u0301\u0323x", 900),
                               "\xff\xfe" + repeated("\xE2\x96", 50)};
  for (const Vocabulary& vocabulary : vocabularies) {
    const auto tokenizer = make(vocabulary);
    for (const std::string& text : texts) {
      const Ids whole = tokenizer->encode(text, {});
      const std::vector<TextPiece> pieces = {{text.substr(0, text.size() / 2), true},
                                             {text.substr(text.size() / 2), false}};
      const Ids whole_pieces = tokenizer->encode_pieces(pieces, true);
      for (const size_t most : {size_t{1}, size_t{2}, size_t{7}, whole.size() - 1, whole.size(), whole.size() + 1,
                                whole_pieces.size() - 1, whole_pieces.size(), size_t{100000}, ~size_t{0}}) {
        if (most == 0) {
          continue;
        }
        CAPTURE(vocabulary.pre, text.substr(0, 20), most);
        const Ids ids = tokenizer->encode(text, {.tokens_max = most});
        CHECK((whole.size() <= most ? ids == whole : ids.size() == most + 1));
        const Ids of_pieces = tokenizer->encode_pieces(pieces, EncodeOptions{.tokens_max = most});
        CHECK((whole_pieces.size() <= most ? of_pieces == whole_pieces : of_pieces.size() == most + 1));
      }
    }
  }
}

TEST_CASE("what is far beyond the most number of tokens costs next to nothing") {
  for (const Vocabulary& vocabulary :
       {byte_vocabulary("gpt-2"), byte_vocabulary("llama-bpe"), byte_vocabulary("qwen2"), sentencepiece_vocabulary()}) {
    const auto tokenizer = make(vocabulary);
    for (const char* unit :
         {" ", "a", "ab", "<tool", "<|im_end|", "\u0301\u0316", "\u1100\u1161\u11a8", "\n \n", "\xff", "7"}) {
      const std::string text = repeated(unit, 8 << 20);
      CAPTURE(vocabulary.model, vocabulary.pre, unit);
      Ids ids;
      const auto one = [&] { ids = tokenizer->encode(text, {.tokens_max = 1000}); };
      double seconds = seconds_of(one);
      for (int i = 0; i < 4 && seconds > 0.1; ++i) {
        seconds = std::min(seconds, seconds_of(one));
      }
      CHECK(ids.size() == 1001);
      CHECK(seconds < 0.1);  // the whole text takes seconds
      const std::vector<TextPiece> pieces(64, TextPiece{text.substr(0, 1 << 17), true});
      CHECK(tokenizer->encode_pieces(pieces, EncodeOptions{.tokens_max = 1000}).size() == 1001);
    }
  }
}

TEST_CASE("an encoder that is cancelled ends soon") {
  for (const Vocabulary& vocabulary :
       {byte_vocabulary("gpt-2"), byte_vocabulary("qwen2"), sentencepiece_vocabulary()}) {
    const auto tokenizer = make(vocabulary);
    const std::string text = repeated("hello a \u1100\u1161", 16 << 20);
    std::atomic<bool> cancelled = true;
    CHECK(seconds_of([&] { static_cast<void>(tokenizer->encode(text, {.cancelled = &cancelled})); }) < 1);
    cancelled = false;
    CHECK(tokenizer->encode("hello", {.cancelled = &cancelled}) == tokenizer->encode("hello", {}));
  }
}

namespace {

// The best of five rounds each, in turn.
double times_as_long(const std::function<void()>& chosen, const std::function<void()>& random) {
  double chosen_s = 1e9;
  double random_s = 1e9;
  for (int i = 0; i < 5; ++i) {
    chosen_s = std::min(chosen_s, seconds_of(chosen));
    random_s = std::min(random_s, seconds_of(random));
  }
  return chosen_s / random_s;
}

}  // namespace

TEST_CASE("tokens that somebody chose to collide load as fast as others") {
  constexpr size_t kCount = 30000;
  const auto with = [&](Vocabulary vocabulary, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      vocabulary.tokens.push_back(name);
      vocabulary.types.push_back(TokenType::kNormal);
      if (vocabulary.model == "llama") {
        vocabulary.scores.push_back(-1);
      }
    }
    return vocabulary;
  };
  for (const Vocabulary& base : {byte_vocabulary("gpt-2"), byte_vocabulary("llama-bpe"), sentencepiece_vocabulary()}) {
    // The map for a byte-level vocabulary is reserved for all of its tokens, others grow.
    const bool reserved = base.pre == "gpt-2";
    const Vocabulary chosen = with(base, colliding_names(kCount, reserved));
    const Vocabulary random = with(base, random_names(kCount));
    CAPTURE(base.model, base.pre);
    CHECK(times_as_long([&] { make(chosen); }, [&] { make(random); }) < 3);
  }
}

TEST_CASE("pairs of tokens that somebody chose to collide are found as fast as others") {
  constexpr uint64_t kCount = 1 << 15;
  constexpr uint64_t kInverse = 0xf1de83e19937733du;  // of the factor that spread the pairs once: 2^64 / golden ratio
  static_assert(kInverse * 0x9E3779B97F4A7C15u == 1);
  const auto table_of = [](const std::vector<uint64_t>& keys) {
    MergeTable table(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      table.set(static_cast<TokenId>(keys[i] >> 32), static_cast<TokenId>(keys[i]), {static_cast<uint32_t>(i), 7});
    }
    table.settle();
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto* rule = table.find(static_cast<TokenId>(keys[i] >> 32), static_cast<TokenId>(keys[i]));
      if (rule == nullptr || rule->rank != i) {
        FAIL("a pair was lost");
      }
    }
  };
  std::vector<uint64_t> random, products, steps, lefts;
  for (uint64_t i = 0; i < kCount; ++i) {
    random.push_back((i + 1) * 0xD1342543DE82EF95u);
    products.push_back((i + 1) * kInverse);      // all products below 2^16
    steps.push_back((i % 181) << 32 | i / 181);  // a square of ids, as real vocabularies have
    lefts.push_back(i << 32);
  }
  for (const auto& keys : {products, steps, lefts}) {
    CHECK(times_as_long([&] { table_of(keys); }, [&] { table_of(random); }) < 3);
  }
}
