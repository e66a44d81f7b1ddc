// The requests of /v1/files and /v1/batches: what they ask of the store, and what the answer says. On a worker, as they
// may wait for the disk.
#pragma once

#include <boost/json.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/api_error.h"
#include "server/file_store.h"
#include "server/multipart.h"

namespace llmrt::server {

struct StoreQuery {
  FileStore& store;
  std::string_view owner;                     // who asks; all else is out of sight
  std::string_view id = {};                   // in the path
  std::string_view query = {};                // behind the path, as it was sent
  const boost::json::object* body = nullptr;  // of a POST that has one
  bool strict_fields = false;
};
using StoreAnswer = ApiResult<boost::json::object> (*)(const StoreQuery& query);
struct StoreHandler {
  StoreAnswer answer;
  bool changes_batches = false;  // whoever answers them should look
};

ApiResult<boost::json::object> list_files(const StoreQuery& query);
ApiResult<boost::json::object> find_file(const StoreQuery& query);
ApiResult<boost::json::object> remove_file(const StoreQuery& query);
ApiResult<boost::json::object> create_batch(const StoreQuery& query);
ApiResult<boost::json::object> list_batches(const StoreQuery& query);
ApiResult<boost::json::object> find_batch(const StoreQuery& query);
ApiResult<boost::json::object> cancel_batch(const StoreQuery& query);

// An error of the store, with the status that fits it.
ApiError to_store_error(const Error& error);
// 404: there is no folder for files.
ApiError no_files();

// A file on its way: POST /v1/files. What it wrote goes, unless it came to its end.
class FileUpload : private PartSink {
 public:
  static constexpr size_t kFieldBytesMax = 1024, kFilenameBytesMax = 255;

  // `boundary`: of the body; `store` outlives this.
  static ApiResult<std::unique_ptr<FileUpload>> begin(FileStore* store, std::string owner, std::string_view boundary);
  ~FileUpload() override;

  // The next bytes of the body; why the upload ends, if it does.
  std::optional<ApiError> feed(std::string_view bytes);
  ApiResult<boost::json::object> finish();

 private:
  FileUpload(FileStore* store, std::string owner, std::string_view boundary);
  Status begin(const PartHead& head) override;
  Status add(std::string_view bytes) override;
  Status end() override { return {}; }
  std::optional<ApiError> read_fields();

  FileStore* const store_;
  StoredFile file_;
  MultipartReader reader_;
  std::unique_ptr<GrowingFile> data_;
  bool is_kept_ = false;
  std::string* field_ = nullptr;  // that the part under way is; null: the file, or nothing that is read
  bool is_file_ = false;
  std::optional<std::string> purpose_, anchor_, seconds_;
  std::optional<ApiError> refusal_;  // that PartSink's errors cannot say
};

}  // namespace llmrt::server
