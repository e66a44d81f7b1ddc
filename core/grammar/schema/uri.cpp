#include "core/grammar/schema/uri.h"

#include <algorithm>
#include <vector>

namespace llmrt {
namespace {

struct UriParts {
  std::string_view scheme, authority, path, query, fragment;
  bool has_scheme = false, has_authority = false, has_query = false, has_fragment = false;
};

bool is_scheme(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return !text.empty() && is_letter(text[0]) && std::ranges::all_of(text, [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
  });
}

UriParts parse_uri(std::string_view text) {
  UriParts out;
  if (const size_t hash = text.find('#'); hash != text.npos) {
    out.has_fragment = true;
    out.fragment = text.substr(hash + 1);
    text = text.substr(0, hash);
  }
  if (const size_t mark = text.find('?'); mark != text.npos) {
    out.has_query = true;
    out.query = text.substr(mark + 1);
    text = text.substr(0, mark);
  }
  if (const size_t colon = text.find(':'); colon != text.npos && is_scheme(text.substr(0, colon))) {
    out.has_scheme = true;
    out.scheme = text.substr(0, colon);
    text = text.substr(colon + 1);
  }
  if (text.starts_with("//")) {
    text = text.substr(2);
    const size_t slash = std::min(text.find('/'), text.size());
    out.has_authority = true;
    out.authority = text.substr(0, slash);
    text = text.substr(slash);
  }
  out.path = text;
  return out;
}

std::string without_dot_segments(std::string_view path) {
  const bool is_absolute = path.starts_with('/');
  std::vector<std::string_view> kept;
  bool ends_open = false;  // behind "." or "..": a slash stays
  for (size_t begin = is_absolute ? 1 : 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view segment = path.substr(begin, end - begin);
    ends_open = segment == "." || segment == "..";
    if (segment == ".." && !kept.empty()) kept.pop_back();
    if (!ends_open) kept.push_back(segment);
    begin = end + 1;
  }
  std::string out = is_absolute ? "/" : "";
  for (size_t i = 0; i < kept.size(); ++i) out.append(i > 0 ? "/" : "").append(kept[i]);
  if (ends_open && !kept.empty()) out += '/';
  return out;
}

}  // namespace

std::string resolve_uri(std::string_view base_text, std::string_view reference) {
  const UriParts base = parse_uri(base_text);
  UriParts out = parse_uri(reference);
  if (out.has_scheme || base_text.empty()) return std::string(reference);
  std::string path;
  if (out.has_authority) {
    path = without_dot_segments(out.path);
  } else {
    out.has_authority = base.has_authority;
    out.authority = base.authority;
    if (out.path.empty()) {
      path = base.path;
      if (!out.has_query) {
        out.has_query = base.has_query;
        out.query = base.query;
      }
    } else if (out.path.starts_with('/')) {
      path = without_dot_segments(out.path);
    } else {
      const size_t slash = base.path.rfind('/');
      std::string merged = base.has_authority && base.path.empty() ? "/"
                           : slash == base.path.npos               ? ""
                                                                   : std::string(base.path.substr(0, slash + 1));
      path = without_dot_segments(merged.append(out.path));
    }
  }
  std::string text;
  if (base.has_scheme) text.append(base.scheme).append(":");
  if (out.has_authority) text.append("//").append(out.authority);
  text += path;
  if (out.has_query) text.append("?").append(out.query);
  if (out.has_fragment) text.append("#").append(out.fragment);
  return text;
}

SplitUri split_fragment(std::string_view uri) {
  const size_t hash = std::min(uri.find('#'), uri.size());
  return {uri.substr(0, hash), uri.substr(std::min(hash + 1, uri.size()))};
}

std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
      out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace llmrt
