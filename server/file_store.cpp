#include "server/file_store.h"

#include <algorithm>
#include <iterator>

#include "server/ids.h"
#include "server/json_reader.h"
#include "server/rfc3339.h"
#include "server/routes.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

constexpr std::string_view kFileBegin = "file-", kBatchBegin = "batch_";
constexpr std::string_view kRecordEnd = ".json", kDataEnd = ".data";
constexpr uint64_t kRecordBytesMax = 1 << 20;
constexpr size_t kFolderFilesMax = 1 << 19;  // records, data and what is another's

// Of the folder's: says whose it is.
Error of_files(const Error& error) {
  return make_error(error.code, "files: {}", error.message);
}
std::string data_name(std::string_view id) {
  return fmt::format("{}{}", id, kDataEnd);
}
std::string record_name(std::string_view id) {
  return fmt::format("{}{}", id, kRecordEnd);
}

bool is_id(std::string_view text, std::string_view begin) {
  return text.starts_with(begin) && text.size() == begin.size() + 32 &&
         text.find_first_not_of("0123456789abcdef", begin.size()) == text.npos;
}

Error no_such(std::string_view kind, std::string_view id) {
  return make_error(ErrorCode::kNotFound, "there is no {} '{}'", kind, shown(id));
}

}  // namespace

// ---- data ----------------------------------------------------------------------------------------------------------

Status GrowingFile::append(std::string_view bytes) {
  if (!store_->reserve(bytes.size()))
    return make_error(ErrorCode::kNeverFits, "files: expected at most {} bytes in all (--files-gib); delete some",
                      store_->bytes_max());
  if (Status status = file_->write(bytes_, std::as_bytes(std::span(bytes))); !status) {
    store_->used_bytes_ -= bytes.size();
    static_cast<void>(file_->cut(bytes_));  // what was written of them
    return of_files(status.error());
  }
  bytes_ += bytes.size();
  return {};
}

Status GrowingFile::sync() {
  if (Status status = file_->sync(); !status) return of_files(status.error());
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
  return fmt::format("{}/{}", settings_.folder, data_name(id));
}

Result<std::unique_ptr<FolderFile>> FileStore::open_data(std::string_view id) const {
  auto file = folder_->open(data_name(id), /*create=*/false);
  if (!file) return of_files(file.error());
  return file;
}

std::string FileStore::record_path(std::string_view id) const {
  return fmt::format("{}/{}", settings_.folder, record_name(id));
}

Result<std::unique_ptr<GrowingFile>> FileStore::grow(const std::string& id, uint64_t keep) {
  auto opened = folder_->open(data_name(id), /*create=*/false);
  if (!opened) opened = folder_->open(data_name(id), /*create=*/true);
  if (!opened) return of_files(opened.error());
  const Result<uint64_t> size = (*opened)->num_bytes();
  if (!size) return of_files(size.error());
  if (*size < keep) return make_error(ErrorCode::kCorruptFile, "files: expected {} bytes, found {}", keep, *size);
  if (Status status = (*opened)->cut(keep); !status) return of_files(status.error());
  used_bytes_ -= *size - keep;
  return std::unique_ptr<GrowingFile>(new GrowingFile(this, *std::move(opened), keep));
}

