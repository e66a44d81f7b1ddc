#include "server/file_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/platform/private_file.h"
#include "server/ids.h"
#include "server/json_reader.h"
#include "server/rfc3339.h"
#include "server/routes.h"

namespace llmrt::server {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::string_view kFileBegin = "file-", kBatchBegin = "batch_";
constexpr std::string_view kRecordEnd = ".json", kDataEnd = ".data", kNewEnd = ".new";
constexpr uint64_t kRecordBytesMax = 1 << 20;

Error system_error(std::string_view what) {
  return make_error(ErrorCode::kIo, "files: {}: {}", what, std::strerror(errno));
}

bool is_id(std::string_view text, std::string_view begin) {
  return text.starts_with(begin) && text.size() == begin.size() + 32 &&
         text.find_first_not_of("0123456789abcdef", begin.size()) == text.npos;
}

Status write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t size = ::write(descriptor, bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return system_error("a file cannot be written");
    bytes.remove_prefix(static_cast<size_t>(size));
  }
  return {};
}

Result<json::object> read_record(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (file.bad() || text.size() > kRecordBytesMax)
    return make_error(ErrorCode::kCorruptFile, "expected a record of at most {} bytes", kRecordBytesMax);
  Result<json::value> value = read_json(text);
  if (!value) return value.error();
  if (!value->is_object()) return make_error(ErrorCode::kCorruptFile, "expected a JSON object");
  return std::move(value->as_object());
}

Error no_such(std::string_view kind, std::string_view id) {
  return make_error(ErrorCode::kNotFound, "there is no {} '{}'", kind, shown(id));
}

}  // namespace

// ---- data ----------------------------------------------------------------------------------------------------------

GrowingFile::~GrowingFile() {
  ::close(descriptor_);
}

Status GrowingFile::append(std::string_view bytes) {
  if (!store_->reserve(bytes.size()))
    return make_error(ErrorCode::kNeverFits, "files: expected at most {} bytes in all (--files-gib); delete some",
                      store_->bytes_max());
  if (Status status = write_all(descriptor_, bytes); !status) {
    store_->used_bytes_ -= bytes.size();
    static_cast<void>(::ftruncate(descriptor_, static_cast<off_t>(bytes_)) == 0);  // what was written of them
    return status;
  }
  bytes_ += bytes.size();
  return {};
}

Status GrowingFile::sync() {
  if (::fdatasync(descriptor_) != 0) return system_error("a file cannot be written");
  return {};
}

bool FileStore::reserve(uint64_t bytes) {
  uint64_t used = used_bytes_;
  do {
    if (bytes > settings_.bytes_max || used > settings_.bytes_max - bytes) return false;
  } while (!used_bytes_.compare_exchange_weak(used, used + bytes));
  return true;
}

std::string FileStore::make_file_id() {
  return make_id_of(kFileBegin);
}

std::string FileStore::data_path(std::string_view id) const {
  return fmt::format("{}/{}{}", settings_.folder, id, kDataEnd);
}

std::string FileStore::record_path(std::string_view id) const {
  return fmt::format("{}/{}{}", settings_.folder, id, kRecordEnd);
}

Result<std::unique_ptr<GrowingFile>> FileStore::grow(const std::string& id, uint64_t keep) {
  Result<PrivateFile> opened = open_private_file(data_path(id), OpenFor::kAppending);
  if (!opened) return make_error(ErrorCode::kIo, "files: a file cannot be made: {}", opened.error().message);
  std::unique_ptr<GrowingFile> file(new GrowingFile(this, opened->descriptor, keep));
  struct stat status;
  if (::fstat(opened->descriptor, &status) != 0) return system_error("a file cannot be read");
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size < keep) return make_error(ErrorCode::kCorruptFile, "files: expected {} bytes, found {}", keep, size);
  if (::ftruncate(opened->descriptor, static_cast<off_t>(keep)) != 0) return system_error("a file cannot be cut");
  used_bytes_ -= size - keep;
  return file;
}

