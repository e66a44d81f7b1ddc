// Random adapters are adapters of their model: what is written to a folder is read from there as what engines in
// process get, number by number.
#include "tools/llmrt_bench/adapters/random_adapter.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "core/base/half.h"
#include "core/model/model.h"

using namespace llmrt;
using namespace llmrt::bench;

namespace {

struct Folder {
  Folder() {
    char path[] = "/tmp/llmrt_adapters_XXXXXX";
    REQUIRE(mkdtemp(path) != nullptr);
    name = path;
  }
  ~Folder() { std::filesystem::remove_all(name); }
  std::string name;
};

}  // namespace

TEST_CASE("random adapters come back from their files with the same numbers") {
  // Fused gate and up, experts beside shared ones, queries with gates and delta rules.
  for (const char* path : {"synthetic:smollm2-135m:q4_1", "synthetic:qwen3-0.6b:q4_0", "synthetic:gpt-oss-20b:q8_0"}) {
    INFO(path);
    const auto model = load_model(path);
    REQUIRE(model.ok());
    const Folder folder;
    REQUIRE(write_random_adapters(**model, 2, 3, 5, folder.name + "/made").ok());
    const auto ready = make_ready_adapters(**model, 2, 3, DType::kF16, 5);
    for (uint32_t number = 1; number <= 2; ++number) {
      const auto read = load_adapter(folder.name + "/made/" + adapter_name(number) + ".gguf", **model);
      INFO((read.ok() ? "" : read.error().message));
      REQUIRE(read.ok());
      CHECK((*read)->rank_max == 3);
      const auto image = make_image(**read, DType::kF16);
      REQUIRE(image.ok());
      CHECK(image->bytes == ready[number - 1].image->bytes);
      CHECK(image->runs.size() == ready[number - 1].image->runs.size());
    }
    CHECK(ready[0].image->bytes != ready[1].image->bytes);
    CHECK(ready[0].digest != ready[1].digest);
    CHECK(ready[1].id == 2);
  }
}

TEST_CASE("a folder that cannot be made is an error") {
  const auto model = load_model("synthetic:smollm2-135m:q4_1");
  REQUIRE(model.ok());
  const Status status = write_random_adapters(**model, 1, 1, 1, "/dev/null/adapters");
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().code == ErrorCode::kIo);
}