void FileStore::drop_data(const std::string& id) {
  const auto file = folder_->open(data_name(id), /*create=*/false);
  const Result<uint64_t> size = file ? (*file)->num_bytes() : file.error();
  if (size && folder_->remove(data_name(id))) used_bytes_ -= *size;
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

template <typename Record>
Status FileStore::write_record(const Record& record) {
  const std::string text = json::serialize(to_record(record));
  Status status = folder_->replace(record_name(record.id), std::as_bytes(std::span(text)));
  if (!status) return of_files(status.error());
  return {};
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
  static_cast<void>(folder_->remove(record_name(id)));
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
    static_cast<void>(folder_->remove(record_name(batch.id)));
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
  ++(is_completed ? lines_completed_ : lines_failed_);
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

FileFigures FileStore::figures() const {
  std::lock_guard lock(mutex_);
  FileFigures figures{.bytes = used_bytes_,
                      .bytes_limit = settings_.bytes_max,
                      .lines_completed = lines_completed_,
                      .lines_failed = lines_failed_};
  for (const auto& [number, file] : files_.by_number)
    ++(file.purpose == kPurposeOutput ? figures.outputs : figures.inputs);
  for (const auto& [number, batch] : batches_.by_number) {
    ++figures.batches[static_cast<size_t>(batch.state)];
    const uint64_t num_answered = std::min(batch.num_lines, batch.num_completed + batch.num_failed);
    if (!is_over(batch.state)) figures.lines_open += batch.num_lines - num_answered;
  }
  return figures;
}

// ---- opening -------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<FileStore>> FileStore::open(Settings settings, Log& log) {
  if (!settings.now_s) settings.now_s = unix_seconds;
  auto folder = open_locked_folder(settings.folder);
  if (!folder && folder.error().code == ErrorCode::kOverloaded)
    return make_error(ErrorCode::kInvalidArgument, "files: {}: another server uses this folder", settings.folder);
  if (!folder) return of_files(folder.error());
  std::unique_ptr<FileStore> store(new FileStore(std::move(settings), *std::move(folder)));
  if (Status status = store->load(log); !status) return status.error();
  return store;
}

Result<json::object> FileStore::read_record(const std::string& id) const {
  auto file = folder_->open(record_name(id), /*create=*/false);
  if (!file) return file.error();
  const Result<uint64_t> size = (*file)->num_bytes();
  if (!size) return size.error();
  if (*size > kRecordBytesMax)
    return make_error(ErrorCode::kCorruptFile, "expected a record of at most {} bytes", kRecordBytesMax);
  std::string text(*size, '\0');
  if (Status status = (*file)->read(0, std::as_writable_bytes(std::span(text))); !status) return status.error();
  Result<json::value> value = read_json(text);
  if (!value) return value.error();
  if (!value->is_object()) return make_error(ErrorCode::kCorruptFile, "expected a JSON object");
  return std::move(value->as_object());
}

template <typename Record>
void FileStore::load_record(const std::string& id, Result<Record> (*read)(const json::object&), Table<Record>* table,
                            Log& log) {
  const Result<json::object> object = read_record(id);
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
  const auto entries = folder_->list(2 * kFolderFilesMax);
  if (!entries) return of_files(entries.error());
  // A list that is cut could have data without its record, which would be removed.
  if (entries->size() > kFolderFilesMax)
    return make_error(ErrorCode::kIo, "files: {}: expected at most {} files, found {}", settings_.folder,
                      kFolderFilesMax, entries->size());
  for (const FolderEntry& entry : *entries) {
    if (entry.name.ends_with(fmt::format("{}{}", kRecordEnd, Folder::kNewEnd)))
      static_cast<void>(folder_->remove(entry.name));
    if (!entry.name.ends_with(kRecordEnd)) continue;
    const std::string id = entry.name.substr(0, entry.name.size() - kRecordEnd.size());
    if (is_id(id, kFileBegin)) load_record(id, read_file_record, &files_, log);
    if (is_id(id, kBatchBegin)) load_record(id, read_batch_record, &batches_, log);
  }
  load_data(*entries, log);
  return {};
}

// Uploads that did not end, and answers of batches whose record is gone, are removed; not where a record could not be
// read, which may be theirs.
void FileStore::load_data(const std::vector<FolderEntry>& entries, Log& log) {
  std::map<std::string, bool, std::less<>> wanted;  // by id: whether a file needs it
  for (const auto& [number, file] : files_.by_number) wanted[file.id] = true;
  for (const auto& [number, batch] : batches_.by_number) {
    if (is_over(batch.state)) continue;
    wanted.try_emplace(batch.output_id, false);
    wanted.try_emplace(batch.error_id, false);
  }
  for (const FolderEntry& entry : entries) {
    if (!entry.name.ends_with(kDataEnd)) continue;
    const std::string_view id = std::string_view(entry.name).substr(0, entry.name.size() - kDataEnd.size());
    if (!is_id(id, kFileBegin)) continue;
    const auto it = wanted.find(id);
    if (it == wanted.end() && !has_corrupt_records_) {
      static_cast<void>(folder_->remove(entry.name));
      continue;
    }
    used_bytes_ += entry.num_bytes;
    if (it != wanted.end()) wanted.erase(it);
  }
  for (const auto& [id, is_needed] : wanted) {
    if (!is_needed) continue;
    log.warn("files: {} is left out: what it holds is gone", record_path(id));
    files_.erase(files_.numbers.at(id));
  }
}

}  // namespace llmrt::server
