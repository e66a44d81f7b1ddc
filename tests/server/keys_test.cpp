// Keys without sockets: the file, how a key is found, which routes need one, and rates under a clock of the test's own.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "server/key_ring.h"
#include "server/routes.h"
#include "tests/server/open_paths.h"

namespace llmrt::server {
namespace {

constexpr TimeNs kSecond = 1'000'000'000;

std::string problem_of(std::string_view text) {
  const Result<ApiKeys> keys = ApiKeys::parse(text, "keys");
  REQUIRE_FALSE(keys.ok());
  CHECK(keys.error().code == ErrorCode::kInvalidArgument);
  return keys.error().message;
}

RequestHead head_of(const std::string& lines) {
  HeadScan scan = scan_head("GET /v1/models HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n", ServerConfig());
  REQUIRE(scan.bytes > 0);
  return scan.head;
}

TEST_CASE("a key file is read: names, secrets and settings") {
  const Result<ApiKeys> keys = ApiKeys::parse(
      "# our tenants\n"
      "\n"
      "alice  a-secret-of-some-length  class=agent requests-per-minute=60 tokens-per-minute=2000\r\n"
      "\tbob sha256:2BB80D537B1DA3E38BD30361AA855686BDE0EACD7162FEF6A25FE97BF527A25B concurrent=3 cache-salt=team "
      "adapters=sql,legal\n"
      "carol third-secret-of-hers cache-salt= adapters=",
      "keys");
  REQUIRE(keys.ok());
  REQUIRE(keys->all().size() == 3);
  const ApiKey* alice = keys->find("a-secret-of-some-length");
  REQUIRE(alice);
  CHECK(alice->name == "alice");
  CHECK(alice->limits == KeyLimits{60, 2000, 0});
  CHECK(alice->request_class == RequestClass::kAgent);
  CHECK(alice->cache_salt == "alice");
  const ApiKey* bob = keys->find("secret");
  REQUIRE(bob);
  CHECK(bob->name == "bob");
  CHECK(bob->limits.concurrent == 3);
  CHECK(bob->cache_salt == "team");
  CHECK(bob->adapters == std::vector<std::string>{"sql", "legal"});
  CHECK_FALSE(alice->adapters.has_value());
  CHECK(keys->find("third-secret-of-hers")->adapters == std::vector<std::string>{});
  CHECK(keys->find("third-secret-of-hers")->cache_salt.empty());
  for (const char* wrong : {"", "a-secret-of-some-lengt", "a-secret-of-some-length ", "alice", "Secret",
                            "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"})
    CHECK_FALSE(keys->find(wrong));
  CHECK(keys->num_plain() == 2);
  CHECK(keys->num_guessable() == 0);
}

TEST_CASE("what is wrong in a key file is told by its line, and no secret is quoted") {
  const std::string secret = "my-secret-secret";
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"alice", "line 1: expected a name and a secret"},
           {"\n\nalice " + secret + " spees=1", "line 3: expected one of the settings class"},
           {secret + "! " + secret, "line 1: expected a name of 1 to 64 letters"},
           {"a " + secret + "\nb " + secret, "line 2: b has the secret of a"},
           {"a " + secret + "\na x", "line 2: the name a is there twice"},
           {"a sha256:12", "line 1: expected sha256: and 64 hexadecimal digits"},
           {"a sha256:" + std::string(63, '1') + "g", "line 1: expected sha256: and 64"},
           {"a " + std::string(513, 'x'), "found one of 513 bytes"},
           {"a \xc3\xa4", "printable ASCII"},
           {"a " + secret + " class=king", "class: expected interactive"},
           {"a " + secret + " requests-per-minute=0", "requests-per-minute: expected a whole number"},
           {"a " + secret + " tokens-per-minute=-5", "tokens-per-minute: expected a whole number"},
           {"a " + secret + " tokens-per-minute=99999999999999999999", "tokens-per-minute: expected"},
           {"a " + secret + " concurrent=2x", "concurrent: expected a whole number"},
           {"a " + secret + " cache-salt=" + std::string(300, 'x'), "cache-salt: expected at most 256"},
           {"alice = " + secret, "NAME=VALUE"}}) {
    const std::string problem = problem_of(text);
    INFO(text << "\n" << problem);
    CHECK(problem.find("keys: ") == 0);
    CHECK(problem.find(part) != std::string::npos);
    CHECK(problem.find(secret) == std::string::npos);
  }
  std::string many;
  for (size_t i = 0; i <= ApiKeys::kKeysMax; ++i) many += fmt::format("k{} secret-number-{}\n", i, i);
  CHECK(problem_of(many).find("line 1001: expected at most 1000 keys") != std::string::npos);
}

