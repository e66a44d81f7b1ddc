// What hostile clients and hostile templates cost: keys chosen to collide, the worst template with the worst context
// for each builtin, the clock, the memory, and the flag that ends a rendering.
#include <boost/json.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>

#include "core/jinja/value.h"
#include "core/text/chat_template.h"
#include "tests/fakes/cpu_seconds.h"

using namespace llmrt;
namespace json = boost::json;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSlow = true;
#else
constexpr bool kIsSlow = false;
#endif

RenderLimits wide_limits() {
  RenderLimits limits;
  limits.client_entries = limits.entries;
  limits.cpu = std::chrono::minutes(10);
  return limits;
}

Result<std::vector<TextPiece>> render(const std::string& source, const json::object& context,
                                      const RenderLimits& limits = {}, const std::atomic<bool>* cancelled = nullptr) {
  const auto compiled = ChatTemplate::compile(source);
  if (!compiled) {
    return compiled.error();
  }
  return (*compiled)->render(context, {}, limits, cancelled);
}

std::string text_of(const Result<std::vector<TextPiece>>& pieces) {
  if (!pieces) {
    return "error: " + pieces.error().message;
  }
  std::string text;
  for (const TextPiece& piece : *pieces) {
    text += piece.text;
  }
  return text;
}

// Keys of 8 bytes whose std::hash is a multiple of `buckets`: libstdc++'s murmur, with its fixed seed, run backwards.
std::vector<std::string> colliding_keys(uint64_t buckets, size_t count) {
  constexpr uint64_t kMul = 0xc6a4a7935bd1e995;
  constexpr uint64_t kSeed = 0xc70f6907 ^ (8 * kMul);
  uint64_t inverse = kMul;  // of an odd number modulo 2 ** 64, by Newton's steps
  for (int i = 0; i < 6; ++i) {
    inverse *= 2 - kMul * inverse;
  }
  const auto unshift = [](uint64_t value) { return value ^ (value >> 47); };
  std::vector<std::string> keys;
  for (uint64_t k = 1; keys.size() < count; ++k) {
    const uint64_t mixed = unshift(unshift(k * buckets) * inverse) * inverse ^ kSeed;
    const uint64_t word = unshift(mixed * inverse) * inverse;
    if ((word & 0x8080808080808080) == 0) {
      std::string key(8, '\0');
      std::memcpy(key.data(), &word, 8);
      keys.push_back(std::move(key));
    }
  }
  return keys;
}

std::vector<std::string> random_keys(size_t count) {
  std::mt19937_64 random(1);
  std::vector<std::string> keys;
  for (size_t i = 0; i < count; ++i) {
    std::string key(8, '\0');
    for (char& c : key) {
      c = static_cast<char>(random() % 128);
    }
    keys.push_back(std::move(key));
  }
  return keys;
}

json::object object_of(const std::vector<std::string>& keys) {
  json::object object;
  object.reserve(keys.size());
  for (const std::string& key : keys) {
    object[key] = 0;
  }
  return object;
}

json::array array_of(const std::vector<std::string>& keys) {
  json::array array;
  for (const std::string& key : keys) {
    array.emplace_back(key);
  }
  return array;
}

double seconds_of(const std::string& source, const json::object& context) {
  double best = 1e9;
  for (int round = 0; round < 3; ++round) {
    const double begin = cpu_seconds();
    const auto pieces = render(source, context, wide_limits());
    best = std::min(best, cpu_seconds() - begin);
    CAPTURE(source, text_of(pieces).substr(0, 200));
    CHECK(pieces.ok());
  }
  return best;
}

std::string repeated(const std::string& text, size_t times) {
  std::string out;
  out.reserve(text.size() * times);
  for (size_t i = 0; i < times; ++i) {
    out += text;
  }
  return out;
}

}  // namespace

