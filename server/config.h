// Every limit of the HTTP side, units in the names. Plain data; docs/api.md lists them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "server/metrics_format.h"
#include "server/slow_clients.h"

namespace llmrt::server {

struct ServerConfig {
  std::vector<std::string> hosts = {"127.0.0.1"};  // names or addresses; all addresses of each
  uint16_t port = 8000;                            // 0: any free one
  std::string unix_socket;                         // a path to listen on, without TLS; empty: none
  unsigned unix_socket_mode = 0600;
  std::string tls_certificate, tls_key;           // files in PEM; both or none
  std::vector<std::string> allowed_hosts = {};    // beside loopback names (hosts.h); "*": any
  std::vector<std::string> allowed_origins = {};  // of browser pages (cors.h); "*": any
  std::string version;                            // of the program, for /version
  std::string api_key_file;                       // of the keys that clients need (api_keys.h); empty: none
  std::string api_key;                            // one more; neither: no key is needed
  bool open_metrics = false;                      // /metrics needs no key
  MetricsCompat metrics_compat = MetricsCompat::kNone;
  int io_threads = 2;
  int work_threads = 2;  // parsing, templates, tokenising

  size_t header_bytes_max = 16 << 10;
  size_t headers_max = 100;
  size_t body_bytes_max = 8 << 20;
  bool compression = true;            // bodies may be coded, and answers are where clients take it (content_coding.h)
  bool strict_fields = false;         // of bodies: unknown ones are refused, not ignored
  bool keeps_client_headers = false;  // /v1/messages: a header line that agents put into the system text stays
  // A folder for /v1/files and /v1/batches (file_store.h); empty: there are none.
  std::string files_dir;
  uint64_t files_bytes_max = uint64_t{10} << 30;
  uint32_t batch_in_flight = 64;  // lines of batches in the engine at once
  size_t chunk_extension_bytes_max = 256, chunk_extensions_bytes_max = 4 << 10;
  size_t connections_max = 4096;
  // What all clients together may make the server hold: bodies, waiting requests, answers (client_memory.h).
  uint64_t client_memory_bytes = uint64_t{1} << 30;
  size_t ahead_bytes_max = 64 << 10;  // that a client may send before its answer is over
  int send_buffer_bytes = 256 << 10;  // of a socket, in the kernel

  int idle_s = 75;              // between requests of a connection: longer than load balancers keep theirs
  int header_s = 10;            // from the first byte of a request to the end of its header
  int body_s = 60;              // for the whole body
  size_t body_rate_min = 1024;  // bytes a second, after the first five seconds
  // A client is given up when a write makes no progress for this long, or when a write that takes this long has sent
  // less than answer_rate_min bytes a second or has more than outbox_bytes_max waiting behind it.
  int write_s = 30;
  double answer_rate_min = 64 << 10;
  size_t outbox_bytes_max = 256 << 10;
  SlowClients slow_clients = SlowClients::kBuffer;  // what is done about streams that are read too slowly
  int comment_s = 15;      // silence of a stream before a comment line keeps proxies awake; 0: none
  int drain_notice_s = 2;  // after SIGTERM, with the port still open: load balancers read in /ready that it will close
  int grace_s = 30;        // for open answers after that
  int log_lines_max = 20;  // a second, of refusals that clients cause
};

}  // namespace llmrt::server
