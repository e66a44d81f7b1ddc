#include "server/adapter_shelf.h"

#include <algorithm>
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
  adapter.use = std::make_shared<AdapterUse>(counts_of(adapter));
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

std::vector<ShelvedAdapter> AdapterShelf::all() const {
  std::lock_guard lock(mutex_);
  std::vector<ShelvedAdapter> all;
  for (const auto& [name, adapter] : adapters_) all.push_back(adapter);
  return all;
}

// Names come from outside, and each is a label in a metrics store for ever.
std::shared_ptr<AdapterCounts> AdapterShelf::counts_of(const ShelvedAdapter& adapter) {
  std::pair key(adapter.model, adapter.name);
  if (const auto found = counts_.find(key); found != counts_.end()) return found->second;
  const auto num_others = static_cast<size_t>(
      std::ranges::count_if(counts_, [](const auto& entry) { return entry.first.second == kOtherAdapters; }));
  if (counts_.size() - num_others >= kCountedNamesMax) key.second = kOtherAdapters;
  return counts_.try_emplace(std::move(key), std::make_shared<AdapterCounts>()).first->second;
}

std::vector<NamedCounts> AdapterShelf::counts(std::string_view model) const {
  std::lock_guard lock(mutex_);
  std::vector<NamedCounts> out;
  for (const auto& [key, counts] : counts_)
    if (key.first == model) out.push_back({key.second, counts});
  return out;
}

}  // namespace llmrt::server
