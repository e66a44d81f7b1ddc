// Files and batches without HTTP: the multipart reader whatever its pieces, the store over restarts and faults, and
// batches run to their end by a fake engine.
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include "server/batch_runner.h"
#include "server/file_requests.h"
#include "tests/server/running.h"

namespace llmrt::server {
namespace {

namespace fs = std::filesystem;

// ---- multipart -----------------------------------------------------------------------------------------------------

struct Part {
  PartHead head;
  std::string body;
  bool has_ended = false;
};
struct Parts : PartSink {
  std::vector<Part> parts;
  Status begin(const PartHead& head) override {
    parts.push_back({head, {}});
    return {};
  }
  Status add(std::string_view bytes) override {
    parts.back().body += bytes;
    return {};
  }
  Status end() override {
    parts.back().has_ended = true;
    return {};
  }
};

Result<std::vector<Part>> read_parts(std::string_view body, size_t piece, std::string_view boundary = "bd") {
  Parts sink;
  MultipartReader reader(boundary, &sink);
  for (size_t at = 0; at < body.size(); at += piece)
    if (Status status = reader.feed(body.substr(at, piece)); !status) return status.error();
  if (Status status = reader.finish(); !status) return status.error();
  return sink.parts;
}
std::string problem_of(std::string_view body) {
  const auto parts = read_parts(body, 3);
  return parts ? "" : parts.error().message;
}
std::string part(const std::string& disposition, const std::string& body) {
  return "--bd\r\nContent-Disposition: " + disposition + "\r\n\r\n" + body + "\r\n";
}

TEST_CASE("a multipart body is the same in pieces of any size") {
  const std::string tricky = "\r\n--b\r\n--bc\r\n-\r\r\n--bD\r\n--b";
  const std::string body =
      "a preamble\r\n" + part("form-data; name=\"purpose\"", "batch") +
      "--bd  \t\r\nContent-Type: text/plain\r\nContent-Disposition: FORM-DATA; filename=\"a\\\"b;c\"; "
      "name = x\r\n\r\n" +
      tricky + "\r\n" + part("form-data; name=\"empty\"", "") + "--bd--\r\nan epilogue --bd";
  for (size_t piece = 1; piece <= body.size(); ++piece) {
    INFO(piece);
    const auto parts = read_parts(body, piece);
    REQUIRE(parts.ok());
    REQUIRE(parts->size() == 3);
    CHECK(parts->at(0).head.name == "purpose");
    CHECK_FALSE(parts->at(0).head.filename);
    CHECK(parts->at(0).body == "batch");
    CHECK(parts->at(1).head.name == "x");
    CHECK(parts->at(1).head.filename == "a\"b;c");
    CHECK(parts->at(1).body == tricky);
    CHECK(parts->at(2).body.empty());
    for (const Part& each : *parts) CHECK(each.has_ended);
  }
}

TEST_CASE("a multipart body that is broken or too much is refused") {
  const std::string good = part("form-data; name=\"a\"", "1");
  CHECK(problem_of(good + "--bd--").empty());
  CHECK(problem_of("").find("last boundary") != std::string::npos);
  CHECK(problem_of(good).find("last boundary") != std::string::npos);
  CHECK(problem_of(good + "--bdx\r\n").find("line end") != std::string::npos);
  CHECK(problem_of(part("form-data", "1") + "--bd--").find("a name") != std::string::npos);
  CHECK(problem_of(part("attachment; name=\"a\"", "1") + "--bd--").find("form-data") != std::string::npos);
  CHECK(problem_of(part("form-data; name=\"a\"; name=\"b\"", "1") + "--bd--").find("one name") != std::string::npos);
  CHECK(problem_of(part("form-data; name=\"a", "1") + "--bd--").find("Content-Disposition") != std::string::npos);
  CHECK(problem_of(part("form-data; name=\"a\tb\x01\"", "1") + "--bd--").find("control") != std::string::npos);
  CHECK(problem_of(part("form-data; name=\"\xff\"", "1") + "--bd--").find("UTF-8") != std::string::npos);
  CHECK(problem_of(part("form-data; name=\"a\"\r\nContent-Transfer-Encoding: base64", "1")).find("Transfer-Encoding") !=
        std::string::npos);
  CHECK(problem_of("--bd\r\nX: " + std::string(5000, 'x')).find("4096") != std::string::npos);
  std::string many;
  for (size_t i = 0; i <= MultipartReader::kPartsMax; ++i) many += good;
  CHECK(problem_of(many + "--bd--").find("at most 32 parts") != std::string::npos);
  CHECK(MultipartReader::is_boundary("----WebKitFormBoundary7MA4YWxkTrZu0gW"));
  for (const std::string& wrong : {std::string(), std::string(71, 'a'), std::string("a "), std::string("a\"b")})
    CHECK_FALSE(MultipartReader::is_boundary(wrong));
}

// ---- the store -----------------------------------------------------------------------------------------------------

// A folder that is gone with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    static std::atomic<int> count = 0;
    path_ = fs::temp_directory_path() / fmt::format("llmrt-files-{}-{}", ::getpid(), ++count);
    fs::remove_all(path_);
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  std::string path() const { return path_; }
  std::set<std::string> names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(path_)) names.insert(entry.path().filename());
    return names;
  }

 private:
  fs::path path_;
};

