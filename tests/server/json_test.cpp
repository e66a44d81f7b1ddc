// What reading JSON from outside costs: names that were chosen to collide in Boost's tables cost no more than random
// ones, and values are bounded in number and memory.
#include <malloc.h>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "server/json_memory.h"
#include "server/json_reader.h"
#include "tests/fakes/cpu_seconds.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

double seconds_of(const std::string& text) {
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    const double begin = cpu_seconds();
    const auto value = read_json(text);
    best = std::min(best, cpu_seconds() - begin);
  }
  return best;
}

std::string object_text(const std::vector<std::string>& names) {
  std::string text = "{";
  for (const std::string& name : names) text += (text.size() > 1 ? ",\"" : "\"") + name + "\":0";
  return text + "}";
}

std::string random_name(std::mt19937_64& random) {
  std::string name;
  for (int i = 0; i < 12; ++i) name += static_cast<char>('a' + random() % 26);
  return name;
}

// FNV-1a from any state, in Boost's variant: the salt is added to the first state.
uint64_t digest(std::string_view name, uint64_t salt) {
  uint64_t hash = 0xcbf29ce484222325ULL + salt;
  for (const char c : name) hash = (static_cast<uint64_t>(static_cast<int64_t>(c)) ^ hash) * 0x100000001B3ULL;
  return hash;
}

// Names whose digests agree in their low bits for every salt that ends in `salt_low`: what a sender can know of the
// address of a table that the system maps by whole pages.
std::vector<std::string> colliding_names(size_t count, int bits, uint64_t salt_low, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::string> names;
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  while (names.size() < count) {
    std::string name = random_name(random);
    if ((digest(name, salt_low) & mask) == 0) names.push_back(std::move(name));
  }
  return names;
}

TEST_CASE("chosen names cost no more than random ones") {
  constexpr size_t kNames = 1 << 13;  // a power of two: the bucket is the digest's low bits
  std::mt19937_64 random(1);
  std::vector<std::string> names;
  for (size_t i = 0; i < kNames; ++i) names.push_back(random_name(random));
  const double usual_s = seconds_of(object_text(names));
  for (const uint64_t salt_low : {0x10, 0x0}) {
    const double chosen_s = seconds_of(object_text(colliding_names(kNames, 11, salt_low, 2)));
    INFO("random " << usual_s * 1e3 << " ms, chosen " << chosen_s * 1e3 << " ms");
    CHECK(chosen_s <= 3 * usual_s);
  }
}

// The table's address is known here, so that the names meet in one bucket.
TEST_CASE("a table is moved to where its names do not meet, and names that meet everywhere are refused") {
  JsonMemory* self = nullptr;
  JsonMemory memory(&self);
  CHECK(self == &memory);
  json::memory_resource& resource = memory;
  const auto name_list = [](const std::vector<std::string>& names) {
    return std::vector<std::string_view>(names.begin(), names.end());
  };
  // Odd: places differ by multiples of the alignment, so the low bits of a digest are the same at all of them.
  constexpr size_t kNames = 999;
  CHECK(memory.place_table(name_list(std::vector<std::string>(1, "a"))));
  resource.allocate(1 << 18);  // the next block is a large one
  char* next = static_cast<char*>(resource.allocate(16)) + 16;
  std::mt19937_64 random(3);
  std::vector<std::string> names;
  while (names.size() < kNames) {
    std::string name = random_name(random);
    if (digest(name, reinterpret_cast<uintptr_t>(next)) % kNames == 0) names.push_back(std::move(name));
  }
  CHECK(memory.place_table(name_list(names)));
  CHECK(resource.allocate(16) != next);
  // One name many times over meets itself wherever the table lies.
  CHECK_FALSE(memory.place_table(std::vector<std::string_view>(64, "same")));
}

TEST_CASE("many objects of many names take time by their length") {
  std::mt19937_64 random(4);
  const auto text = [&](size_t num_objects) {
    std::string all = "[";
    for (size_t i = 0; i < num_objects; ++i) {
      std::vector<std::string> names;
      for (int k = 0; k < 100; ++k) names.push_back(random_name(random));
      all += (i > 0 ? "," : "") + object_text(names);
    }
    return all + "]";
  };
  const std::string small = text(100), large = text(1000);
  const double small_s = seconds_of(small), large_s = seconds_of(large);
  INFO("100 objects " << small_s * 1e3 << " ms, 1,000 objects " << large_s * 1e3 << " ms");
  CHECK(large_s <= 30 * small_s);
}

