#include "server/transport.h"

#include <cstring>

namespace llmrt::server {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

}  // namespace

Transport::Transport(Socket socket, const std::shared_ptr<const TlsContext>& tls) : socket_(std::move(socket)) {
#ifdef LLMRT_TLS
  context_ = tls;
  // OpenSSL counts the context's users and does not change it.
  if (tls) tls_.emplace(socket_, const_cast<asio::ssl::context&>(tls->context));
#else
  (void)tls;
#endif
}

void Transport::set_options(int send_buffer_bytes) {
  Error ignored;  // no_delay: a unix socket has none
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::send_buffer_size(send_buffer_bytes), ignored);
}

void Transport::cancel() {
  Error ignored;
  socket_.cancel(ignored);
}

void Transport::close() {
  Error ignored;
  socket_.close(ignored);
}

std::string Transport::peer() const {
  Error error;
  const auto remote = socket_.remote_endpoint(error);
  if (error) return "a client that is gone";
  const int family = remote.protocol().family();
  if (family != AF_INET && family != AF_INET6) return "a unix socket";
  tcp::endpoint endpoint;
  if (remote.size() > endpoint.capacity()) return "an unknown address";
  std::memcpy(endpoint.data(), remote.data(), remote.size());
  endpoint.resize(remote.size());
  return endpoint.address().to_string();
}

void Transport::end_sending() {
  Error ignored;
  if (!is_tls()) socket_.shutdown(Socket::shutdown_send, ignored);
}

#ifdef LLMRT_TLS

bool Transport::is_tls() const {
  return tls_.has_value();
}

asio::awaitable<Transport::Greeting> Transport::greet(std::string* problem) {
  Error error;
  co_await tls_->async_handshake(asio::ssl::stream_base::server, asio::redirect_error(asio::use_awaitable, error));
  if (!error) co_return Greeting::kDone;
  *problem = error.message();
  const bool is_ssl = error.category() == asio::error::get_ssl_category();
  if (!is_ssl || ERR_GET_REASON(static_cast<unsigned long>(error.value())) != SSL_R_HTTP_REQUEST)
    co_return Greeting::kFailed;
  tls_.reset();
  co_return Greeting::kPlainHttp;
}

asio::awaitable<void> Transport::shut_down() {
  Error ignored;
  if (tls_ && socket_.is_open()) co_await tls_->async_shutdown(asio::redirect_error(asio::use_awaitable, ignored));
  socket_.shutdown(Socket::shutdown_both, ignored);
}

bool Transport::is_tls_error(const Error& error) {
  return error.category() == asio::error::get_ssl_category() ||
         error.category() == asio::ssl::error::get_stream_category();
}

#else

bool Transport::is_tls() const {
  return false;
}

asio::awaitable<Transport::Greeting> Transport::greet(std::string*) {
  co_return Greeting::kDone;
}

asio::awaitable<void> Transport::shut_down() {
  Error ignored;
  socket_.shutdown(Socket::shutdown_both, ignored);
  co_return;
}

bool Transport::is_tls_error(const Error&) {
  return false;
}

#endif

}  // namespace llmrt::server