void FileStore::drop_data(const std::string& id) {
  std::error_code error;
  const uintmax_t size = fs::file_size(data_path(id), error);
  if (!error && fs::remove(data_path(id), error)) used_bytes_ -= size;
}

// ---- tables --------------------------------------------------------------------------------------------------------

template <typename Record>
void FileStore::Table<Record>::insert(Record record) {
  numbers[record.id] = record.number;
  by_number[record.number] = std::move(record);
}

template <typename Record>
void FileStore::Table<Record>::erase(uint64_t number) {
  const auto it = by_number.find(number);
  numbers.erase(it->second.id);
  by_number.erase(it);
}

template <typename Record>
const Record* FileStore::Table<Record>::find(std::string_view id) const {
  const auto it = numbers.find(id);
  return it == numbers.end() ? nullptr : &by_number.at(it->second);
}

template <typename Record>
Result<ListPage<Record>> FileStore::Table<Record>::list(std::string_view owner, const ListQuery& query) const {
  const auto is_wanted = [&](const Record& record) {
    if constexpr (std::is_same_v<Record, StoredFile>)
      if (!query.purpose.empty() && record.purpose != query.purpose) return false;
    return record.owner == owner;
  };
  const Record* last = query.after.empty() ? nullptr : find(query.after);
  if (!query.after.empty() && (!last || last->owner != owner))
    return make_error(ErrorCode::kInvalidArgument, "after: expected the id of one of the list, found '{}'",
                      shown(query.after));
  ListPage<Record> page;
  const auto gather = [&](auto begin, auto end) {
    for (; begin != end && !page.has_more; ++begin) {
      if (!is_wanted(begin->second)) continue;
      if (page.records.size() < query.limit)
        page.records.push_back(begin->second);
      else
        page.has_more = true;
    }
  };
  if (query.is_ascending)
    gather(last ? by_number.upper_bound(last->number) : by_number.begin(), by_number.end());
  else
    gather(std::make_reverse_iterator(last ? by_number.lower_bound(last->number) : by_number.end()), by_number.rend());
  return page;
}

// Replaced whole, so that a crash leaves the old one or the new one.
template <typename Record>
Status FileStore::write_record(const Record& record) {
  const std::string path = record_path(record.id), new_path = path + std::string(kNewEnd);
  Result<PrivateFile> opened = open_private_file(new_path, OpenFor::kWriting);
  if (!opened) return make_error(ErrorCode::kIo, "files: a record cannot be made: {}", opened.error().message);
  Status status = write_all(opened->descriptor, json::serialize(to_record(record)));
  if (status && ::fsync(opened->descriptor) != 0) status = system_error("a record cannot be written");
  ::close(opened->descriptor);
  if (status && ::rename(new_path.c_str(), path.c_str()) != 0) status = system_error("a record cannot be replaced");
  return status;
}

// ---- files ---------------------------------------------------------------------------------------------------------

Result<StoredFile> FileStore::add_file(StoredFile file) {
  std::lock_guard lock(mutex_);
  if (file.purpose != kPurposeOutput && files_.by_number.size() >= kFilesMax)
    return make_error(ErrorCode::kNeverFits, "files: expected at most {} files; delete some", kFilesMax);
  file.number = next_number_++;
  if (Status status = write_record(file); !status) return status.error();
  files_.insert(file);
  return file;
}

std::optional<StoredFile> FileStore::find_file(std::string_view owner, std::string_view id) const {
  std::lock_guard lock(mutex_);
  const StoredFile* file = files_.find(id);
  return file && file->owner == owner ? std::optional(*file) : std::nullopt;
}

Result<ListPage<StoredFile>> FileStore::list_files(std::string_view owner, const ListQuery& query) const {
  std::lock_guard lock(mutex_);
  return files_.list(owner, query);
}

bool FileStore::is_read(std::string_view file_id) const {
  return std::ranges::any_of(batches_.by_number, [&](const auto& entry) {
    return entry.second.input_id == file_id && !is_over(entry.second.state);
  });
}

