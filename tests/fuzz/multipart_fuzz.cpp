// Any bytes as a multipart body in pieces of any size: the first byte is the length of a piece. What the parts hold,
// and whether the body is accepted, must not depend on the pieces, and the bounds must hold.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/check.h"
#include "core/base/utf8.h"
#include "server/multipart.h"

namespace {

using namespace llmrt;
using namespace llmrt::server;

struct Text : PartSink {
  std::string text;  // all that was told, with marks between
  size_t num_parts = 0, num_bytes = 0;

  Status begin(const PartHead& head) override {
    LLMRT_CHECK(++num_parts <= MultipartReader::kPartsMax, "few parts");
    LLMRT_CHECK(head.name.size() <= MultipartReader::kHeadBytesMax && is_valid_utf8(head.name), "a plain name");
    text += "\x01" + head.name + "\x02" + head.filename.value_or("none") + "\x03";
    return {};
  }
  Status add(std::string_view bytes) override {
    num_bytes += bytes.size();
    text += bytes;
    return {};
  }
  Status end() override {
    text += '\x04';
    return {};
  }
};

// Nothing is held of a body that was refused: how far it was read depends on the pieces.
std::string read(std::string_view body, size_t piece) {
  Text sink;
  MultipartReader reader("b-d", &sink);
  for (size_t at = 0; at < body.size(); at += piece)
    if (!reader.feed(body.substr(at, piece))) return "refused";
  LLMRT_CHECK(sink.num_bytes <= body.size(), "no more than there was");
  return reader.finish() ? sink.text : "refused";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string whole = read(body, body.size() + 1);
  LLMRT_CHECK(read(body, 1 + data[0] % 64) == whole, "the same in pieces");
  LLMRT_CHECK(read(body, 1) == whole, "the same byte by byte");
  return 0;
}