struct Store {
  explicit Store(const TemporaryFolder& folder, uint64_t bytes_max = 64 << 20) {
    auto opened = FileStore::open({folder.path(), bytes_max, [this] { return now_s.load(); }}, *log);
    REQUIRE(opened.ok());
    store = std::move(*opened);
  }
  StoredFile add(const std::string& text, const std::string& owner = "", int64_t expires_at = 0) const {
    StoredFile file{.id = FileStore::make_file_id(), .owner = owner, .filename = "in.jsonl", .purpose = "batch"};
    auto data = store->grow(file.id);
    REQUIRE(data.ok());
    REQUIRE((*data)->append(text).ok());
    file.bytes = text.size();
    file.expires_at = expires_at;
    auto added = store->add_file(file);
    REQUIRE(added.ok());
    return *added;
  }
  StoredBatch add_batch(const StoredFile& input, const std::string& endpoint = "/v1/completions") const {
    StoredBatch batch;
    batch.owner = input.owner;
    batch.endpoint = endpoint;
    batch.input_id = input.id;
    batch.move_to(BatchState::kValidating, now_s);
    batch.expires_at = now_s + BatchRunner::kWindowS;
    auto added = store->add_batch(batch);
    REQUIRE(added.ok());
    return *added;
  }
  std::vector<std::string> ids(const std::string& owner, const ListQuery& query = {}) const {
    const auto page = store->list_files(owner, query);
    REQUIRE(page.ok());
    std::vector<std::string> ids;
    for (const StoredFile& file : page->records) ids.push_back(file.id);
    if (page->has_more) ids.push_back("more");
    return ids;
  }
  std::atomic<int64_t> now_s = 1'000'000;
  std::shared_ptr<Log> log = silent_log();
  std::unique_ptr<FileStore> store;
};

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("files are listed by page, and only to their owner") {
  const TemporaryFolder folder;
  const Store at(folder);
  const std::string a = at.add("1", "x").id, b = at.add("2", "x").id, c = at.add("3", "y").id;
  CHECK(at.ids("x") == std::vector<std::string>{b, a});
  CHECK(at.ids("x", {.after = a, .is_ascending = true}) == std::vector<std::string>{b});
  CHECK(at.ids("x", {.limit = 1}) == std::vector<std::string>{b, "more"});
  CHECK(at.ids("x", {.after = b, .limit = 1}) == std::vector<std::string>{a});
  CHECK(at.ids("x", {.purpose = "batch_output"}).empty());
  CHECK(at.ids("").empty());
  CHECK_FALSE(at.store->list_files("x", {.after = c}).ok());
  CHECK_FALSE(at.store->find_file("x", c));
  CHECK_FALSE(at.store->find_file("", c));
  CHECK(at.store->remove_file("x", c).error().code == ErrorCode::kNotFound);
  CHECK(at.store->remove_file("y", c).ok());
  CHECK_FALSE(at.store->find_file("y", c));
}

