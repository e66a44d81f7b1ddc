// What clients ask of the store of files: small answers from a worker, and files that pass in pieces.
#include "server/cors.h"
#include "server/json_reader.h"
#include "server/session.h"

namespace llmrt::server {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;

constexpr size_t kPieceBytes = 256 << 10;
constexpr uint64_t kFramingBytesMax = 64 << 10;  // of an upload, beside the file

// `body`: none where the path says all.
ApiResult<std::string> answer_from_store(const StoreHandler& handler, std::optional<std::string> body,
                                         StoreQuery query) {
  ApiResult<json::object> read = json::object();
  if (body) read = read_body_object(std::move(*body));
  if (auto* error = std::get_if<ApiError>(&read)) return std::move(*error);
  query.body = &std::get<json::object>(read);
  ApiResult<json::object> made = handler.answer(query);
  if (auto* error = std::get_if<ApiError>(&made)) return std::move(*error);
  return json::serialize(std::get<json::object>(made));
}

// A file that is read; it may be removed meanwhile.
class Content {
 public:
  Content(std::unique_ptr<FolderFile> file, uint64_t bytes) : file_(std::move(file)), bytes_(bytes) {}

  uint64_t bytes() const { return bytes_; }
  // Empty: it ends, or cannot be read.
  std::string read(uint64_t offset) const {
    std::string piece(std::min<uint64_t>(kPieceBytes, bytes_ - offset), '\0');
    if (!file_->read(offset, std::as_writable_bytes(std::span(piece)))) piece.clear();
    return piece;
  }

 private:
  const std::unique_ptr<FolderFile> file_;
  const uint64_t bytes_;
};

ApiResult<std::shared_ptr<Content>> open_content(const StoreQuery& query) {
  const ApiResult<json::object> file = find_file(query);
  if (const auto* error = std::get_if<ApiError>(&file)) return *error;
  auto opened = query.store.open_data(query.id);
  if (!opened) return to_api_error(opened.error());
  const Result<uint64_t> bytes = (*opened)->num_bytes();
  if (!bytes) return to_api_error(bytes.error());
  return std::make_shared<Content>(*std::move(opened), *bytes);
}

}  // namespace

asio::awaitable<bool> Session::ask_store(Incoming& request, StoreHandler handler) {
  if (!state_->files) co_return co_await reply_error(no_files(), request);
  const std::string owner = owner_name();
  const StoreQuery query{.store = *state_->files,
                         .owner = owner,
                         .id = request.route.rest,
                         .query = request.head.query,
                         .strict_fields = state_->config.strict_fields};
  const bool has_body = request.route.row->method == Method::kPost && request.route.rest.empty();
  const size_t num_bytes = request.body.size();
  std::function<ApiResult<std::string>()> work = [&] {
    return answer_from_store(handler, has_body ? std::optional(std::move(request.body)) : std::nullopt, query);
  };
  ApiResult<std::string> made = co_await state_->workers->run(num_bytes, std::move(work));
  account_->set(MemoryAccount::kBody, 0);
  if (const auto* error = std::get_if<ApiError>(&made)) co_return co_await reply_error(*error, request);
  if (handler.changes_batches && state_->loaded) state_->batches->wake();
  std::string& text = std::get<std::string>(made);
  if (!account_->set(MemoryAccount::kAnswer, text.size()))
    co_return co_await reply_error(state_->no_memory(ClientMemoryPart::kAnswer), request);
  co_return co_await reply(200, "application/json", std::move(text), request);
}

// Told before the body is read. Pages of other origins may send forms unasked.
std::optional<ApiError> Session::refused_upload(const RequestHead& head, KeyUse* use) {
  if (!state_->files) return no_files();
  if (head.content_type != "multipart/form-data")
    return http_error(415, "content_type",
                      fmt::format("HTTP: expected Content-Type: multipart/form-data, found {}",
                                  head.content_type.empty() ? "none" : shown(head.content_type)));
  if (head.coding != ContentCoding::kIdentity) {
    ApiError error = http_error(415, "content_encoding", "HTTP: a file: expected a body without Content-Encoding");
    error.accept_encoding = "identity";
    return error;
  }
  if (head.has_origin && !is_allowed_origin(head.origin, state_->config.allowed_origins))
    return http_error(403, "origin_not_allowed",
                      "HTTP: pages of this origin may not send files; see --allowed-origins");
  return begin_use(use);
}

