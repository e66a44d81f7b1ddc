// The same server over TLS and over a unix socket: answers, streams, what is refused, clients that say nothing, leave
// or do not keep to the protocol, certificates that change, and the socket's file. Certificates are made by openssl.
#include <sys/stat.h>
#include <boost/asio/ssl.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "tests/server/http_vectors.h"
#include "tests/server/running.h"

namespace llmrt::server {
namespace {

namespace fs = std::filesystem;
namespace ssl = boost::asio::ssl;
using Local = asio::local::stream_protocol;

// A folder that is gone with the test.
struct Folder {
  Folder() : path(fs::temp_directory_path() / fmt::format("llmrt_transport_{}", getpid())) {
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const char* name) const { return path / name; }
  fs::path path;
};

// A certificate of its own for this name; false where there is no openssl.
bool make_certificate(const Folder& folder, const std::string& name) {
  const std::string command = fmt::format(
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={} -keyout {} -out {} "
      "2>/dev/null",
      name, folder / (name + ".key").c_str(), folder / (name + ".crt").c_str());
  return std::system(command.c_str()) == 0;
}
ServerConfig tls_config(const Folder& folder, const std::string& name) {
  ServerConfig config;
  config.tls_certificate = folder / (name + ".crt").c_str();
  config.tls_key = folder / (name + ".key").c_str();
  return config;
}

// Bytes through any stream of Asio.
template <typename Stream>
std::string read_all_of(Stream& stream) {
  std::string all, bytes(65536, '\0');
  boost::system::error_code error;
  while (!error) all += bytes.substr(0, stream.read_some(asio::buffer(bytes), error));
  return all;
}
template <typename Stream>
std::string read_until(Stream& stream, std::string_view end) {
  std::string all;
  char byte = 0;
  boost::system::error_code error;
  while (!error && !all.ends_with(end))
    if (stream.read_some(asio::buffer(&byte, 1), error) == 1) all += byte;
  return all;
}
template <typename Stream>
void send_to(Stream& stream, std::string_view bytes) {
  boost::system::error_code ignored;
  asio::write(stream, asio::buffer(bytes), ignored);
}

class TlsClient {
 public:
  explicit TlsClient(uint16_t port, int version_max = 0) {
    if (version_max != 0) SSL_CTX_set_max_proto_version(context_.native_handle(), version_max);
    SSL_CTX_set_security_level(context_.native_handle(), 0);  // else the client itself refuses old versions
    stream_.emplace(io_, context_);
    stream_->lowest_layer().connect({asio::ip::address_v4::loopback(), port});
    stream_->handshake(ssl::stream_base::client, error_);
  }
  bool is_open() const { return !error_; }
  ssl::stream<tcp::socket>& stream() { return *stream_; }
  std::string exchange(std::string_view bytes) {
    send_to(*stream_, bytes);
    return read_all_of(*stream_);
  }
  std::string certificate_name() {
    X509* certificate = SSL_get1_peer_certificate(stream_->native_handle());
    char name[100] = {};
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, sizeof(name));
    X509_free(certificate);
    return name;
  }
  int version() { return SSL_version(stream_->native_handle()); }
  // Whether the server has said that it is over: nothing was cut off.
  bool was_closed_well() { return SSL_get_shutdown(stream_->native_handle()) & SSL_RECEIVED_SHUTDOWN; }

 private:
  asio::io_context io_;
  ssl::context context_{ssl::context::tls_client};
  std::optional<ssl::stream<tcp::socket>> stream_;
  boost::system::error_code error_;
};

class UnixClient {
 public:
  explicit UnixClient(const std::string& path) { socket_.connect(Local::endpoint(path), error_); }
  boost::system::error_code error() const { return error_; }
  Local::socket& socket() { return socket_; }
  std::string exchange(std::string_view bytes) {
    send_to(socket_, bytes);
    return read_all_of(socket_);
  }