TEST_CASE("the store is what it was after a restart, and a folder has one server") {
  const TemporaryFolder folder;
  StoredFile file;
  StoredBatch batch;
  {
    const Store at(folder);
    CHECK(FileStore::open({folder.path(), 1}, *at.log).error().message.find("another server") != std::string::npos);
    file = at.add("12345", "x");
    batch = at.add_batch(file);
    const auto changed = at.store->change_batch("x", batch.id, [](StoredBatch& it) {
      it.metadata = json::object{{"a", "b"}};
      it.problems.push_back({7, "invalid_url", "no", "url"});
      it.num_lines = 3;
      return Status();
    });
    REQUIRE(changed.ok());
  }
  // What a crash leaves behind, and what is somebody else's.
  const std::string orphan = "file-" + std::string(32, 'a') + ".data";
  std::ofstream(folder.path() + "/" + orphan) << "x";
  std::ofstream(folder.path() + "/" + file.id + ".json.new") << "{";
  std::ofstream(folder.path() + "/notes.txt") << "x";
  const Store at(folder);
  CHECK(at.store->used_bytes() == 5);
  CHECK_FALSE(folder.names().contains(orphan));
  CHECK_FALSE(folder.names().contains(file.id + ".json.new"));
  CHECK(folder.names().contains("notes.txt"));
  const auto found = at.store->find_file("x", file.id);
  REQUIRE(found);
  CHECK(file_object(*found) == file_object(file));
  const auto again = at.store->find_batch("x", batch.id);
  REQUIRE(again);
  CHECK(again->output_id == batch.output_id);
  CHECK(again->metadata.at("a") == "b");
  CHECK(again->num_lines == 3);
  REQUIRE(again->problems.size() == 1);
  CHECK(again->problems[0].line == 7);
  CHECK(at.add("6", "x").number > batch.number);
}

TEST_CASE("a record that cannot be read is left out, and no data is removed then") {
  const TemporaryFolder folder;
  StoredFile file, other;
  {
    const Store at(folder);
    file = at.add("12345");
    other = at.add("1");
  }
  const std::string orphan = "file-" + std::string(32, 'b') + ".data";
  std::ofstream(folder.path() + "/" + orphan) << "x";
  const std::string path = folder.path() + "/" + file.id + ".json";
  const std::string whole = read_all(path);
  for (const std::string& text : {std::string(), whole.substr(0, whole.size() / 2), std::string("[]"),
                                  std::string("{}"), read_all(folder.path() + "/" + other.id + ".json")}) {
    std::ofstream(path, std::ios::trunc) << text;
    const Store at(folder);
    CHECK_FALSE(at.store->find_file("", file.id));
    CHECK(at.store->find_file("", other.id));
    CHECK(at.store->used_bytes() == 7);
    CHECK(folder.names().contains(orphan));
  }
  std::ofstream(path, std::ios::trunc) << whole;
  fs::remove(folder.path() + "/" + file.id + ".data");
  const Store at(folder);
  CHECK_FALSE(at.store->find_file("", file.id));
  CHECK(at.store->used_bytes() == 1);
}

TEST_CASE("what all files take is bounded, and given back") {
  const TemporaryFolder folder;
  const Store at(folder, 10);
  const StoredFile file = at.add("123456");
  const std::string id = FileStore::make_file_id();
  {
    auto data = at.store->grow(id);
    REQUIRE(data.ok());
    CHECK((*data)->append("1234").ok());
    CHECK((*data)->append("5").error().code == ErrorCode::kNeverFits);
    CHECK((*data)->bytes() == 4);
  }
  CHECK(read_all(at.store->data_path(id)) == "1234");
  CHECK((*at.store->grow(id, 2))->bytes() == 2);
  CHECK(at.store->used_bytes() == 8);
  at.store->drop_data(id);
  CHECK(at.store->used_bytes() == 6);
  CHECK(at.store->remove_file("", file.id).ok());
  CHECK(at.store->used_bytes() == 0);
}

