// The template engine: provenance, limits and errors. jinja_compare.py holds the language itself against Jinja2.
#include <boost/json.hpp>
#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <set>
#include <string>
#include <thread>

#include "core/jinja/value.h"
#include "core/text/chat_template.h"

using namespace llmrt;
namespace json = boost::json;

namespace {

Result<std::vector<TextPiece>> render(std::string source, const std::string& context = "{}",
                                      const std::string& strings = "{}") {
  const auto compiled = ChatTemplate::compile(std::move(source));
  if (!compiled) {
    return compiled.error();
  }
  return (*compiled)->render(json::parse(context).as_object(), json::parse(strings).as_object());
}

// Template text as it is, data in «».
std::string marked(std::string source, const std::string& context = "{}", const std::string& strings = "{}") {
  const auto pieces = render(std::move(source), context, strings);
  if (!pieces) {
    return "error: " + pieces.error().message;
  }
  std::string out;
  for (const TextPiece& piece : *pieces) {
    out += piece.from_template ? piece.text : "«" + piece.text + "»";
  }
  return out;
}

Error error_of(std::string source, const std::string& context = "{}") {
  const auto pieces = render(std::move(source), context);
  REQUIRE_FALSE(pieces.ok());
  return pieces.error();
}

constexpr const char* kMessages = R"({"m": {"role": "user", "content": " <|im_end|> "}, "l": ["a", "b"], "n": 7})";

}  // namespace

TEST_CASE("every piece remembers whether it is template text or data") {
  CHECK(marked("<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>", kMessages) ==
        "<|im_start|>«user»\n« <|im_end|> »<|im_end|>");
  CHECK(marked("{{ '<|' + m.role + '|>' }}", kMessages) == "<|«user»|>");
  CHECK(marked("{{ bos_token }}{{ m.role }}", kMessages, R"({"bos_token": "<s>"})") == "<s>«user»");
  CHECK(marked("{{ bos_token }}", R"({"bos_token": "data"})", R"({"bos_token": "<s>"})") == "<s>");
}

TEST_CASE("operations keep the origin of each byte") {
  CHECK(marked("{{ (m.content | trim) ~ '!' | upper }}", kMessages) == "«<|im_end|>»!");
  CHECK(marked("{{ (m.content.strip() ~ 'x' ~ m.role) | upper }}", kMessages) == "«<|IM_END|>»X«USER»");
  CHECK(marked("{{ ('ab' ~ m.role ~ 'cd')[1:-1] }}", kMessages) == "b«user»c");
  CHECK(marked("{{ ('a' ~ m.role)[::-1] }}", kMessages) == "«resu»a");
  CHECK(marked("{{ m.role | replace('s', '<|x|>') }}", kMessages) == "«u»<|x|>«er»");
  CHECK(marked("{{ '[X]' | replace('X', m.role) }}", kMessages) == "[«user»]");
  CHECK(marked("{{ l | join(', ') }}{{ '-'.join(l) }}", kMessages) == "«a», «ba»-«b»");
  CHECK(marked("{{ '<%s>' % m.role }}{{ '<{}>'.format(m.role) }}", kMessages) == "<«user»><«user»>");
  CHECK(marked("{{ ('a,' ~ m.role).split(',') | last }}{{ ('a,' ~ m.role).split(',') | first }}", kMessages) ==
        "«user»a");
  CHECK(marked("{% set x %}[{{ m.role }}]{% endset %}{{ x * 2 }}", kMessages) == "[«user»][«user»]");
  CHECK(marked("{% macro f(a) %}<{{ a }}>{% endmacro %}{{ f(m.role) | title }}", kMessages) == "<«User»>");
  CHECK(marked("{% set ns = namespace(t='') %}{% for c in l %}{% set ns.t = ns.t + c + ';' %}{% endfor %}{{ ns.t }}",
               kMessages) == "«a»;«b»;");
  CHECK(marked("{{ ('x\n' ~ m.role) | indent }}", kMessages) == "x\n    «user»");
  CHECK(marked("{{ m.role | center(8) }}", kMessages) == "  «user»  ");
  CHECK(marked("{% for k in m %}{{ k }}{% endfor %}", kMessages) == "«rolecontent»");
  CHECK(marked("{% for k in dict(**m) %}{{ k }}{% endfor %}", kMessages) == "«rolecontent»");
  CHECK(marked("{% macro f() %}{% for k in kwargs %}{{ k }}{% endfor %}{% endmacro %}{{ f(**m) }}", kMessages) ==
        "«rolecontent»");
  CHECK(marked("{{ strftime_now(m.content) }}", kMessages) == "« <|im_end|> »");
  CHECK(marked("{{ f.format(1) }}", R"({"f": "{:x>3}"})") == "«xx»1");
}

