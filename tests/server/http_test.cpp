// The check of request heads, as a pure function: whatever way the bytes arrive, it comes to the same end.
#include <catch2/catch_test_macros.hpp>

#include "server/http.h"
#include "tests/server/http_vectors.h"

namespace llmrt::server {
namespace {

TEST_CASE("a plain request is understood at its last byte and not before") {
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost:8000\r\ncontent-type: Application/JSON; charset=utf-8\r\n"
      "Content-Length: 12\r\nX-Empty:\r\n\r\n";
  for (size_t i = 0; i < head.size(); ++i) {
    const HeadScan scan = scan_head(std::string_view(head).substr(0, i), {});
    INFO(i);
    REQUIRE(scan.bytes == 0);
    REQUIRE_FALSE(scan.error);
  }
  const HeadScan scan = scan_head(head + "{\"prompt\"", {});
  REQUIRE_FALSE(scan.error);
  CHECK(scan.bytes == head.size());
  CHECK(scan.head.method == "POST");
  CHECK(scan.head.target == "/v1/completions");
  CHECK(scan.head.content_type == "application/json");
  CHECK(scan.head.content_length == 12);
  CHECK(scan.head.keep_alive);
}

TEST_CASE("keep-alive follows version and Connection") {
  const auto keep = [](const std::string& version, const std::string& connection) {
    const HeadScan scan = scan_head("GET / " + version + "\r\nHost: a\r\n" + connection + "\r\n", {});
    REQUIRE(scan.bytes > 0);
    return scan.head.keep_alive;
  };
  CHECK(keep("HTTP/1.1", ""));
  CHECK_FALSE(keep("HTTP/1.1", "Connection: close\r\n"));
  CHECK_FALSE(keep("HTTP/1.1", "Connection: foo, CLOSE\r\n"));
  CHECK_FALSE(keep("HTTP/1.0", ""));
  CHECK(keep("HTTP/1.0", "Connection: keep-alive\r\n"));
}

// Vectors whose fault is in the body are the session test's; here they have a sound head.
TEST_CASE("hostile heads are refused, at whatever byte the input is cut in two") {
  int num_refused = 0;
  for (const HttpVector& vector : hostile_vectors()) {
    INFO(vector.name);
    const HeadScan whole = scan_head(vector.bytes, {});
    if (!whole.error) {
      const auto has = [&](const char* text) { return vector.bytes.find(text) != std::string::npos; };
      CHECK((has("Transfer-Encoding: chunked\r\n\r\n") || has("Content-Length: 9000000") || has("evil.example")));
      continue;
    }
    ++num_refused;
    CHECK(whole.error->status == vector.status);
    for (size_t i = 0; i < vector.bytes.size(); ++i) {
      const HeadScan part = scan_head(std::string_view(vector.bytes).substr(0, i), {});
      REQUIRE(part.bytes == 0);
      if (part.error) REQUIRE(part.error->status == whole.error->status);
    }
  }
  CHECK(num_refused >= 45);
}

TEST_CASE("an offer of another protocol is ignored") {
  for (const char* offer :
       {"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
        "Connection: Upgrade\r\nUpgrade: TLS/1.0, HTTP/1.1\r\n", "Upgrade: websocket\r\n"}) {
    const HeadScan scan = scan_head(fmt::format("GET /v1/models HTTP/1.1\r\nHost: a\r\n{}\r\n", offer), {});
    INFO(offer);
    REQUIRE_FALSE(scan.error);
    CHECK(scan.head.keep_alive);
    CHECK(scan.head.target == "/v1/models");
  }
}

TEST_CASE("targets come with a query or a host, and the host of the target goes first") {
  const auto head = [](const std::string& line) {
    const HeadScan scan = scan_head(line + "\r\nHost: field\r\n\r\n", {});
    INFO(line);
    REQUIRE(scan.bytes > 0);
    return std::pair(scan.head.target, scan.head.host);
  };
  CHECK(head("GET /health?x=1&y=/ HTTP/1.1") == std::pair<std::string, std::string>("/health", "field"));
  CHECK(head("GET http://target:80/health?x HTTP/1.1") == std::pair<std::string, std::string>("/health", "target:80"));
  CHECK(head("GET HTTPS://target HTTP/1.1") == std::pair<std::string, std::string>("/", "target"));
  CHECK(head("GET http://target?x HTTP/1.1") == std::pair<std::string, std::string>("/", "target"));
  CHECK(head("OPTIONS http://target HTTP/1.1") == std::pair<std::string, std::string>("*", "target"));
  CHECK(head("OPTIONS * HTTP/1.1") == std::pair<std::string, std::string>("*", "field"));
}

TEST_CASE("empty lines at the front are counted, whole ones alone") {
  CHECK(empty_lines_bytes("GET") == 0);
  CHECK(empty_lines_bytes("\r\nGET") == 2);
  CHECK(empty_lines_bytes("\r\n\r\n\r") == 4);
  CHECK(empty_lines_bytes("\n\r\n") == 0);
}

TEST_CASE("a client's request id is taken where it is a plain one") {
  const auto id = [](const std::string& fields) {
    return scan_head("GET / HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n", {}).head.request_id;
  };
  CHECK(id("x-request-id: 6a1f-2b.c:/=+@_\r\n") == "6a1f-2b.c:/=+@_");
  CHECK(id("X-Request-ID: " + std::string(128, 'a') + "\r\n").size() == 128);
  CHECK(id("x-request-id: " + std::string(129, 'a') + "\r\n").empty());
  for (const char* odd : {"", "a b", "a\"b", "a;b", "\xc3\xa4"})
    CHECK(id(fmt::format("x-request-id: {}\r\n", odd)).empty());
  CHECK(id("x-request-id: a\r\nx-request-id: b\r\n").empty());
}

TEST_CASE("dates are written as HTTP has them") {
  CHECK(http_date(784111777) == "Sun, 06 Nov 1994 08:49:37 GMT");
  CHECK(http_date(951782400) == "Tue, 29 Feb 2000 00:00:00 GMT");
}

TEST_CASE("an answer without content says nothing of a body") {
  const std::string text = format_response(204, "application/json", "x", true);
  CHECK(text == "HTTP/1.1 204 No Content\r\nConnection: keep-alive\r\n\r\n");
}

TEST_CASE("errors carry what clients act upon") {
  const auto text = [](ErrorCode code) { return format_error(to_api_error(Error{code, "x"}), true); };
  CHECK(text(ErrorCode::kOverloaded).find("HTTP/1.1 503") == 0);
  CHECK(text(ErrorCode::kOverloaded).find("Retry-After: ") != std::string::npos);
  CHECK(text(ErrorCode::kNotFinite).find("x-should-retry: false") != std::string::npos);
  CHECK(text(ErrorCode::kTimeout).find("HTTP/1.1 504") == 0);
  CHECK(text(ErrorCode::kTimeout).find("x-should-retry: false") != std::string::npos);
  CHECK(text(ErrorCode::kNeverFits).find("HTTP/1.1 400") == 0);
  CHECK(text(ErrorCode::kContextLength).find("\"code\":\"context_length_exceeded\"") != std::string::npos);
}

TEST_CASE("each dialect has its own form of an error") {
  const ApiError wrong = invalid_field("max_tokens", "expected a number");
  const ApiError busy = to_api_error(Error{ErrorCode::kOverloaded, "full"});
  const auto body = [](const ApiError& error, ErrorForm form) {
    return boost::json::serialize(error_body(error, {form, "req-1"}));
  };
  CHECK(body(wrong, ErrorForm::kOpenAi) ==
        R"({"error":{"message":"max_tokens: expected a number","type":"invalid_request_error","param":"max_tokens",)"
        R"("code":"invalid_argument"}})");
  CHECK(body(wrong, ErrorForm::kOllama) == R"({"error":"max_tokens: expected a number"})");
  CHECK(body(wrong, ErrorForm::kMessages) ==
        R"({"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: expected a number"},)"
        R"("request_id":"req-1"})");
  CHECK(body(busy, ErrorForm::kMessages).find(R"("type":"overloaded_error")") != std::string::npos);
  for (const auto& [status, type] : {std::pair{401, "authentication_error"},
                                     {403, "permission_error"},
                                     {404, "not_found_error"},
                                     {405, "not_found_error"},
                                     {413, "request_too_large"},
                                     {415, "invalid_request_error"},
                                     {429, "rate_limit_error"},
                                     {500, "api_error"},
                                     {504, "timeout_error"}}) {
    CAPTURE(status);
    const boost::json::object told = error_body(http_error(status, "code", "text"), {ErrorForm::kMessages, ""});
    CHECK(told.at("error").at("type") == type);
  }
  const std::string reply = format_error(busy, true, {}, true, {ErrorForm::kMessages, "req-1"});
  CHECK(reply.starts_with("HTTP/1.1 529 Overloaded\r\n"));
  CHECK(reply.find("Retry-After: ") != std::string::npos);
  CHECK(format_error(busy, true, {}, true, {ErrorForm::kOllama, ""}).starts_with("HTTP/1.1 503 "));
  CHECK(format_stream_head(true, true, {}, "application/x-ndjson").find("Content-Type: application/x-ndjson\r\n") !=
        std::string::npos);
}

TEST_CASE("an error's detail reaches the client's message, and only there") {
  Error error{ErrorCode::kInvalidArgument, "the template refuses this conversation"};
  error.detail = "roles must alternate";
  const ApiError told = to_api_error(error);
  CHECK(told.message == "the template refuses this conversation");  // what the log shows
  CHECK(
      boost::json::serialize(error_body(told)).find("the template refuses this conversation: 'roles must alternate'") !=
      std::string::npos);
}

}  // namespace
}  // namespace llmrt::server
