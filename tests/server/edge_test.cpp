// The pure parts at the server's edge: hosts, origins, routes, ids, and the bound on log lines.
#include <catch2/catch_test_macros.hpp>

#include <set>

#include "server/cors.h"
#include "server/hosts.h"
#include "server/ids.h"
#include "server/line_bound.h"
#include "server/metrics_text.h"
#include "server/routes.h"
#include "server/server_info.h"
#include "tests/server/fake_engine.h"

namespace llmrt::server {
namespace {

TEST_CASE("loopback names are told from others") {
  for (const char* host : {"localhost", "LOCALHOST:80", "localhost.", "a.localhost:1", "127.0.0.1", "127.8.9.1:8000",
                           "[::1]", "[::1]:8000", "[::ffff:127.0.0.1]:1"})
    CHECK(is_loopback_host(host));
  for (const char* host : {"evil.example", "localhost.evil.example", "evillocalhost", "127.0.0.1.evil.example",
                           "128.0.0.1", "0.0.0.0", "[::2]", "127.1", "2130706433", "", ":80", "."})
    CHECK_FALSE(is_loopback_host(host));
}

TEST_CASE("listed hosts are names, addresses, all below a name, or any") {
  CHECK(is_listed_host("A.example:80", {"b", "a.example"}));
  CHECK(is_listed_host("[2001:db8::1]:80", {"2001:db8::1"}));
  CHECK(is_listed_host("[2001:db8::1]", {"[2001:DB8::1]"}));
  CHECK(is_listed_host("x.a.example", {"*.a.example"}));
  CHECK(is_listed_host("whatever", {"*"}));
  CHECK_FALSE(is_listed_host("a.example", {"*.a.example"}));
  CHECK_FALSE(is_listed_host("xa.example", {"*.a.example", "a.example"}));
  CHECK_FALSE(is_listed_host("a.example", {}));
}

TEST_CASE("origins are compared whole") {
  CHECK(is_allowed_origin("http://a:3000", {"http://A:3000/"}));
  CHECK(is_allowed_origin("null", {"null"}));
  CHECK(is_allowed_origin("http://a", {"*"}));
  for (const char* origin : {"", "http://a", "https://a:3000", "http://a:3000.evil.example", "null"})
    CHECK_FALSE(is_allowed_origin(origin, {"http://a:3000"}));
}

TEST_CASE("paths have aliases, and nothing else is normalised") {
  const auto found = [](std::string_view path) {
    const Route route = find_route("GET", path);
    return route.at_path ? std::string(route.at_path->path) : "none";
  };
  for (const char* path :
       {"/v1/chat/completions", "/chat/completions", "/v1/chat/completions/", "/v1/chat%2Fcompletions"})
    CHECK(found(path) == "/chat/completions");
  for (const char* path : {"/v1/models", "/models", "/v1/models/", "/models/", "/v1/model%73"})
    CHECK(found(path) == "/models");
  CHECK(found("/v1/models/a%2fb") == "/models/{name}");
  CHECK(find_route("GET", "/v1/models/a%2fb").rest == "a/b");
  CHECK(find_route("GET", "/models/a").rest == "a");
  CHECK(find_route("GET", "/models/%").rest == "%");
  CHECK(found("/v1/loads") == "/loads");
  for (const char* path : {"/v1", "/v1/", "/v1/v1/models", "/v1/health", "//health", "/health//", "/he%61lth%00", "/%",
                           "/HEALTH", "/v1/chat"})
    CHECK(found(path) == "none");
  CHECK(known_paths().find("POST /v1/chat/completions, ") != std::string::npos);
}

TEST_CASE("a path has the methods of its rows") {
  for (const char* method : {"GET", "HEAD"}) CHECK(find_route(method, "/health").row);
  for (const char* method : {"POST", "PUT", "OPTIONS", "get"}) {
    const Route route = find_route(method, "/health");
    CHECK_FALSE(route.row);
    CHECK(route.at_path);
    CHECK(route.allowed == "GET, HEAD, OPTIONS");
  }
  CHECK(find_route("POST", "/v1/completions").row);
  CHECK(find_route("GET", "/v1/completions").allowed == "POST, OPTIONS");
  std::set<std::string> open;
  for (const RouteRow& row : routes()) {
    CHECK(find_route(method_name(row.method), fmt::format("{}{}", row.is_v1 ? "/v1" : "", row.path)).row == &row);
    if (row.access == Access::kOpen) open.emplace(row.path);
  }
  CHECK(open == std::set<std::string>{"/", "/health", "/ready", "/live", "/version", "/api/version"});
}

TEST_CASE("what is shown of a text from outside is short and plain") {
  CHECK(shown("a\x1b[31m\xff") == "a?[31m?");
  CHECK(shown(std::string(200, 'a')) == std::string(100, 'a') + "...");
}

TEST_CASE("ids are new, and no function of each other") {
  std::set<std::string> ids;
  size_t equal_digits = 0;
  std::string last = make_id("a");
  for (int i = 0; i < 10000; ++i) {
    const std::string id = make_id("a");
    REQUIRE(id.size() == 2 + 32);
    REQUIRE(ids.insert(id).second);
    for (size_t at = 2; at < id.size(); ++at) equal_digits += id[at] == last[at];
    last = id;
  }
  // Of 320,000 digits a sixteenth by chance; 6 standard deviations.
  CHECK(equal_digits > 20000 - 850);
  CHECK(equal_digits < 20000 + 850);
}

TEST_CASE("so many lines a second are written, and it is told how many were not") {
  LineBound bound(3);
  const LineBound::Time begin = std::chrono::steady_clock::now();
  int num_written = 0;
  for (int i = 0; i < 100; ++i) num_written += bound.take(begin).has_value();
  CHECK(num_written == 3);
  CHECK(bound.take(begin + std::chrono::milliseconds(1001)) == 97);
  CHECK(bound.take(begin + std::chrono::milliseconds(1002)) == 0);
}

TEST_CASE("loads are told as SGLang's router reads them") {
  EngineStats stats;
  stats.num_running = 3;
  stats.num_waiting = 4;
  stats.table_tokens = 1000;
  stats.queue_tokens = 500;
  stats.blocks_total = 100;
  stats.blocks_free = 25;
  ServedModel model;
  model.id = "m";
  model.block_tokens = 16;
  model.context_max = 2048;
  const auto engine = std::make_shared<FakeEngine>();
  engine->shown_stats = stats;
  const std::vector<SeenModel> seen = {{{.name = "m"}, std::make_shared<ServedEngine>(model, engine, 0)}};
  const boost::json::array one = load(seen);
  REQUIRE(one.size() == 1);
  CHECK(one[0].at("num_reqs") == 7);
  CHECK(one[0].at("num_waiting_reqs") == 4);
  CHECK(one[0].at("num_tokens") == 1500);
  const boost::json::object rank = loads(seen, "1").at("loads").as_array()[0].as_object();
  CHECK(rank.at("num_used_tokens") == 1200);
  CHECK(rank.at("max_total_num_tokens") == 1600);
  CHECK(rank.at("token_usage") == 0.75);
  const std::vector<ServedWorker> workers = {{.name = {}, .stats = stats}};
  CHECK(server_info(model, workers, "1").at("served_model_name") == "m");
  CHECK(server_info(model, workers, "1").at("max_total_tokens") == 1600);
  CHECK(model_info(model).at("is_generation") == true);
  // Several: one sum for who asks for one rank, those that wait for a model among them; a rank each for who reads more.
  std::vector<SeenModel> two = seen;
  two.push_back(seen[0]);
  two.push_back({{.name = "unloaded", .num_waiting = 2}, nullptr});
  CHECK(load(two)[0].as_object().at("num_reqs") == 16);
  CHECK(load(two)[0].as_object().at("num_waiting_reqs") == 10);
  CHECK(loads(two, "1").at("loads").as_array().size() == 2);
  CHECK(loads(two, "1").at("loads").as_array()[1].as_object().at("model") == "m");
}

TEST_CASE("several engines of one model are told apart, and one that is lost has no figures") {
  ServedModel model;
  model.id = "m";
  model.block_tokens = 16;
  const auto engine = std::make_shared<FakeEngine>();
  ServedWorker one, lost;
  one.name = one.figures.name = "cuda:0";
  one.backend = "cuda";
  one.stats.emplace();
  one.stats->num_running = 3;
  one.stats->blocks_total = 100;
  one.stats->saturation[static_cast<size_t>(Saturation::kWorkerSkew)].is_raised = true;
  one.figures.num_placed = 9;
  one.figures.num_moved_in = 2;
  lost.name = lost.figures.name = "vulkan:1";
  lost.figures.is_lost = true;
  lost.figures.num_losses = 1;
  engine->shown_workers = {one, lost};
  const std::vector<SeenModel> seen = {{{.name = "m"}, std::make_shared<ServedEngine>(model, engine, 0)}};

  const boost::json::object told = health(seen);
  CHECK(told.at("workers") == boost::json::value({{"cuda:0", "ready"}, {"vulkan:1", "lost"}}));
  REQUIRE(told.at("saturated").as_array().size() == 1);
  CHECK(told.at("saturated").as_array()[0].at("worker") == "cuda:0");
  CHECK(load(seen)[0].at("num_reqs") == 3);
  const boost::json::array ranks = loads(seen, "1").at("loads").as_array();
  REQUIRE(ranks.size() == 1);
  CHECK(ranks[0].at("worker") == "cuda:0");
  CHECK(server_info(model, engine->workers(), "1").at("dp_size") == 2);
  CHECK(server_info(model, engine->workers(), "1").at("max_total_tokens") == 1600);

  const std::string text = metrics_text(seen, {}, {}, MetricsFormat::kText, MetricsCompat::kVllm, /*unix_seconds=*/1);
  const auto has = [&](std::string_view line) { return text.find(fmt::format("\n{}\n", line)) != std::string::npos; };
  CHECK(has(R"(llmrt_requests_running{worker="cuda:0"} 3)"));
  CHECK_FALSE(text.find(R"(llmrt_requests_running{worker="vulkan:1"})") != std::string::npos);
  CHECK(has(R"(llmrt_worker_up{worker="cuda:0"} 1)"));
  CHECK(has(R"(llmrt_worker_up{worker="vulkan:1"} 0)"));
  CHECK(has(R"(llmrt_worker_placed_total{worker="cuda:0"} 9)"));
  CHECK(has(R"(llmrt_worker_moved_in_total{worker="cuda:0"} 2)"));
  CHECK(has(R"(llmrt_worker_losses_total{worker="vulkan:1"} 1)"));
  CHECK(has(R"(vllm:num_requests_running{model_name="m",engine="0"} 3)"));
}

}  // namespace
}  // namespace llmrt::server
