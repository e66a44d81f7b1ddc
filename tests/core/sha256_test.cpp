// SHA-256 against the vectors of FIPS 180-4 and one long text, in pieces of every size.
#include "core/base/sha256.h"

#include <catch2/catch_test_macros.hpp>

using namespace llmrt;

namespace {

std::string sha256(std::string_view text, size_t piece) {
  Sha256 hash;
  for (size_t i = 0; i < text.size(); i += piece) hash.add_bytes(std::as_bytes(std::span(text.substr(i, piece))));
  return to_hex(hash.finish());
}

}  // namespace

TEST_CASE("sha256 gives the published digests, however the text is cut") {
  const std::string two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  for (size_t piece = 1; piece < 70; ++piece) {
    CHECK(sha256("", piece) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(sha256("abc", piece) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(sha256(two_blocks, piece) == "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  }
  CHECK(sha256(std::string(1'000'000, 'a'), 4096) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("texts beside each other are not the text of both") {
  CHECK(Sha256().add_text("ab").add_text("c").finish() != Sha256().add_text("a").add_text("bc").finish());
}
