#include "server/batch_lines.h"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

#include "server/offline.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

std::string problem(std::string_view line) {
  const Result<BatchLine> parsed = parse_batch_line(line);
  return parsed ? std::string() : parsed.error().message;
}

// A file that is gone with the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() / ("llmrt-batch-" + std::to_string(::getpid()))) {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST_CASE("a batch's line names its request, its endpoint and its body") {
  const auto line =
      parse_batch_line(R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"x"}})");
  REQUIRE(line.ok());
  CHECK(line->custom_id == "a");
  CHECK(line->url == "/v1/completions");
  CHECK(line->body.at("prompt") == "x");
  CHECK(parse_batch_line(R"({"custom_id":"a","url":"/v1/completions","body":{}})").ok());  // the method is known
}

TEST_CASE("lines that are no request say what is wrong") {
  CHECK(problem("{").find("JSON") != std::string::npos);
  CHECK(problem("[1]") == "expected a JSON object");
  CHECK(problem(R"({"url":"/v1/completions","body":{}})") == "custom_id: expected a text");
  CHECK(problem(R"({"custom_id":"","url":"/v1/completions","body":{}})") == "custom_id: expected a text");
  CHECK(problem(R"({"custom_id":7,"url":"/v1/completions","body":{}})") == "custom_id: expected a text");
  CHECK(problem(R"({"custom_id":"a","body":{}})") == "url: expected a text");
  CHECK(problem(R"({"custom_id":"a","url":"/x","method":"GET","body":{}})") == "method: expected POST");
  CHECK(problem(R"({"custom_id":"a","url":"/x"})") == "body: expected an object");
  CHECK(problem(R"({"custom_id":"a","url":"/x","body":"{}"})") == "body: expected an object");
  CHECK(problem(R"({"custom_id":")" + std::string(600, 'a') + R"(","url":"/x","body":{}})").find("512") !=
        std::string::npos);
}

TEST_CASE("an answer is a line that readers of OpenAI's batches know, and is found again") {
  OfflineAnswer answer;
  answer.status = 200;
  answer.request_id = "req-1";
  answer.body = R"({"id":"x"})";
  const std::string line = format_batch_line("a \"b\"\n", answer);
  REQUIRE(line.ends_with("}\n"));
  CHECK(std::count(line.begin(), line.end(), '\n') == 1);
  const json::object object = json::parse(line).as_object();
  CHECK(object.at("custom_id") == "a \"b\"\n");
  CHECK(object.at("error").is_null());
  CHECK(object.at("response").at("status_code") == 200);
  CHECK(object.at("response").at("body").at("id") == "x");
  CHECK(custom_id_of(line) == "a \"b\"\n");
}

TEST_CASE("what a batch has answered is read again, but for the line that was being written") {
  OfflineAnswer answer;
  answer.body = "{}";
  answer.status = 200;
  std::string text = format_batch_line("a", answer);
  answer.status = 400;
  text += format_batch_line("b", answer);
  const size_t whole = text.size();
  for (const std::string& rest :
       {std::string(), std::string("{\"id\":"), std::string("{\"id\":\"x\",\"custom_id\":\"c\"}")}) {
    const TemporaryFile file(text + rest);
    const auto done = read_done_lines(file.path());
    REQUIRE(done.ok());
    CHECK(done->num_bytes == whole);
    CHECK(done->status.size() == 2);
    CHECK(done->status.at("a") == 200);
    CHECK(done->status.at("b") == 400);
  }
  CHECK(read_done_lines("/nonexistent/file")->status.empty());
  const TemporaryFile other("some notes\n" + text);
  const auto refused = read_done_lines(other.path());
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("line 1") != std::string::npos);
}

TEST_CASE("only endpoints that models answer are a batch's") {
  const OfflineAnswerer answerer(nullptr, {});
  for (const char* url :
       {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/completions/"})
    CHECK_FALSE(answerer.check_url(url));
  for (const char* url : {"/v1/models", "/tokenize", "", "/v1/embeddings", "http://x/v1/completions"}) {
    const auto error = answerer.check_url(url);
    REQUIRE(error);
    CHECK(error->status == 404);
  }
}

}  // namespace
}  // namespace llmrt::server
