// What a backend says and does where cuBLAS is, is not, or is said to be where it is not.
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>

#include "core/platform/dynamic_library.h"
#include "tests/ops/test_devices.h"

using namespace llmrt;

namespace {

// Of a backend that has opened cuBLAS, or has not found it.
Result<std::string> remark_with(const char* path) {
  path ? setenv("LLMRT_CUBLAS", path, 1) : unsetenv("LLMRT_CUBLAS");
  Result<std::unique_ptr<Backend>> backend = optest::open_test_device("cuda:0");
  if (!backend) return backend.error();
  if (Status status = (*backend)->load_weights({}, {}); !status) return status.error();
  if (Status status = (*backend)->add_f16_copies(1 << 20); !status) return status.error();
  return (*backend)->remark();
}

}  // namespace

TEST_CASE("the backend says that cuBLAS is missing, and where it looked") {
  const char* path = std::getenv("LLMRT_CUBLAS");
  REQUIRE(path != nullptr);
  const std::string fake = path;
  CHECK(remark_with(fake.c_str()).value() == "");
  CHECK(remark_with("none").value() == "");  // as somebody wanted it
  const Result<std::string> elsewhere = remark_with("/nowhere/libcublas.so");
  REQUIRE_FALSE(elsewhere.ok());
  CHECK(elsewhere.error().message.find("LLMRT_CUBLAS=/nowhere/libcublas.so") != std::string::npos);
  const Result<std::string> usual = remark_with(nullptr);
  REQUIRE(usual.ok());
  if (DynamicLibrary::open({"libcublas.so.13"}).ok() || DynamicLibrary::open({"libcublas.so.12"}).ok())
    SKIP("cuBLAS is here");
  CHECK(usual.value().find("libcublas.so.13") != std::string::npos);
}