// The disk is full in the middle of a write: a limit of the process stands for it.
TEST_CASE("bytes that find no room on the disk leave nothing of them") {
  const TemporaryFolder folder;
  const Store at(folder);
  const std::string id = FileStore::make_file_id();
  auto data = at.store->grow(id);
  REQUIRE(data.ok());
  REQUIRE((*data)->append("1234").ok());
  rlimit old{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
  const rlimit small{6, old.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const Status refused = (*data)->append("56789");
  StoredFile file{.id = id, .owner = "", .filename = "in.jsonl", .purpose = "batch"};
  const auto unrecorded = at.store->add_file(file);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &old) == 0);
  CHECK(refused.error().code == ErrorCode::kIo);
  CHECK((*data)->bytes() == 4);
  CHECK(at.store->used_bytes() == 4);
  CHECK(read_all(at.store->data_path(id)) == "1234");
  CHECK(unrecorded.error().code == ErrorCode::kIo);
  CHECK_FALSE(at.store->find_file("", id));
  CHECK((*data)->append("5").ok());
  CHECK(at.store->add_file(file).ok());
}

TEST_CASE("a file that is a link, or another's, is not opened") {
  const TemporaryFolder folder;
  const Store at(folder);
  const std::string id = FileStore::make_file_id();
  fs::create_symlink("/etc/passwd", at.store->data_path(id));
  CHECK_FALSE(at.store->grow(id).ok());
  CHECK_FALSE(at.store->open_data(id).ok());
}

TEST_CASE("files go at their time, but not while a batch reads them") {
  const TemporaryFolder folder;
  Store at(folder);
  const StoredFile file = at.add("1", "", at.now_s + 10), kept = at.add("2");
  const StoredBatch batch = at.add_batch(file);
  CHECK(at.store->remove_file("", file.id).error().code == ErrorCode::kInvalidArgument);
  at.now_s += 10;
  at.store->remove_expired();
  CHECK(at.store->find_file("", file.id));
  const auto ended = at.store->change_batch("", batch.id, [&](StoredBatch& it) {
    it.move_to(BatchState::kCancelled, at.now_s);
    return Status();
  });
  REQUIRE(ended.ok());
  at.store->remove_expired();
  CHECK_FALSE(at.store->find_file("", file.id));
  CHECK(at.store->find_file("", kept.id));
}

// ---- uploads -------------------------------------------------------------------------------------------------------

std::string file_part(const std::string& text, const std::string& name = "in.jsonl") {
  return part("form-data; name=\"file\"; filename=\"" + name + "\"", text);
}
ApiResult<json::object> upload(FileStore* store, const std::string& body) {
  auto begun = FileUpload::begin(store, "x", "bd");
  REQUIRE(std::holds_alternative<std::unique_ptr<FileUpload>>(begun));
  auto& upload = *std::get<std::unique_ptr<FileUpload>>(begun);
  for (size_t at = 0; at < body.size(); at += 7)
    if (auto error = upload.feed(std::string_view(body).substr(at, 7))) return std::move(*error);
  return upload.finish();
}

