#include "server/control_socket.h"

#include <boost/asio.hpp>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>

#include "server/json_reader.h"

namespace llmrt::server {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;
using local = asio::local::stream_protocol;

constexpr size_t kQuestionBytesMax = 64 << 10, kReplyBytesMax = 16 << 20;
constexpr std::chrono::seconds kClientTime{5};
constexpr std::string_view kPrefix = "llmrt-", kEnding = ".sock";

// Runs what is under way on `io` until it ends or the time is over; false for the latter.
bool run_for(asio::io_context& io, std::chrono::seconds time) {
  io.restart();
  io.run_for(time);
  return io.stopped();
}

// One line, without its end.
Result<std::string> read_line(asio::io_context& io, local::socket& socket, size_t bytes_max,
                              std::chrono::seconds time) {
  std::string line;
  std::optional<boost::system::error_code> ended;
  asio::async_read_until(socket, asio::dynamic_buffer(line, bytes_max), '\n',
                         [&](boost::system::error_code error, size_t) { ended = error; });
  if (!run_for(io, time) || !ended) {
    boost::system::error_code ignored;
    socket.close(ignored);
    io.restart();
    io.run();
    return make_error(ErrorCode::kTimeout, "control socket: no answer within {} s", time.count());
  }
  if (*ended) return make_error(ErrorCode::kIo, "control socket: {}", ended->message());
  line.resize(line.find('\n'));
  return line;
}

Status write_line(asio::io_context& io, local::socket& socket, std::string line, std::chrono::seconds time) {
  line += '\n';
  std::optional<boost::system::error_code> ended;
  asio::async_write(socket, asio::buffer(line), [&](boost::system::error_code error, size_t) { ended = error; });
  if (!run_for(io, time) || !ended) {
    boost::system::error_code ignored;
    socket.close(ignored);
    io.restart();
    io.run();
    return make_error(ErrorCode::kTimeout, "control socket: nobody reads");
  }
  if (*ended) return make_error(ErrorCode::kIo, "control socket: {}", ended->message());
  return {};
}

bool is_our_user(local::socket& socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == getuid() || peer.uid == 0);
}

json::object error_object(const Error& error) {
  return {{"error", {{"code", error_code_name(error.code)}, {"message", error.message}}}};
}

bool is_own_folder(const std::string& folder) {
  struct stat status {};
  return lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == getuid() &&
         (status.st_mode & 077) == 0;
}

}  // namespace

Result<std::string> control_folder(bool makes) {
  const char* given = std::getenv("XDG_RUNTIME_DIR");
  const bool is_given = given && *given;
  const std::string folder = is_given ? given : fmt::format("/tmp/llmrt-{}", getuid());
  if (!is_given && makes) (void)mkdir(folder.c_str(), 0700);  // what is there instead is judged below
  if (!is_own_folder(folder))
    return make_error(ErrorCode::kIo, "control socket: expected {} to be a folder that only this user can open",
                      folder);
  return folder;
}

std::string control_path(const std::string& folder, uint16_t port) {
  return fmt::format("{}/{}{}{}", folder, kPrefix, port, kEnding);
}

std::vector<std::pair<uint16_t, std::string>> control_paths(const std::string& folder) {
  std::vector<std::pair<uint16_t, std::string>> found;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(kPrefix) || !name.ends_with(kEnding)) continue;
    const std::string_view digits =
        std::string_view(name).substr(kPrefix.size(), name.size() - kPrefix.size() - kEnding.size());
    uint16_t port = 0;
    const auto [at, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (problem == std::errc() && at == digits.data() + digits.size()) found.emplace_back(port, it->path().string());
  }
  std::ranges::sort(found);
  return found;
}

struct ControlSocket::Impl {
  asio::io_context talk_io;  // of the connection under way; outlives the other, whose operations hold sockets of it
  asio::io_context io;       // of the acceptor
  local::acceptor acceptor{io};
  std::string path;
  Answer answer;
  std::thread thread;

  void accept() {
    acceptor.async_accept(talk_io, [this](boost::system::error_code error, local::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (!error) talk(socket);
      accept();
    });
  }
  void talk(local::socket& socket) {
    if (!is_our_user(socket)) return;
    const Result<std::string> line = read_line(talk_io, socket, kQuestionBytesMax, kClientTime);
    if (!line) return;
    const auto value = read_json(*line);
    const json::object reply = value.ok() && value->is_object()
                                   ? answer(value->as_object())
                                   : error_object(make_error(ErrorCode::kInvalidArgument,
                                                             "control socket: expected a line with a JSON object"));
    (void)write_line(talk_io, socket, json::serialize(reply), kClientTime);
  }
};

ControlSocket::ControlSocket(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<ControlSocket>> ControlSocket::listen(const std::string& path, Answer answer) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->answer = std::move(answer);
  const auto failed = [&](const std::string& why) {
    return make_error(ErrorCode::kIo, "control socket: {}: {}", path, why);
  };
  if (path.size() >= sizeof(sockaddr_un{}.sun_path)) return failed("a path that is too long");
  boost::system::error_code error;
  {
    local::socket other(impl->io);
    other.connect(local::endpoint(path), error);
    if (!error) return failed("another server listens there");
  }
  struct stat status {};
  if (lstat(path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode) || status.st_uid != getuid()) return failed("expected a socket of this user");
    unlink(path.c_str());
  }
  impl->acceptor.open(local(), error);
  if (error) return failed(error.message());
  (void)fchmod(impl->acceptor.native_handle(), 0600);  // before there is a file: its mode from the beginning
  impl->acceptor.bind(local::endpoint(path), error);
  if (error) return failed(error.message());
  if (chmod(path.c_str(), 0600) != 0) return failed(std::strerror(errno));
  impl->acceptor.listen(16, error);
  if (error) return failed(error.message());
  impl->accept();
  impl->thread = std::thread([raw = impl.get()] { raw->io.run(); });
  return std::unique_ptr<ControlSocket>(new ControlSocket(std::move(impl)));
}

ControlSocket::~ControlSocket() {
  impl_->io.stop();
  impl_->talk_io.stop();
  impl_->thread.join();
  unlink(impl_->path.c_str());
}

Result<json::object> ask_server(const std::string& path, const json::object& question, std::chrono::seconds timeout) {
  if (path.size() >= sizeof(sockaddr_un{}.sun_path))
    return make_error(ErrorCode::kIo, "control socket: {}: too long", path);
  asio::io_context io;
  local::socket socket(io);
  boost::system::error_code error;
  socket.connect(local::endpoint(path), error);
  if (error) return make_error(ErrorCode::kNotFound, "no server listens at {}: {}", path, error.message());
  if (Status status = write_line(io, socket, json::serialize(question), kClientTime); !status) return status.error();
  const Result<std::string> line = read_line(io, socket, kReplyBytesMax, timeout);
  if (!line) return line.error();
  auto value = read_json(*line);
  if (!value.ok() || !value->is_object())
    return make_error(ErrorCode::kIo, "control socket: {}: expected a JSON object, found another answer", path);
  json::object reply = std::move(value->as_object());
  if (const json::value* told = reply.if_contains("error"); told && told->is_object()) {
    const json::value* message = told->as_object().if_contains("message");
    return make_error(ErrorCode::kInvalidArgument, "{}",
                      message && message->is_string() ? std::string_view(message->as_string()) : "the server refused");
  }
  return reply;
}

}  // namespace llmrt::server
