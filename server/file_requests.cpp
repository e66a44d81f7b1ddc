#include "server/file_requests.h"

#include <charconv>

#include "server/batch_runner.h"
#include "server/fields.h"
#include "server/http.h"
#include "server/offline.h"
#include "server/routes.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

constexpr int64_t kExpiryMinS = 3600, kExpiryMaxS = 30 * 24 * 3600;
constexpr size_t kIdBytesMax = 64;

template <typename Record>
json::object list_object(const ListPage<Record>& page, json::object (*to_object)(const Record&)) {
  json::array data;
  for (const Record& record : page.records) data.emplace_back(to_object(record));
  const auto id_at = [&](auto get) {
    return page.records.empty() ? json::value(nullptr) : json::value(get(page.records).id);
  };
  return {{"object", "list"},
          {"data", std::move(data)},
          {"first_id", id_at([](const auto& records) { return records.front(); })},
          {"last_id", id_at([](const auto& records) { return records.back(); })},
          {"has_more", page.has_more}};
}

ApiResult<ListQuery> read_list_query(std::string_view text, size_t limit_max, size_t limit_default) {
  ListQuery query;
  query.limit = limit_default;
  query.after = query_value(text, "after").value_or("");
  query.purpose = query_value(text, "purpose").value_or("");
  if (const auto limit = query_value(text, "limit")) {
    const auto [end, problem] = std::from_chars(limit->data(), limit->data() + limit->size(), query.limit);
    if (problem != std::errc() || end != limit->data() + limit->size() || query.limit < 1 || query.limit > limit_max)
      return invalid_field("limit", fmt::format("expected 1 to {}, found '{}'", limit_max, shown(*limit)));
  }
  if (const auto order = query_value(text, "order")) {
    if (*order != "asc" && *order != "desc")
      return invalid_field("order", fmt::format("expected asc or desc, found '{}'", shown(*order)));
    query.is_ascending = *order == "asc";
  }
  return query;
}

ApiError no_such_id(std::string_view kind, std::string_view id) {
  ApiError error = http_error(404, "not_found", fmt::format("{}_id: there is no {} '{}'", kind, kind, shown(id)));
  error.param = fmt::format("{}_id", kind);
  return error;
}

// {"anchor": "created_at", "seconds": N}; 0: none.
int64_t read_expiry(Fields& fields, std::string_view name) {
  const json::object* object = fields.object(name);
  if (!object) return 0;
  Fields inner(*object, fields.full(name) + ".");
  if (inner.string("anchor", kIdBytesMax).value_or("created_at") != "created_at")
    inner.fail("anchor", "expected created_at");
  const auto seconds = inner.integer("seconds", kExpiryMinS, kExpiryMaxS);
  if (!seconds) inner.fail("seconds", "is missing");
  if (inner.failed()) fields.fail(*inner.error());
  return seconds.value_or(0);
}

json::value read_metadata(Fields& fields) {
  constexpr size_t kPairsMax = 16, kKeyBytesMax = 64 * 4, kValueBytesMax = 512 * 4;
  const json::object* metadata = fields.object("metadata");
  if (!metadata) return nullptr;
  if (metadata->size() > kPairsMax) fields.fail("metadata", fmt::format("expected at most {} pairs", kPairsMax));
  for (const auto& pair : *metadata)
    if (!pair.value().is_string() || pair.key().size() > kKeyBytesMax ||
        pair.value().as_string().size() > kValueBytesMax)
      fields.fail("metadata", "expected texts, keys of at most 64 and values of at most 512 characters");
  return *metadata;
}

}  // namespace

ApiError no_files() {
  return http_error(404, "not_found", "files: this server keeps no files; --files-dir names a folder for them");
}

ApiError to_store_error(const Error& error) {
  if (error.code == ErrorCode::kNeverFits) return http_error(413, "files_full", error.message);
  return to_api_error(error);
}

// ---- files ---------------------------------------------------------------------------------------------------------

ApiResult<json::object> list_files(const StoreQuery& query) {
  const auto wanted = read_list_query(query.query, FileStore::kFilesMax, FileStore::kFilesMax);
  if (const auto* error = std::get_if<ApiError>(&wanted)) return *error;
  const auto page = query.store.list_files(query.owner, std::get<ListQuery>(wanted));
  if (!page) return to_store_error(page.error());
  return list_object(*page, file_object);
}

