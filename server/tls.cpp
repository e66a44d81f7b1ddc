#include "server/tls.h"

#include <boost/asio.hpp>

#include "server/transport.h"

namespace llmrt::server {

#ifdef LLMRT_TLS

namespace {

namespace ssl = boost::asio::ssl;

Result<std::shared_ptr<const TlsContext>> load_context(const std::string& certificate, const std::string& key) {
  auto made = std::make_shared<TlsContext>();
  ssl::context& context = made->context;
  boost::system::error_code error;
  const auto problem = [&](const std::string& file, std::string_view expected) {
    return make_error(ErrorCode::kInvalidArgument, "TLS: {}: expected {}, found: {}", file, expected, error.message());
  };
  context.set_options(ssl::context::default_workarounds | SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE,
                      error);
  SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  // A key with a passphrase is an error, not a question at the terminal.
  context.set_password_callback([](size_t, ssl::context::password_purpose) { return std::string(); }, error);
  context.use_certificate_chain_file(certificate, error);
  if (error) return problem(certificate, "a certificate with its chain, in PEM");
  context.use_private_key_file(key, ssl::context::pem, error);
  if (error) return problem(key, "the certificate's private key, in PEM and without a passphrase");
  return std::shared_ptr<const TlsContext>(std::move(made));
}

}  // namespace

bool has_tls() {
  return true;
}

Status TlsFiles::reload() {
  auto context = load_context(certificate_, key_);
  if (!context) return context.error();
  std::lock_guard lock(mutex_);
  context_ = std::move(*context);
  return {};
}

#else

bool has_tls() {
  return false;
}

Status TlsFiles::reload() {
  return make_error(ErrorCode::kUnsupported,
                    "--tls-cert: expected a program with TLS, found one that was built without OpenSSL");
}

#endif

std::shared_ptr<const TlsContext> TlsFiles::current() const {
  std::lock_guard lock(mutex_);
  return context_;
}

}  // namespace llmrt::server
