#include "server/adapter_shelf.h"

#include <utility>

namespace llmrt::server {

Status AdapterShelf::add(ShelvedAdapter adapter) {
  std::lock_guard lock(mutex_);
  const auto found = adapters_.find(adapter.name);
  if (found != adapters_.end()) {
    const bool is_same = found->second.model == adapter.model && found->second.ready.id == adapter.ready.id;
    if (is_same) return {};
    return make_error(ErrorCode::kInvalidArgument,
                      "adapter '{}': expected a name that is free, found one that is taken; unload it first",
                      adapter.name);
  }
  if (adapters_.size() >= kAdaptersMax)
    return make_error(ErrorCode::kOverloaded, "adapter '{}': there are {} adapters, which is the most", adapter.name,
                      kAdaptersMax);
  std::string name = adapter.name;
  adapters_.emplace(std::move(name), std::move(adapter));
  return {};
}

void AdapterShelf::make_ready(std::string_view name, ReadyAdapter ready) {
  std::lock_guard lock(mutex_);
  const auto found = adapters_.find(name);
  if (found != adapters_.end()) found->second.ready = std::move(ready);
}

bool AdapterShelf::remove(std::string_view name) {
  std::lock_guard lock(mutex_);
  const auto found = adapters_.find(name);
  if (found == adapters_.end()) return false;
  adapters_.erase(found);
  return true;
}

std::optional<ShelvedAdapter> AdapterShelf::find(std::string_view name) const {
  std::lock_guard lock(mutex_);
  const auto found = adapters_.find(name);
  return found == adapters_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<ShelvedAdapter> AdapterShelf::take(std::string_view name) {
  std::lock_guard lock(mutex_);
  const auto found = adapters_.find(name);
  if (found == adapters_.end()) return std::nullopt;
  ++found->second.num_requests;
  return found->second;
}

std::vector<ShelvedAdapter> AdapterShelf::all() const {
  std::lock_guard lock(mutex_);
  std::vector<ShelvedAdapter> all;
  for (const auto& [name, adapter] : adapters_) all.push_back(adapter);
  return all;
}

}  // namespace llmrt::server
