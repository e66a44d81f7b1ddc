// Records of runs: what is written can be read back, a run that is cut short leaves what it had, and a file of another
// form is refused with its place. Method: files in a folder of their own.
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>
#include <limits>

#include "tools/llmrt_bench/record/saved_record.h"
#include "tools/llmrt_bench/record/stats.h"

using namespace llmrt;
using namespace llmrt::bench;
using Catch::Matchers::ContainsSubstring;
namespace json = boost::json;

namespace {

struct Folder {
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const char* name) const { return path / name; }
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("llmrt_record_test_" + std::to_string(::getpid()));
};

Caps fake_caps() {
  Caps caps;
  caps.device_id = "fake:0";
  caps.device_name = "Fake";
  caps.memory_bytes = 1 << 20;
  return caps;
}

Record small_record(const std::string& path) {
  Result<Record> record = Record::create("model", {{"depth", 8}}, {{"repeats", 3}}, path);
  REQUIRE(record.ok());
  record->add_device(fake_caps());
  record->add({"pp8", "fake:0", {median_value("tok_s", "tok/s", {3, 1, 2})}, {{"n_prompt", 8}}});
  return *std::move(record);
}

std::string written(const Folder& folder, const json::object& root) {
  std::ofstream(folder.file("changed.json")) << json::serialize(root);
  return folder.file("changed.json");
}

}  // namespace

TEST_CASE("a record is read back as it was written") {
  const Folder folder;
  Record record = small_record(folder.file("a.json"));
  record.add({"tg8", "fake:0", {{"tok_s", "tok/s", std::numeric_limits<double>::infinity()}}});
  record.miss("pp16", "fake:0", "too long");
  REQUIRE(record.finish().ok());
  const Result<SavedRecord> saved = read_record(folder.file("a.json"));
  REQUIRE(saved.ok());
  CHECK(saved->command == "model");
  CHECK(saved->is_complete);
  CHECK(saved->work == json::object{{"depth", 8}});
  CHECK(saved->device_name("fake:0") == "Fake");
  REQUIRE(saved->rows.size() == 2);
  const Value* value = find_value(saved->rows[0], "tok_s");
  REQUIRE(value != nullptr);
  CHECK(value->value == 2);
  CHECK(value->samples == std::vector<double>{3, 1, 2});
  CHECK(std::isnan(find_value(saved->rows[1], "tok_s")->value));
  REQUIRE(saved->missing.size() == 1);
  CHECK(saved->missing[0].reason == "too long");
}

TEST_CASE("a run that is cut short leaves its rows, and nothing beside the file") {
  const Folder folder;
  small_record(folder.file("a.json"));
  const Result<SavedRecord> saved = read_record(folder.file("a.json"));
  REQUIRE(saved.ok());
  CHECK_FALSE(saved->is_complete);
  CHECK(saved->rows.size() == 1);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
}

TEST_CASE("bytes that are no text do not make a record that cannot be read") {
  const Folder folder;
  Record record = small_record(folder.file("a.json"));
  record.miss("pp16", "fake:0", "a server said \xff\xc3");
  REQUIRE(record.finish().ok());
  const Result<SavedRecord> saved = read_record(folder.file("a.json"));
  REQUIRE(saved.ok());
  CHECK(saved->missing[0].reason == "a server said \xef\xbf\xbd\xef\xbf\xbd");
}

TEST_CASE("a path that cannot be written is refused before the run, and a device file is not replaced") {
  const Folder folder;
  const Result<Record> record = Record::create("model", {}, {}, folder.file("none/a.json"));
  REQUIRE_FALSE(record.ok());
  CHECK_THAT(record.error().message, ContainsSubstring("none/a.json"));
  CHECK(small_record("/dev/null").finish().ok());
  CHECK(std::filesystem::is_character_file("/dev/null"));
}

TEST_CASE("a file of another form is refused with its place, what was expected and what was found") {
  const Folder folder;
  const json::object good = small_record("").json();
  REQUIRE(read_record(written(folder, good)).ok());
  const auto message = [&](const json::object& root) {
    const Result<SavedRecord> saved = read_record(written(folder, root));
    REQUIRE_FALSE(saved.ok());
    return saved.error().message;
  };
  json::object changed = good;
  changed["schema_version"] = 7;
  CHECK_THAT(message(changed), ContainsSubstring("schema_version: expected 1, found 7"));
  changed = good;
  changed["rows"].at(0).at("values").at("tok_s").as_object()["value"] = "fast";
  CHECK_THAT(message(changed),
             ContainsSubstring("rows[0].values.tok_s.value: expected a number or null, found \"fast\""));
  changed = good;
  changed["devices"].at(0).as_object()["memory_bytes"] = -1;
  CHECK_THAT(message(changed), ContainsSubstring("devices[0].memory_bytes: expected a whole number of at least 0"));
  for (const auto& [name, value] : good) {
    if (name == "arguments" || name == "ended_at") continue;
    changed = good;
    changed.erase(name);
    CHECK_THAT(message(changed), ContainsSubstring("expected a member \"" + std::string(name) + "\""));
  }
  std::ofstream(folder.file("cut.json")) << json::serialize(good).substr(0, 100);
  CHECK(read_record(folder.file("cut.json")).error().code == ErrorCode::kCorruptFile);
  CHECK(read_record(folder.file("none.json")).error().code == ErrorCode::kNotFound);
  CHECK(read_record(folder.path.string()).error().code == ErrorCode::kNotFound);
}

TEST_CASE("medians and deviations") {
  CHECK(median({}) == 0);
  CHECK(median({3, 1, 2}) == 2);
  CHECK(median({4, 1, 2, 3}) == 2.5);
  CHECK(stddev({5}) == 0);
  CHECK(stddev({2, 4, 4, 4, 5, 5, 7, 9}) == std::sqrt(32.0 / 7));
}