TEST_CASE("an upload becomes a file, or leaves nothing") {
  const TemporaryFolder folder;
  const Store at(folder, 100);
  const std::string purpose = part("form-data; name=\"purpose\"", "batch"), end = "--bd--\r\n";
  const auto made = upload(at.store.get(), file_part("12345", "../../../etc/passwd") + purpose + end);
  REQUIRE(std::holds_alternative<json::object>(made));
  const json::object& object = std::get<json::object>(made);
  CHECK(object.at("bytes") == 5);
  CHECK(object.at("filename") == "../../../etc/passwd");
  CHECK(object.at("expires_at").is_null());
  const std::string id(object.at("id").as_string());
  CHECK(folder.names() == std::set<std::string>{"lock", id + ".data", id + ".json"});

  const auto expiry = [](const std::string& seconds) {
    return part("form-data; name=\"expires_after[seconds]\"", seconds);
  };
  struct Row {
    std::string body, param;
    int status;
  };
  const Row rows[] = {
      {file_part("1") + end, "purpose", 400},
      {file_part("1") + part("form-data; name=\"purpose\"", "fine-tune") + end, "purpose", 400},
      {purpose + end, "file", 400},
      {purpose + part("form-data; name=\"file\"", "1") + end, "file", 400},
      {purpose + file_part("1") + file_part("2") + end, "file", 400},
      {purpose + purpose + file_part("1") + end, "purpose", 400},
      {purpose + file_part("1", std::string(256, 'a')) + end, "file", 400},
      {purpose + file_part("1") + expiry("5") + end, "expires_after.seconds", 400},
      {purpose + file_part("1") + expiry("4000x") + end, "expires_after.seconds", 400},
      {part("form-data; name=\"purpose\"", std::string(1025, 'b')) + file_part("1") + end, "", 400},
      {purpose + file_part("1"), "", 400},
      {purpose + file_part(std::string(96, '1')) + end, "", 413},
  };
  for (const Row& row : rows) {
    INFO(row.body);
    const auto refused = upload(at.store.get(), row.body);
    REQUIRE(std::holds_alternative<ApiError>(refused));
    CHECK(std::get<ApiError>(refused).status == row.status);
    CHECK(std::get<ApiError>(refused).param == row.param);
    CHECK(at.store->used_bytes() == 5);
    CHECK(folder.names().size() == 3);
  }
  const auto expires = upload(at.store.get(), purpose + file_part("1") + expiry("3600") + end);
  CHECK(std::get<json::object>(expires).at("expires_at") == at.now_s + 3600);
}

// ---- batches -------------------------------------------------------------------------------------------------------

std::string request_line(const std::string& id, const std::string& body = R"({"prompt": "abc", "max_tokens": 2})",
                         const std::string& url = "/v1/completions") {
  return fmt::format(R"({{"custom_id": "{}", "method": "POST", "url": "{}", "body": {}}})", id, url, body) + "\n";
}

// A runner over a fake engine that writes "hi".
struct BatchRunning {
  explicit BatchRunning(FileStore* store, uint32_t in_flight = 3, std::chrono::milliseconds pause = {}) {
    engine->tokens = {'h', 'i'};
    engine->pause = pause;
    auto ring = KeyRing::open({});
    REQUIRE(ring.ok());
    keys = std::move(*ring);
    ServedModel model = letter_model();
    REQUIRE(finish_model(&model).ok());
    std::vector<ModelSpec> specs = {{.name = model.id, .is_pinned = true, .is_adopted = true}};
    host = std::make_unique<ModelHost>(std::move(specs), RegistryLimits(), std::make_shared<NoLoader>(), &clock);
    host->adopt(0, std::make_shared<ServedEngine>(std::move(model), engine, 0));
    runner = std::make_unique<BatchRunner>(BatchRunner::Parts{store, host.get(), keys.get(), memory, silent_log()},
                                           BatchRunner::Settings{in_flight, false});
  }
  ~BatchRunning() {
    runner->stop();
    host->stop();
    engine->join();
  }
  struct NoLoader final : ModelLoader {
    Result<std::shared_ptr<LoadedModel>> load(ModelIdx, std::function<void(Error)>) override {
      return make_error(ErrorCode::kUnsupported, "none");
    }
    uint64_t need_bytes(ModelIdx) const override { return 0; }
    uint64_t free_bytes(uint64_t) const override { return ~uint64_t{0}; }
  };
  SteadyClock clock;
  std::shared_ptr<FakeEngine> engine = std::make_shared<FakeEngine>();
  std::shared_ptr<ClientMemory> memory = std::make_shared<ClientMemory>(uint64_t{1} << 30);
  std::unique_ptr<KeyRing> keys;
  std::unique_ptr<ModelHost> host;
  std::unique_ptr<BatchRunner> runner;
};

