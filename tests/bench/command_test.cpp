// What becomes of a command that cannot do its work.
#include <catch2/catch_test_macros.hpp>
#include <new>
#include <stdexcept>

#include "tools/llmrt_bench/commands.h"

using namespace llmrt;
using namespace llmrt::bench;

TEST_CASE("an error and an exception are exit code 1, what ends well is none") {
  const auto exit_code_of = [](const std::function<Status()>& run) {
    CLI::App app;
    int exit_code = 0;
    on_parsed(app.add_subcommand("work", ""), &exit_code, run);
    app.parse("work");
    return exit_code;
  };
  CHECK(exit_code_of([] { return Status(); }) == 0);
  CHECK(exit_code_of([]() -> Status { return make_error(ErrorCode::kIo, "no disk"); }) == 1);
  CHECK(exit_code_of([]() -> Status { return make_error(ErrorCode::kIo, "{}", ""); }) == 1);
  CHECK(exit_code_of([]() -> Status { throw std::bad_alloc(); }) == 1);
  CHECK(exit_code_of([]() -> Status { throw std::runtime_error("temp_directory_path"); }) == 1);
}