 private:
  asio::io_context io_;
  Local::socket socket_{io_};
  boost::system::error_code error_;
};

const std::string kStream = R"({"prompt": "a", "max_tokens": 50, "stream": true})";

// An openssl and a server that can, or a skip.
#define NEEDS_CERTIFICATE(folder, name)                       \
  if (!Server::has_tls()) SKIP("expected a server with TLS"); \
  if (!make_certificate(folder, name)) SKIP("expected the program openssl")

TEST_CASE("over TLS answers are whole, streams end, and connections go on") {
  const Folder folder;
  NEEDS_CERTIFICATE(folder, "localhost");
  Running run(tls_config(folder, "localhost"));
  run.engine->tokens = {'h', 'i'};
  CHECK(run.server->urls() == std::vector<std::string>{fmt::format("https://127.0.0.1:{}", run.server->port())});
  TlsClient client(run.server->port());
  REQUIRE(client.is_open());
  CHECK(client.version() == TLS1_3_VERSION);
  for (int i = 0; i < 3; ++i) {
    send_to(client.stream(), get("/v1/models", ""));
    CHECK(status_of(read_until(client.stream(), "\r\n\r\n")) == 200);
    CHECK(read_until(client.stream(), "]}").find("letters") != std::string::npos);
  }
  const std::string stream = client.exchange(post("/v1/completions", kStream));
  CHECK(events_of(stream).back() == "[DONE]");
  CHECK(client.was_closed_well());
  TlsClient older(run.server->port(), TLS1_2_VERSION);
  REQUIRE(older.is_open());
  CHECK(older.version() == TLS1_2_VERSION);
  CHECK(body_of(older.exchange(post("/v1/chat/completions", kChat))).at("usage").at("completion_tokens") == 2);
  CHECK_FALSE(TlsClient(run.server->port(), TLS1_1_VERSION).is_open());
  // Large both ways, in small pieces of the client's.
  const std::string body =
      R"({"prompt": ")" + std::string(250, 'a') + R"(", "x": ")" + std::string(60'000, 'b') + "\"}";
  const std::string bytes = post("/tokenize", body);
  TlsClient pieces(run.server->port());
  for (size_t at = 0; at < bytes.size(); at += 1000) send_to(pieces.stream(), bytes.substr(at, 1000));
  CHECK(body_of(read_all_of(pieces.stream())).at("count") == 250);
  const std::string metrics = TlsClient(run.server->port()).exchange(get("/metrics"));
  CHECK(metrics.find("llmrt_tls_handshakes_total{result=\"ok\"} 4\n") != std::string::npos);
  CHECK(metrics.find("llmrt_tls_handshakes_total{result=\"failed\"} 1\n") != std::string::npos);
}

TEST_CASE("who speaks no TLS to a TLS port is told so or closed, and nobody else is disturbed") {
  const Folder folder;
  NEEDS_CERTIFICATE(folder, "localhost");
  ServerConfig config = tls_config(folder, "localhost");
  config.header_s = 1;
  Running run(config);
  for (const std::string& bytes : {get("/v1/models"), post("/v1/completions", kStream)}) {
    const std::string response = run.exchange(bytes);
    CHECK(status_of(response) == 400);
    CHECK(body_of(response).at("error").at("code") == "plain_http");
    CHECK(response.find("https://") != std::string::npos);
  }
  CHECK(run.exchange("SSH-2.0-OpenSSH_9.2\r\n").find("HTTP") == std::string::npos);
  CHECK(run.exchange(std::string(100, '\0')).find("HTTP") == std::string::npos);
  // Half a greeting, and none: closed after a second.
  Client half(run.server->port()), silent(run.server->port());
  half.send(std::string("\x16\x03\x01\x02\x00\x01", 6));
  CHECK(half.read_all().size() < 100);
  CHECK(silent.read_all().empty());
  CHECK(status_of(TlsClient(run.server->port()).exchange(get("/health"))) == 200);
  CHECK(run.engine->requests().empty());
  CHECK(run.lines.str().find("TLS: no handshake with 127.0.0.1: it took too long") != std::string::npos);
  CHECK(run.lines.str().find(" error ") == std::string::npos);
}