ApiResult<json::object> find_file(const StoreQuery& query) {
  const auto file = query.store.find_file(query.owner, query.id);
  if (!file) return no_such_id("file", query.id);
  return file_object(*file);
}

ApiResult<json::object> remove_file(const StoreQuery& query) {
  if (Status status = query.store.remove_file(query.owner, query.id); !status) {
    if (status.error().code == ErrorCode::kNotFound) return no_such_id("file", query.id);
    return to_store_error(status.error());
  }
  return json::object{{"id", query.id}, {"object", "file"}, {"deleted", true}};
}

// ---- batches -------------------------------------------------------------------------------------------------------

ApiResult<json::object> create_batch(const StoreQuery& query) {
  Fields fields(*query.body);
  StoredBatch batch;
  batch.owner = query.owner;
  const auto text = [&](std::string_view name) {
    const auto value = fields.string(name, kIdBytesMax);
    if (!value) fields.fail(name, "is missing");
    return value.value_or("");
  };
  batch.input_id = text("input_file_id");
  batch.endpoint = text("endpoint");
  if (text("completion_window") != "24h") fields.fail("completion_window", "expected 24h");
  batch.metadata = read_metadata(fields);
  batch.output_expires_s = read_expiry(fields, "output_expires_after");
  if (query.strict_fields) fields.refuse_unread();
  if (fields.failed()) return *fields.error();
  if (OfflineAnswerer(nullptr, {}).check_url(batch.endpoint))
    return invalid_field("endpoint", fmt::format("expected one that models answer, as /v1/chat/completions, found '{}'",
                                                 shown(batch.endpoint)));
  const auto input = query.store.find_file(query.owner, batch.input_id);
  if (!input) return no_such_id("input_file", batch.input_id);
  if (input->purpose != kPurposeBatch) return invalid_field("input_file_id", "expected a file of the purpose batch");
  batch.move_to(BatchState::kValidating, query.store.now_s());
  batch.expires_at = batch.created_at() + BatchRunner::kWindowS;
  const auto added = query.store.add_batch(std::move(batch));
  if (!added) return to_store_error(added.error());
  return batch_object(*added);
}

ApiResult<json::object> list_batches(const StoreQuery& query) {
  const auto wanted = read_list_query(query.query, /*limit_max=*/100, /*limit_default=*/20);
  if (const auto* error = std::get_if<ApiError>(&wanted)) return *error;
  const auto page = query.store.list_batches(query.owner, std::get<ListQuery>(wanted));
  if (!page) return to_store_error(page.error());
  return list_object(*page, batch_object);
}

ApiResult<json::object> find_batch(const StoreQuery& query) {
  const auto batch = query.store.find_batch(query.owner, query.id);
  if (!batch) return no_such_id("batch", query.id);
  return batch_object(*batch);
}

ApiResult<json::object> cancel_batch(const StoreQuery& query) {
  const int64_t now = query.store.now_s();
  const auto changed = query.store.change_batch(query.owner, query.id, [&](StoredBatch& batch) -> Status {
    if (batch.state == BatchState::kCancelling) return {};
    if (is_over(batch.state) || batch.state == BatchState::kFinalizing)
      return make_error(ErrorCode::kInvalidArgument,
                        "batch_id: expected a batch that is not over, found one that is {}",
                        batch_state_name(batch.state));
    const bool has_begun = batch.state == BatchState::kInProgress;
    batch.move_to(BatchState::kCancelling, now);
    if (!has_begun) batch.move_to(BatchState::kCancelled, now);
    return {};
  });
  if (changed) return batch_object(*changed);
  if (changed.error().code == ErrorCode::kNotFound) return no_such_id("batch", query.id);
  return to_store_error(changed.error());
}

// ---- uploads -------------------------------------------------------------------------------------------------------

ApiResult<std::unique_ptr<FileUpload>> FileUpload::begin(FileStore* store, std::string owner,
                                                         std::string_view boundary) {
  if (!MultipartReader::is_boundary(boundary))
    return http_error(415, "content_type", "HTTP: expected Content-Type: multipart/form-data with a boundary");
  std::unique_ptr<FileUpload> upload(new FileUpload(store, std::move(owner), boundary));
  auto data = store->grow(upload->file_.id);
  if (!data) return to_store_error(data.error());
  upload->data_ = *std::move(data);
  return upload;
}