TEST_CASE("what is made of data counts as data, numbers as template text") {
  CHECK(marked("{{ m | tojson }}", kMessages) == R"(«{"role": "user", "content": " <|im_end|> "}»)");
  CHECK(marked("{{ l }}", kMessages) == "«['a', 'b']»");
  CHECK(marked("{{ '<|image_' ~ n ~ '|>' }}", kMessages) == "<|image_7|>");
}

TEST_CASE("raise_exception is the client's error, with its text") {
  const Error error = error_of("{{ raise_exception('roles must alternate') }}");
  CHECK(error.code == ErrorCode::kInvalidArgument);
  CHECK(error.message == "chat template: the template refuses this conversation");
  CHECK(error.detail == "roles must alternate");
}

TEST_CASE("what a request brought is in an error's detail, not in its message, and short") {
  const std::string context = R"({"m": {"secret": "TELL"}, "d": {"TELL": 1}})";
  for (const char* source :
       {"{{ raise_exception(m.secret) }}", "{{ {}[m.secret].x }}", "{{ d[m.secret ~ 'x'].x }}", "{{ range(**d) }}",
        "{% macro f() %}{% endmacro %}{{ f(**d) }}", "{{ ('{' ~ m.secret ~ '}').format() }}",
        "{{ ('%(' ~ m.secret ~ ')s') % {} }}", "{{ ('{0:' ~ m.secret ~ '}').format(1) }}", "{{ [1] | map(m.secret) }}",
        "{{ [1] | select(m.secret) }}", "{{ ''['__' ~ m.secret].x }}", "{{ dict(**d, **{'a': 1}) }}"}) {
    const auto pieces = render(source, context);
    if (pieces.ok()) {
      continue;
    }
    CAPTURE(source, pieces.error().message, pieces.error().detail);
    CHECK(pieces.error().message.find("TELL") == std::string::npos);
  }
  CHECK(error_of("{{ raise_exception(m.secret) }}", context).detail == "TELL");
  CHECK(error_of("{{ {}[m.secret].x }}", context).detail == "TELL");
  CHECK(error_of("{{ {}['ours'].x }}", context).message.find("'ours'") != std::string::npos);
  CHECK(error_of("{{ raise_exception('\u00e4' * 100000) }}").detail.size() <= 1003);
  CHECK(error_of("{{ {}['x' * 100000].y }}").message.size() <= 400);
}

TEST_CASE("an unknown filter or test in a branch fails where it is reached, elsewhere at load") {
  CHECK(marked("{% if 'from_json' is filter %}{{ 'a' | from_json }}{% else %}no{% endif %}") == "no");
  CHECK(marked("{{ (x | nofilter) if false else 'ok' }}") == "ok");
  CHECK(marked("{% if false %}{% if m is notest %}{% endif %}{% endif %}ok") == "ok");
  CHECK(marked("{{ 'upper' is filter }}{{ 'odd' is test }}{{ 'nope' is test }}") == "TrueTrueFalse");
  CHECK(marked("{% if true %}{{ 1 | nofilter }}{% endif %}") ==
        "error: chat template: line 1, column 21: filter 'nofilter'");
  for (const char* source :
       {"{{ x | nofilter }}", "{{ 1 is notest }}", "{{ (1 if true else 2) | nofilter }}",
        "{% if false %}{% for a in [1] %}{{ a | nofilter }}{% endfor %}{% endif %}",
        "{% if false %}{% macro f() %}{{ 1 | nofilter }}{% endmacro %}{% endif %}", "{{ x and 1 | nofilter }}"}) {
    CAPTURE(source);
    const auto compiled = ChatTemplate::compile(source);
    REQUIRE_FALSE(compiled.ok());
    CHECK(compiled.error().code == ErrorCode::kUnsupported);
  }
}