TEST_CASE("a key comes as a bearer token or in x-api-key, once") {
  CHECK(head_of("Authorization: Bearer abc\r\n").api_key == "abc");
  CHECK(head_of("authorization: bearer   abc \r\n").api_key == "abc");
  CHECK(head_of("X-API-Key: abc\r\n").api_key == "abc");
  CHECK(head_of("x-api-key: other\r\nAuthorization: Bearer abc\r\n").api_key == "abc");
  CHECK(head_of("Authorization: Bearer abc\r\nx-api-key: other\r\n").api_key == "abc");
  CHECK(head_of("Authorization: Basic YTpi\r\nx-api-key: abc\r\n").api_key == "abc");
  CHECK(head_of("Authorization: Basic YTpi\r\n").api_key.empty());
  CHECK(head_of("Authorization: abc\r\n").api_key.empty());
  for (const char* lines :
       {"x-api-key: a\r\nx-api-key: a\r\n", "Authorization: Bearer a\r\nAuthorization: Bearer a\r\n"})
    CHECK(scan_head(fmt::format("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", lines), ServerConfig()).error->status == 400);
}

TEST_CASE("every route needs a key but those on a list") {
  REQUIRE(routes().size() >= 18);
  size_t num_open = 0;
  for (const RouteRow& row : routes()) {
    INFO(method_name(row.method) << " " << row.path);
    RequestHead head;
    head.method = method_name(row.method);
    const Route route = find_route(head.method, row.path);
    REQUIRE(route.row == &row);
    const bool is_open = is_open_path(row.path);
    CHECK(needs_key(head, route, false) == !is_open);
    CHECK(needs_key(head, route, true) == (!is_open && row.path != "/metrics"));
    num_open += is_open;
  }
  CHECK(num_open == 6);
  RequestHead head;
  head.method = "GET";
  CHECK(needs_key(head, find_route("GET", "/nothing"), true));
  CHECK(needs_key(head, find_route("GET", "/v1/models/m"), true));
  CHECK(needs_key(head, find_route("PUT", "/v1/models"), true));
  CHECK(needs_key(head, find_route("GET", "/%"), true));
  head.method = "OPTIONS";
  CHECK_FALSE(needs_key(head, find_route("OPTIONS", "/v1/models"), false));
}

TEST_CASE("a bucket lets a minute's worth through at once, then its rate") {
  TokenBucket bucket(60);
  TimeNs now = 5 * kSecond;
  for (int i = 0; i < 60; ++i) {
    REQUIRE(bucket.wait_s(1, now) == 0);
    bucket.take(1, now);
  }
  CHECK(bucket.left(now) == 0);
  CHECK(bucket.wait_s(1, now) == 1);
  CHECK(bucket.wait_s(30, now) == 30);
  CHECK(bucket.full_in_s(now) == 60);
  now += kSecond / 2;
  CHECK(bucket.wait_s(1, now) == 0.5);
  now += kSecond / 2;
  CHECK(bucket.wait_s(1, now) == 0);
  now += 1000 * kSecond;
  CHECK(bucket.left(now) == 60);
  bucket.take(300, now);  // debt
  CHECK(bucket.left(now) == 0);
  CHECK(bucket.wait_s(1, now) == 241);
  CHECK(bucket.wait_s(1000, now) == 300);  // more than a minute's worth waits for a full bucket alone
  bucket.set_rate(120, now);
  CHECK(bucket.wait_s(1, now) == 120.5);
  bucket.set_rate(0, now);
  CHECK(bucket.wait_s(1000, now) == 0);
  CHECK(TokenBucket(0).wait_s(1, now) == 0);
}

TEST_CASE("over an hour a key gets its rate, whatever it asks for") {
  KeyAccount account("k", {.requests_per_minute = 30, .tokens_per_minute = 1000});
  uint64_t requests = 0, tokens = 0;
  for (TimeNs now = kSecond; now < 3600 * kSecond; now += kSecond / 4) {
    if (account.begin_request(now)) continue;
    if (!account.charge_prompt(20, now)) {
      account.charge_generated(60, now);
      tokens += 80;
      ++requests;
    }
    account.end_request();
  }
  CHECK(tokens >= 60 * 1000);
  CHECK(tokens <= 61 * 1000 + 80);
  CHECK(account.figures().requests >= requests);
  CHECK(account.figures().prompt_tokens == requests * 20);
  CHECK(account.figures().generated_tokens == requests * 60);
  CHECK(account.figures().running == 0);
  CHECK(account.figures().limited[static_cast<size_t>(KeyLimit::kTokens)] > 0);
}

