// Aim: a safetensors file is read as it is, and no header leads outside of the bytes or takes memory that they do not
// justify.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/weights/safetensors.h"
#include "tests/weights/gguf_bytes.h"

namespace llmrt::test {
namespace {

using Catch::Matchers::ContainsSubstring;

std::string file_of(const std::string& header, size_t data_bytes) {
  std::string data(data_bytes, '\0');
  for (size_t i = 0; i < data_bytes; ++i) data[i] = static_cast<char>(i);
  return raw<uint64_t>(header.size()) + header + data;
}
std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}
Error error_of(const std::string& bytes) {
  const auto file = parse_safetensors(as_span(bytes));
  REQUIRE_FALSE(file.ok());
  return file.error();
}
void expect(const std::string& header, size_t data_bytes, const std::string& message,
            ErrorCode code = ErrorCode::kCorruptFile) {
  // Spaces to a multiple of 8, as writers do: alignment is a case of its own.
  std::string padded = header;
  padded.resize((padded.size() + 7) / 8 * 8, ' ');
  const Error error = error_of(file_of(padded, data_bytes));
  CAPTURE(header);
  CHECK_THAT(error.message, ContainsSubstring(message));
  CHECK(error.code == code);
}

TEST_CASE("tensors come in order of their data, rows first") {
  std::string header = R"({"__metadata__":{"format":"pt"},"b":)" + entry("BF16", "[2,3]", "[8,20]") + R"(,"a":)" +
                       entry("F32", "[2]", "[0,8]") + R"(,"c":)" + entry("F16", "[]", "[20,22]") + "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string bytes = file_of(header, 22);
  REQUIRE(is_safetensors(as_span(bytes)));
  const auto file = parse_safetensors(as_span(bytes));
  REQUIRE(file.ok());
  REQUIRE(file->tensors.size() == 3);
  CHECK(file->tensors[0].name == "a");
  CHECK(file->tensors[1].name == "b");
  CHECK(describe(file->tensors[1]) == "[3, 2] bf16");
  CHECK(file->tensors[1].bytes.data() == as_span(bytes).data() + 8 + header.size() + 8);
  CHECK(file->tensors[1].bytes.size() == 12);
  CHECK(describe(file->tensors[2]) == "[1] f16");
  for (size_t size = 0; size < bytes.size(); ++size) CHECK_FALSE(parse_safetensors(as_span(bytes).first(size)).ok());
}

TEST_CASE("every bound of a header is kept") {
  CHECK_THAT(error_of("").message, ContainsSubstring("expected 8 bytes"));
  CHECK_THAT(error_of(raw<uint64_t>(1) + "{}").message, ContainsSubstring("expected a length in [2, 2], found 1"));
  CHECK_THAT(error_of(raw<uint64_t>(UINT64_MAX) + "{}").message, ContainsSubstring("expected a length in [2, 2]"));
  CHECK_THAT(error_of(raw<uint64_t>(kSafetensorsHeaderMax + 1) + std::string(kSafetensorsHeaderMax + 1, ' ')).message,
             ContainsSubstring("expected a length in [2, 16777216]"));
  expect("[]", 0, "header: expected an object, found an array of 0");
  expect("{} {}", 0, "invalid JSON");
  expect(R"({"a":[[[[[[[[[[1]]]]]]]]]]})", 0, "nested deeper than 8");
  expect(R"({"a":1,"a":1})", 0, R"("a" occurs twice)");
  expect(R"({"a":1})", 0, "tensor a: expected an object, found 1");
  expect(R"({"":{}})", 0, "expected a name");
  expect(R"({")" + std::string(kSafetensorsNameBytesMax + 1, 'a') + R"(":{}})", 0, "expected a name");
  expect(R"({"a\u0000b":{}})", 0, "expected a name");
}

TEST_CASE("a tensor's type, shape and place agree") {
  const auto one = [](const std::string& value) { return R"({"a":)" + value + "}"; };
  expect(one("{}"), 0, "dtype: expected a string, found nothing");
  expect(one(entry("F4", "[2]", "[0,1]")), 1, "dtype: expected F32, F16, BF16, found \"F4\"", ErrorCode::kUnsupported);
  expect(one(entry("F32", "2", "[0,8]")), 8, "shape: expected an array, found 2");
  expect(one(entry("F32", "[2,-1]", "[0,8]")), 8, "shape: expected positive integers, found -1");
  expect(one(entry("F32", "[0]", "[0,0]")), 0, "shape: expected positive integers, found 0");
  expect(one(entry("F32", "[1.5]", "[0,4]")), 4, "shape: expected positive integers, found 1.5");
  expect(one(entry("F32", "[1,1,1,1,2]", "[0,8]")), 8, "at most 4 dimensions, found 5", ErrorCode::kUnsupported);
  expect(one(entry("F32", "[4611686018427387904,4]", "[0,8]")), 8, "shape: expected a size in 64 bits");
  expect(one(entry("F32", "[2]", "[0]")), 8, "data_offsets: expected two integers");
  expect(one(entry("F32", "[2]", "[8,0]")), 8, "data_offsets: expected two integers in order");
  expect(one(entry("F32", "[2]", "[-8,0]")), 8, "data_offsets: expected two integers in order");
  expect(one(entry("F32", "[2]", "[0,9223372036854775807]")), 8, "up to 8, found [0, 9223372036854775807]");
  expect(one(entry("F32", "[2]", "[0,18446744073709551615]")), 8, "data_offsets: expected two integers");
  expect(one(entry("F32", "[3]", "[0,8]")), 8, "expected the 12 bytes of its shape and type, found 8");
  expect(one(entry("F32", "[2]", "[0,8]")), 12, "expected tensors up to byte 12, found the last one's end at 8");
  expect(one(entry("F32", "[2]", "[4,12]")), 12, "expected to begin at 0, where the one before ends, found 4");
  expect(R"({"a":)" + entry("F32", "[2]", "[0,8]") + R"(,"b":)" + entry("F32", "[2]", "[4,12]") + "}", 12,
         "tensor b: data_offsets: expected to begin at 8, where the one before ends, found 4");
}

TEST_CASE("numbers that are not aligned are refused, not read") {
  std::string header = R"({"a":)" + entry("F32", "[2]", "[0,8]") + "}";
  header.resize((header.size() + 7) / 8 * 8 + 1, ' ');
  const Error error = error_of(file_of(header, 8));
  CHECK(error.code == ErrorCode::kUnsupported);
  CHECK_THAT(error.message, ContainsSubstring("expected data at a multiple of 4 bytes"));
}

}  // namespace
}  // namespace llmrt::test
