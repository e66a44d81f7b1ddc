#include "server/ollama_info.h"

#include <cctype>
#include <string>
#include <utility>

#include "server/api_request.h"
#include "server/ollama_request.h"
#include "server/rfc3339.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

// "134.5M", "8.0B"
std::string size_name(uint64_t num_weights) {
  const auto count = static_cast<double>(num_weights);
  if (count >= 1e9) return fmt::format("{:.1f}B", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.1f}M", count / 1e6);
  return fmt::format("{:.1f}K", count / 1e3);
}

json::object details(const ServedModel& model) {
  std::string encoding = model.file.encoding;
  for (char& c : encoding) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return {{"parent_model", ""},
          {"format", "gguf"},
          {"family", model.file.architecture},
          {"families", json::array{model.file.architecture}},
          {"parameter_size", size_name(model.file.num_weights)},
          {"quantization_level", encoding}};
}

json::object row_of(const ServedModel& model) {
  const std::string name = ollama_name(model.id);
  return {{"name", name},
          {"model", name},
          {"size", model.file.num_bytes},
          {"digest", model.file.digest},
          {"details", details(model)}};
}

json::array capabilities(const ServedModel& model) {
  json::array list{"completion"};
  const bool reads = model.chat_format && model.tokenizer && model.chat_template && model.reads_answers;
  if (reads && model.chat_format->format->has_calls()) list.emplace_back("tools");
  if (reads && model.chat_format->format->has_thoughts()) list.emplace_back("thinking");
  if (model.fim) list.emplace_back("insert");
  return list;
}

}  // namespace

json::object ollama_tag(const ServedModel& model) {
  json::object row = row_of(model);
  row["modified_at"] = rfc3339(model.created);
  return row;
}

json::object ollama_running(const ServedModel& model) {
  constexpr int64_t kForever = int64_t{100} * 365 * 86400;  // it stays as long as the server runs
  json::object row = row_of(model);
  row["expires_at"] = rfc3339(model.created + kForever);
  row["size_vram"] = model.origin.backend == "cpu" ? 0 : model.file.num_bytes;
  row["context_length"] = model.context_max;
  return row;
}

ApiResult<json::object> ollama_show(const json::object& body, const ServedModel& model, const ParseContext&,
                                    ParseNotes*) {
  constexpr size_t kNameBytesMax = 4096;
  Fields fields(body);
  auto name = fields.string("model", kNameBytesMax);
  if (const auto old = fields.string("name", kNameBytesMax); old && !name) name = old;
  if (!name) fields.fail("model", "expected a name, found nothing");
  if (fields.error()) return *fields.error();
  const json::object asked{{"model", *name}};
  Fields checked(asked);
  check_model_name(checked, model);
  if (checked.error()) return *checked.error();
  const std::string& architecture = model.file.architecture;
  json::object info{{"general.architecture", architecture}, {"general.parameter_count", model.file.num_weights}};
  info[architecture + ".context_length"] = model.context_max;
  info[architecture + ".vocab_size"] = model.vocab_size;
  return json::object{
      {"modelfile", ""},
      {"parameters", fmt::format("num_ctx {}", model.context_max)},
      {"template", model.tokenizer && model.chat_template ? model.tokenizer->vocabulary().chat_template : ""},
      {"details", details(model)},
      {"model_info", std::move(info)},
      {"capabilities", capabilities(model)},
      {"modified_at", rfc3339(model.created)}};
}

}  // namespace llmrt::server
