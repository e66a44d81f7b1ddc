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
      CHECK(vector.bytes.find("Transfer-Encoding: chunked\r\n\r\n") + vector.bytes.find("Content-Length: 9000000") !=
            std::string::npos);
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

TEST_CASE("errors carry what clients act upon") {
  const auto text = [](ErrorCode code) { return format_error(to_api_error(Error{code, "x"}), true); };
  CHECK(text(ErrorCode::kOverloaded).find("HTTP/1.1 503") == 0);
  CHECK(text(ErrorCode::kOverloaded).find("Retry-After: ") != std::string::npos);
  CHECK(text(ErrorCode::kNotFinite).find("x-should-retry: false") != std::string::npos);
  CHECK(text(ErrorCode::kNeverFits).find("HTTP/1.1 400") == 0);
  CHECK(text(ErrorCode::kContextLength).find("\"code\":\"context_length_exceeded\"") != std::string::npos);
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
