// Aim: no GGUF bytes, however wrong, are read past their end or believed. Method: a small valid file, made wrong in one
// place a case, and the error compared with the words that must be in it; then every cut and every bit flip of it.

#include "core/weights/gguf.h"

#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "tests/weights/gguf_bytes.h"

using namespace llmrt;
using namespace llmrt::test;
using Catch::Matchers::ContainsSubstring;

namespace {

// Zeros that take no memory until they are written, as of a sparse file.
class SparseBytes {
 public:
  explicit SparseBytes(size_t size) : size_(size) {
    void* const data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    data_ = data == MAP_FAILED ? nullptr : static_cast<char*>(data);
  }
  ~SparseBytes() {
    if (data_) munmap(data_, size_);
  }
  SparseBytes(const SparseBytes&) = delete;
  SparseBytes& operator=(const SparseBytes&) = delete;

  bool exists() const { return data_ != nullptr; }
  void write(size_t at, const std::string& bytes) { std::memcpy(data_ + at, bytes.data(), bytes.size()); }
  std::span<const std::byte> all() const { return std::as_bytes(std::span(data_, size_)); }

 private:
  size_t size_;
  char* data_ = nullptr;
};

// One pair, two tensors: enough for every table.
GgufBytes small_file() {
  GgufBytes file;
  file.string("general.architecture", "llama");
  file.tensor_f32("first", {16, 2}, 1.5f);
  file.tensor_f32("second", {16}, 2.5f);
  return file;
}

struct HostileCase {
  const char* name;
  ErrorCode code;
  const char* message;  // must be part of the error
  std::function<void(GgufBytes&)> spoil;
};

const HostileCase kHostileCases[] = {
    {"bad magic", ErrorCode::kUnsupported, "expected \"GGUF\"", [](auto& f) { f.magic = "GGML"; }},
    {"version 0", ErrorCode::kCorruptFile, "version: expected 2 or 3, found 0", [](auto& f) { f.version = 0; }},
    {"version 1", ErrorCode::kUnsupported, "expected 2 or 3, found 1", [](auto& f) { f.version = 1; }},
    {"future version", ErrorCode::kUnsupported, "expected 2 or 3, found 4", [](auto& f) { f.version = 4; }},
    {"big-endian file", ErrorCode::kUnsupported, "big-endian", [](auto& f) { f.version = 0x03000000; }},
    {"pair count beyond the file", ErrorCode::kCorruptFile, "found 18446744073709551615",
     [](auto& f) { f.num_pairs = UINT64_MAX; }},
    {"one pair too many", ErrorCode::kCorruptFile, "", [](auto& f) { f.num_pairs = 2; }},
    {"tensor count beyond the file", ErrorCode::kCorruptFile, "tensor table: expected at most",
     [](auto& f) { f.num_tensors = 1ull << 60; }},
    {"one tensor too many", ErrorCode::kCorruptFile, "", [](auto& f) { f.num_tensors = 3; }},
    {"key longer than the file", ErrorCode::kCorruptFile, "metadata key 2 of 2",
     [](auto& f) { f.pairs.push_back(raw<uint64_t>(1ull << 40) + "key"); }},
    {"key longer than 65535", ErrorCode::kCorruptFile, "expected at most 65535",
     [](auto& f) { f.string(std::string(65536, 'k'), "v"); }},
    {"empty key", ErrorCode::kCorruptFile, "expected printable", [](auto& f) { f.string("", "v"); }},
    {"key with a control character", ErrorCode::kCorruptFile, "found \"a\\x1bb\"",
     [](auto& f) {
       f.string(
           "a\x1b"
           "b",
           "v");
     }},
    {"bad value type", ErrorCode::kCorruptFile, "metadata k: expected a value type below 13, found 13",
     [](auto& f) { f.pair("k", 13, "xxxxxxxx"); }},
    {"bad element type", ErrorCode::kCorruptFile, "metadata k: expected a value type below 13, found 99",
     [](auto& f) { f.pair("k", kArray, raw<uint32_t>(99) + raw<uint64_t>(0)); }},
    {"array of arrays", ErrorCode::kUnsupported, "array of arrays",
     [](auto& f) { f.pair("k", kArray, raw<uint32_t>(kArray) + raw<uint64_t>(1)); }},
    {"string value longer than the file", ErrorCode::kCorruptFile, "metadata k: length at byte",
     [](auto& f) { f.pair("k", kString, raw<uint64_t>(1ull << 20)); }},
    {"string value of 2^64 - 1", ErrorCode::kCorruptFile, "metadata k: length at byte",
     [](auto& f) { f.pair("k", kString, raw<uint64_t>(UINT64_MAX)); }},
    {"number array longer than the file", ErrorCode::kCorruptFile, "metadata k: the file ends",
     [](auto& f) { f.pair("k", kArray, raw<uint32_t>(kU32) + raw<uint64_t>(1 << 20)); }},
    {"number array whose size wraps", ErrorCode::kCorruptFile, "metadata k: expected at most 67108864 bytes",
     [](auto& f) { f.pair("k", kArray, raw<uint32_t>(kU64) + raw<uint64_t>(1ull << 61)); }},
    {"string array longer than the file", ErrorCode::kCorruptFile, "metadata k: expected at most",
     [](auto& f) { f.pair("k", kArray, raw<uint32_t>(kString) + raw<uint64_t>(1ull << 40)); }},
    {"bool of 2", ErrorCode::kCorruptFile, "expected a bool of 0 or 1, found 2",
     [](auto& f) { f.pair("k", kBool, raw<uint8_t>(2)); }},
    {"duplicate key", ErrorCode::kCorruptFile, "metadata general.architecture: found twice",
     [](auto& f) { f.string("general.architecture", "qwen2"); }},
    {"alignment 0", ErrorCode::kCorruptFile, "general.alignment", [](auto& f) { f.u32("general.alignment", 0); }},
    {"alignment 48", ErrorCode::kCorruptFile, "expected a power of two, found 48",
     [](auto& f) { f.u32("general.alignment", 48); }},
    {"alignment 4", ErrorCode::kCorruptFile, "general.alignment", [](auto& f) { f.u32("general.alignment", 4); }},
    {"alignment of the wrong type", ErrorCode::kCorruptFile, "general.alignment: expected u32, found u64",
     [](auto& f) { f.pair("general.alignment", kU64, raw<uint64_t>(32)); }},
    {"alignment that the offsets do not follow", ErrorCode::kCorruptFile,
     "tensor second: expected its data at offset 256", [](auto& f) { f.u32("general.alignment", 256); }},
    {"alignment that wraps the padding", ErrorCode::kCorruptFile, "tensor first",
     [](auto& f) { f.u32("general.alignment", 1u << 31); }},
    {"tensor name of 65", ErrorCode::kCorruptFile, "tensor 1 of 2: length at byte",
     [](auto& f) { f.tensors[0].name = std::string(65, 'n'); }},
    {"empty tensor name", ErrorCode::kCorruptFile, "expected printable", [](auto& f) { f.tensors[0].name = ""; }},
    {"no dimension", ErrorCode::kCorruptFile, "tensor first: expected 1 to 4 dimensions, found 0",
     [](auto& f) { f.tensors[0].num_dims = 0; }},
    {"five dimensions", ErrorCode::kCorruptFile, "tensor first: expected 1 to 4 dimensions, found 5",
     [](auto& f) {
       f.tensors[0].dims = {1, 1, 1, 1, 8};
     }},
    {"zero dimension", ErrorCode::kCorruptFile, "tensor first: dimension 1: expected 1 or more, found 0",
     [](auto& f) {
       f.tensors[0].dims = {4, 0};
     }},
    {"negative dimension", ErrorCode::kCorruptFile, "dimension 1: expected 1 or more, found -2",
     [](auto& f) {
       f.tensors[0].dims = {4, static_cast<uint64_t>(-2)};
     }},
    {"size that wraps", ErrorCode::kCorruptFile, "its size passes 64 bits",
     [](auto& f) {
       f.tensors[0].dims = {1ull << 32, 1ull << 32};
     }},
    {"size beyond the file", ErrorCode::kCorruptFile, "tensor second: expected",
     [](auto& f) { f.tensors[1].dims = {1ull << 40}; }},
    {"type without a name", ErrorCode::kUnsupported, "tensor first: tensor type 4 is not known",
     [](auto& f) { f.tensors[0].type = 4; }},
    {"row that is no multiple of the block", ErrorCode::kCorruptFile, "expected rows of a multiple of 32 for q8_0",
     [](auto& f) { f.tensors[0].type = 8; }},
    {"offset off the alignment", ErrorCode::kCorruptFile, "tensor second: expected its data at offset 128, found 129",
     [](auto& f) { f.tensors[1].offset = 129; }},
    {"overlap", ErrorCode::kCorruptFile, "tensor second: expected its data at offset 128, found 0",
     [](auto& f) { f.tensors[1].offset = 0; }},
    {"hole", ErrorCode::kCorruptFile, "tensor second: expected its data at offset 128, found 160",
     [](auto& f) { f.tensors[1].offset = 160; }},
    {"offset near 2^64", ErrorCode::kCorruptFile, "found 18446744073709551584",
     [](auto& f) { f.tensors[0].offset = UINT64_MAX - 31; }},
    {"duplicate tensor", ErrorCode::kCorruptFile, "tensor first: found twice",
     [](auto& f) { f.tensors[1].name = "first"; }},
    {"data short by a byte", ErrorCode::kCorruptFile,
     "tensor second: expected 64 bytes of data at offset 128, the file has 63",
     [](auto& f) { f.tensors[1].data.pop_back(); }},
    {"bytes after the last tensor", ErrorCode::kCorruptFile, "end at offset 192, the file has 32 bytes more",
     [](auto& f) { f.tensors[1].data += std::string(32, '\0'); }},
};

}  // namespace