TEST_CASE("limits say which, how long to wait, and what is left") {
  KeyAccount account("k", {.requests_per_minute = 3, .tokens_per_minute = 100, .concurrent = 2});
  const TimeNs now = kSecond;
  REQUIRE_FALSE(account.begin_request(now));
  REQUIRE_FALSE(account.begin_request(now));
  const auto concurrent = account.begin_request(now);
  REQUIRE(concurrent);
  CHECK(concurrent->limit == KeyLimit::kConcurrent);
  CHECK(over_limit(*concurrent).message == "API key: expected at most 2 requests at once");
  account.end_request();
  REQUIRE_FALSE(account.charge_prompt(70, now));
  const auto tokens = account.charge_prompt(45, now);
  REQUIRE(tokens);
  CHECK(over_limit(*tokens).retry_after_s == 9);  // 15 more, at 100 a minute
  CHECK(over_limit(*tokens).status == 429);
  Headers headers;
  add_rate_headers(account.rates(now), &headers);
  CHECK(headers == Headers{{"x-ratelimit-limit-requests", "3"},
                           {"x-ratelimit-remaining-requests", "2"},
                           {"x-ratelimit-reset-requests", "20s"},
                           {"x-ratelimit-limit-tokens", "100"},
                           {"x-ratelimit-remaining-tokens", "30"},
                           {"x-ratelimit-reset-tokens", "42s"}});
  account.charge_generated(230, now);
  account.end_request();
  const auto debt = account.begin_request(now);
  REQUIRE(debt);
  CHECK(debt->limit == KeyLimit::kTokens);
  CHECK(over_limit(*debt).retry_after_s == 121);
  headers.clear();
  add_rate_headers(account.rates(now), &headers);
  CHECK(headers[5].second == "3m0s");
  headers.clear();
  add_rate_headers(KeyAccount("free", {}).rates(now), &headers);
  CHECK(headers.empty());
}

TEST_CASE("a file that is read again keeps accounts by name, and a bad one changes nothing") {
  const std::string path = (std::filesystem::temp_directory_path() / fmt::format("llmrt_keys_{}", getpid())).string();
  const auto write = [&](std::string_view text) { std::ofstream(path) << text; };
  write("a secret-of-a-0123456 requests-per-minute=10\nb secret-of-b-0123456\n");
  auto ring = std::move(*KeyRing::open({.key_file = path, .key = "secret-of-environment"}));
  const Route route = find_route("GET", "/v1/models");
  RequestHead head;
  head.method = "GET";
  std::string audit;
  const auto caller = [&](const char* key) {
    head.api_key = key;
    const ApiResult<Caller> result = ring->admit(head, route, &audit);
    const auto* found = std::get_if<Caller>(&result);
    return found ? found->key.name : std::string("none");
  };
  CHECK(caller("secret-of-a-0123456") == "a");
  CHECK(caller("secret-of-environment") == KeyRing::kEnvironmentKey);
  CHECK(caller("nothing") == "none");
  CHECK(audit == "with a wrong key of 7 bytes, SHA-256 1785cfc3...");
  CHECK(caller("") == "none");
  write("a another-of-a-0123456 requests-per-minute=20\nc secret-of-c-0123456 concurrent=1\n");
  CHECK(ring->reload(kSecond).ok());
  CHECK(caller("secret-of-a-0123456") == "none");
  CHECK(caller("another-of-a-0123456") == "a");
  CHECK(caller("secret-of-b-0123456") == "none");
  CHECK(caller("secret-of-c-0123456") == "c");
  write("a x speed=3\n");
  CHECK_FALSE(ring->reload(kSecond).ok());
  CHECK(caller("another-of-a-0123456") == "a");
  std::filesystem::remove(path);
  CHECK_FALSE(ring->reload(kSecond).ok());
  CHECK(caller("secret-of-c-0123456") == "c");
  const AccessFigures figures = ring->figures();
  CHECK(figures.keys.size() == 3);
  CHECK(figures.missing == 1);
  CHECK(figures.wrong == 3);
  CHECK(figures.reloads == 1);
  CHECK(figures.reload_failures == 2);
  CHECK_FALSE(KeyRing::open({.key_file = path}).ok());
}

TEST_CASE("salts of keys are nobody else's") {
  CHECK(scoped_salt("", "mine") == "mine");
  CHECK(scoped_salt("a", "mine") == scoped_salt("a", "mine"));
  CHECK(scoped_salt("a", "").size() == 64);
  CHECK(scoped_salt("a", "") != scoped_salt("b", ""));
  CHECK(scoped_salt("a", "bc") != scoped_salt("ab", "c"));
  CHECK(scoped_salt("a", "x") != scoped_salt("a", "y"));
}

}  // namespace
}  // namespace llmrt::server