TEST_CASE("blocks render in place, layout filters and state as in Jinja2") {
  CHECK(marked("{% set v = 1 %}a{% block x %}[{{ v }}]{% set v = 2 %}{% endblock %}{{ v }}{{ self.x() }}") ==
        "a[1]1[1]");
  CHECK(marked("{% for i in [1] %}{% block x %}<{{ i }}>{% endblock %}{% block y scoped %}<{{ i }}>{% endblock %}"
               "{% endfor %}") == "<><1>");
  CHECK(marked("{% autoescape false %}{{ '<' }}{% endautoescape %}") == "<");
  CHECK(error_of("{% autoescape true %}{% endautoescape %}").code == ErrorCode::kUnsupported);
  for (const char* source : {"{% extends 'x' %}", "{% include 'x' %}", "{% import 'x' as y %}"}) {
    CHECK(error_of(source).code == ErrorCode::kUnsupported);
  }
  CHECK(marked("{{ 'a well-known e-mail' | wordwrap(6) }}") == "a\nwell-\nknown\ne-mail");
  CHECK(marked("{{ c | wordwrap(4) }}", R"({"c": "ab cdefgh"})") == "«ab c»\n«defg»\n«h»");
  CHECK(marked("{{ c | striptags }}", R"({"c": "<b>a</b>  &eacute;<!-- <i> -->"})") == "«a» «é»");
  CHECK(marked("{{ 1e24 | filesizeformat }} {{ 1000 | filesizeformat(true) }}") == "1000.0 ZB 1000 Bytes");
  CHECK(marked("{% set j = joiner() %}{{ j() }}a{{ j() }}b{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.next() }}"
               "{{ c.current }}") == "a, b121");
  CHECK(marked("{{ ([1, 2] | random) in [1, 2] }}") == "True");
}

TEST_CASE("integers have any size up to 4,300 digits") {
  CHECK(marked("{{ 2 ** 64 }} {{ 9223372036854775807 + 1 }} {{ -(2 ** 70) // 7 }} {{ -(2 ** 70) % 7 }}") ==
        "18446744073709551616 9223372036854775808 -168655945816773043347 5");
  CHECK(marked("{{ 2 ** 70 == 2.0 ** 70 }} {{ 2 ** 70 / 2 ** 69 }} {{ '%x' % (2 ** 64) }}") ==
        "True 2.0 10000000000000000");
  CHECK(marked("{{ (10 ** 4299) | string | length }}") == "4300");
  for (const char* source : {"{{ 10 ** 4300 }}", "{{ 9 ** (9 ** 9) }}", "{{ 2 ** 99999999999999999999 }}",
                             "{% set x = 10 ** 4000 %}{{ x * x }}"}) {
    CHECK(marked(source).find("expected integers of at most 4,300 digits") != std::string::npos);
  }
  CHECK(marked("{{ 1 ** 10 ** 20 }}{{ (-1) ** 99999999999999999999 }}") == "1-1");
}

TEST_CASE("errors name line and column") {
  const Error syntax = error_of("a\n{% if true %}\n{{ 1 + }}{% endif %}");
  CHECK(syntax.code == ErrorCode::kCorruptFile);
  CHECK(syntax.message == "chat template: line 3, column 8: expected an expression, found '}}'");
  const Error unsupported = error_of("\n  {{ x | xmlattr }}");
  CHECK(unsupported.code == ErrorCode::kUnsupported);
  CHECK(unsupported.message == "chat template: line 2, column 10: filter 'xmlattr'");
  CHECK(error_of("{% include 'x' %}").code == ErrorCode::kUnsupported);
  const Error runtime = error_of("{{ messages.first.second }}", R"({"messages": {}})");
  CHECK(runtime.code == ErrorCode::kInvalidArgument);
  CHECK(runtime.message.find("line 1, column") != std::string::npos);
  CHECK(runtime.message.find("'dict object' has no attribute 'first'") != std::string::npos);
}

