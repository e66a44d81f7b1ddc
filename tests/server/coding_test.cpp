// Content codings: what bodies may be, hostile ones among them, which answers are coded, and what headers say of it.
// Method: bytes made by zlib and changed by hand; sockets for what clients see.
#include <zlib.h>

#include <algorithm>
#include <random>

#include "server/content_coding.h"
#include "tests/server/running.h"

namespace llmrt::server {
namespace {

std::string joined(const std::vector<std::string>& pieces) {
  std::string all;
  for (const std::string& piece : pieces) all += piece;
  return all;
}
std::string gzip_of(const std::string& text) {
  return joined(gzip({text}));
}
std::string deflate_of(const std::string& text) {
  uLongf size = compressBound(text.size());
  std::string coded(size, '\0');
  REQUIRE(compress2(reinterpret_cast<Bytef*>(coded.data()), &size, reinterpret_cast<const Bytef*>(text.data()),
                    text.size(), 9) == Z_OK);
  coded.resize(size);
  return coded;
}

struct Decoded {
  std::string text;
  int status = 200;
  size_t held_bytes = 0;  // at most, as it was told
};
Decoded decode(const std::string& body, ContentCoding coding, size_t bytes_max = 8 << 20) {
  Decoded decoded;
  const auto hold = [&](size_t num_bytes) -> std::optional<ApiError> {
    decoded.held_bytes = std::max(decoded.held_bytes, num_bytes);
    return std::nullopt;
  };
  ApiResult<std::string> result = decode_body(body, coding, bytes_max, hold);
  if (auto* error = std::get_if<ApiError>(&result))
    decoded.status = error->status;
  else
    decoded.text = std::get<std::string>(std::move(result));
  return decoded;
}

std::string random_text(size_t size, uint32_t letters) {
  std::mt19937 random(static_cast<uint32_t>(size));
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>('a' + random() % letters);
  return text;
}

std::string plain_body(const std::string& response) {
  const std::string body = response.substr(response.find("\r\n\r\n") + 4);
  CHECK(header_of(response, "Content-Length") == std::to_string(body.size()));
  if (header_of(response, "Content-Encoding").empty()) return body;
  CHECK(header_of(response, "Content-Encoding") == "gzip");
  const Decoded decoded = decode(body, ContentCoding::kGzip, size_t{1} << 30);
  CHECK(decoded.status == 200);
  return decoded.text;
}
std::string coded_post(const std::string& target, const std::string& body, const std::string& coding,
                       const std::string& headers = "Connection: close\r\n") {
  return post(target, body, "Content-Encoding: " + coding + "\r\n" + headers);
}

TEST_CASE("coded bytes come back, whatever their size and however they are cut") {
  for (const size_t size : {0u, 1u, 1000u, 65535u, 65536u, 65537u, 300'000u, 2'000'000u})
    for (const uint32_t letters : {2u, 26u}) {
      INFO(size << " bytes of " << letters << " letters");
      const std::string text = random_text(size, letters);
      CHECK(decode(gzip_of(text), ContentCoding::kGzip).text == text);
      CHECK(decode(deflate_of(text), ContentCoding::kDeflate).text == text);
      std::vector<std::string> pieces;
      for (size_t at = 0; at < size; at += 7001) pieces.push_back(text.substr(at, 7001));
      pieces.insert(pieces.begin(), "");
      const std::vector<std::string> coded = gzip(std::move(pieces));
      for (const std::string& piece : coded) CHECK(!piece.empty());
      CHECK(decode(joined(coded), ContentCoding::kGzip).text == text);
    }
  std::mt19937 random(5);
  std::string noise(500'000, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  CHECK(decode(gzip_of(noise), ContentCoding::kGzip).text == noise);
}

TEST_CASE("a body that is cut off, goes on or is changed is refused") {
  const std::string text = R"({"prompt": "a text of some words, and some words more of it"})";
  for (const auto& [coded, coding] :
       {std::pair(gzip_of(text), ContentCoding::kGzip), std::pair(deflate_of(text), ContentCoding::kDeflate)}) {
    REQUIRE(decode(coded, coding).text == text);
    for (size_t size = 0; size < coded.size(); ++size) CHECK(decode(coded.substr(0, size), coding).status == 400);
    for (const std::string& behind : {std::string("x"), std::string(1, '\0'), coded, std::string(100'000, 'x')})
      CHECK(decode(coded + behind, coding).status == 400);
    // What is accepted all the same (a name or a time in the head) is the text.
    size_t num_refused = 0;
    for (size_t at = 0; at < coded.size(); ++at)
      for (const char bit : {1, 16, -128}) {
        std::string changed = coded;
        changed[at] = static_cast<char>(changed[at] ^ bit);
        const Decoded decoded = decode(changed, coding);
        CHECK((decoded.status == 400 || decoded.text == text));
        num_refused += decoded.status == 400;
      }
    CHECK(num_refused > coded.size() * 2);
  }
  std::string wrong_sum = gzip_of(text), wrong_size = wrong_sum;
  ++wrong_sum[wrong_sum.size() - 8];
  ++wrong_size[wrong_size.size() - 1];
  CHECK(decode(wrong_sum, ContentCoding::kGzip).status == 400);
  CHECK(decode(wrong_size, ContentCoding::kGzip).status == 400);
  // One coding under the other's name; deflate without its frame; a dictionary; a reserved kind of block.
  const std::string deflated = deflate_of(text);
  CHECK(decode(deflated, ContentCoding::kGzip).status == 400);
  CHECK(decode(gzip_of(text), ContentCoding::kDeflate).status == 400);
  CHECK(decode(deflated.substr(2, deflated.size() - 6), ContentCoding::kDeflate).status == 400);
  CHECK(decode(std::string("\x78\xbb\x01\x02\x03\x04") + deflated.substr(2), ContentCoding::kDeflate).status == 400);
  CHECK(decode(std::string("\x78\x9c\x07"), ContentCoding::kDeflate).status == 400);
  CHECK(decode(std::string(100'000, '\xff'), ContentCoding::kGzip).status == 400);
}

TEST_CASE("a bomb ends at the bound of the body, or at what a text may expand to") {
  const std::string bomb = gzip_of(std::string(64 << 20, 'a'));
  CHECK(bomb.size() < 1 << 20);
  const Decoded bounded = decode(bomb, ContentCoding::kGzip, 8 << 20);
  CHECK(bounded.status == 413);
  CHECK(bounded.held_bytes <= 16 << 20);
  const Decoded expanding = decode(bomb, ContentCoding::kGzip, size_t{1} << 40);
  CHECK(expanding.status == 413);
  CHECK(expanding.held_bytes <= 4 << 20);
  const std::string deflated = deflate_of(std::string(64 << 20, '\0'));
  CHECK(decode(deflated, ContentCoding::kDeflate, size_t{1} << 40).status == 413);
  // A small one may expand as it likes, and a large one that is text.
  CHECK(decode(gzip_of(std::string(1 << 20, 'a')), ContentCoding::kGzip).status == 200);
  const std::string text = random_text(20 << 20, 4);
  CHECK(decode(gzip_of(text), ContentCoding::kGzip, size_t{1} << 40).text == text);
  // The bound is exact.
  CHECK(decode(gzip_of(std::string(1000, 'a')), ContentCoding::kGzip, 1000).status == 200);
  CHECK(decode(gzip_of(std::string(1001, 'a')), ContentCoding::kGzip, 1000).status == 413);
  // Thousands of blocks with nothing in them.
  std::string empty_blocks = "\x78\x01";
  for (int i = 0; i < 1'000'000; ++i) empty_blocks += std::string("\x00\x00\x00\xff\xff", 5);
  CHECK(decode(empty_blocks, ContentCoding::kDeflate).status == 400);
  // What it takes is told, and may be refused.
  const ApiResult<std::string> refused = decode_body(bomb, ContentCoding::kGzip, size_t{1} << 40, [](size_t num_bytes) {
    return num_bytes > 100'000 ? std::optional(http_error(503, "overloaded", "no room")) : std::nullopt;
  });
  CHECK(std::get<ApiError>(refused).status == 503);
}

TEST_CASE("one coding of those that are taken, and no other") {
  const auto gzip = ContentCoding::kGzip, deflate = ContentCoding::kDeflate, identity = ContentCoding::kIdentity;
  const std::pair<const char*, std::optional<ContentCoding>> cases[] = {
      {"", identity},        {"identity", identity},  {"gzip", gzip},
      {"GZip", gzip},        {"x-gzip", gzip},        {"deflate", deflate},
      {" gzip\t,", gzip},    {",,gzip", gzip},        {"gzip, gzip", {}},
      {"gzip,identity", {}}, {"identity, gzip", {}},  {"br", {}},
      {"zstd", {}},          {"compress", {}},        {"*", {}},
      {"gzip;q=1", {}},      {"gzip, chunked", {}},   {"gzip gzip", {}},
      {"\"gzip\"", {}},      {"gzip,br,deflate", {}},
  };
  for (const auto& [value, coding] : cases) {
    INFO(value);
    CHECK((parse_content_encoding(value) == coding));
  }
}

TEST_CASE("Accept-Encoding decides by its weights") {
  const auto no = GzipWish::kNo, may = GzipWish::kMay, must = GzipWish::kMust;
  const std::pair<const char*, GzipWish> cases[] = {
      {"", no},
      {"identity", no},
      {"gzip", may},
      {"gzip, deflate, br, zstd", may},
      {"GZIP;Q=0.5", may},
      {"x-gzip", may},
      {"deflate, br", no},
      {"*", may},
      {"*;q=0.1", may},
      {"*;q=0", no},
      {"gzip;q=0", no},
      {"gzip;q=0, *", no},
      {"gzip;q=0.000", no},
      {"gzip;q=0.001", may},
      {"br;q=1, *;q=0", no},
      {"gzip, *;q=0", must},
      {"gzip, identity;q=0", must},
      {"identity;q=0, *", must},
      {"*;q=0, identity", no},
      {"gzip, *;q=0, identity;q=0.5", may},
      {"identity;q=0", no},
      {"identity, gzip;q=0.5", no},
      {"identity;q=0.5, gzip;q=0.5", may},
      {"identity;q=0.5, gzip", may},
      {"gzip;q=2", no},
      {"gzip;q=", no},
      {"gzip;q=nan", no},
      {"gzip ; q=0.5 ", may},
      {"gzip;q = 0.5", no},
      {"gzip;x=y;q=0", no},
      {"gzipped", no},
      {",,;;=,/,gzip", may},
  };
  for (const auto& [value, wish] : cases) {
    INFO(value);
    CHECK((wants_gzip(value) == wish));
  }
}

TEST_CASE("coded bodies are read as what they were, chunked ones too") {
  Running run;
  const std::string body = R"({"prompt": "ab"})";
  const auto count = [](const std::string& response) { return body_of(response).at("count"); };
  CHECK(count(run.exchange(coded_post("/tokenize", gzip_of(body), "gzip"))) == 2);
  CHECK(count(run.exchange(coded_post("/tokenize", gzip_of(body), "X-GZIP"))) == 2);
  CHECK(count(run.exchange(coded_post("/tokenize", deflate_of(body), "deflate"))) == 2);
  CHECK(count(run.exchange(coded_post("/tokenize", body, "identity"))) == 2);
  run.engine->tokens = {'h', 'i'};
  const json::object chat = body_of(run.exchange(coded_post("/v1/chat/completions", gzip_of(kChat), "gzip")));
  CHECK(chat.at("choices").as_array()[0].at("message").at("content") == "hi");
  const std::string coded = gzip_of(body);
  std::string chunked =
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
      "Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char byte : coded) chunked += std::string("1\r\n") + byte + "\r\n";
  CHECK(count(run.exchange(chunked + "0\r\n\r\n")) == 2);
  // Nothing is nothing, coded or not.
  CHECK(status_of(run.exchange(get("/health", "Content-Encoding: gzip\r\nConnection: close\r\n"))) == 200);
}

TEST_CASE("other codings and several are a 415 that says what is taken") {
  Running run;
  const std::string body = gzip_of(R"({"prompt": "ab"})");
  for (const char* coding : {"br", "gzip, gzip", "gzip, br", "gzip\r\nContent-Encoding: gzip",
                             "gzip\r\ncontent-encoding: identity", "identity\r\nContent-Encoding: br"}) {
    INFO(coding);
    const std::string response = run.exchange(coded_post("/tokenize", body, coding, ""));
    CHECK(status_of(response) == 415);
    CHECK(header_of(response, "Accept-Encoding") == "gzip, deflate");
    CHECK(header_of(response, "Connection") == "close");
    CHECK(body_of(response).at("error").at("code") == "content_encoding");
  }
  CHECK(
      header_of(run.exchange(post("/tokenize", "{}", "Content-Type: a/b\r\nConnection: close\r\n")), "Accept-Encoding")
          .empty());
}

TEST_CASE("a broken coded body or a bomb costs its request alone") {
  ServerConfig config;
  config.body_bytes_max = 2 << 20;
  config.client_memory_bytes = 32 << 20;
  Running run(config);
  Client client(run.server->port());
  const std::string body = gzip_of(R"({"prompt": "ab"})");
  const auto ask = [&](const std::string& bytes) {
    client.send(coded_post("/tokenize", bytes, "gzip", ""));
    return client.read_response();
  };
  CHECK(status_of(ask(body)) == 200);
  CHECK(status_of(ask(body.substr(0, body.size() - 1))) == 400);
  CHECK(status_of(ask(body + body)) == 400);
  CHECK(status_of(ask("{}")) == 400);
  for (int i = 0; i < 20; ++i) {
    const std::string response = ask(gzip_of(std::string(16 << 20, ' ')));
    CHECK(status_of(response) == 413);
    CHECK(body_of(response).at("error").at("code") == "body_too_large");
  }
  CHECK(status_of(ask(body)) == 200);
  const std::string metrics = run.exchange(get("/metrics"));
  CHECK(metrics.find("llmrt_client_memory_bytes 0\n") != std::string::npos);  // all was given back
}

TEST_CASE("what a coded body becomes counts against what clients may hold") {
  ServerConfig config;
  config.client_memory_bytes = 1 << 20;
  Running run(config);
  const std::string body = R"({"prompt": ")" + random_text(3 << 20, 4) + "\"}";
  CHECK(status_of(run.exchange(coded_post("/tokenize", gzip_of(body), "gzip"))) == 503);
  CHECK(run.exchange(get("/metrics")).find("llmrt_client_memory_refusals_total{part=\"body\"} 1\n") !=
        std::string::npos);
}

TEST_CASE("answers of some size are in gzip for clients that take it, and caches are told") {
  Running run;
  run.engine->tokens.assign(200, 'x');
  const std::string accept = "Accept-Encoding: gzip, deflate\r\nConnection: close\r\n";
  const std::string coded = run.exchange(get("/metrics", accept)), plain = run.exchange(get("/metrics"));
  CHECK(header_of(coded, "Content-Encoding") == "gzip");
  CHECK(header_of(coded, "Vary") == "Accept-Encoding");
  CHECK(coded.size() < plain.size() / 4);
  CHECK(plain_body(coded).starts_with("# HELP llmrt_info"));
  CHECK(header_of(plain, "Content-Encoding").empty());
  CHECK(header_of(plain, "Vary") == "Accept-Encoding");

  // The same head without the body; the length may differ by what has been counted meanwhile.
  const std::string head = run.exchange("HEAD /openapi.json HTTP/1.1\r\nHost: localhost\r\n" + accept + "\r\n");
  CHECK(header_of(head, "Content-Encoding") == "gzip");
  CHECK(header_of(head, "Content-Length") == header_of(run.exchange(get("/openapi.json", accept)), "Content-Length"));
  CHECK(head.ends_with("\r\n\r\n"));

  const std::string body = R"({"prompt": "a", "max_tokens": 200, "n": 100)";
  const std::string answer = run.exchange(post("/v1/completions", body + "}", accept));
  CHECK(header_of(answer, "Content-Encoding") == "gzip");
  const json::array choices = read_json(plain_body(answer))->at("choices").as_array();
  REQUIRE(choices.size() == 100);
  CHECK(choices[0].at("text").as_string() == std::string(200, 'x'));

  // Streams and errors are plain, and so are short answers, unless the client takes nothing else.
  const std::string stream = run.exchange(post("/v1/completions", body + R"(, "stream": true})", accept));
  CHECK(header_of(stream, "Content-Encoding").empty());
  CHECK(events_of(stream).back() == "[DONE]");
  const std::string only = "Accept-Encoding: gzip, identity;q=0\r\nConnection: close\r\n";
  for (const std::string& headers : {accept, only}) {
    CHECK(header_of(run.exchange(get("/nothing", headers)), "Content-Encoding").empty());
    const std::string live = run.exchange(get("/live", headers));
    CHECK(header_of(live, "Content-Encoding") == (headers == only ? "gzip" : ""));
    CHECK(read_json(plain_body(live))->at("status") == "live");
  }
  CHECK(header_of(
            run.exchange(get("/metrics", "Accept-Encoding: gzip;q=0\r\nAccept-Encoding: br\r\nConnection: close\r\n")),
            "Content-Encoding")
            .empty());
}

TEST_CASE("without compression nothing is coded, and bodies must not be") {
  ServerConfig config;
  config.compression = false;
  Running run(config);
  const std::string metrics =
      run.exchange(get("/metrics", "Accept-Encoding: gzip, identity;q=0\r\nConnection: close\r\n"));
  CHECK(header_of(metrics, "Content-Encoding").empty());
  CHECK(header_of(metrics, "Vary").empty());
  const std::string refused = run.exchange(coded_post("/tokenize", gzip_of(R"({"prompt": "ab"})"), "gzip", ""));
  CHECK(status_of(refused) == 415);
  CHECK(header_of(refused, "Accept-Encoding") == "identity");
  CHECK(status_of(run.exchange(coded_post("/tokenize", R"({"prompt": "ab"})", "identity"))) == 200);
}

}  // namespace
}  // namespace llmrt::server
