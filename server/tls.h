// The certificate and key of a server that speaks TLS 1.2 and 1.3 (OpenSSL). Connections keep the context that they
// began with; reload() changes it for new ones. A build without OpenSSL (LLMRT_TLS=OFF) has the same interface and
// refuses to load. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "core/base/status.h"

namespace llmrt::server {

class TlsContext;  // transport.h looks inside

// Whether this build can.
bool has_tls();

class TlsFiles {
 public:
  TlsFiles(std::string certificate, std::string key) : certificate_(std::move(certificate)), key_(std::move(key)) {}

  bool is_used() const { return !certificate_.empty(); }
  // Reads both files (PEM; the certificate with its chain). Where that fails all stays as it was; the error names the
  // file.
  Status reload();
  std::shared_ptr<const TlsContext> current() const;  // null: plain connections

 private:
  const std::string certificate_, key_;
  mutable std::mutex mutex_;
  std::shared_ptr<const TlsContext> context_;
};

}  // namespace llmrt::server