StoredBatch wait_for(const FileStore& store, const StoredBatch& batch,
                     const std::function<bool(const StoredBatch&)>& is_it) {
  for (int i = 0; i < 2000; ++i) {
    const auto now = store.find_batch(batch.owner, batch.id);
    REQUIRE(now);
    if (is_it(*now)) return *now;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL("the batch does not get there");
  return {};
}
StoredBatch wait_over(const FileStore& store, const StoredBatch& batch) {
  return wait_for(store, batch, [](const StoredBatch& now) { return is_over(now.state); });
}
std::multiset<std::string> ids_in(const FileStore& store, const std::string& id) {
  std::ifstream file(store.data_path(id), std::ios::binary);
  std::multiset<std::string> ids;
  for (std::string line; std::getline(file, line);) ids.insert(custom_id_of(line));
  return ids;
}

TEST_CASE("a batch is answered at the class batch, errors apart") {
  const TemporaryFolder folder;
  const Store at(folder);
  std::string text;
  for (int i = 0; i < 20; ++i) text += request_line(fmt::format("r{}", i));
  text += "\n" + request_line("wrong", R"({"prompt": 5})");
  text += request_line("first", R"({"prompt": "abc", "request_class": "interactive"})");
  const StoredBatch batch = at.add_batch(at.add(text));
  BatchRunning run(at.store.get());
  const StoredBatch done = wait_over(*at.store, batch);
  CHECK(done.state == BatchState::kCompleted);
  CHECK(done.num_lines == 22);
  CHECK(done.num_completed == 20);
  CHECK(done.num_failed == 2);
  REQUIRE(done.has_output);
  REQUIRE(done.has_errors);
  CHECK(ids_in(*at.store, done.output_id).size() == 20);
  CHECK(ids_in(*at.store, done.error_id) == std::multiset<std::string>{"first", "wrong"});
  const auto output = at.store->find_file("", done.output_id);
  REQUIRE(output);
  CHECK(output->purpose == "batch_output");
  CHECK(output->bytes == fs::file_size(at.store->data_path(output->id)));
  const FileFigures figures = at.store->figures();
  CHECK(figures.inputs == 1);
  CHECK(figures.outputs == 2);
  CHECK(figures.bytes == at.store->used_bytes());
  CHECK(figures.batches[static_cast<size_t>(BatchState::kCompleted)] == 1);
  CHECK(figures.lines_open == 0);
  CHECK(figures.lines_completed == 20);
  CHECK(figures.lines_failed == 2);
  for (const Request& request : run.engine->requests()) CHECK(request.request_class == RequestClass::kBatch);
  const json::object object = batch_object(done);
  for (const char* time : {"created_at", "in_progress_at", "finalizing_at", "completed_at"})
    CHECK(object.at(time).is_int64());
  CHECK(object.at("cancelled_at").is_null());
}

TEST_CASE("a batch with wrong lines fails, and each is told") {
  const TemporaryFolder folder;
  const Store at(folder);
  const StoredBatch batch = at.add_batch(at.add(request_line("a") + "{\n" + request_line("a") +
                                                request_line("b", "{}", "/v1/chat/completions") +
                                                std::string(kBatchLineBytesMax + 100, 'x') + "\n"));
  const StoredBatch empty = at.add_batch(at.add("\n \n"));
  std::string many;
  for (size_t i = 0; i < BatchRunner::kProblemsMax + 50; ++i) many += "{\n";
  const StoredBatch all_wrong = at.add_batch(at.add(many));
  BatchRunning run(at.store.get());
  const StoredBatch failed = wait_over(*at.store, batch);
  CHECK(failed.state == BatchState::kFailed);
  std::vector<std::pair<uint64_t, std::string>> told;
  for (const LineProblem& problem : failed.problems) told.emplace_back(problem.line, problem.code);
  CHECK(told ==
        std::vector<std::pair<uint64_t, std::string>>{
            {2, "invalid_json_line"}, {3, "duplicate_custom_id"}, {4, "invalid_url"}, {5, "invalid_json_line"}});
  CHECK(wait_over(*at.store, empty).problems.at(0).code == "empty_file");
  CHECK(wait_over(*at.store, all_wrong).problems.size() == BatchRunner::kProblemsMax);
  CHECK(run.engine->requests().empty());
}

TEST_CASE("a batch that is cancelled keeps what was answered") {
  const TemporaryFolder folder;
  const Store at(folder);
  std::string text;
  for (int i = 0; i < 200; ++i) text += request_line(fmt::format("r{}", i));
  const StoredBatch batch = at.add_batch(at.add(text));
  BatchRunning run(at.store.get(), 2, std::chrono::milliseconds(20));
  wait_for(*at.store, batch, [](const StoredBatch& now) { return now.num_completed >= 4; });
  const auto cancelled = cancel_batch({.store = *at.store, .owner = "", .id = batch.id});
  CHECK(std::get<json::object>(cancelled).at("status") == "cancelling");
  CHECK(std::holds_alternative<ApiError>(cancel_batch({.store = *at.store, .owner = "other", .id = batch.id})));
  run.runner->wake();
  const StoredBatch ended = wait_over(*at.store, batch);
  CHECK(ended.state == BatchState::kCancelled);
  CHECK(ended.num_completed < 200);
  REQUIRE(ended.has_output);
  CHECK(ids_in(*at.store, ended.output_id).size() == ended.num_completed);
  CHECK(std::get<ApiError>(cancel_batch({.store = *at.store, .owner = "", .id = batch.id})).status == 400);
}

TEST_CASE("a batch whose window ends says so of what was not answered") {
  const TemporaryFolder folder;
  Store at(folder);
  std::string text;
  for (int i = 0; i < 50; ++i) text += request_line(fmt::format("r{}", i));
  const StoredBatch batch = at.add_batch(at.add(text));
  BatchRunning run(at.store.get(), 2, std::chrono::milliseconds(20));
  wait_for(*at.store, batch, [](const StoredBatch& now) { return now.num_completed >= 4; });
  at.now_s += BatchRunner::kWindowS;
  run.runner->wake();
  const StoredBatch ended = wait_over(*at.store, batch);
  CHECK(ended.state == BatchState::kExpired);
  CHECK(ended.num_completed + ended.num_failed == 50);
  REQUIRE(ended.has_output);
  REQUIRE(ended.has_errors);
  std::multiset<std::string> all = ids_in(*at.store, ended.output_id);
  all.merge(ids_in(*at.store, ended.error_id));
  CHECK(std::set<std::string>(all.begin(), all.end()).size() == 50);
  CHECK(all.size() == 50);
  CHECK(read_all(at.store->data_path(ended.error_id)).find("batch_expired") != std::string::npos);
}

// As kill -9 leaves it: at any byte of the files that were written.
TEST_CASE("a batch goes on where it was stopped, and no line is answered twice") {
  const TemporaryFolder folder;
  StoredBatch batch;
  std::string text;
  for (int i = 0; i < 40; ++i) text += request_line(fmt::format("r{}", i));
  for (int stops = 0; stops < 3; ++stops) {
    const Store at(folder);
    if (stops == 0) batch = at.add_batch(at.add(text));
    BatchRunning run(at.store.get(), 2, std::chrono::milliseconds(10));
    const uint64_t wanted = 6 * static_cast<uint64_t>(stops + 1);
    wait_for(*at.store, batch, [&](const StoredBatch& now) { return now.num_completed >= wanted; });
    run.runner->stop();
    const std::string path = at.store->data_path(batch.output_id);
    fs::resize_file(path, fs::file_size(path) - 10);
  }
  const Store at(folder);
  BatchRunning run(at.store.get());
  const StoredBatch done = wait_over(*at.store, batch);
  CHECK(done.state == BatchState::kCompleted);
  CHECK(done.num_completed == 40);
  const std::multiset<std::string> ids = ids_in(*at.store, done.output_id);
  CHECK(ids.size() == 40);
  CHECK(std::set<std::string>(ids.begin(), ids.end()).size() == 40);
  CHECK(run.engine->requests().size() < 40);
}

TEST_CASE("a batch that fills the folder fails, and keeps what was answered") {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 40; ++i) text += request_line(fmt::format("r{}", i));
  const Store at(folder, text.size() + 3000);
  const StoredBatch batch = at.add_batch(at.add(text));
  BatchRunning run(at.store.get());
  const StoredBatch ended = wait_over(*at.store, batch);
  CHECK(ended.state == BatchState::kFailed);
  REQUIRE_FALSE(ended.problems.empty());
  CHECK(ended.problems[0].code == "files_full");
  CHECK(ended.has_output);
  CHECK(ids_in(*at.store, ended.output_id).size() == ended.num_completed);
  CHECK(ended.num_completed > 2);
}