void FileStore::remove_locked(uint64_t number) {
  const std::string id = files_.by_number.at(number).id;
  std::error_code ignored;
  fs::remove(record_path(id), ignored);
  drop_data(id);
  files_.erase(number);
}

Status FileStore::remove_file(std::string_view owner, std::string_view id) {
  std::lock_guard lock(mutex_);
  const StoredFile* file = files_.find(id);
  if (!file || file->owner != owner) return no_such("file", id);
  if (is_read(id)) return make_error(ErrorCode::kInvalidArgument, "file_id: a batch that is not over reads this file");
  remove_locked(file->number);
  return {};
}

void FileStore::remove_expired() {
  const int64_t now = now_s();
  std::lock_guard lock(mutex_);
  std::vector<uint64_t> numbers;
  for (const auto& [number, file] : files_.by_number)
    if (file.expires_at != 0 && file.expires_at <= now && !is_read(file.id)) numbers.push_back(number);
  for (const uint64_t number : numbers) remove_locked(number);
}

// ---- batches -------------------------------------------------------------------------------------------------------

bool FileStore::make_room_for_batch() {
  if (batches_.by_number.size() < kBatchesMax) return true;
  std::map<std::string_view, size_t> counts;  // of those that are over, by owner
  for (const auto& [number, batch] : batches_.by_number) counts[batch.owner] += is_over(batch.state);
  const auto most = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
  for (const auto& [number, batch] : batches_.by_number) {
    if (batch.owner != most->first || !is_over(batch.state)) continue;
    std::error_code ignored;
    fs::remove(record_path(batch.id), ignored);
    batches_.erase(number);
    return true;
  }
  return false;
}

Result<StoredBatch> FileStore::add_batch(StoredBatch batch) {
  std::lock_guard lock(mutex_);
  const StoredFile* input = files_.find(batch.input_id);
  if (!input || input->owner != batch.owner) return no_such("file", batch.input_id);
  if (!make_room_for_batch())
    return make_error(ErrorCode::kNeverFits, "batches: expected at most {} that are not over", kBatchesMax);
  batch.id = make_id_of(kBatchBegin);
  batch.number = next_number_++;
  batch.output_id = make_file_id();
  batch.error_id = make_file_id();
  if (Status status = write_record(batch); !status) return status.error();
  batches_.insert(batch);
  return batch;
}

std::optional<StoredBatch> FileStore::find_batch(std::string_view owner, std::string_view id) const {
  std::lock_guard lock(mutex_);
  const StoredBatch* batch = batches_.find(id);
  return batch && batch->owner == owner ? std::optional(*batch) : std::nullopt;
}

Result<ListPage<StoredBatch>> FileStore::list_batches(std::string_view owner, const ListQuery& query) const {
  std::lock_guard lock(mutex_);
  return batches_.list(owner, query);
}

Result<StoredBatch> FileStore::change_batch(std::string_view owner, std::string_view id,
                                            const std::function<Status(StoredBatch&)>& change) {
  std::lock_guard lock(mutex_);
  const StoredBatch* batch = batches_.find(id);
  if (!batch || batch->owner != owner) return no_such("batch", id);
  StoredBatch changed = *batch;
  if (Status status = change(changed); !status) return status.error();
  if (Status status = write_record(changed); !status) return status.error();
  batches_.insert(changed);
  return changed;
}

void FileStore::count_line(std::string_view batch_id, bool is_completed) {
  std::lock_guard lock(mutex_);
  const auto it = batches_.numbers.find(batch_id);
  if (it == batches_.numbers.end()) return;
  StoredBatch& batch = batches_.by_number.at(it->second);
  ++(is_completed ? batch.num_completed : batch.num_failed);
}

std::vector<OpenBatch> FileStore::open_batches() const {
  std::lock_guard lock(mutex_);
  std::vector<OpenBatch> open;
  for (const auto& [number, batch] : batches_.by_number)
    if (!is_over(batch.state)) open.push_back({batch.id, batch.owner, batch.state, batch.expires_at});
  return open;
}

