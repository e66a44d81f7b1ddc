#include "server/content_coding.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <new>

#include "core/base/check.h"
#include "server/header_list.h"

namespace llmrt::server {
namespace {

constexpr int kWindowBits = 15, kGzipForm = 16;
constexpr size_t kPieceBytes = 64 << 10;

// zlib counts in 32 bits.
uInt part_of(size_t num_bytes) {
  return static_cast<uInt>(std::min<size_t>(num_bytes, std::numeric_limits<uInt>::max()));
}
Bytef* bytes_of(const char* text) {
  return reinterpret_cast<Bytef*>(const_cast<char*>(text));  // which zlib reads alone
}

template <int (*kEnd)(z_stream*)>
struct Stream : z_stream {
  Stream() : z_stream{} {}
  Stream(const Stream&) = delete;
  ~Stream() { kEnd(this); }
};

ApiError broken(ContentCoding coding, std::string_view what) {
  return http_error(400, "bad_request",
                    fmt::format("HTTP: expected a body in {} as Content-Encoding says: {}",
                                coding == ContentCoding::kGzip ? "gzip" : "deflate (RFC 1950)", what));
}

}  // namespace

std::optional<ContentCoding> parse_content_encoding(std::string_view value) {
  std::optional<ContentCoding> found;
  while (!value.empty()) {
    const std::string_view name = cut_element(&value, ',');
    if (name.empty()) continue;
    if (found) return std::nullopt;
    if (same_word(name, "gzip") || same_word(name, "x-gzip"))
      found = ContentCoding::kGzip;
    else if (same_word(name, "deflate"))
      found = ContentCoding::kDeflate;
    else if (same_word(name, "identity"))
      found = ContentCoding::kIdentity;
    else
      return std::nullopt;
  }
  return found.value_or(ContentCoding::kIdentity);
}

GzipWish wants_gzip(std::string_view accept_encoding) {
  std::optional<double> gzip, identity, others;
  while (!accept_encoding.empty()) {
    std::string_view element = cut_element(&accept_encoding, ',');
    const std::string_view name = cut_element(&element, ';');
    double weight = 1;
    while (!element.empty()) {
      std::string_view value = cut_element(&element, ';');
      const std::string_view parameter = cut_element(&value, '=');
      if (same_word(parameter, "q")) weight = parse_weight(value);
    }
    if (same_word(name, "gzip") || same_word(name, "x-gzip")) gzip = std::max(gzip.value_or(0), weight);
    if (same_word(name, "identity")) identity = weight;
    if (name == "*") others = weight;
  }
  const double of_gzip = gzip ? *gzip : others.value_or(0);
  if (of_gzip == 0) return GzipWish::kNo;
  // Plain bytes are always taken unless they are said not to be, and are preferred only where that is said.
  const bool takes_plain = identity ? *identity > 0 : !(others && *others == 0);
  if (!takes_plain) return GzipWish::kMust;
  return identity && *identity > of_gzip ? GzipWish::kNo : GzipWish::kMay;
}

ApiResult<std::string> decode_body(std::string_view body, ContentCoding coding, size_t bytes_max,
                                   const HoldBytes& hold) {
  Stream<inflateEnd> stream;
  if (inflateInit2(&stream, coding == ContentCoding::kGzip ? kWindowBits + kGzipForm : kWindowBits) != Z_OK)
    throw std::bad_alloc();
  const auto piece = std::make_unique<char[]>(kPieceBytes);
  std::string text;
  size_t taken = 0;
  for (int state = Z_OK; state != Z_STREAM_END;) {
    const uInt given = part_of(body.size() - taken);
    stream.next_in = bytes_of(body.data() + taken);
    stream.avail_in = given;
    stream.next_out = bytes_of(piece.get());
    stream.avail_out = kPieceBytes;
    state = inflate(&stream, Z_NO_FLUSH);
    taken += given - stream.avail_in;
    const size_t made = kPieceBytes - stream.avail_out;
    if (state == Z_MEM_ERROR) throw std::bad_alloc();
    if (state == Z_NEED_DICT) return broken(coding, "it needs a dictionary");
    if (state == Z_DATA_ERROR) return broken(coding, stream.msg ? stream.msg : "it is none");
    if (state == Z_BUF_ERROR || (state == Z_OK && made == 0 && taken == body.size()))
      return broken(coding, "it ends too early");
    LLMRT_CHECK(state == Z_OK || state == Z_STREAM_END, "zlib says what it documents");
    const size_t size = text.size() + made;
    if (size > bytes_max)
      return http_error(413, "body_too_large",
                        fmt::format("HTTP: expected a body of at most {} bytes, decoded", bytes_max));
    if (size > kExpansionFreeBytes && size / kExpansionMax > taken)
      return http_error(413, "body_too_large",
                        fmt::format("HTTP: expected a body that decodes to at most {} times its bytes", kExpansionMax));
    text.append(piece.get(), made);
    if (std::optional<ApiError> error = hold(text.capacity())) return *std::move(error);
  }
  if (taken < body.size()) return broken(coding, fmt::format("{} bytes stand behind its end", body.size() - taken));
  return text;
}

std::vector<std::string> gzip(std::vector<std::string> pieces) {
  Stream<deflateEnd> stream;
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kWindowBits + kGzipForm, /*memory level=*/8,
                   Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::bad_alloc();
  std::vector<std::string> coded;
  std::string out(kPieceBytes, '\0');
  size_t filled = 0;
  // All of `bytes`, or with Z_FINISH all that is left.
  const auto code = [&](std::string_view bytes, int flush) {
    int state = Z_OK;
    do {
      const uInt given = part_of(bytes.size());
      stream.next_in = bytes_of(bytes.data());
      stream.avail_in = given;
      stream.next_out = bytes_of(out.data() + filled);
      stream.avail_out = static_cast<uInt>(kPieceBytes - filled);
      state = deflate(&stream, flush);
      LLMRT_CHECK(state != Z_STREAM_ERROR, "a stream that was begun");
      bytes.remove_prefix(given - stream.avail_in);
      filled = kPieceBytes - stream.avail_out;
      if (filled < kPieceBytes) continue;
      coded.push_back(out);
      filled = 0;
    } while (!bytes.empty() || (flush == Z_FINISH && state != Z_STREAM_END));
  };
  for (std::string& piece : pieces) {
    if (!piece.empty()) code(piece, Z_NO_FLUSH);
    piece = {};
  }
  code({}, Z_FINISH);
  out.resize(filled);
  out.shrink_to_fit();
  if (!out.empty()) coded.push_back(std::move(out));
  return coded;
}

}  // namespace llmrt::server
