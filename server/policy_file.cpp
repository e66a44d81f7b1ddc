#include "server/policy_file.h"

#include "core/grammar/deny_patterns.h"
#include "core/platform/mapped_file.h"
#include "server/json_reader.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

Status read_texts(const json::value& value, std::string_view name, std::vector<std::string>* texts) {
  if (!value.is_array()) return make_error(ErrorCode::kInvalidArgument, "{}: expected a list of texts", name);
  for (const json::value& text : value.as_array()) {
    if (!text.is_string()) return make_error(ErrorCode::kInvalidArgument, "{}: expected a list of texts", name);
    texts->emplace_back(text.as_string());
  }
  return {};
}

Result<DenySource> read_source(std::string_view text) {
  Result<json::value> value = read_json(text);
  if (!value) return value.error();
  if (!value->is_object()) return make_error(ErrorCode::kInvalidArgument, "expected a JSON object");
  DenySource source;
  for (const auto& [key, member] : value->as_object()) {
    if (key == "ignore_case") {
      if (!member.is_bool()) return make_error(ErrorCode::kInvalidArgument, "ignore_case: expected true or false");
      source.ignore_case = member.as_bool();
      continue;
    }
    if (key != "strings" && key != "expressions")
      return make_error(ErrorCode::kInvalidArgument, "expected strings, expressions and ignore_case, found '{}'",
                        std::string_view(key));
    if (Status status = read_texts(member, key, key == "strings" ? &source.strings : &source.expressions); !status)
      return status.error();
  }
  return source;
}

}  // namespace

Result<std::shared_ptr<const Policy>> read_policy_file(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (!file) return file.error();
  const auto bytes = (*file)->bytes();
  const auto fail = [&](const Error& error) { return make_error(error.code, "{}: {}", path, error.message); };
  if (bytes.size() > kPolicyFileBytesMax)
    return make_error(ErrorCode::kInvalidArgument, "{}: expected at most {} bytes, found {}", path, kPolicyFileBytesMax,
                      bytes.size());
  const Result<DenySource> source = read_source({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!source) return fail(source.error());
  Result<std::shared_ptr<const Policy>> policy = compile_deny_patterns(*source);
  if (!policy) return fail(policy.error());
  return policy;
}

}  // namespace llmrt::server