TEST_CASE("names are compared whole, with escapes, in small objects and large ones") {
  for (const int size : {3, 17, 18, 19, 40, 1000}) {
    std::vector<std::string> names;
    for (int i = 0; i < size; ++i) names.push_back("n" + std::to_string(i));
    INFO(size);
    const auto value = read_json(object_text(names));
    REQUIRE(value.ok());
    CHECK(value->as_object().size() == static_cast<size_t>(size));
    for (const std::string& name : names) CHECK(value->as_object().contains(name));
    CHECK_FALSE(value->as_object().contains("n"));
    for (const char* twice : {"n0", "\\u006e0", "n\\u0030"}) {
      names.emplace_back(twice);
      const auto again = read_json(object_text(names));
      REQUIRE_FALSE(again.ok());
      CHECK(again.error().message.find("duplicate key: 'n0'") != std::string::npos);
      names.pop_back();
    }
  }
  // Names of an outer object that is still open are no duplicates.
  CHECK(read_json(R"({"a": {"a": {"a": 1, "b": 2}, "b": 3}, "b": [{"a": 1}, {"a": 1}]})").ok());
  const auto escaped = read_json(R"({"\u0061\n\ud83d\ude00": 1, "": 2})");
  REQUIRE(escaped.ok());
  CHECK(escaped->as_object().contains("a\n\xF0\x9F\x98\x80"));
}

TEST_CASE("values, members and depth are limited, and the limit is named") {
  const auto problem = [](const std::string& text, const JsonLimits& limits = {}) {
    const auto value = read_json(text, limits);
    return value ? std::string() : value.error().message;
  };
  std::string many = "[0";
  for (size_t i = 2; i < kJsonValuesMax; ++i) many += ",0";
  CHECK(problem(many + "]").empty());
  CHECK(problem(many + ",0]").find("more than 1048576 values") != std::string::npos);
  CHECK(problem("[1,\"a\",null,true,1.5,-1,{\"a\":[]}]", {64, 9}).empty());
  CHECK(problem("[1,\"a\",null,true,1.5,-1,{\"a\":[]}]", {64, 8}).find("more than 8 values") != std::string::npos);
  std::vector<std::string> names;
  for (size_t i = 0; i < kJsonMembersMax; ++i) names.push_back(std::to_string(i));
  CHECK(problem(object_text(names)).empty());
  names.emplace_back("x");
  CHECK(problem(object_text(names)).find("an object of more than 16384 members") != std::string::npos);
  CHECK(problem("[[[1]]]", {2, 100}).find("nested deeper than 2") != std::string::npos);
  size_t num_values = 0;
  CHECK(read_json("[1,[2,3],{\"a\":4}]", {}, &num_values).ok());
  CHECK(num_values == 7);
}

TEST_CASE("a text takes no more memory than its values and bytes may") {
  const auto repeated = [](std::string_view unit, size_t count) {
    std::string text = "[";
    for (size_t i = 0; i < count; ++i) text += (i > 0 ? "," : "") + std::string(unit);
    return text + "]";
  };
  for (const std::string& text :
       {repeated("0", 300'000), repeated("[0]", 300'000), repeated("[[[[]]]]", 100'000), repeated("{\"a\":0}", 300'000),
        repeated("\"0123456789abcdef\"", 300'000), repeated("{\"aaaaaaaaaaaaaaaaaa\":{}}", 100'000),
        repeated(object_text(
                     {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s"}),
                 10'000)}) {
    const struct mallinfo2 before = mallinfo2();
    size_t num_values = 0;
    const auto value = read_json(text, {}, &num_values);
    REQUIRE(value.ok());
    const struct mallinfo2 after = mallinfo2();
    const size_t held = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
    INFO(text.substr(0, 30) << ": " << num_values << " values of " << text.size() << " bytes hold " << held);
    CHECK(held <= num_values * kJsonBytesPerValue + text.size() * kJsonBytesPerByte);
  }
}

}  // namespace
}  // namespace llmrt::server