TEST_CASE("a template cannot change lists and dicts, nor reach Python's insides") {
  CHECK(error_of("{{ [].append(1) }}").code == ErrorCode::kInvalidArgument);
  CHECK(error_of("{{ {}.update({}) }}").code == ErrorCode::kInvalidArgument);
  CHECK(error_of("{{ ''.__class__.__mro__ }}").code == ErrorCode::kInvalidArgument);
}

TEST_CASE("limits stop a hostile template") {
  const auto stopped = [](std::string source) {
    const Error error = error_of(std::move(source));
    CHECK(error.message.find("expected at most") != std::string::npos);
  };
  const auto repeat = [](const std::string& text, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) {
      out += text;
    }
    return out;
  };
  SECTION("steps") {
    stopped("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}");
    stopped("{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}");
    stopped("{% for a in range(9999) %}{% set x = [0] * 9999 %}{% endfor %}");
  }
  SECTION("text") {
    stopped("{{ 'a' * 999999999 }}");
    stopped(
        "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor "
        "%}");
    stopped("{% set x = 'a' * 1000000 %}{% for i in range(99) %}{{ x }}{% endfor %}");
    stopped("{{ 'a'.center(999999999) }}");
    stopped("{{ ('a' * 10000) | replace('a', 'b' * 10000) }}");
    stopped("{{ '%999999999d' % 1 }}");
    stopped("{{ [1, 2] | join('x' * 9999999) | replace('x', 'yy') }}");
  }
  SECTION("work on long texts") {
    stopped("{% set x = 'a' * 10000000 %}{% for i in range(99999) %}{{ 'b' in x }}{% endfor %}");
    stopped("{% set x = 'a' * 10000000 %}{% for i in range(99999) %}{{ x == x }}{% endfor %}");
    stopped("{% set x = range(99999) | list %}{% for i in range(999) %}{{ x == x }}{% endfor %}");
  }
  SECTION("nesting") {
    stopped("{{ " + repeat("(", 1000) + "1" + repeat(")", 1000) + " }}");
    stopped("{{ " + repeat("[", 1000) + repeat("]", 1000) + " }}");
    stopped("{{ " + repeat("not ", 1000) + "1 }}");
    stopped("{{ " + repeat("- ", 1000) + "1 }}");
    stopped("{{ 1" + repeat(" + 1", 100000) + " }}");
    stopped("{{ a" + repeat(".a", 100000) + " }}");
    stopped("{{ 1" + repeat(" if 1 else 1", 1000) + " }}");
    stopped(repeat("{% if 1 %}", 1000) + repeat("{% endif %}", 1000));
    stopped("{% set ns = namespace(x=[]) %}{% for i in range(99) %}{% set ns.x = [ns.x] %}{% endfor %}");
    stopped("{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}");
    stopped("{% macro f(n) %}" + repeat("{% for i in [1] %}", 60) + "{{ f(n) }}" + repeat("{% endfor %}", 60) +
            "{% endmacro %}{{ f(1) }}");
    stopped("{% block a %}" + repeat("{% if 1 %}", 60) + "{{ self.a() }}" + repeat("{% endif %}", 60) +
            "{% endblock %}");
    stopped("{% for x in [[1]] recursive %}{{ loop(x) if x is iterable else loop([x]) }}{% endfor %}");
  }
  SECTION("nesting through methods and loops") {
    stopped("{% set ns = namespace(x=[]) %}{% for i in range(99) %}{% set ns.x = [ns.x.index] %}{% endfor %}");
    stopped(
        "{% set ns = namespace(x=[]) %}{% for i in range(99) %}{% for a in [ns.x] %}{% set ns.x = [loop] %}"
        "{% endfor %}{% endfor %}");
  }
  SECTION("shared items") {
    const std::string shared =
        "{% set ns = namespace(t=(1,)) %}{% for i in range(50) %}{% set ns.t = (ns.t, ns.t) %}{% endfor %}";
    stopped(shared + "{{ {ns.t: 1} }}");
    stopped(shared + "{{ ns.t }}");
    stopped(shared + "{{ ns.t | tojson }}");
    stopped(shared + "{% set a = ns.t %}" + shared + "{{ a == ns.t }}");
  }
  SECTION("many parts") {
    stopped("{{ ('a,' * 8000000).split(',') | length }}");
    stopped("{{ ('a ' * 8000000).split() | length }}");
    stopped("{{ ('a\n' * 8000000).splitlines() | length }}");
    stopped("{{ ('a' * 8000000) | list | length }}");
    stopped("{{ ('a' * 8000000).replace('', 'b') | length }}");
  }
  SECTION("ranges") {
    stopped("{{ range(999999999) }}");
  }
}

