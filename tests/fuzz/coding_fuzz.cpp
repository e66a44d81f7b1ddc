// Any bytes as a coded body, and as what the headers of codings say. A body that is accepted keeps the bounds and comes
// back when it is coded again; one that is coded here is always accepted.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/check.h"
#include "server/content_coding.h"

namespace {

using namespace llmrt;
using namespace llmrt::server;

constexpr size_t kBytesMax = 4 << 20;

ApiResult<std::string> decode(std::string_view body, ContentCoding coding) {
  size_t held_bytes = 0;
  const HoldBytes hold = [&](size_t num_bytes) -> std::optional<ApiError> {
    held_bytes = std::max(held_bytes, num_bytes);
    return std::nullopt;
  };
  ApiResult<std::string> decoded = decode_body(body, coding, kBytesMax, hold);
  LLMRT_CHECK(held_bytes <= 2 * kBytesMax + (64 << 10), "a body grows by doubling at most");
  if (const auto* text = std::get_if<std::string>(&decoded))
    LLMRT_CHECK(text->size() <= std::max(kExpansionFreeBytes, (kExpansionMax + 1) * body.size()), "the bound holds");
  else
    LLMRT_CHECK(std::get<ApiError>(decoded).status == 400 || std::get<ApiError>(decoded).status == 413, "a refusal");
  return decoded;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  (void)parse_content_encoding(input);
  (void)wants_gzip(input);
  for (const ContentCoding coding : {ContentCoding::kGzip, ContentCoding::kDeflate}) (void)decode(input, coding);

  std::vector<std::string> pieces;
  const size_t step = size == 0 ? 1 : 1 + data[0] * size_t{7};
  for (size_t at = 0; at < size; at += step) pieces.emplace_back(input.substr(at, step));
  std::string coded;
  for (const std::string& piece : gzip(std::move(pieces))) coded += piece;
  const ApiResult<std::string> decoded = decode(coded, ContentCoding::kGzip);
  const auto* text = std::get_if<std::string>(&decoded);
  LLMRT_CHECK((text && *text == input) || size > kExpansionFreeBytes, "what was coded comes back");
  return 0;
}
