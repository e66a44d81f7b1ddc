#include "core/platform/dynamic_library.h"

#include <dlfcn.h>

namespace llmrt {

Result<std::shared_ptr<const DynamicLibrary>> DynamicLibrary::open(const std::vector<std::string>& names) {
  std::string reason;
  for (const std::string& name : names) {
    if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL))
      return std::shared_ptr<const DynamicLibrary>(new DynamicLibrary(name, handle));
    if (const char* text = dlerror()) reason = text;
  }
  return make_error(ErrorCode::kNotFound, "library not loaded: {}", reason);
}

DynamicLibrary::~DynamicLibrary() {
  dlclose(handle_);
}

void* DynamicLibrary::symbol(const char* name) const {
  return dlsym(handle_, name);
}

}  // namespace llmrt