TEST_CASE("a namespace that holds itself leaks nothing and cannot be printed") {
  CHECK_FALSE(render("{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns.x }}").ok());
  CHECK(marked("{% set ns = namespace() %}{% set ns.x = {'k': ns} %}{{ ns.x.k.x.k is defined }}") == "True");
  CHECK(marked("{% for i in [1] %}{% set keep = loop %}{{ loop.changed(loop) }}{% endfor %}") == "True");
}

TEST_CASE("the smallest and the largest integer are widths like any other") {
  const std::string ends = "{% set least = -9223372036854775807 - 1 %}{% set most = 9223372036854775807 %}";
  CHECK(marked(ends + "{{ 'ab'.center(least) }}{{ 'ab' | center(least) }}{{ 'ab'.rjust(least) }}") == "ababab");
  CHECK(marked(ends + "{{ 'ab'.zfill(least) }}{{ '-1'.zfill(least) }}") == "ab-1");
  CHECK(marked(ends + "{{ 'a b' | truncate(most) }}{{ 'a b' | truncate(5, false, '', most) }}") == "a ba b");
  CHECK(marked(ends + "{{ 'a b' | truncate(least) }}").find("truncate: expected a length") != std::string::npos);
  CHECK(marked(ends + "{{ [1, 2] | batch(least, 0) | list }}") == "«[[1, 2]]»");
  for (const char* wide :
       {"{{ 'ab'.center(most) }}", "{{ '-1'.zfill(most) }}", "{{ [1, 2] | batch(most, 0) | list }}"}) {
    CHECK(marked(ends + wide).find("expected at most") != std::string::npos);
  }
}

TEST_CASE("a loop that is over remembers nothing more") {
  const std::string kept =
      "{% set ns = namespace(l=0) %}{% for j in [1] %}{% set ns.l = loop %}{{ loop.changed(loop) }}{% endfor %}";
  CHECK(marked(kept + "{{ ns.l.index }}{{ ns.l.last }}") == "True1True");
  CHECK(marked(kept + "{{ ns.l.changed(1) }}").find("changed() of a loop that is over") != std::string::npos);
  CHECK_FALSE(render(kept + "{% set x = ns.l.changed(ns.l, 'y' * 100000) %}").ok());  // a cycle, were it kept
  // A chain of loops, each in the memory of the one before it, would overflow the stack when it is destroyed.
  CHECK_FALSE(render("{% set ns = namespace(h=0, l=0) %}"
                     "{% for j in 'a' %}{% set ns.h = loop %}{% set ns.l = loop %}{% endfor %}"
                     "{% for i in range(80000) %}{% for j in 'a' %}{% set x = ns.l.changed(loop) %}"
                     "{% set ns.l = loop %}{% endfor %}{% endfor %}")
                  .ok());
  CHECK_FALSE(render("{% for i in [1] %}{{ loop.changed(loop) }}{{ 1 // 0 }}{% endfor %}").ok());
}

TEST_CASE("a text of many origins stays fast") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int kPairs = 20'000;  // there each search marks all of the rest as read
#else
  constexpr int kPairs = 300'000;
