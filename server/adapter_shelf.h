// The adapters of a process by the names that clients know them by, each of one of its models. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/request/request.h"

namespace llmrt::server {

struct ShelvedAdapter {
  std::string name, model;               // whose products it changes, by its name
  std::string path;                      // never told to clients
  ReadyAdapter ready;                    // no image: its model has not been loaded yet
  int64_t created = 0;                   // seconds since 1970
  std::shared_ptr<AdapterUse> use = {};  // the shelf's, by name
};

// What requests had of an adapter since the start, by its name.
struct NamedCounts {
  std::string name;
  std::shared_ptr<const AdapterCounts> counts;
};
inline constexpr const char* kOtherAdapters = "other";

class AdapterShelf {
 public:
  static constexpr size_t kAdaptersMax = 4096;
  static constexpr size_t kCountedNamesMax = 100;

  // `folder`: below which clients may have adapters loaded; empty: nowhere.
  explicit AdapterShelf(std::string folder = {}) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }
  // Replaces nothing. invalid_argument: the name is taken, by other bytes; overloaded: there are kAdaptersMax.
  Status add(ShelvedAdapter adapter);
  // What add() was told of without its bytes.
  void make_ready(std::string_view name, ReadyAdapter ready);
  // Requests that have it go on with it.
  bool remove(std::string_view name);
  std::optional<ShelvedAdapter> find(std::string_view name) const;
  std::vector<ShelvedAdapter> all() const;  // by name
  // Of a model's adapters, whether they are still there or not: the first kCountedNamesMax names that the shelf has
  // had, and where there were more of them the rest together, as kOtherAdapters.
  std::vector<NamedCounts> counts(std::string_view model) const;

 private:
  std::shared_ptr<AdapterCounts> counts_of(const ShelvedAdapter& adapter);

  const std::string folder_;
  mutable std::mutex mutex_;
  std::map<std::string, ShelvedAdapter, std::less<>> adapters_;
  std::map<std::pair<std::string, std::string>, std::shared_ptr<AdapterCounts>> counts_;  // by model and name
};

}  // namespace llmrt::server
