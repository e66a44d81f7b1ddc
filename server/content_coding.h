// Content codings of HTTP (RFC 9110, 8.4): which one a body has, which ones a client takes, and the bytes themselves,
// by zlib. Pure; may take long for a large body, so not for an I/O thread.
//
// Streams are never coded: each event would have to be flushed, clients' decoders give late what they have, and the
// state of a coder is 256 KiB a stream.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"

namespace llmrt::server {

enum class ContentCoding { kIdentity, kGzip, kDeflate };
inline constexpr std::string_view kTakenCodings = "gzip, deflate";  // of bodies; answers are in gzip alone

// What all Content-Encoding lines of a request say, joined by commas. Nothing: a coding that is not taken, or several.
std::optional<ContentCoding> parse_content_encoding(std::string_view value);

enum class GzipWish { kNo, kMay, kMust };  // kMust: the client takes nothing else
// What all Accept-Encoding lines say. Where it takes neither gzip nor plain bytes it gets the latter.
GzipWish wants_gzip(std::string_view accept_encoding);

// A body may become this many times larger, or a MiB whatever it was: text of people and programs stays far below.
inline constexpr size_t kExpansionMax = 200, kExpansionFreeBytes = 1 << 20;

// What the body was before it was coded: one whole member and nothing behind it, with the right checksum. 400 for what
// is none, 413 for more than `bytes_max` or than the bound above. `hold` is told what the result takes as it grows; its
// error ends it.
using HoldBytes = std::function<std::optional<ApiError>(size_t num_bytes)>;
ApiResult<std::string> decode_body(std::string_view body, ContentCoding coding, size_t bytes_max,
                                   const HoldBytes& hold);

inline constexpr size_t kGzipBytesMin = 1 << 10;  // of an answer: below it gzip saves nothing worth a word
// The pieces as one gzip member; each is freed when it is coded.
std::vector<std::string> gzip(std::vector<std::string> pieces);

}  // namespace llmrt::server