FileUpload::FileUpload(FileStore* store, std::string owner, std::string_view boundary)
    : store_(store), reader_(boundary, this) {
  file_.id = FileStore::make_file_id();
  file_.owner = std::move(owner);
}

FileUpload::~FileUpload() {
  data_.reset();
  if (!is_kept_) store_->drop_data(file_.id);
}

std::optional<ApiError> FileUpload::feed(std::string_view bytes) {
  const Status status = reader_.feed(bytes);
  if (status) return std::nullopt;
  return refusal_ ? *refusal_ : to_store_error(status.error());
}

Status FileUpload::begin(const PartHead& head) {
  struct Field {
    std::string_view name;
    std::optional<std::string>* value;
  };
  field_ = nullptr;
  is_file_ = false;
  const auto refuse = [&](const std::string& name, std::string message) {
    refusal_ = invalid_field(name, std::move(message));
    return make_error(ErrorCode::kInvalidArgument, "{}", refusal_->message);
  };
  if (head.name == "file") {
    if (!file_.filename.empty()) return refuse("file", "expected one");
    file_.filename = head.filename.value_or("");
    if (file_.filename.empty()) return refuse("file", "expected a file with a name");
    if (file_.filename.size() > kFilenameBytesMax)
      return refuse("file", fmt::format("expected a name of at most {} bytes", kFilenameBytesMax));
    is_file_ = true;
    return {};
  }
  for (const Field& field : {Field{"purpose", &purpose_}, Field{"expires_after[anchor]", &anchor_},
                             Field{"expires_after[seconds]", &seconds_}}) {
    if (head.name != field.name) continue;
    if (*field.value) return refuse(head.name, "expected one");
    field_ = &field.value->emplace();
  }
  return {};
}

Status FileUpload::add(std::string_view bytes) {
  if (is_file_) {
    if (bytes.size() <= FileStore::kFileBytesMax - data_->bytes()) return data_->append(bytes);
    refusal_ =
        http_error(413, "body_too_large", fmt::format("file: expected at most {} bytes", FileStore::kFileBytesMax));
  } else if (field_) {
    if (field_->size() + bytes.size() <= kFieldBytesMax) {
      *field_ += bytes;
      return {};
    }
    refusal_ = http_error(400, "invalid_argument",
                          fmt::format("multipart: expected fields of at most {} bytes", kFieldBytesMax));
  } else {
    return {};
  }
  return make_error(ErrorCode::kInvalidArgument, "{}", refusal_->message);
}

std::optional<ApiError> FileUpload::read_fields() {
  if (!purpose_) return invalid_field("purpose", "is missing: expected batch");
  if (*purpose_ != kPurposeBatch)
    return invalid_field("purpose", fmt::format("expected batch, found '{}'", shown(*purpose_)));
  file_.purpose = kPurposeBatch;
  if (file_.filename.empty()) return invalid_field("file", "is missing");
  file_.created_at = store_->now_s();
  if (anchor_ && *anchor_ != "created_at") return invalid_field("expires_after.anchor", "expected created_at");
  if (!seconds_) return std::nullopt;
  int64_t seconds = 0;
  const auto [end, problem] = std::from_chars(seconds_->data(), seconds_->data() + seconds_->size(), seconds);
  if (problem != std::errc() || end != seconds_->data() + seconds_->size() || seconds < kExpiryMinS ||
      seconds > kExpiryMaxS)
    return invalid_field("expires_after.seconds", fmt::format("expected {} to {}", kExpiryMinS, kExpiryMaxS));
  file_.expires_at = file_.created_at + seconds;
  return std::nullopt;
}

ApiResult<json::object> FileUpload::finish() {
  if (const Status status = reader_.finish(); !status) return to_store_error(status.error());
  if (auto error = read_fields()) return std::move(*error);
  if (Status status = data_->sync(); !status) return to_store_error(status.error());
  file_.bytes = data_->bytes();
  const auto added = store_->add_file(file_);
  if (!added) return to_store_error(added.error());
  is_kept_ = true;
  return file_object(*added);
}

}  // namespace llmrt::server
