// Formats of strings: texts that have the format, and neighbours that have not.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "core/grammar/formats.h"

namespace llmrt {
namespace {

struct Row {
  const char* format;
  std::vector<std::string> has, has_not;
};

TEST_CASE("formats take what their RFCs do") {
  const std::string label63(63, 'a'), label64(64, 'a');
  std::string long_name;
  for (int i = 0; i < 4; ++i) long_name += std::string(i == 3 ? 61 : 63, 'b') + (i == 3 ? "" : ".");
  const std::vector<Row> rows = {
      {"date",
       {"2024-02-29", "2000-02-29", "1999-12-31", "2023-04-30"},
       {"2023-02-29", "1900-02-29", "2023-04-31", "2023-13-01", "2023-00-10", "2023-1-01", "2023-01-32", ""}},
      {"time",
       {"23:59:59Z", "00:00:00.123z", "12:30:00+05:30", "23:59:60Z"},
       {"24:00:00Z", "12:60:00Z", "12:00:60Z", "12:00:00", "12:00:00+24:00", "12:00Z", "12:00:00.Z"}},
      {"date-time",
       {"1990-12-31T23:59:60Z", "2024-02-29t00:00:00.5-08:00"},
       {"2024-02-29 00:00:00Z", "2024-02-30T00:00:00Z"}},
      {"duration",
       {"P1Y2M3DT4H5M6S", "PT0S", "P3W", "P1Y", "PT1H30M"},
       {"P", "PT", "P1Y1W", "P1D1Y", "1Y", "P1YT", "PT1D", "P1Y3D"}},
      {"email",
       {"a@b", "joe.bloggs@example.com", "\"joe bloggs\"@example.com", "te~st@example.com", "a@[127.0.0.1]",
        "a@[IPv6:::1]"},
       {"a", "@b", "a@", ".a@b", "a.@b", "a..b@c", "a@b=c.d", "a@[127.0.0.300]", "joe bloggs@example.com"}},
      {"hostname",
       {"a", "www.example.com", "a-b.c1", "1host", label63, label63 + "." + label63, long_name},
       {"", ".", "a.", ".a", "-a", "a-", "a_b", label64, "ab--cd.e", "a..b", long_name + "b"}},
      {"ipv4",
       {"0.0.0.0", "255.255.255.255", "127.0.0.1"},
       {"256.0.0.1", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1.2.3.4\n"}},
      {"ipv6",
       {"::", "::1", "1::", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4", "1:2::7:8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8"},
       {":", ":::", "1", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "12345::", "::1::", "::1.2.3", "1:2:3:4:5:6:7:1.2.3.4",
        "::1%eth0"}},
      {"uuid",
       {"2EB8AA08-AA98-11EA-B4AA-73B441D16380", "00000000-0000-0000-0000-000000000000"},
       {"2eb8aa08-aa98-11ea-b4aa-73b441d1638", "2eb8aa08aa9811eab4aa73b441d16380",
        "2eb8aa08-aa98-11ea-b4aa-73b441d1638g"}},
      {"uri",
       {"http://a", "http://u:p@h.com:80/p?q=1#f", "urn:oasis:names", "mailto:a@b.c", "ldap://[2001:db8::7]/c=GB?x",
        "a:"},
       {"//a", "/abc", "a b:c", "http://a b", "http:// x", "1a:b", "", "http://a/\\", "http://[1.2.3.4",
        "http://a:x/"}},
      {"uri-reference", {"", "/abc", "//a.b/c", "abc", "#frag", "a:b", "?q"}, {"\\\\a", "#\\", "a b", "1:b"}},
      {"uri-template",
       {"http://e.com/d/{term:1}/{term}", "{?a,b*}", "plain"},
       {"http://e.com/{term", "{}", "a b", "}"}},
      {"regex",
       {"", "^(abc)?[a-z0-9_-]+(?:x|y){2,3}\\.\\d$", "([abc])+\\s+$", "a|b|", "[^\\]-]", "a{12}?", "(((a)b)c)+"},
       {"(", "a**", "[z-a]", "a{3,2}", "^(abc]", "\\Z", "\\a", "^*", "(?=a)", "\\1", "["}},
      {"json-pointer", {"", "/", "/a/b~0/c~1d", "/\xc3\xa9"}, {"a", "/~", "/~2", "#/a"}},
      {"relative-json-pointer", {"0", "1/a", "10#"}, {"", "01", "-1", "a", "0##", "/a"}},
  };
  CHECK(rows.size() == format_names().size());
  for (const Row& row : rows) {
    CAPTURE(row.format);
    RegexPool pool;
    const auto regex = format_regex(&pool, row.format);
    REQUIRE(regex);
    CHECK(std::ranges::count(format_names(), row.format) == 1);
    for (const auto& text : row.has) {
      CAPTURE(text);
      CHECK(pool.matches(*regex, text));
    }
    for (const auto& text : row.has_not) {
      CAPTURE(text);
      CHECK_FALSE(pool.matches(*regex, text));
    }
    CHECK(pool.has_text(*regex, 5000) == RegexPool::Answer::kYes);
    CHECK(pool.num_nodes() < 100'000);
  }
  CHECK(format_kind("regex") == FormatKind::kPartial);
  CHECK(format_kind("date") == FormatKind::kWhole);
  CHECK(format_kind("iri") == FormatKind::kNotEnforced);
  CHECK(format_kind("int64") == FormatKind::kUnknown);
  RegexPool pool;
  for (const char* name : {"idn-email", "iri", "color", ""}) CHECK_FALSE(format_regex(&pool, name));
}

}  // namespace
}  // namespace llmrt