TEST_CASE("a valid file is read with its types, names, shapes and bytes") {
  GgufBytes file = small_file();
  file.version = GENERATE_COPY(2u, 3u);
  file.pair("u8", kU8, raw<uint8_t>(200));
  file.pair("i8", kI8, raw<int8_t>(-3));
  file.pair("u64", kU64, raw<uint64_t>(UINT64_MAX));
  file.pair("f64", kF64, raw(0.25));
  file.boolean("yes", true);
  file.strings("words", {"a", "", "c"});
  file.array<float>("scores", kF32, {0.5f, -1.0f});
  file.array<int32_t>("types", kI32, {});
  const std::string bytes = file.build();

  const auto source = parse_weight_source(as_span(bytes));
  REQUIRE(source.ok());
  CHECK(source->container == "GGUF v" + std::to_string(file.version));
  const Metadata& metadata = source->metadata;
  CHECK(metadata.entries().size() == 9);
  CHECK(*metadata.string("general.architecture") == "llama");
  CHECK(*metadata.integer("u8", 0, 255) == 200);
  CHECK(*metadata.number("f64", 0, 1) == 0.25);
  CHECK(*metadata.boolean("yes"));
  CHECK(metadata.strings("words")->size() == 3);
  CHECK((*metadata.strings("words"))[2] == "c");
  CHECK(*metadata.floats("scores") == std::vector<float>{0.5f, -1.0f});
  CHECK(metadata.integers("types", 0, 6)->empty());
  CHECK(*metadata.integer("absent", 0, 9, 7) == 7);
  CHECK(describe(*metadata.find("words")) == "[\"a\", \"\", \"c\"]");

  REQUIRE(source->tensors.size() == 2);
  const SourceTensor* first = source->find("first");
  REQUIRE(first != nullptr);
  CHECK(describe(*first) == "[16, 2] f32");
  CHECK(first->encoding == Encoding::kF32);
  CHECK(first->bytes.size() == 128);
  float value = 0;
  std::memcpy(&value, source->find("second")->bytes.data(), sizeof(value));
  CHECK(value == 2.5f);
  CHECK(source->find("third") == nullptr);
}

