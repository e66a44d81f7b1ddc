// A shared library opened at run time (GPU drivers and their libraries): absent is a value, not a failure to start.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace llmrt {

// The library stays loaded while the object lives; symbols are valid as long. Thread-safe.
class DynamicLibrary {
 public:
  // The first of `names` that loads. Errors: not_found, with what the system's loader said about the last one.
  static Result<std::shared_ptr<const DynamicLibrary>> open(const std::vector<std::string>& names);
  ~DynamicLibrary();
  DynamicLibrary(const DynamicLibrary&) = delete;
  DynamicLibrary& operator=(const DynamicLibrary&) = delete;

  void* symbol(const char* name) const;  // null when it has none
  const std::string& name() const { return name_; }

 private:
  DynamicLibrary(std::string name, void* handle) : name_(std::move(name)), handle_(handle) {}
  std::string name_;
  void* handle_;
};

}  // namespace llmrt