TEST_CASE("an engine without room is asked again") {
  const TemporaryFolder folder;
  const Store at(folder);
  const StoredBatch batch = at.add_batch(at.add(request_line("a")));
  BatchRunning run(at.store.get());
  run.engine->fail_at_end = make_error(ErrorCode::kOverloaded, "full");
  for (int i = 0; i < 1000 && run.engine->requests().empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  run.engine->wait_ended();
  run.engine->set_fail_at_end(std::nullopt);
  const StoredBatch done = wait_over(*at.store, batch);
  CHECK(done.num_completed == 1);
  CHECK(run.engine->requests().size() == 2);
}

TEST_CASE("many batches are answered side by side, those of one key among them") {
  const TemporaryFolder folder;
  const Store at(folder);
  std::vector<StoredBatch> batches;
  for (size_t i = 0; i < 2 * BatchRunner::kActiveMax; ++i) {
    std::string text;
    for (int line = 0; line < 5; ++line) text += request_line(fmt::format("r{}", line));
    batches.push_back(at.add_batch(at.add(text)));
  }
  BatchRunning run(at.store.get(), 4);
  for (const StoredBatch& batch : batches) CHECK(wait_over(*at.store, batch).num_completed == 5);
}

TEST_CASE("what a batch is to be is checked") {
  const TemporaryFolder folder;
  const Store at(folder);
  const StoredFile file = at.add(request_line("a"), "x");
  const json::object good{{"input_file_id", file.id}, {"endpoint", "/v1/completions"}, {"completion_window", "24h"}};
  const auto ask = [&](const std::string& owner, const json::object& body) {
    return create_batch({.store = *at.store, .owner = owner, .body = &body});
  };
  const auto param_of = [&](std::string_view name, json::value value) {
    json::object body = good;
    body[name] = std::move(value);
    const auto made = ask("x", body);
    return std::holds_alternative<ApiError>(made) ? std::get<ApiError>(made).param : "";
  };
  CHECK(param_of("input_file_id", nullptr) == "input_file_id");
  CHECK(param_of("input_file_id", "../lock") == "input_file_id");
  CHECK(param_of("endpoint", "/v1/models") == "endpoint");
  CHECK(param_of("endpoint", "/v1/batches") == "endpoint");
  CHECK(param_of("completion_window", "1h") == "completion_window");
  CHECK(param_of("metadata", json::object{{"a", 1}}) == "metadata");
  CHECK(param_of("output_expires_after", json::object{{"seconds", 1}}) == "output_expires_after.seconds");
  CHECK(param_of("metadata", json::object{{"a", "b"}}).empty());
  CHECK(std::get<ApiError>(ask("y", good)).status == 404);
  CHECK(std::holds_alternative<json::object>(ask("x", good)));
}

}  // namespace
}  // namespace llmrt::server