TEST_CASE("a wrong value is refused with its key, what was expected and what was found") {
  GgufBytes file = small_file();
  file.pair("i8", kI8, raw<int8_t>(-3));
  file.pair("u64", kU64, raw<uint64_t>(UINT64_MAX));
  file.f32("nan", std::numeric_limits<float>::quiet_NaN());
  file.array<float>("scores", kF32, {0.5f, std::numeric_limits<float>::infinity()});
  file.array<int32_t>("types", kI32, {1, 9});
  const std::string bytes = file.build();
  const auto source = parse_weight_source(as_span(bytes));
  REQUIRE(source.ok());
  const Metadata& metadata = source->metadata;
  CHECK_THAT(metadata.integer("i8", 0, 10).error().message,
             ContainsSubstring("bad metadata: i8: expected an integer in [0, 10], found i8 -3"));
  CHECK_FALSE(metadata.integer("u64", 0, UINT64_MAX).ok());
  CHECK_FALSE(metadata.integer("general.architecture", 0, 10, 5).ok());  // a fallback is for absence alone
  CHECK_FALSE(metadata.number("nan", -1e30, 1e30).ok());
  CHECK_THAT(metadata.floats("scores").error().message, ContainsSubstring("scores: element 1"));
  CHECK_THAT(metadata.integers("types", 0, 6).error().message, ContainsSubstring("types: element 1"));
  CHECK_THAT(metadata.string("absent").error().message, ContainsSubstring("missing metadata: absent"));
  CHECK_FALSE(metadata.strings("scores").ok());
  CHECK_FALSE(metadata.boolean("i8").ok());
}

