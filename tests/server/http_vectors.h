// Requests that a parser may read in two ways, and the status that each must get. After any of them the connection is
// closed: the bytes behind it cannot be trusted.
#pragma once

#include <string>
#include <vector>

namespace llmrt::server {

struct HttpVector {
  const char* name;
  std::string bytes;
  int status;
};

inline std::vector<HttpVector> hostile_vectors() {
  const std::string line = "POST /tokenize HTTP/1.1\r\n", host = "Host: localhost\r\n",
                    type = "Content-Type: application/json\r\n";
  const std::string smuggled = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
  const auto post = [&](const std::string& headers) { return line + host + type + headers + "\r\n" + smuggled; };
  std::vector<HttpVector> vectors = {
      {"transfer encoding unknown", post("Transfer-Encoding: xchunked\r\n"), 501},
      {"transfer encoding list", post("Transfer-Encoding: gzip, chunked\r\n"), 501},
      {"transfer encoding after chunked", post("Transfer-Encoding: chunked, identity\r\n"), 501},
      {"transfer encoding identity with length", post("Transfer-Encoding: identity\r\nContent-Length: 2\r\n"), 501},
      {"transfer encoding twice", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 501},
      {"a scheme without more", "GET http HTTP/1.1\r\n" + host + "\r\n", 400},
      {"a scheme with half a separator", "GET https:/ HTTP/1.1\r\n" + host + "\r\n", 400},
      {"a scheme without a host", "GET http:// HTTP/1.1\r\n" + host + "\r\n", 400},
      {"length and chunked", post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400},
      {"chunked in HTTP/1.0",
       "POST /tokenize HTTP/1.0\r\n" + host + type + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"two equal lengths", post("Content-Length: 2\r\nContent-Length: 2\r\n"), 400},
      {"two lengths", post("Content-Length: 2\r\nContent-Length: 3\r\n"), 400},
      {"list of lengths", post("Content-Length: 2, 2\r\n"), 400},
      {"signed length", post("Content-Length: +2\r\n"), 400},
      {"negative length", post("Content-Length: -2\r\n"), 400},
      {"hexadecimal length", post("Content-Length: 0x2\r\n"), 400},
      {"empty length", post("Content-Length: \r\n"), 400},
      {"length beyond 64 bits", post("Content-Length: 18446744073709551617\r\n"), 400},
      {"folded header", line + host + "X: a\r\n b\r\n\r\n" + smuggled, 400},
      {"folded transfer encoding", post("Transfer-Encoding:\r\n chunked\r\n"), 501},
      {"no host", line + type + "\r\n" + smuggled, 400},
      {"two hosts", line + host + host + "\r\n" + smuggled, 400},
      {"host with a slash", line + "Host: a/b\r\n\r\n" + smuggled, 400},
      {"host with a query", line + "Host: a?b\r\n\r\n" + smuggled, 400},
      {"host with a fragment", line + "Host: a#b\r\n\r\n" + smuggled, 400},
      {"host with credentials", line + "Host: u@a\r\n\r\n" + smuggled, 400},
      {"host with a space", line + "Host: a b\r\n\r\n" + smuggled, 400},
      {"empty host", line + "Host: \r\n\r\n" + smuggled, 400},
      {"absolute target with credentials", "GET http://u@localhost/health HTTP/1.1\r\n" + host + "\r\n" + smuggled,
       400},
      {"absolute target without host", "GET http:///health HTTP/1.1\r\n" + host + "\r\n" + smuggled, 400},
      {"absolute target of another scheme", "GET ftp://localhost/health HTTP/1.1\r\n" + host + "\r\n" + smuggled, 400},
      {"absolute target without Host header", "GET http://localhost/health HTTP/1.1\r\n\r\n" + smuggled, 400},
      {"absolute target of a foreign host", "GET http://evil.example/health HTTP/1.1\r\n" + host + "\r\n" + smuggled,
       403},
      {"foreign host", "GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n" + smuggled, 403},
      {"authority target", "CONNECT a:80 HTTP/1.1\r\n" + host + "\r\n" + smuggled, 400},
      {"asterisk target", "GET * HTTP/1.1\r\n" + host + "\r\n" + smuggled, 400},
      {"high byte in target", "GET /heal\xff HTTP/1.1\r\n" + host + "\r\n" + smuggled, 400},
      {"space in target", "GET /a b HTTP/1.1\r\n" + host + "\r\n" + smuggled, 400},
      {"space before colon", line + host + "X : a\r\n\r\n" + smuggled, 400},
      {"no colon", line + host + "X\r\n\r\n" + smuggled, 400},
      {"empty name", line + host + ": a\r\n\r\n" + smuggled, 400},
      {"bare line feed", "GET /health HTTP/1.1\nHost: a\n\n" + smuggled, 400},
      {"bare carriage return", line + host + "X: a\rb\r\n\r\n" + smuggled, 400},
      {"NUL in a header", line + host + std::string("X: a\0b\r\n\r\n", 10) + smuggled, 400},
      {"control byte in a header",
       line + host +
           "X: a\x01"
           "b\r\n\r\n" +
           smuggled,
       400},
      {"version 2.0", "GET /health HTTP/2.0\r\n" + host + "\r\n" + smuggled, 505},
      {"version 1.9", "GET /health HTTP/1.9\r\n" + host + "\r\n" + smuggled, 505},
      {"no version", "GET /health\r\n" + host + "\r\n" + smuggled, 400},
      {"method with a control byte", std::string("G\x01T /health HTTP/1.1\r\n") + host + "\r\n" + smuggled, 400},
      {"many empty lines first",
       "\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\nGET /health HTTP/1.1\r\n" + host + "\r\n" + smuggled, 400},
      {"bare line feed first", "\nGET /health HTTP/1.1\r\n" + host + "\r\n" + smuggled, 400},
      {"preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string(9, '\0'), 505},
      {"unknown expectation", post("Expect: the-unexpected\r\n"), 417},
      {"content encoding unknown", post("Content-Encoding: br\r\nContent-Length: 2\r\n"), 415},
      {"content encodings in a list", post("Content-Encoding: gzip, gzip\r\nContent-Length: 2\r\n"), 415},
      {"content encodings in two lines",
       post("Content-Encoding: gzip\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n"), 415},
      {"two content types", post("Content-Type: text/plain\r\n"), 400},
      {"body too large by its length", line + host + type + "Content-Length: 9000000\r\n\r\n{", 413},
      {"bad chunk size", line + host + type + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", 400},
      {"chunk longer than said", line + host + type + "Transfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n", 400},
      {"chunk size overflow", line + host + type + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n",
       400},
      {"long chunk extension",
       line + host + type + "Transfer-Encoding: chunked\r\n\r\n2;x=" + std::string(300, 'a') + "\r\n{}\r\n0\r\n\r\n",
       400},
  };
  std::string many = line + host;
  for (int i = 0; i < 101; ++i) many += "X: a\r\n";
  vectors.push_back({"too many headers", many + "\r\n", 431});
  vectors.push_back({"header too large", line + host + "X: " + std::string(17000, 'a') + "\r\n\r\n", 431});
  return vectors;
}

}  // namespace llmrt::server