TEST_CASE("connections that have not greeted count, too") {
  const Folder folder;
  NEEDS_CERTIFICATE(folder, "localhost");
  ServerConfig config = tls_config(folder, "localhost");
  config.connections_max = 2;
  Running run(config);
  Client one(run.server->port()), two(run.server->port());
  bool is_closed = false;
  for (int i = 0; i < 100 && !is_closed; ++i) {  // until both have been accepted
    is_closed = !TlsClient(run.server->port()).is_open();
    if (!is_closed) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  CHECK(is_closed);
  one.close();
  bool is_open = false;
  for (int i = 0; i < 100 && !is_open; ++i) {
    is_open = TlsClient(run.server->port()).is_open();
    if (!is_open) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  CHECK(is_open);
}

TEST_CASE("a TLS client that goes away cancels its request, in good form or not") {
  const Folder folder;
  NEEDS_CERTIFICATE(folder, "localhost");
  Running run(tls_config(folder, "localhost"));
  run.engine->tokens.assign(200, 'a');
  run.engine->pause = std::chrono::milliseconds(30);
  const std::string bytes = post("/v1/completions", R"({"prompt": "a", "max_tokens": 200, "stream": true})");
  for (size_t i = 1; i <= 2; ++i) {
    TlsClient client(run.server->port());
    send_to(client.stream(), bytes);
    read_until(client.stream(), "data: ");
    boost::system::error_code ignored;
    if (i == 1) client.stream().shutdown(ignored);
    client.stream().lowest_layer().close(ignored);
    CHECK(run.engine->wait_cancelled(i));
  }
}

TEST_CASE("a certificate changes for new connections, and a bad one changes nothing") {
  const Folder folder;
  NEEDS_CERTIFICATE(folder, "first");
  REQUIRE(make_certificate(folder, "second"));
  Running run(tls_config(folder, "first"));
  TlsClient old(run.server->port());
  CHECK(old.certificate_name() == "first");
  const auto use = [&](const char* name, const char* key) {
    fs::copy_file(folder / name, folder / "first.crt", fs::copy_options::overwrite_existing);
    fs::copy_file(folder / key, folder / "first.key", fs::copy_options::overwrite_existing);
    run.server->reload();
  };
  use("second.crt", "second.key");
  CHECK(TlsClient(run.server->port()).certificate_name() == "second");
  CHECK(status_of(old.exchange(get("/health"))) == 200);
  const std::string garbage = folder / "garbage";
  std::ofstream(garbage) << "no certificate";
  use("garbage", "second.key");
  CHECK(TlsClient(run.server->port()).certificate_name() == "second");
  REQUIRE(make_certificate(folder, "third"));
  use("third.crt", "second.key");  // not a pair
  CHECK(TlsClient(run.server->port()).certificate_name() == "second");
  CHECK(run.lines.str().find("TLS: still the certificate from before: ") != std::string::npos);
}

TEST_CASE("files that are no certificate and key are errors before anything listens") {
  const Folder folder;
  NEEDS_CERTIFICATE(folder, "localhost");
  ServerConfig config = tls_config(folder, "localhost");
  config.port = 0;
  config.tls_key = config.tls_certificate;
  CHECK(Server::bind(config).error().message.find("private key") != std::string::npos);
  config.tls_certificate = folder / "none.crt";
  CHECK(Server::bind(config).error().message.find("none.crt: expected a certificate") != std::string::npos);
  REQUIRE(std::system(fmt::format("openssl ec -aes256 -passout pass:secret -in {} -out {} 2>/dev/null",
                                  folder / "localhost.key", folder / "locked.key")
                          .c_str()) == 0);
  config = tls_config(folder, "localhost");
  config.port = 0;
  config.tls_key = folder / "locked.key";
  CHECK(Server::bind(config).error().message.find("without a passphrase") != std::string::npos);
}

TEST_CASE("hostile requests end a TLS connection and one of a unix socket as they do a plain one") {
  const Folder folder;
  ServerConfig config;
  const bool with_tls = Server::has_tls() && make_certificate(folder, "localhost");
  if (with_tls) config = tls_config(folder, "localhost");
  config.unix_socket = folder / "socket";
  Running run(config);
  for (const HttpVector& vector : hostile_vectors()) {
    INFO(vector.name);
    for (const size_t cut : {size_t{0}, vector.bytes.size() / 2}) {
      const auto bytes = std::string_view(vector.bytes);
      if (with_tls) {
        TlsClient client(run.server->port());
        send_to(client.stream(), bytes.substr(0, cut));
        send_to(client.stream(), bytes.substr(cut));
        boost::system::error_code ignored;
        const std::string response = read_until(client.stream(), "\r\n\r\n");
        CHECK(status_of(response) == vector.status);
        client.stream().lowest_layer().shutdown(tcp::socket::shutdown_send, ignored);
        CHECK(read_all_of(client.stream()).find("HTTP/1.1") == std::string::npos);
      }
      if (vector.status == 403) continue;  // Host says nothing on a unix socket
      UnixClient client(config.unix_socket);
      send_to(client.socket(), bytes.substr(0, cut));
      send_to(client.socket(), bytes.substr(cut));
      client.socket().shutdown(Local::socket::shutdown_send);
      const std::string response = read_all_of(client.socket());
      CHECK(status_of(response) == vector.status);
      CHECK(response.find("HTTP/1.1", 8) == std::string::npos);
    }
  }
  CHECK(status_of(UnixClient(config.unix_socket).exchange(get("/health"))) == 200);
}

TEST_CASE("a server ends with TLS connections open, idle or silent") {
  const Folder folder;
  NEEDS_CERTIFICATE(folder, "localhost");
  auto run = std::make_unique<Running>(tls_config(folder, "localhost"));
  Client silent(run->server->port());
  TlsClient idle(run->server->port());
  send_to(idle.stream(), get("/health", ""));
  read_until(idle.stream(), "\r\n\r\n");
  const auto begin = std::chrono::steady_clock::now();
  run.reset();
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
}

TEST_CASE("a unix socket serves, whatever Host says, and its file is the owner's until the end") {
  const Folder folder;
  ServerConfig config;
  config.hosts = {};
  config.unix_socket = folder / "socket";
  {
    Running run(config);
    run.engine->tokens = {'h', 'i'};
    CHECK(run.server->urls() == std::vector<std::string>{"unix:" + config.unix_socket});
    struct stat info = {};
    REQUIRE(stat(config.unix_socket.c_str(), &info) == 0);
    CHECK((info.st_mode & 07777) == 0600);
    CHECK(body_of(UnixClient(config.unix_socket).exchange(post("/v1/chat/completions", kChat)))
              .at("usage")
              .at("completion_tokens") == 2);
    const std::string stream = UnixClient(config.unix_socket).exchange(post("/v1/completions", kStream));
    CHECK(events_of(stream).back() == "[DONE]");
    CHECK(status_of(UnixClient(config.unix_socket)
                        .exchange("GET /v1/models HTTP/1.1\r\nHost: any.example\r\nConnection: close\r\n\r\n")) == 200);
    config.port = 0;
    const auto second = Server::bind(config);
    REQUIRE_FALSE(second.ok());
    CHECK(second.error().message.find("in use") != std::string::npos);
    CHECK(status_of(UnixClient(config.unix_socket).exchange(get("/health"))) == 200);
  }
  CHECK_FALSE(fs::exists(config.unix_socket));
}

TEST_CASE("what a dead process has left is replaced, anything else is not") {
  const Folder folder;
  ServerConfig config;
  config.hosts = {};
  config.unix_socket = folder / "socket";
  config.unix_socket_mode = 0666;
  {
    asio::io_context io;
    Local::acceptor left(io, Local::endpoint(config.unix_socket));
  }
  REQUIRE(fs::exists(config.unix_socket));
  {
    Running run(config);
    struct stat info = {};
    REQUIRE(stat(config.unix_socket.c_str(), &info) == 0);
    CHECK((info.st_mode & 07777) == 0666);
    CHECK(status_of(UnixClient(config.unix_socket).exchange(get("/health"))) == 200);
  }
  std::ofstream(config.unix_socket) << "a file of somebody's";
  CHECK(Server::bind(config).error().message.find("expected a socket or nothing there") != std::string::npos);
  CHECK(fs::file_size(config.unix_socket) > 0);
  config.unix_socket = folder / std::string(120, 'x').c_str();
  CHECK(Server::bind(config).error().message.find("at most 107 bytes") != std::string::npos);
  config.unix_socket = folder / "nowhere/socket";
  CHECK_FALSE(Server::bind(config).ok());
}

TEST_CASE("a unix client that goes away cancels its request, and keys are checked there, too") {
  const Folder folder;
  ServerConfig config;
  config.unix_socket = folder / "socket";
  config.api_key = "a-key-of-some-length";
  Running run(config);
  run.engine->tokens.assign(200, 'a');
  run.engine->pause = std::chrono::milliseconds(30);
  CHECK(status_of(UnixClient(config.unix_socket).exchange(get("/v1/models"))) == 401);
  CHECK(run.lines.str().find("without a key from a unix socket") != std::string::npos);
  UnixClient client(config.unix_socket);
  send_to(client.socket(), post("/v1/completions", kStream, "x-api-key: a-key-of-some-length\r\n"));
  read_until(client.socket(), "data: ");
  client.socket().close();
  CHECK(run.engine->wait_cancelled(1));
}

}  // namespace
}  // namespace llmrt::server