TEST_CASE("hostile files are refused by name") {
  for (const HostileCase& hostile : kHostileCases) {
    INFO(hostile.name);
    GgufBytes file = small_file();
    hostile.spoil(file);
    const std::string bytes = file.build();
    const auto source = parse_weight_source(as_span(bytes));
    REQUIRE_FALSE(source.ok());
    CHECK(source.error().code == hostile.code);
    CHECK_THAT(source.error().message, ContainsSubstring(hostile.message));
  }
}

TEST_CASE("an empty file and a missing file are refused") {
  CHECK(parse_weight_source({}).error().code == ErrorCode::kCorruptFile);
  CHECK(open_weight_source("/nowhere/model.gguf").error().code == ErrorCode::kNotFound);
  CHECK(open_weight_source("/").error().code == ErrorCode::kInvalidArgument);
}

TEST_CASE("a file of another kind is refused by what it is, and told how to become one") {
  const std::pair<std::string, const char*> cases[] = {
      {raw<uint64_t>(2) + "{}", "a safetensors file: name its folder, which has config.json too"},
      {"PK\x03\x04" + std::string(26, '\0') + "archive/data.pkl", "a PyTorch file: convert"},
      {"PK\x03\x04" + std::string(26, '\0') + "model.gguf", "a zip archive: unpack it first"},
      {"\x80\x02\x8a\nl", "a Python pickle (an old PyTorch file): convert"},
      {"tjgg" + std::string(20, '\0'), "an old GGJT file, which GGUF replaced in 2023"},
      {"lmgg" + std::string(20, '\0'), "an old GGML file"},
      {"\x1f\x8b\x08" + std::string(20, '\0'), "a gzip archive: unpack it first"},
      {std::string("\x08\x07\x12\x07pytorch"), "an ONNX file"},
      {"\n<!DOCTYPE html><html><head>", "a web page: a failed download"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 1\n", "a Git LFS pointer"},
      {"{\"architectures\": [\"LlamaForCausalLM\"]}", "a JSON file: name the model's folder"},
      {"no idea", "expected \"GGUF\" as the first bytes, found \"no idea\""},
  };
  for (const auto& [bytes, what] : cases) {
    const auto source = parse_weight_source(as_span(bytes));
    REQUIRE_FALSE(source.ok());
    CHECK(source.error().code == ErrorCode::kUnsupported);
    CHECK_THAT(source.error().message, ContainsSubstring(what));
    for (size_t size = 1; size < bytes.size(); ++size)
      CHECK_FALSE(parse_weight_source(as_span(bytes).first(size)).ok());
  }
}

TEST_CASE("a folder is refused by what is in it") {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("llmrt_gguf_test_{}", ::getpid());
  std::filesystem::create_directories(folder);
  const auto message = [&] { return open_weight_source(folder.string()).error().message; };
  const auto touch = [&](const char* name) { std::ofstream(folder / name) << "{}"; };
  CHECK_THAT(message(), ContainsSubstring("found a folder"));
  touch("config.json");
  CHECK_THAT(message(), ContainsSubstring("found a Hugging Face model folder without safetensors files: convert"));
  touch("model.gguf");
  CHECK_THAT(message(), ContainsSubstring("found a folder: name one of its .gguf files"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("a custom alignment is followed") {
  GgufBytes file = small_file();
  file.alignment = 256;
  file.u32("general.alignment", 256);
  const std::string bytes = file.build();
  REQUIRE(parse_weight_source(as_span(bytes)).ok());
}

TEST_CASE("type 39 is mxfp4, 17 bytes for 32 numbers") {
  GgufBytes file = small_file();
  file.tensors[0] = {"first", {64}, 39, std::string(34, '\0'), {}, {}};
  const std::string bytes = file.build();
  const auto source = parse_weight_source(as_span(bytes));
  REQUIRE(source.ok());
  CHECK(describe(source->tensors[0]) == "[64] mxfp4");
  CHECK(source->tensors[0].encoding == Encoding::kMXFP4);
}

TEST_CASE("types that cannot be computed with keep their name") {
  GgufBytes file = small_file();
  file.tensors[0] = {"first", {32}, 20, std::string(18, '\0'), {}, {}};
  const std::string bytes = file.build();
  const auto source = parse_weight_source(as_span(bytes));
  REQUIRE(source.ok());
  CHECK(describe(source->tensors[0]) == "[32] iq4_nl");
  CHECK_FALSE(source->tensors[0].encoding.has_value());
}

TEST_CASE("a template of 10 MB is only text, one of 65 MB is refused") {
  GgufBytes file = small_file();
  file.string("tokenizer.chat_template", std::string(10u << 20, 'x'));
  const std::string large = file.build();
  const auto source = parse_weight_source(as_span(large));
  REQUIRE(source.ok());
  CHECK(source->metadata.string("tokenizer.chat_template")->size() == 10u << 20);
  CHECK(describe(*source->metadata.find("tokenizer.chat_template")).size() < 120);

  file.string("another", std::string(65u << 20, 'x'));
  const std::string too_large = file.build();
  CHECK_THAT(parse_weight_source(as_span(too_large)).error().message, ContainsSubstring("metadata another: length"));
}

// A sparse file costs its owner nothing, so the bytes that remain bound no count. Memory for such counts does not
// exist.
TEST_CASE("counts that a sparse file of 1 TiB could hold allocate nothing for what it does not") {
  SparseBytes sparse(1ull << 40);
  if (!sparse.exists()) SKIP("no address space of 1 TiB");
  const auto error_of = [&](const GgufBytes& file) {
    sparse.write(0, file.build() + std::string(64, '\0'));  // over what the last file left
    const auto source = parse_gguf(sparse.all());
    REQUIRE_FALSE(source.ok());
    CHECK(source.error().code == ErrorCode::kCorruptFile);
    return source.error().message;
  };
  GgufBytes strings;
  strings.pair("k", kArray, raw<uint32_t>(kString) + raw<uint64_t>(1ull << 36));
  CHECK_THAT(error_of(strings), ContainsSubstring("metadata k: expected at most 8388608 strings, found 68719476736"));
  GgufBytes tensors;
  tensors.num_tensors = 30'000'000'000;
  CHECK_THAT(error_of(tensors),
             ContainsSubstring("tensor 1 of 30000000000: name: expected printable characters, found"));
}

TEST_CASE("metadata of more than 256 MiB is refused, however sparse") {
  SparseBytes sparse(512u << 20);
  REQUIRE(sparse.exists());
  size_t size = 0;
  const auto write = [&](const std::string& bytes) {
    sparse.write(size, bytes);
    size += bytes.size();
  };
  GgufBytes header;
  header.num_pairs = 5;
  write(header.build());
  for (int i = 0; i < 5; ++i) {
    write(raw_string("k" + std::to_string(i)) + raw<uint32_t>(kArray) + raw<uint32_t>(kU8) +
          raw<uint64_t>(kGgufValueBytesMax));
    size += kGgufValueBytesMax;
  }
  const auto source = parse_gguf(sparse.all());
  REQUIRE_FALSE(source.ok());
  CHECK_THAT(source.error().message, ContainsSubstring("metadata: expected at most 268435456 bytes, found 268435"));
  CHECK_THAT(source.error().message, ContainsSubstring("end of k3"));
}

TEST_CASE("a file cut at any byte is refused") {
  const std::string whole = small_file().build();
  REQUIRE(parse_weight_source(as_span(whole)).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    INFO("cut at byte " << size);
    const std::string cut(whole.data(), size);  // its own allocation, so that a read past the end is seen by ASan
    CHECK_FALSE(parse_weight_source(as_span(cut)).ok());
  }
}

// Flips in text (a key's or a tensor's letters) make other valid files, and version 2 reads like 3; every other number
// must be noticed.
TEST_CASE("a flipped bit in a number of the header or of a table is refused") {
  const std::string whole = small_file().build();
  const size_t table_end = whole.rfind("second") + 6 + 4 + 8 + 4 + 8;
  std::vector<bool> is_text(table_end, false);
  for (const std::string_view text : {"general.architecture", "llama", "first", "second"})
    for (size_t i = 0; i < text.size(); ++i) is_text[whole.find(text) + i] = true;
  for (size_t byte = 0; byte < table_end; ++byte) {
    for (int bit = 0; bit < 8 && !is_text[byte]; ++bit) {
      if (byte == 4 && bit == 0) continue;  // version 3 to 2
      INFO("byte " << byte << " bit " << bit);
      std::string flipped = whole;
      flipped[byte] = static_cast<char>(flipped[byte] ^ (1 << bit));
      CHECK_FALSE(parse_weight_source(as_span(flipped)).ok());
    }
  }
}
