// What requests may differ in and still run in one step, and what needs an engine of its own.
// Nothing decides by this table: it says what the code does, and tests/core/compatibility_test.cpp holds each line
// against it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace llmrt {

enum class Sharing : uint8_t {
  kOneStep,      // requests that differ in it are rows of one step
  kOtherEngine,  // requests that differ in it are served by different engines
};

struct Compatibility {
  const char* name;
  Sharing sharing;
  const char* reason;
};

std::span<const Compatibility> compatibility_table();
// As a table in Markdown.
std::string print_compatibility();

}  // namespace llmrt