TEST_CASE("keys chosen to collide cost at most 3x random ones") {
  constexpr size_t kKeys = kIsSlow ? 10'000 : 30'500;
  // The sizes of a table that grows to so many keys, and of one that is made for them.
  std::unordered_multimap<size_t, size_t> grown;
  std::unordered_multimap<size_t, size_t> made;
  made.reserve(kKeys);
  for (size_t i = 0; i < kKeys; ++i) {
    grown.emplace(i, i);
    made.emplace(i, i);
  }
  const uint64_t buckets =
      grown.bucket_count() * (made.bucket_count() == grown.bucket_count() ? 1 : made.bucket_count());
  const std::vector<std::string> chosen = colliding_keys(buckets, kKeys);
  for (const std::string& key : chosen) {
    REQUIRE(std::hash<std::string_view>()(key) % buckets == 0);  // what they were chosen for
  }
  const std::vector<std::string> any = random_keys(kKeys);
  for (const char* source : {"{{ x | length }}", "{{ dict(x) | length }}", "{{ y | unique | list | length }}",
                             "{% set ns = namespace(**x) %}ok", "{{ dict(**x) | length }}", "{{ x == dict(x) }}",
                             "{% macro f() %}{{ kwargs | length }}{% endmacro %}{{ f(**x) }}"}) {
    CAPTURE(source);
    const double expected = seconds_of(source, {{"x", object_of(any)}, {"y", array_of(any)}});
    const double found = seconds_of(source, {{"x", object_of(chosen)}, {"y", array_of(chosen)}});
    CHECK(found <= 3 * expected + 0.02);
  }
  // As names of the context itself.
  CHECK(seconds_of("{% for i in range(1000) %}{{ i and nothing }}{% endfor %}", object_of(chosen)) <
        3 * seconds_of("{% for i in range(1000) %}{{ i and nothing }}{% endfor %}", object_of(any)) + 0.02);
}

TEST_CASE("hashes of strings, numbers and tuples are keyed, and equal for equal values") {
  jinja::Meter meter;
  const auto hash = [&](const jinja::Value& value) { return jinja::hash_of(value, meter); };
  CHECK(hash(jinja::Value(int64_t{1})) == hash(jinja::Value(1.0)));
  CHECK(hash(jinja::Value(int64_t{1})) == hash(jinja::Value(true)));
  CHECK(hash(jinja::Value(jinja::Text("ab", true))) == jinja::hash_of(std::string_view("ab"), meter));
  // Neither the value itself nor a mix of it that is the same in each process.
  CHECK(hash(jinja::Value(jinja::Text("ab", true))) != std::hash<std::string_view>()("ab"));
  CHECK(hash(jinja::Value(int64_t{7})) != 7);
  CHECK(hash(jinja::Value(0.5)) != std::hash<double>()(0.5));
  CHECK(text_of(render("{{ {1e30: 'a', 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 7, 8: 8, 9: 9}[1e30 | int] }}", {})) == "a");
}

TEST_CASE("hashing a long key again and again is charged") {
  const json::object context{{"k", std::string(1 << 20, 'k')}};
  const auto pieces = render(
      "{% set d = {k: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 7, 8: 8, 9: 9} %}{% for i in range(99999) %}"
      "{% set x = d[k] %}{% endfor %}",
      context);
  CHECK(text_of(pieces).find("expected at most") != std::string::npos);
}

