// A server over real sockets with a fake engine behind it, and a client that sends bytes as they are.
#pragma once

#include <boost/asio.hpp>
#include <catch2/catch_test_macros.hpp>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <ostream>
#include <sstream>
#include <streambuf>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/json_reader.h"
#include "server/server.h"
#include "tests/server/fake_engine.h"
#include "tests/server/letter_model.h"

namespace llmrt::server {

namespace asio = boost::asio;
namespace json = boost::json;
using tcp = asio::ip::tcp;

// A log's lines, which may be read while others are written.
class LogLines final : public std::ostream {
 public:
  LogLines() : std::ostream(nullptr) { rdbuf(&text_); }
  std::string str() const { return text_.str(); }

 private:
  class Text final : public std::streambuf {
   public:
    std::string str() const {
      std::lock_guard lock(mutex_);
      return text_;
    }

   private:
    std::streamsize xsputn(const char* bytes, std::streamsize count) override {
      std::lock_guard lock(mutex_);
      text_.append(bytes, static_cast<size_t>(count));
      return count;
    }
    int_type overflow(int_type byte) override {
      std::lock_guard lock(mutex_);
      text_.push_back(static_cast<char>(byte));
      return byte;
    }

    mutable std::mutex mutex_;
    std::string text_;
  };

  Text text_;
};

class Client {
 public:
  explicit Client(uint16_t port, asio::ip::address address = asio::ip::address_v4::loopback()) {
    socket_.connect({address, port});
  }
  void send(std::string_view bytes) {
    boost::system::error_code ignored;  // the server may have closed already: what it said counts
    asio::write(socket_, asio::buffer(bytes), ignored);
  }
  std::string read_some() {
    std::string bytes(65536, '\0');
    boost::system::error_code error;
    bytes.resize(socket_.read_some(asio::buffer(bytes), error));
    return bytes;
  }
  std::string read_until(std::string_view end) {
    while (received_.find(end) == std::string::npos) {
      const std::string more = read_some();
      if (more.empty()) break;
      received_ += more;
    }
    const size_t at = received_.find(end);
    const size_t size = at == std::string::npos ? received_.size() : at + end.size();
    const std::string out = received_.substr(0, size);
    received_.erase(0, size);
    return out;
  }
  // One response that has a Content-Length.
  std::string read_response() {
    const std::string head = read_until("\r\n\r\n");
    const size_t at = head.find("Content-Length: ");
    const size_t size = at == std::string::npos ? 0 : std::stoul(head.substr(at + 16));
    while (received_.size() < size) {
      const std::string more = read_some();
      if (more.empty()) break;
      received_ += more;
    }
    const std::string body = received_.substr(0, size);
    received_.erase(0, size);
    return head + body;
  }
  std::string read_all() {
    std::string all = std::exchange(received_, {});
    for (std::string more = read_some(); !more.empty(); more = read_some()) all += more;
    return all;
  }
  void close() { socket_.close(); }
  tcp::socket& socket() { return socket_; }

 private:
  asio::io_context io_;
  tcp::socket socket_{io_};
  std::string received_;
};

struct Running {
  explicit Running(ServerConfig config = {}, ServedModel model = letter_model(),
                   LogFormat log_format = LogFormat::kText) {
    config.port = 0;
    const std::shared_ptr<Log> log = stream_log(lines, LogLevel::kInfo, log_format);
    auto listening = Server::listen(config, std::move(model), engine, log);
    REQUIRE(listening.ok());
    server = std::move(*listening);
    thread = std::thread([this] { server->run(); });
  }
  ~Running() {
    server->stop();
    thread.join();
    engine->join();
  }
  std::string exchange(const std::string& request) {
    Client client(server->port());
    client.send(request);
    return client.read_all();
  }
  std::shared_ptr<FakeEngine> engine = std::make_shared<FakeEngine>();
  LogLines lines;
  std::unique_ptr<Server> server;
  std::thread thread;
};

inline std::string post(const std::string& target, const std::string& body,
                        const std::string& headers = "Connection: close\r\n") {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{}", target,
      body.size(), headers, body);
}
inline std::string get(const std::string& target, const std::string& headers = "Connection: close\r\n") {
  return fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", target, headers);
}
inline int status_of(const std::string& response) {
  return response.size() > 12 ? std::atoi(response.substr(9, 3).c_str()) : 0;
}
// The value of a header; empty where there is none.
inline std::string header_of(const std::string& response, const std::string& name) {
  const std::string head = response.substr(0, response.find("\r\n\r\n") + 2);
  const size_t at = head.find("\r\n" + name + ": ");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 4;
  return head.substr(begin, head.find("\r\n", begin) - begin);
}
inline json::object body_of(const std::string& response) {
  auto value = read_json(response.substr(response.find("\r\n\r\n") + 4));
  INFO(response);
  REQUIRE(value.ok());
  return value->as_object();
}
// The data lines of a chunked stream.
inline std::vector<std::string> events_of(const std::string& response) {
  std::string text;
  for (size_t at = response.find("\r\n\r\n") + 4; at < response.size();) {
    const size_t end = response.find("\r\n", at);
    const size_t size = std::stoul(response.substr(at, end - at), nullptr, 16);
    text += response.substr(end + 2, size);
    at = end + 2 + size + 2;
  }
  std::vector<std::string> events;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find("\n\n", at);
    REQUIRE(end != std::string::npos);
    if (text.substr(at, 6) == "data: ") events.push_back(text.substr(at + 6, end - at - 6));
    at = end + 2;
  }
  return events;
}
inline const std::string kChat = R"({"messages": [{"role": "user", "content": "a"}]})";

}  // namespace llmrt::server