// ---- opening -------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<FileStore>> FileStore::open(Settings settings, Log& log) {
  if (!settings.now_s) settings.now_s = unix_seconds;
  std::unique_ptr<FileStore> store(new FileStore(std::move(settings)));
  if (Status status = store->lock_folder(); !status) return status.error();
  if (Status status = store->load(log); !status) return status.error();
  return store;
}

FileStore::~FileStore() {
  if (lock_ >= 0) ::close(lock_);
}

Status FileStore::lock_folder() {
  if (::mkdir(settings_.folder.c_str(), 0700) != 0 && errno != EEXIST) return system_error(settings_.folder);
  const std::string path = settings_.folder + "/lock";
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0) return system_error(path);
  if (::flock(lock_, LOCK_EX | LOCK_NB) == 0) return {};
  if (errno != EWOULDBLOCK) return system_error(path);
  return make_error(ErrorCode::kInvalidArgument, "files: {}: another server uses this folder", settings_.folder);
}

template <typename Record>
void FileStore::load_record(const std::string& id, Result<Record> (*read)(const json::object&), Table<Record>* table,
                            Log& log) {
  const Result<json::object> object = read_record(record_path(id));
  Result<Record> record = object ? read(*object) : Result<Record>(object.error());
  const bool is_own = record && record->id == id && !table->by_number.contains(record->number);
  if (!is_own) {
    has_corrupt_records_ = true;
    return log.warn("files: {} is left out: {}", record_path(id),
                    record ? "expected its own id and a number of its own" : record.error().message);
  }
  next_number_ = std::max(next_number_, record->number + 1);
  table->insert(*std::move(record));
}

Status FileStore::load(Log& log) {
  std::error_code error;
  for (fs::directory_iterator entry(settings_.folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    if (name.ends_with(std::string(kRecordEnd) + std::string(kNewEnd))) fs::remove(entry->path(), ignored);
    if (!name.ends_with(kRecordEnd)) continue;
    const std::string id = name.substr(0, name.size() - kRecordEnd.size());
    if (is_id(id, kFileBegin)) load_record(id, read_file_record, &files_, log);
    if (is_id(id, kBatchBegin)) load_record(id, read_batch_record, &batches_, log);
  }
  if (error) return make_error(ErrorCode::kIo, "files: {}: {}", settings_.folder, error.message());
  load_data(log);
  return {};
}

// Uploads that did not end, and answers of batches whose record is gone, are removed; not where a record could not be
// read, which may be theirs.
void FileStore::load_data(Log& log) {
  std::map<std::string, bool, std::less<>> wanted;  // by id: whether a file needs it
  for (const auto& [number, file] : files_.by_number) wanted[file.id] = true;
  for (const auto& [number, batch] : batches_.by_number) {
    if (is_over(batch.state)) continue;
    wanted.try_emplace(batch.output_id, false);
    wanted.try_emplace(batch.error_id, false);
  }
  std::error_code error;
  for (fs::directory_iterator entry(settings_.folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.ends_with(kDataEnd) ||
        !is_id(std::string_view(name).substr(0, name.size() - kDataEnd.size()), kFileBegin))
      continue;
    const auto it = wanted.find(std::string_view(name).substr(0, name.size() - kDataEnd.size()));
    std::error_code ignored;
    if (it == wanted.end() && !has_corrupt_records_) {
      fs::remove(entry->path(), ignored);
      continue;
    }
    const uintmax_t size = fs::file_size(entry->path(), ignored);
    if (!ignored) used_bytes_ += size;
    if (it != wanted.end()) wanted.erase(it);
  }
  for (const auto& [id, is_needed] : wanted) {
    if (!is_needed) continue;
    log.warn("files: {} is left out: what it holds is gone", record_path(id));
    files_.erase(files_.numbers.at(id));
  }
}

}  // namespace llmrt::server