asio::awaitable<bool> Session::receive_file(const Incoming& request) {
  KeyUse use;
  if (auto error = refused_upload(request.head, &use)) co_return co_await refuse(std::move(*error), "a file");
  using Begun = ApiResult<std::unique_ptr<FileUpload>>;
  std::function<Begun()> begin = [&] {
    return FileUpload::begin(state_->files.get(), owner_name(), request.head.boundary);
  };
  Begun begun = co_await state_->workers->run(0, std::move(begin));
  if (auto* error = std::get_if<ApiError>(&begun)) co_return co_await refuse(std::move(*error), "a file");
  FileUpload& upload = *std::get<std::unique_ptr<FileUpload>>(begun);
  std::string bytes;
  TakeBytes take = [&](std::string* more) { return feed_file(upload, more, kPieceBytes); };
  const BodyLimits limits{FileStore::kFileBytesMax + kFramingBytesMax, /*is_timed=*/false};
  if (!co_await read_pieces(request.head, limits, &bytes, std::move(take))) co_return false;
  if (const auto error = co_await feed_file(upload, &bytes, 0)) co_return co_await reply_error(*error, request);
  std::function<ApiResult<json::object>()> finish = [&] { return upload.finish(); };
  const ApiResult<json::object> made = co_await state_->workers->run(0, std::move(finish));
  if (const auto* error = std::get_if<ApiError>(&made)) co_return co_await reply_error(*error, request);
  co_return co_await reply(200, "application/json", json::serialize(std::get<json::object>(made)), request);
}

// What is there goes to the upload, if it is worth a worker's time.
asio::awaitable<std::optional<ApiError>> Session::feed_file(FileUpload& upload, std::string* bytes, size_t bytes_min) {
  if (!account_->set(MemoryAccount::kBody, bytes->capacity())) co_return state_->no_memory(ClientMemoryPart::kBody);
  if (bytes->size() < bytes_min) co_return std::nullopt;
  std::function<std::optional<ApiError>()> feed = [&upload, bytes] { return upload.feed(*bytes); };
  std::optional<ApiError> error = co_await state_->workers->run(bytes->size(), std::move(feed));
  bytes->clear();
  co_return error;
}

asio::awaitable<bool> Session::send_file(const Incoming& request) {
  if (!state_->files) co_return co_await reply_error(no_files(), request);
  const std::string owner = owner_name();
  using Opened = ApiResult<std::shared_ptr<Content>>;
  std::function<Opened()> open = [&] {
    return open_content({.store = *state_->files, .owner = owner, .id = request.route.rest});
  };
  Opened opened = co_await state_->workers->run(0, std::move(open));
  if (const auto* error = std::get_if<ApiError>(&opened)) co_return co_await reply_error(*error, request);
  const std::shared_ptr<Content> content = std::get<std::shared_ptr<Content>>(std::move(opened));
  if (!account_->set(MemoryAccount::kAnswer, kPieceBytes))
    co_return co_await reply_error(state_->no_memory(ClientMemoryPart::kAnswer), request);
  state_->count_response(200);
  const bool keep = keep_alive(request.head);
  const Headers headers = common_headers();
  std::string piece = format_head(200, "application/octet-stream", content->bytes(), keep, headers);
  if (!co_await write(std::move(piece))) co_return false;
  for (uint64_t sent = 0; sent < content->bytes() && request.head.method != "HEAD";) {
    std::function<std::string()> read = [&content, sent] { return content->read(sent); };
    std::string next = co_await state_->workers->run(kPieceBytes, std::move(read));
    sent += next.size();
    if (next.empty() || !co_await write(std::move(next))) co_return false;
  }
  co_return keep;
}

}  // namespace llmrt::server