TEST_CASE("chat_template_kwargs are bounded where they are converted") {
  const auto refused = [](const json::object& context) { return text_of(render("ok", context)); };
  CHECK(refused({{"x", object_of(random_keys(9'000))}}) == "ok");
  CHECK(refused({{"x", object_of(random_keys(10'001))}}).find("chat_template_kwargs: expected at most 10000 entries") !=
        std::string::npos);
  CHECK(refused({{"x", array_of(random_keys(6'000))}, {"y", array_of(random_keys(6'000))}})
            .find("chat_template_kwargs: expected at most 10000 entries") != std::string::npos);
  CHECK(refused(object_of(random_keys(10'001))).find("chat_template_kwargs") != std::string::npos);
  json::value nested = 1;
  for (int i = 0; i < 16; ++i) {
    nested = json::array{nested};
  }
  CHECK(refused({{"x", nested}}) == "ok");
  nested = json::array{nested};
  CHECK(refused({{"x", nested}}).find("chat_template_kwargs: expected at most 16 nested") != std::string::npos);
  CHECK(refused({{"tools", nested}}) == "ok");
  json::array many;
  many.resize(250'001);
  CHECK(refused({{"messages", many}}).find("messages and tools: expected at most 250000 entries") != std::string::npos);
}

TEST_CASE("the end of each limit names it") {
  const auto message = [](const std::string& source, const RenderLimits& limits) {
    const auto pieces = render(source, {}, limits);
    REQUIRE_FALSE(pieces.ok());
    CHECK(pieces.error().code == ErrorCode::kInvalidArgument);
    return pieces.error().message;
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const std::string endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
  CHECK(has(message(endless, {.cpu = std::chrono::minutes(10)}), "expected at most 1,000,000 steps, found more"));
  CHECK(has(message(endless, {.steps = 5'000}), "expected at most 5,000 steps, found more"));
  CHECK(has(message("{{ 'x' * 1001 }}", {.text_bytes = 1'000}), "expected at most 1,000 bytes of text, found more"));
  CHECK(has(message("{{ [0] * 11 }}", {.entries = 10}), "expected at most 10 entries in a list or dict, found more"));
  CHECK(has(message("{% set a = 'x' * 60000 %}{% set b = a ~ 'y' %}", {.held_bytes = 100'000}),
            "expected at most 100,000 bytes of memory held by values, found more"));
  CHECK(has(message(endless, {.steps = 1'000'000'000'000, .cpu = std::chrono::milliseconds(30)}),
            "expected at most 30 ms of CPU time, found more"));
}

TEST_CASE("memory is given back: a long loop of short values is no leak") {
  const auto pieces = render("{% for i in range(1000) %}{% set x = ('a' * 10000) | upper %}{% endfor %}ok", {},
                             {.steps = 100'000'000, .held_bytes = 100'000, .cpu = std::chrono::minutes(10)});
  CHECK(text_of(pieces) == "ok");
}

TEST_CASE("a flag ends a rendering under way") {
  const std::string endless = repeated("{% for a in range(99999) %}", 4) + repeated("{% endfor %}", 4);
  RenderLimits limits = wide_limits();
  limits.steps = SIZE_MAX / 2;
  std::atomic<bool> cancelled = false;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    cancelled = true;
  });
  const auto pieces = render(endless, {}, limits, &cancelled);
  other.join();
  REQUIRE_FALSE(pieces.ok());
  CHECK(pieces.error().code == ErrorCode::kCancelled);
  std::atomic<bool> never = false;
  CHECK(text_of(render("ok", {}, {}, &never)) == "ok");
}

// Each builtin with the worst that it can be given: an answer or a limit's error, within the CPU limit and what one
// operation on 16 MiB may take beyond it.
TEST_CASE("the worst template with the worst context ends in time") {
  constexpr double kSecondsMax = kIsSlow ? 60 : 3;
  json::object context;
  context["big"] = repeated("ab", 1 << 20);           // 2 MiB
  context["marks"] = repeated("&<\x01\"", 1 << 19);   // all to be escaped
  context["sigma"] = repeated("\u03a3'", 1 << 19);    // looks left and right
  context["wide"] = repeated("\U0001F600", 1 << 18);  // 4 bytes each
  context["lines"] = std::string(2 << 20, '\n');
  context["dashes"] = "a" + std::string(2 << 20, '-');
  context["hyphens"] = repeated("ab-", 700'000);
  context["amps"] = repeated("&", 2 << 20);
  context["tags"] = repeated("<!-", 700'000) + repeated("->", 100'000);
  context["opens"] = repeated("<!--", 500'000);
  context["percents"] = repeated("%(", 1 << 20);
  context["specs"] = repeated("%.999f", 300'000);
  context["braces"] = repeated("{0:999}", 300'000);
  context["digits"] = std::string(2 << 20, '9');
  context["keys"] = object_of(random_keys(9'000));
  context["messages"] = array_of(random_keys(100'000));
  json::array lists;
  for (int i = 0; i < 1'000; ++i) {
    lists.push_back(json::array{i % 7, i});
  }
  context["lists"] = lists;

  // Each text filter and method, over each text.
  std::vector<std::string> sources;
  const char* texts[] = {"big",  "marks", "sigma", "wide",   "lines",    "dashes", "hyphens",
                         "amps", "tags",  "opens", "digits", "percents", "specs",  "braces"};
  const char* operations[] = {"| upper",
                              "| lower",
                              "| title",
                              "| capitalize",
                              "| trim",
                              "| trim(marks ~ sigma)",
                              "| e",
                              "| urlencode",
                              "| tojson",
                              "| tojson(ensure_ascii=true)",
                              "| tojson(indent=9999999)",
                              "| wordcount",
                              "| indent(9999)",
                              "| truncate(99999)",
                              "| center(9999999)",
                              "| replace('a', big)",
                              "| replace('', 'xy')",
                              "| replace(big, '')",
                              "| list | length",
                              "| unique | list | length",
                              "| sort | length",
                              "| reverse",
                              "| join('xy')",
                              "| batch(2) | list | length",
                              "| groupby(0) | length",
                              "| map('upper') | list | length",
                              "| select('in', big) | list | length",
                              "| min",
                              "| max",
                              "| first",
                              "| last",
                              "| random",
                              "| int",
                              "| float",
                              "| length",
                              "| wordwrap",
                              "| wordwrap(1)",
                              "| wordwrap(5, false)",
                              "| wordwrap(3, true, big)",
                              "| striptags",
                              "| filesizeformat",
                              "| format(1)",
                              "| format(a=1)",
                              "| string",
                              "| slice(99999) | list | length",
                              "| sum",
                              "| dictsort",
                              ".upper()",
                              ".title()",
                              ".swapcase()",
                              ".split()",
                              ".split('a')",
                              ".split(',')",
                              ".rsplit()",
                              ".rsplit('b', 9999999)",
                              ".splitlines()",
                              ".strip(big)",
                              ".lstrip(marks)",
                              ".rstrip(wide)",
                              ".partition(big)",
                              ".rpartition('zz')",
                              ".find(big)",
                              ".rfind(big)",
                              ".count('a')",
                              ".count('')",
                              ".startswith((big,) * 9999)",
                              ".endswith(big, 1, 99999)",
                              ".replace('a', 'bb')",
                              ".replace('', big)",
                              ".zfill(9999999)",
                              ".join(big)",
                              ".format(1, 2)",
                              ".format(**keys)",
                              ".isalnum()",
                              ".islower()",
                              ".isupper()",
                              ".removeprefix(big)",
                              "[::-1]",
                              "[1:999999]",
                              "[999999]",
                              "* 99999",
                              "* 7",
                              "+ big",
                              "~ big",
                              "% 1",
                              "% keys",
                              "== big",
                              "in big",
                              "< big",
                              "is in [big]",
                              "is lower",
                              "is sameas(big)"};
  for (const char* text : texts) {
    for (const char* operation : operations) {
      const std::string expression = std::string(text) + " " + operation;
      sources.push_back("{% for i in range(99999) %}{% set x = " + expression + " %}{% endfor %}");
    }
  }
  const char* others[] = {
      "{% for i in range(99999) %}{% set x = keys | dictsort | length %}{% endfor %}",
      "{% for i in range(99999) %}{% set x = keys | tojson(sort_keys=true) | length %}{% endfor %}",
      "{% for i in range(99999) %}{% set x = keys == dict(keys) %}{% endfor %}",
      "{% for i in range(99999) %}{% set x = messages | sort | length %}{% endfor %}",
      "{% for i in range(99999) %}{% set x = 'zz' in messages %}{% endfor %}",
      "{% for i in range(99999) %}{% set x = messages.index('zz') %}{% endfor %}",
      "{% for i in range(99999) %}{% set x = messages | map('upper') | unique | list %}{% endfor %}",
      "{% for i in range(99999) %}{% set x = lists | groupby('0') | length %}{% endfor %}",
      "{% for i in range(99999) %}{% set x = lists | sort(attribute='0,1,0,1,0,1') | length %}{% endfor %}",
      "{% for i in range(99999) %}{% set x = lists | map(attribute='0') | sum %}{% endfor %}",
      "{% for i in range(99999) %}{% set x = lists | sum(start=[]) | length %}{% endfor %}",
      "{% for i in range(99999) %}{% set x = messages | batch(1) | list | length %}{% endfor %}",
      "{% for i in range(99999) %}{% set x = messages[::-1] %}{% endfor %}",
      "{% for i in range(99999) %}{% set x = messages + messages %}{% endfor %}",
      "{% for i in range(99999) %}{% set x = messages * 3 %}{% endfor %}",
      "{% for i in range(99999) %}{% set x = messages ~ '' %}{% endfor %}",
      "{% for i in range(99999) %}{% set x = {}[big] is defined %}{% endfor %}",
      "{% for i in range(99999) %}{% set x = {big: 1}[big ~ 'x'] is defined %}{% endfor %}",
      "{% set ns = namespace(x=3) %}{% for i in range(99999) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
      "{% set ns = namespace(x=3) %}{% for i in range(99999) %}{% set ns.x = ns.x * 3 %}{% endfor %}",
      "{{ 9 ** (9 ** 9) }}",
      "{{ 2 ** 99999999999999999999 }}",
      "{% set x = 10 ** 4290 %}{% for i in range(99999) %}{% set y = (x // 7) ~ (x % 13) ~ x / 3 %}{% endfor %}",
      "{% set x = digits[:4299] %}{% for i in range(99999) %}{% set y = x | int %}{% endfor %}",
      "{% set x = 10 ** 4290 %}{% for i in range(99999) %}{% set y = '{:,}{:b}'.format(x, x) %}{% endfor %}",
      "{% for i in range(99999) %}{% set x = '%.999f' % 1e308 %}{% endfor %}",
      "{% for i in range(99999) %}{% set x = strftime_now('%A %B %c' * 99) %}{% endfor %}",
      "{% set c = cycler(*messages) %}{% for i in range(99999) %}{% set x = c.next() %}{% endfor %}",
      "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
      "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}",
      "{% macro f(n) %}{% set x = big * 7 %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
      "{% macro f(n) %}{{ big * 7 }}{{ f(n) }}{{ big * 7 }}{% endmacro %}{{ f(1) }}",
      "{% for a in messages %}{% for b in messages if b == a %}{{ loop.length }}{% endfor %}{% endfor %}",
      "{% for a in messages recursive %}{{ loop(messages) }}{% endfor %}",
      "{% for i in range(99999) %}{% for j in messages %}{% break %}{% endfor %}{% endfor %}",
      "{% for i in range(99999) %}{% set x = namespace(**keys) %}{% endfor %}",
      "{% for i in range(99999) %}{% set x = range(99999) | list %}{% endfor %}",
      "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = ns.x + [i] %}{% endfor %}",
      "{% set ns = namespace(x='') %}{% for i in range(99999) %}{% set ns.x = ns.x ~ big[:999] %}{% endfor %}",
  };
  sources.insert(sources.end(), std::begin(others), std::end(others));
  double worst = 0;
  std::string worst_source;
  for (size_t i = 0; i < sources.size(); i += kIsSlow ? 17 : 1) {
    RenderLimits limits;
    limits.cpu = std::chrono::milliseconds(5);  // so that the table ends soon
    limits.client_entries = limits.entries;
    json::object used;
    for (const auto& [name, value] : context) {
      if (sources[i].find(name) != std::string::npos) {
        used[name] = value;
      }
    }
    const double begin = cpu_seconds();
    const auto pieces = render(sources[i], used, limits);
    const double seconds = cpu_seconds() - begin;
    if (seconds > worst) {
      worst = seconds;
      worst_source = sources[i];
    }
    CAPTURE(sources[i], seconds);
    CHECK(seconds < kSecondsMax);
    CHECK((pieces.ok() || !pieces.error().message.empty()));
  }
  INFO("the worst took " << worst << " s: " << worst_source);
  CHECK(worst < kSecondsMax);
  if (std::getenv("LLMRT_TEST_VERBOSE")) {
    WARN(sources.size() << " templates, the worst took " << worst << " s: " << worst_source);
  }
}
