// The bytes of one connection: TCP or a unix socket, with TLS over it or plain. An AsyncReadStream and AsyncWriteStream
// in Asio's sense; a plain one costs a comparison more than the socket itself. One owner, on its strand.
#pragma once

#include <boost/asio.hpp>
#ifdef LLMRT_TLS
#include <boost/asio/ssl.hpp>
#endif

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace llmrt::server {

#ifdef LLMRT_TLS
class TlsContext {
 public:
  boost::asio::ssl::context context{boost::asio::ssl::context::tls_server};
};
#else
class TlsContext {};
#endif

class Transport {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using executor_type = Socket::executor_type;
  using Error = boost::system::error_code;

  // `tls`: null for plain bytes.
  Transport(Socket socket, const std::shared_ptr<const TlsContext>& tls);
  Transport(const Transport&) = delete;

  executor_type get_executor() { return socket_.get_executor(); }
  bool is_open() const { return socket_.is_open(); }
  // No delay (TCP), and the kernel's buffer for what is sent.
  void set_options(int send_buffer_bytes);
  // Ends what is under way as operation_aborted; the connection goes on. A write that was cut so must be the last one.
  void cancel();
  void close();
  // "127.0.0.1", or "a unix socket".
  std::string peer() const;

  bool is_tls() const;
  enum class Greeting { kDone, kFailed, kPlainHttp };
  // The TLS handshake; to be called once, before anything else. kPlainHttp: the client speaks HTTP without TLS, and so
  // does this transport from now on; what it sent is lost. On failure `problem` says why.
  boost::asio::awaitable<Greeting> greet(std::string* problem);
  // Plain alone: says that nothing more is sent, while the other side may go on.
  void end_sending();
  // Says that all is over, with TLS by close_notify, and waits for the other side's as long as a deadline lets it.
  boost::asio::awaitable<void> shut_down();
  // The connection broke below HTTP: the other side is gone, or does not keep to TLS.
  static bool is_tls_error(const Error& error);

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
#ifdef LLMRT_TLS
    if (tls_) return tls_->async_read_some(buffers, std::forward<Token>(token));
#endif
    return socket_.async_read_some(buffers, std::forward<Token>(token));
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
#ifdef LLMRT_TLS
    if (tls_) return tls_->async_write_some(buffers, std::forward<Token>(token));
#endif
    return socket_.async_write_some(buffers, std::forward<Token>(token));
  }

 private:
  Socket socket_;
#ifdef LLMRT_TLS
  std::shared_ptr<const TlsContext> context_;
  std::optional<boost::asio::ssl::stream<Socket&>> tls_;
#endif
};

}  // namespace llmrt::server
