// Lines of the log in both formats. Method: lines of a known time; the JSON is read back by Boost.
#include <catch2/catch_test_macros.hpp>

#include <boost/json.hpp>

#include <random>
#include <sstream>

#include "core/base/utf8.h"
#include "core/log/log.h"

using namespace llmrt;
namespace json = boost::json;

namespace {

using Time = std::chrono::system_clock::time_point;
const Time kTime{std::chrono::milliseconds(1'763'719'445'123)};

json::object read(const std::string& line) {
  INFO(line);
  REQUIRE(is_valid_utf8(line));
  for (const char c : line) REQUIRE(static_cast<unsigned char>(c) >= 0x20);
  boost::system::error_code error;
  const json::value value = json::parse(line, error);
  REQUIRE(!error);
  return value.as_object();
}
json::object read_text(std::string_view text) {
  return read(format_log_line(LogFormat::kJson, kTime, LogLevel::kInfo, text));
}

}  // namespace

TEST_CASE("a line of text has time, level and message") {
  CHECK(format_log_line(LogFormat::kText, kTime, LogLevel::kInfo, "started") ==
        "2025-11-21 10:04:05.123 info    started");
  CHECK(format_log_line(LogFormat::kText, kTime, LogLevel::kWarning, "a\"b", {{"key", "k"}}) ==
        "2025-11-21 10:04:05.123 warning a\"b");
}

TEST_CASE("a line of JSON is one object: time in RFC 3339, level, message, and the fields that there are") {
  CHECK(
      format_log_line(LogFormat::kJson, kTime, LogLevel::kError, "lost",
                      {{"status", uint64_t{503}}, {"request_id", "req-1"}, {"key", ""}, {"count", uint64_t{0}}}) ==
      R"({"time":"2025-11-21T10:04:05.123Z","level":"error","message":"lost","status":503,"request_id":"req-1","count":0})");
  CHECK(format_log_line(LogFormat::kJson, Time{std::chrono::milliseconds(-1)}, LogLevel::kInfo, "") ==
        R"({"time":"1969-12-31T23:59:59.999Z","level":"info","message":""})");
}

TEST_CASE("hostile texts stay inside their string") {
  const std::string hostile =
      "a\"b\\c\nd\re\tf\x1b[31m\x7f{\"level\":\"error\"}\xc2\x9b"
      "31m\xe2\x80\xa8 \xc3\xa4 \xf0\x9f\x98\x80";
  CHECK(read_text(hostile).at("message").as_string() == hostile);
  const std::string line = format_log_line(LogFormat::kJson, kTime, LogLevel::kInfo, hostile, {{"key", hostile}});
  for (const char* raw : {"\x7f", "\xc2\x9b", "\xe2\x80\xa8"}) CHECK(line.find(raw) == std::string::npos);
  CHECK(read(line).at("key").as_string() == hostile);
  CHECK(read(line).at("level") == "info");

  CHECK(read_text("a\xff\xe2\x82z\xc3").at("message").as_string() == replace_invalid_utf8("a\xff\xe2\x82z\xc3"));
  CHECK(read_text(std::string_view("a\0b", 3)).at("message").as_string() == std::string("a\0b", 3));

  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random() % 40, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % 3 == 0 ? "\"\\\n{}"[random() % 5] : random());
    INFO(i);
    CHECK(read_text(bytes).at("message").as_string() == replace_invalid_utf8(bytes));
  }
}

TEST_CASE("long texts are cut between characters") {
  const std::string euro = "\xe2\x82\xac";
  for (size_t lead = 0; lead < 4; ++lead) {
    std::string text(lead, 'x');
    while (text.size() < 3 * kLogMessageBytesMax) text += euro;
    const std::string line = format_log_line(LogFormat::kJson, kTime, LogLevel::kInfo, text, {{"key", text}});
    CHECK(line.size() < kLogMessageBytesMax + kLogFieldBytesMax + 100);
    for (const auto& [name, bytes_max] : {std::pair("message", kLogMessageBytesMax), {"key", kLogFieldBytesMax}}) {
      const std::string shown(read(line).at(name).as_string());
      CHECK(shown.size() > bytes_max - 3);
      CHECK(shown.size() <= bytes_max + 3);
      CHECK(shown.ends_with(euro + "..."));
      CHECK(text.starts_with(shown.substr(0, shown.size() - 3)));
    }
  }
  CHECK(read_text(std::string(kLogMessageBytesMax, 'a')).at("message").as_string().size() == kLogMessageBytesMax);
  // What is no UTF-8 is cut all the same.
  const std::string tail(3 * kLogMessageBytesMax, '\x80');
  CHECK(read_text(tail).at("message").as_string().size() <= 3 * kLogMessageBytesMax + 3);
}

TEST_CASE("a log writes lines of its level, each flushed") {
  std::ostringstream out;
  const std::shared_ptr<Log> log = stream_log(out, LogLevel::kWarning, LogFormat::kJson);
  log->info("not this {}", 1);
  log->event(LogLevel::kError, {{"model", "m\nn"}}, "this {}", 2);
  log->warn("and this");
  std::istringstream lines(out.str());
  std::string line;
  REQUIRE(std::getline(lines, line));
  CHECK(read(line).at("message") == "this 2");
  CHECK(read(line).at("model") == "m\nn");
  const std::string_view time = read(line).at("time").as_string();
  CHECK(time.size() == std::string_view("2025-11-21T10:04:05.123Z").size());
  REQUIRE(std::getline(lines, line));
  CHECK(read(line).at("level") == "warning");
  CHECK_FALSE(std::getline(lines, line));
}