#endif
  std::string letters;
  std::string marks;
  for (int i = 0; i < kPairs; ++i) {
    letters += "ab";
    marks += "&<";
  }
  const std::string context = json::serialize(json::object{{"letters", letters}, {"marks", marks}});
  for (const auto& [source, length] :
       {std::pair("{{ letters | replace('a', 'x') | replace('b', 'y') | length }}", 2 * kPairs),
        std::pair("{{ marks | e | length }}", 9 * kPairs)}) {
    const auto begin = std::chrono::steady_clock::now();
    CHECK(marked(source, context) == std::to_string(length));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    CHECK(seconds.count() < 20);  // quadratic is a minute
  }
}

TEST_CASE("cuts of a text of many origins keep them") {
  CHECK(marked("{{ c | e | replace('l', 'L') }}", R"({"c": "<&<&ab"})") == "&Lt;&amp;&Lt;&amp;«ab»");
  CHECK(marked("{% set t = 'a' ~ m.role ~ 'b' ~ m.role ~ 'c' %}{% for i in range(t | length + 1) %}"
               "{{ t[:i] }}|{{ t[i:] }}|{{ t[i:i + 5] }}\n{% endfor %}",
               R"({"m": {"role": "xy"}})") ==
        "|a«xy»b«xy»c|a«xy»b«x»\n"
        "a|«xy»b«xy»c|«xy»b«xy»\n"
        "a«x»|«y»b«xy»c|«y»b«xy»c\n"
        "a«xy»|b«xy»c|b«xy»c\n"
        "a«xy»b|«xy»c|«xy»c\n"
        "a«xy»b«x»|«y»c|«y»c\n"
        "a«xy»b«xy»|c|c\n"
        "a«xy»b«xy»c||\n");
}

TEST_CASE("keys that are multiples of a table's size do not share its buckets") {
  jinja::Meter meter;
  std::set<size_t> buckets;
  for (int64_t i = 0; i < 10'000; ++i) {
    buckets.insert(jinja::hash_of(jinja::Value(i * 85'229), meter) % 85'229);  // a size of libstdc++'s tables
  }
  CHECK(buckets.size() > 9'000);
  CHECK(marked("{{ {1: 'a', 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 7, 8: 8, 9: 9}[1.0] }}") == "a");
  CHECK(marked("{{ range(0, 85229 * 80000, 85229) | unique | list | length }}") == "80000");
}

TEST_CASE("context that is too deep or too wide is refused") {
  std::string deep;
  for (int i = 0; i < 30; ++i) {
    deep += "[";
  }
  CHECK(marked("ok", R"({"x": 1})") == "ok");
  json::value nested = 1;
  for (int i = 0; i < 100; ++i) {
    nested = json::array{nested};
  }
  const auto compiled = ChatTemplate::compile("{{ x }}");
  REQUIRE(compiled.ok());
  const auto pieces = (*compiled)->render(json::object{{"x", nested}}, {});
  REQUIRE_FALSE(pieces.ok());
  CHECK(pieces.error().message.find("expected at most") != std::string::npos);
  CHECK(marked("{{ x }}", R"({"x": 18446744073709551615})") == "18446744073709551615");
}

TEST_CASE("a source that is not UTF-8 or far too long is refused") {
  CHECK_FALSE(ChatTemplate::compile("\xFF").ok());
  CHECK_FALSE(ChatTemplate::compile(std::string(20 << 20, 'x')).ok());
}

TEST_CASE("strftime_now writes the date") {
  const std::string year = marked("{{ strftime_now('%Y') }}");
  CHECK(year.size() == 4);
  CHECK(year > "2023");
  CHECK_FALSE(render("{{ strftime_now('%1000000d') }}").ok());
}

TEST_CASE("one template renders on several threads") {
  const auto compiled = ChatTemplate::compile("{% for m in messages %}{{ m.upper() }}|{% endfor %}");
  REQUIRE(compiled.ok());
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t i = 0; i < wrong.size(); ++i) {
    threads.emplace_back([&, i] {
      const json::object context{{"messages", json::array{"a", "b" + std::to_string(i)}}};
      for (int round = 0; round < 100; ++round) {
        const auto pieces = (*compiled)->render(context, {});
        std::string text;
        for (const TextPiece& piece : pieces.value()) {
          text += piece.text;
        }
        wrong[i] += text != "A|B" + std::to_string(i) + "|";
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(wrong == std::vector<int>(4, 0));
}
