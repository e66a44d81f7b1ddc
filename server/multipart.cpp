#include "server/multipart.h"

#include <algorithm>

#include "core/base/utf8.h"
#include "server/ascii.h"

namespace llmrt::server {
namespace {

constexpr std::string_view kLineEnd = "\r\n";

template <typename... Args>
Error broken(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kInvalidArgument, "multipart: {}", fmt::format(format, std::forward<Args>(args)...));
}

// The next `; name=value` of a header's value, which is cut off its front; nothing: there is none, or a broken one.
struct Parameter {
  std::string name, value;
};
std::optional<Parameter> take_parameter(std::string_view* text) {
  *text = trim(*text);
  if (!text->starts_with(';')) return std::nullopt;
  text->remove_prefix(1);
  const size_t equals = text->find('=');
  if (equals == text->npos) return std::nullopt;
  Parameter parameter{lower(trim(text->substr(0, equals))), {}};
  text->remove_prefix(equals + 1);
  *text = trim(*text);
  if (!text->starts_with('"')) {
    const size_t end = std::min(text->find(';'), text->size());
    parameter.value = trim(text->substr(0, end));
    text->remove_prefix(end);
    return parameter;
  }
  for (size_t i = 1; i < text->size(); ++i) {
    const char c = (*text)[i];
    if (c == '"') {
      text->remove_prefix(i + 1);
      return parameter;
    }
    const bool is_escape = c == '\\' && i + 1 < text->size() && ((*text)[i + 1] == '"' || (*text)[i + 1] == '\\');
    parameter.value += is_escape ? (*text)[++i] : c;
  }
  return std::nullopt;
}

Status read_disposition(std::string_view value, PartHead* head, bool* has_name) {
  const size_t end = std::min(value.find(';'), value.size());
  if (lower(trim(value.substr(0, end))) != "form-data") return broken("expected Content-Disposition: form-data");
  value.remove_prefix(end);
  while (!trim(value).empty()) {
    std::optional<Parameter> parameter = take_parameter(&value);
    if (!parameter) return broken("expected '; name=\"value\"' in Content-Disposition");
    if (parameter->name == "name") {
      if (std::exchange(*has_name, true)) return broken("expected one name of a part");
      head->name = std::move(parameter->value);
    } else if (parameter->name == "filename") {
      if (head->filename) return broken("expected one file name of a part");
      head->filename = std::move(parameter->value);
    }
  }
  return {};
}

Result<PartHead> parse_head(std::string_view text) {
  PartHead head;
  bool has_name = false, has_disposition = false;
  while (!text.empty()) {
    const size_t end = std::min(text.find(kLineEnd), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + kLineEnd.size(), text.size()));
    if (std::any_of(line.begin(), line.end(),
                    [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; }))
      return broken("a control character in the head of a part");
    const size_t colon = line.find(':');
    if (colon == line.npos || line.starts_with(' ') || line.starts_with('\t'))
      return broken("a line without a name in the head of a part");
    const std::string name = lower(trim(line.substr(0, colon)));
    const std::string_view value = trim(line.substr(colon + 1));
    if (name == "content-disposition") {
      if (std::exchange(has_disposition, true)) return broken("expected one Content-Disposition of a part");
      if (Status status = read_disposition(value, &head, &has_name); !status) return status.error();
    } else if (name == "content-transfer-encoding") {
      const std::string encoding = lower(value);
      if (encoding != "binary" && encoding != "8bit" && encoding != "7bit")
        return broken("expected no Content-Transfer-Encoding, or binary");
    }
  }
  if (!has_name) return broken("expected a name of each part");
  if (!is_valid_utf8(head.name) || (head.filename && !is_valid_utf8(*head.filename)))
    return broken("expected names in UTF-8");
  return head;
}

}  // namespace

bool MultipartReader::is_boundary(std::string_view text) {
  const auto is_allowed = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("'()+_,-./:=? ").find(c) != std::string_view::npos;
  };
  return !text.empty() && text.size() <= kBoundaryBytesMax && text.back() != ' ' &&
         std::all_of(text.begin(), text.end(), is_allowed);
}

// A line end before the body makes its first boundary like the others.
MultipartReader::MultipartReader(std::string_view boundary, PartSink* sink)
    : delimiter_(fmt::format("\r\n--{}", boundary)), sink_(sink), held_(kLineEnd) {}

Status MultipartReader::feed(std::string_view bytes) {
  if (place_ == Place::kEpilogue) return {};
  held_ += bytes;
  size_t at = 0;
  while (true) {
    Result<bool> more = step(&at);
    if (!more) return more.error();
    if (!*more) break;
  }
  held_.erase(0, at);
  return {};
}

Status MultipartReader::finish() const {
  if (place_ != Place::kEpilogue) return broken("expected a last boundary, found the end of the body");
  return {};
}

Result<bool> MultipartReader::step(size_t* at) {
  switch (place_) {
    case Place::kPreamble:
    case Place::kBody:
      return read_until_boundary(at);
    case Place::kBehindBoundary:
      return read_boundary_end(at);
    case Place::kHead:
      return read_head(at);
    case Place::kEpilogue:
      break;
  }
  held_.clear();
  *at = 0;
  return false;
}

Result<bool> MultipartReader::read_until_boundary(size_t* at) {
  const bool is_body = place_ == Place::kBody;
  const std::string_view rest = std::string_view(held_).substr(*at);
  const size_t found = rest.find(delimiter_);
  const bool is_whole = found != rest.npos;
  // What may be the begin of a boundary waits.
  const size_t waiting = std::min(rest.size(), delimiter_.size() - 1);
  const std::string_view taken = rest.substr(0, is_whole ? found : rest.size() - waiting);
  if (is_body && !taken.empty())
    if (Status status = sink_->add(taken); !status) return status.error();
  *at += taken.size();
  if (!is_whole) return false;
  if (is_body)
    if (Status status = sink_->end(); !status) return status.error();
  *at += delimiter_.size();
  place_ = Place::kBehindBoundary;
  return true;
}

Result<bool> MultipartReader::read_boundary_end(size_t* at) {
  constexpr size_t kPaddingMax = 64;
  const std::string_view rest = std::string_view(held_).substr(*at);
  if (rest.starts_with("--")) {
    place_ = Place::kEpilogue;
    return true;
  }
  const size_t padding = std::min(rest.find_first_not_of(kBlanks), rest.size());
  if (padding > kPaddingMax) return broken("expected at most {} blanks behind a boundary", kPaddingMax);
  const std::string_view end = rest.substr(padding, 2);
  if (!kLineEnd.starts_with(end) && end != "-") return broken("expected a line end behind a boundary");
  if (end.size() < 2) return false;
  if (++num_parts_ > kPartsMax) return broken("expected at most {} parts", kPartsMax);
  *at += padding + 2;
  place_ = Place::kHead;
  return true;
}

Result<bool> MultipartReader::read_head(size_t* at) {
  const std::string_view rest = std::string_view(held_).substr(*at);
  constexpr std::string_view kEnd = "\r\n\r\n";
  const size_t end = rest.find(kEnd);
  const size_t least = end == rest.npos ? rest.size() - std::min(rest.size(), kEnd.size() - 1) : end;
  if (least > kHeadBytesMax) return broken("expected a head of at most {} bytes of each part", kHeadBytesMax);
  if (end == rest.npos) return false;
  const Result<PartHead> head = parse_head(rest.substr(0, end));
  if (!head) return head.error();
  if (Status status = sink_->begin(*head); !status) return status.error();
  *at += end + kEnd.size();
  place_ = Place::kBody;
  return true;
}

}  // namespace llmrt::server
