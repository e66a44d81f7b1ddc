// The control socket: questions and answers, its file and its mode, what is left behind by a process that died, and
// clients that say nothing or nonsense.
#include <boost/asio.hpp>
#include <catch2/catch_test_macros.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "server/control_socket.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;
using std::chrono::seconds;

struct Folder {
  Folder() {
    char name[] = "/tmp/llmrt-control-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { fs::remove_all(path); }
  std::string path;
};

json::object echo(const json::object& question) {
  if (question.contains("bad")) return {{"error", {{"code", "invalid_argument"}, {"message", "that is bad"}}}};
  return {{"asked", question}};
}

TEST_CASE("a question is answered by whoever listens, and only its user may ask") {
  Folder folder;
  const std::string path = control_path(folder.path, 8000);
  CHECK(ask_server(path, {}, seconds(5)).error().code == ErrorCode::kNotFound);
  {
    auto socket = ControlSocket::listen(path, echo);
    REQUIRE(socket.ok());
    struct stat status {};
    REQUIRE(stat(path.c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
    for (int i = 0; i < 3; ++i) {
      const auto answer = ask_server(path, {{"command", "ps"}, {"number", i}}, seconds(5));
      REQUIRE(answer.ok());
      CHECK(answer->at("asked").at("number") == i);
    }
    CHECK(ask_server(path, {{"bad", true}}, seconds(5)).error().message == "that is bad");
    CHECK(control_paths(folder.path) == std::vector<std::pair<uint16_t, std::string>>{{8000, path}});
    // A second server of the same port does not take it away.
    CHECK(ControlSocket::listen(path, echo).error().code == ErrorCode::kIo);
    CHECK(ask_server(path, {}, seconds(5)).ok());
  }
  CHECK_FALSE(fs::exists(path));
}

TEST_CASE("what a process left behind is replaced, a file of another kind is not") {
  Folder folder;
  const std::string path = control_path(folder.path, 1);
  {
    boost::asio::io_context io;
    boost::asio::local::stream_protocol::acceptor dead(io, boost::asio::local::stream_protocol::endpoint(path));
  }
  REQUIRE(fs::exists(path));
  REQUIRE(ControlSocket::listen(path, echo).ok());
  std::ofstream(path) << "a file";
  CHECK(ControlSocket::listen(path, echo).error().message.ends_with("expected a socket of this user"));
  CHECK(fs::exists(path));
  CHECK(ControlSocket::listen(folder.path + "/" + std::string(200, 'x'), echo).error().message.ends_with("too long"));
}

TEST_CASE("nonsense and silence end alone") {
  Folder folder;
  const std::string path = control_path(folder.path, 2);
  auto socket = ControlSocket::listen(path, echo);
  REQUIRE(socket.ok());
  const auto say = [&](const std::string& text) {
    boost::asio::io_context io;
    boost::asio::local::stream_protocol::socket client(io);
    client.connect(boost::asio::local::stream_protocol::endpoint(path));
    boost::system::error_code ignored;
    boost::asio::write(client, boost::asio::buffer(text), ignored);
    client.shutdown(boost::asio::socket_base::shutdown_send, ignored);
    std::string reply;
    boost::asio::read(client, boost::asio::dynamic_buffer(reply), ignored);
    return reply;
  };
  CHECK(say("[1]\n").find("expected a line with a JSON object") != std::string::npos);
  CHECK(say("{\n").find("expected a line with a JSON object") != std::string::npos);
  CHECK(say("").empty());
  CHECK(say(std::string(1 << 20, 'x')).empty());
  CHECK(ask_server(path, {{"fine", 1}}, seconds(5)).ok());
}

TEST_CASE("the folder is the user's own or none") {
  Folder folder;
  const char* before = std::getenv("XDG_RUNTIME_DIR");
  const std::string kept = before ? before : "";
  setenv("XDG_RUNTIME_DIR", folder.path.c_str(), 1);
  CHECK(*control_folder(true) == folder.path);
  fs::permissions(folder.path, fs::perms::others_read, fs::perm_options::add);
  CHECK(control_folder(true).error().code == ErrorCode::kIo);
  setenv("XDG_RUNTIME_DIR", "/nowhere/at/all", 1);
  CHECK_FALSE(control_folder(true).ok());
  if (before)
    setenv("XDG_RUNTIME_DIR", kept.c_str(), 1);
  else
    unsetenv("XDG_RUNTIME_DIR");
}

}  // namespace
}  // namespace llmrt::server
