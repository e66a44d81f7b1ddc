// What becomes of a command that cannot do its work, and of a program that it starts.
#include <catch2/catch_test_macros.hpp>
#include <new>
#include <stdexcept>

#include "tools/llmrt_bench/commands/child_process.h"
#include "tools/llmrt_bench/commands/commands.h"

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

TEST_CASE("a program that closes its output and goes on is ended in time") {
  const auto run = [](const char* script, double timeout_s) {
    return run_child({"/bin/sh", "-c", script}, {}, timeout_s);
  };
  const Result<ChildOutput> told = run("echo told", 30);
  REQUIRE(told.ok());
  CHECK(told->text == "told\n");
  CHECK(run("exit 3", 30).error().message.find("found 3") != std::string::npos);
  for (const char* script : {"exec sleep 20", "exec >/dev/null sleep 20"}) {
    const TimeNs begun_ns = SteadyClock().now_ns();
    const Result<ChildOutput> late = run(script, 0.3);
    REQUIRE_FALSE(late.ok());
    CHECK(late.error().code == ErrorCode::kTimeout);
    CHECK(ms_between(begun_ns, SteadyClock().now_ns()) < 10000);
  }
}
