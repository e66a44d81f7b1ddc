#include "tools/llmrt/control.h"

#include <unistd.h>

#include <algorithm>

#include "core/platform/process_figures.h"
#include "core/router/near_names.h"
#include "core/weights/metadata.h"
#include "server/server_info.h"
#include "tools/llmrt/program.h"
#include "tools/number_range.h"

namespace llmrt::cli {
namespace {

namespace json = boost::json;
constexpr std::chrono::seconds kPatience{10};

double seconds_since(TimeNs then_ns, TimeNs now_ns) {
  return static_cast<double>(now_ns - then_ns) * 1e-9;
}

json::object model_object(const ModelFigures& figures, TimeNs now_ns) {
  json::object out = {{"name", figures.name},
                      {"state", model_state_name(figures.state)},
                      {"pinned", figures.is_pinned},
                      {"unloads_soon", figures.is_closing},
                      {"memory_bytes", figures.bytes},
                      {"requests", figures.num_leases},
                      {"waiting", figures.num_waiting},
                      {"loads", figures.num_loads},
                      {"load_failures", figures.num_failures},
                      {"unloads", figures.num_unloads},
                      {"last_load_s", static_cast<double>(figures.load_ns) * 1e-9},
                      {"state_s", seconds_since(figures.since_ns, now_ns)}};
  const bool is_idle = figures.state == ModelState::kReady && figures.num_leases == 0;
  out["idle_s"] = is_idle ? json::value(seconds_since(figures.used_ns, now_ns)) : json::value(nullptr);
  out["error"] = figures.error ? json::value(figures.error->message) : json::value(nullptr);
  return out;
}

json::object problem(ErrorCode code, std::string message) {
  return {{"error", {{"code", error_code_name(code)}, {"message", std::move(message)}}}};
}

// The engines of all loaded models that have several.
json::array worker_objects(const ModelHost& models) {
  json::array all;
  for (const ModelLease& lease : models.look()) {
    if (!lease) continue;
    for (const server::ServedWorker& worker : server::to_served(lease)->door->workers()) {
      if (worker.name.empty()) continue;
      json::object out = {{"name", worker.name},
                          {"device_name", worker.device_name},
                          {"state", server::worker_state_name(worker.figures)},
                          {"placed", worker.figures.num_placed},
                          {"moved_in", worker.figures.num_moved_in},
                          {"failed", worker.figures.num_failed},
                          {"losses", worker.figures.num_losses}};
      if (worker.stats) {
        out["running"] = worker.stats->num_running;
        out["waiting"] = worker.stats->num_waiting;
        out["kv_usage"] = worker.stats->kv_usage();
      }
      all.push_back(std::move(out));
    }
  }
  return all;
}

json::object drain_worker_answer(const json::object& question, const ModelHost& models) {
  const json::value* name = question.if_contains("worker");
  const json::value* drains = question.if_contains("drains");
  if (!name || !name->is_string() || !drains || !drains->is_bool())
    return problem(ErrorCode::kInvalidArgument, "drain-worker: expected worker and drains");
  std::vector<std::string> names;
  for (const ModelLease& lease : models.look()) {
    if (!lease) continue;
    const auto served = server::to_served(lease);
    if (served->door->drain(std::string_view(name->get_string()), drains->get_bool()))
      return {{"worker", *name}, {"drains", *drains}};
    for (const server::ServedWorker& worker : served->door->workers())
      if (!worker.name.empty()) names.push_back(worker.name);
  }
  return problem(ErrorCode::kNotFound, fmt::format("worker: expected {}, found {}",
                                                   names.empty() ? "a server with several devices"
                                                                 : fmt::format("{}", fmt::join(names, ", ")),
                                                   printable(std::string_view(name->get_string()))));
}

json::object ps_answer(const ModelHost& models, const server::Server& server) {
  json::array list;
  for (const ModelFigures& figures : models.figures()) list.push_back(model_object(figures, models.now_ns()));
  const std::vector<std::string> urls = server.urls();
  const ProcessFigures process = process_figures();
  return {{"pid", getpid()},
          {"version", LLMRT_VERSION},
          {"urls", json::array(urls.begin(), urls.end())},
          {"resident_bytes", process.resident_bytes.value_or(0)},
          {"models", std::move(list)},
          {"workers", worker_objects(models)}};
}

json::object unload_answer(const json::object& question, ModelHost& models) {
  const json::value* name = question.if_contains("model");
  if (!name || !name->is_string()) return problem(ErrorCode::kInvalidArgument, "unload: expected the name of a model");
  const std::string_view wanted = name->get_string();
  const auto model = models.find(wanted);
  if (!model) {
    std::vector<std::string> names;
    for (const ModelFigures& figures : models.figures()) names.push_back(figures.name);
    const std::vector<std::string> near = near_names(wanted, names, 3);
    return problem(ErrorCode::kNotFound,
                   fmt::format("model: expected one of {} that are served{}{}, found {}", names.size(),
                               near.empty() ? "" : ", as ", fmt::join(near, " or "), printable(wanted)));
  }
  if (const Status status = models.unload(*model); !status) return problem(status.error().code, status.error().message);
  const ModelFigures figures = models.figures(*model);
  return {{"model", figures.name}, {"requests", figures.num_leases}};
}

struct ControlOptions {
  int port = -1;
  std::string model, worker;
  bool json = false, resumes = false;
};

// The sockets of one port, or of all servers of this user.
std::vector<std::pair<uint16_t, std::string>> sockets_of(int port) {
  const Result<std::string> folder = server::control_folder(/*makes=*/false);
  if (!folder) return {};
  if (port >= 0) return {{static_cast<uint16_t>(port), server::control_path(*folder, static_cast<uint16_t>(port))}};
  return server::control_paths(*folder);
}

void print_workers(const json::array& workers) {
  if (workers.empty()) return;
  size_t width = 6;
  for (const json::value& worker : workers) width = std::max(width, worker.at("name").as_string().size());
  fmt::print("  {:<{}}  {:<9} {:>8} {:>8} {:>6} {:>8} {:>8}\n", "device", width, "state", "running", "waiting", "KV",
             "placed", "moved in");
  for (const json::value& worker : workers) {
    const json::object& row = worker.as_object();
    const auto number = [&](const char* key) {
      const json::value* value = row.if_contains(key);
      return value ? std::to_string(value->to_number<uint64_t>()) : std::string("-");
    };
    const json::value* usage = row.if_contains("kv_usage");
    fmt::print("  {:<{}}  {:<9} {:>8} {:>8} {:>6} {:>8} {:>8}\n", std::string_view(row.at("name").as_string()), width,
               std::string_view(row.at("state").as_string()), number("running"), number("waiting"),
               usage ? fmt::format("{:.0f} %", 100 * usage->to_number<double>()) : "-", number("placed"),
               number("moved_in"));
  }
}

void print_server(uint16_t port, const json::object& answer) {
  const auto text = [](const json::value& value) { return std::string_view(value.as_string()); };
  std::vector<std::string> urls;
  for (const json::value& url : answer.at("urls").as_array()) urls.emplace_back(text(url));
  fmt::print("port {}, process {}, llmrt {}, {} resident: {}\n", port, answer.at("pid").to_number<int64_t>(),
             text(answer.at("version")), bytes_text(answer.at("resident_bytes").to_number<uint64_t>()),
             fmt::join(urls, ", "));
  size_t width = 4;
  for (const json::value& model : answer.at("models").as_array())
    width = std::max(width, model.at("name").as_string().size());
  fmt::print("  {:<{}}  {:<9} {:>9} {:>8} {:>7}  {:>6}\n", "name", width, "state", "memory", "requests", "waiting",
             "idle");
  for (const json::value& model : answer.at("models").as_array()) {
    const uint64_t bytes = model.at("memory_bytes").to_number<uint64_t>();
    const std::string idle =
        model.at("idle_s").is_null() ? "-" : fmt::format("{:.0f} s", model.at("idle_s").to_number<double>());
    fmt::print("  {:<{}}  {:<9} {:>9} {:>8} {:>7}  {:>6}{}\n", text(model.at("name")), width, text(model.at("state")),
               bytes == 0 ? "-" : bytes_text(bytes), model.at("requests").to_number<uint64_t>(),
               model.at("waiting").to_number<uint64_t>(), idle,
               model.at("unloads_soon").as_bool() ? "  (unloads soon)"
               : model.at("pinned").as_bool()     ? "  (pinned)"
                                                  : "");
    if (!model.at("error").is_null()) fmt::print("  {:<{}}  {}\n", "", width, text(model.at("error")));
  }
  print_workers(answer.at("workers").as_array());
}

void ps(const ControlOptions& options) {
  json::array all;
  for (const auto& [port, path] : sockets_of(options.port)) {
    Result<json::object> answer = server::ask_server(path, {{"command", "ps"}}, kPatience);
    if (!answer && options.port < 0 && answer.error().code == ErrorCode::kNotFound) continue;  // left by one that died
    if (!answer) fail(answer.error());
    (*answer)["port"] = port;
    all.push_back(*std::move(answer));
  }
  if (options.json)
    fmt::print("{}\n", json::serialize(all));
  else if (all.empty())
    fmt::print(stderr, "no llmrt serve of this user runs\n");
  else
    for (const json::value& answer : all) print_server(answer.at("port").to_number<uint16_t>(), answer.as_object());
}

// The one that is meant.
std::pair<uint16_t, std::string> server_of(const ControlOptions& options) {
  std::vector<std::pair<uint16_t, std::string>> running;
  for (const auto& socket : sockets_of(options.port))
    if (server::ask_server(socket.second, {{"command", "ps"}}, kPatience)) running.push_back(socket);
  if (running.empty() && options.port >= 0)
    fail(kFailed,
         fmt::format("--port: expected the port of a running llmrt serve of this user, found {}", options.port));
  if (running.empty()) fail(kFailed, "no llmrt serve of this user runs");
  if (running.size() > 1)
    fail(kUsage, fmt::format("--port: expected which of {} running servers is meant, found nothing", running.size()));
  return running.front();
}

void stop(const ControlOptions& options) {
  const auto [port, path] = server_of(options);
  const json::object question = options.model.empty() ? json::object{{"command", "drain"}}
                                                      : json::object{{"command", "unload"}, {"model", options.model}};
  const Result<json::object> answer = server::ask_server(path, question, kPatience);
  if (!answer) fail(answer.error(), kFailed);
  if (options.model.empty())
    fmt::print("port {}: draining\n", port);
  else
    fmt::print("{}: unloads when {} requests have ended\n", options.model,
               answer->at("requests").to_number<uint64_t>());
}

void drain(const ControlOptions& options) {
  const json::object question = {{"command", "drain-worker"}, {"worker", options.worker}, {"drains", !options.resumes}};
  const Result<json::object> answer = server::ask_server(server_of(options).second, question, kPatience);
  if (!answer) fail(answer.error(), kFailed);
  fmt::print("{}: {}\n", options.worker,
             options.resumes ? "takes requests again" : "takes no new requests; those that it has are answered");
}

}  // namespace

json::object control_answer(const json::object& question, ModelHost& models, server::Server& server) {
  const json::value* command = question.if_contains("command");
  const std::string_view name = command && command->is_string() ? std::string_view(command->get_string()) : "";
  if (name == "ps") return ps_answer(models, server);
  if (name == "unload") return unload_answer(question, models);
  if (name == "drain-worker") return drain_worker_answer(question, models);
  if (name == "drain") {
    server.drain();
    return {{"draining", true}};
  }
  return problem(ErrorCode::kInvalidArgument, "command: expected ps, unload, drain or drain-worker");
}

std::unique_ptr<server::ControlSocket> listen_for_control(std::shared_ptr<ModelHost> models, server::Server& server,
                                                          Log& log) {
  const Result<std::string> folder = server::control_folder(/*makes=*/true);
  if (!folder) {
    log.warn("{}: llmrt ps and llmrt stop will not find this server", folder.error().message);
    return nullptr;
  }
  const auto answer = [models, &server](const json::object& question) {
    try {
      return control_answer(question, *models, server);
    } catch (const std::exception& error) {  // out of memory, most likely
      return problem(ErrorCode::kOutOfMemory, error.what());
    }
  };
  auto socket = server::ControlSocket::listen(server::control_path(*folder, server.port()), answer);
  if (socket) return *std::move(socket);
  log.warn("{}: llmrt ps and llmrt stop will not find this server", socket.error().message);
  return nullptr;
}

void add_ps(CLI::App& app) {
  CLI::App* command = app.add_subcommand("ps", "Show what running servers have loaded, with states and memory");
  const auto options = std::make_shared<ControlOptions>();
  command->add_option("--port", options->port, "of the server on this port alone; default: of all of this user")
      ->check(number_range(0, 65535))
      ->type_name("N");
  command->add_flag("--json", options->json, "print JSON");
  command->footer("Asks each llmrt serve through its socket in $XDG_RUNTIME_DIR, or /tmp/llmrt-UID without one.");
  command->callback([options] { ps(*options); });
}

void add_drain(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("drain", "Let one of several devices of a running server take no new requests, or again");
  const auto options = std::make_shared<ControlOptions>();
  command->add_option("device", options->worker, "a device, as llmrt ps names it")->required()->type_name("ID");
  command->add_flag("--resume", options->resumes, "it takes requests again");
  command->add_option("--port", options->port, "of the server on this port; needed where several run")
      ->check(number_range(0, 65535))
      ->type_name("N");
  command->callback([options] { drain(*options); });
}

void add_stop(CLI::App& app) {
  CLI::App* command = app.add_subcommand("stop", "Unload a model of a running server, or let the server end");
  const auto options = std::make_shared<ControlOptions>();
  command->add_option("name", options->model, "a model, as llmrt ps names it; none: the server ends, as by SIGTERM")
      ->type_name("NAME");
  command->add_option("--port", options->port, "of the server on this port; needed where several run")
      ->check(number_range(0, 65535))
      ->type_name("N");
  command->footer("Answers under way are finished first. A request for the model loads it again.");
  command->callback([options] { stop(*options); });
}

}  // namespace llmrt::cli
