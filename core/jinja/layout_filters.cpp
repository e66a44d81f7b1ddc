// Filters that lay text out anew: wordwrap as Python's textwrap does it, striptags as MarkupSafe does it.
#include <algorithm>

#include "core/base/utf8.h"
#include "core/jinja/arguments.h"
#include "core/jinja/code_points.h"
#include "core/jinja/convert.h"
#include "core/jinja/filters.h"
#include "core/jinja/html_entities.h"
#include "core/jinja/interpreter.h"
#include "core/jinja/lexer.h"
#include "core/jinja/operators.h"

namespace llmrt::jinja {
namespace {

// A line of text as characters, each with the offset of its bytes.
class Characters {
 public:
  explicit Characters(std::string_view bytes) {
    for (size_t pos = 0; pos < bytes.size();) {
      const Utf8Step step = decode_utf8(bytes, pos);
      codes_.push_back(step.code_point);
      offsets_.push_back(static_cast<uint32_t>(pos));
      pos += step.num_bytes;
    }
    offsets_.push_back(static_cast<uint32_t>(bytes.size()));
  }
  size_t size() const { return codes_.size(); }
  char32_t operator[](size_t i) const { return codes_[i]; }
  size_t offset(size_t i) const { return offsets_[i]; }

  // textwrap's classes of characters.
  bool is_blank(size_t i) const { return (codes_[i] >= 0x9 && codes_[i] <= 0xD) || codes_[i] == ' '; }
  bool is_word(size_t i) const { return codes_[i] == '_' || is_alphanumeric(encoded(i)); }
  bool is_letter(size_t i) const {  // \w but no decimal digit
    return is_word(i) && !is_decimal(encoded(i));
  }
  bool is_word_or_punctuation(size_t i) const {
    return is_word(i) || (codes_[i] < 0x80 && std::string_view("!\"'&.,?").find(static_cast<char>(codes_[i])) != npos);
  }
  bool is_hyphen(size_t i) const { return i < size() && codes_[i] == '-'; }

 private:
  std::string encoded(size_t i) const {
    std::string bytes;
    append_utf8(bytes, codes_[i]);
    return bytes;
  }

  std::vector<char32_t> codes_;
  std::vector<uint32_t> offsets_;
};

// Cuts a line into pieces between which it may break: TextWrapper.wordsep_re, its three kinds in order.
class Pieces {
 public:
  struct Piece {
    size_t begin, end;
  };

  Pieces(const Characters& line, bool on_hyphens, Meter& meter) : line_(line), meter_(meter) {
    for (size_t begin = 0; begin < line.size();) {
      meter_.charge(1);
      const size_t end = line.is_blank(begin) ? run_end(begin, [&](size_t i) { return line.is_blank(i); })
                         : on_hyphens         ? word_end(begin)
                                              : run_end(begin, [&](size_t i) { return !line.is_blank(i); });
      pieces_.push_back({begin, end});
      begin = end;
    }
  }
  std::vector<Piece> take() { return std::move(pieces_); }

 private:
  template <typename Predicate>
  size_t run_end(size_t i, Predicate predicate) const {
    while (i < line_.size() && predicate(i)) {
      ++i;
    }
    return i;
  }

  // The end of an em-dash at `i`: two or more hyphens between a word and a word; 0 where there is none.
  size_t dash_end(size_t i) const {
    if (i == 0 || !line_.is_hyphen(i) || !line_.is_hyphen(i + 1) || !line_.is_word_or_punctuation(i - 1)) {
      return 0;
    }
    const size_t end = run_end(i, [&](size_t j) { return line_.is_hyphen(j); });
    return end < line_.size() && line_.is_word(end) ? end : 0;
  }

  // A hyphen at `i` of a word that begins at or before it may be followed by a break.
  bool breaks_after_hyphen(size_t i) const {
    const auto letter = [&](size_t j) { return j < line_.size() && line_.is_letter(j); };
    const bool behind = i >= 2 && letter(i - 1) && letter(i - 2);
    const bool behind_short = i >= 3 && letter(i - 1) && line_.is_hyphen(i - 2) && letter(i - 3);
    const bool ahead = letter(i + 1) && (letter(i + 2) || (line_.is_hyphen(i + 2) && letter(i + 3)));
    return (behind || behind_short) && ahead;
  }

  size_t word_end(size_t begin) const {
    if (const size_t end = dash_end(begin)) {
      return end;
    }
    for (size_t end = begin + 1; end < line_.size(); ++end) {
      if (line_.is_hyphen(end) && breaks_after_hyphen(end)) {
        return end + 1;
      }
      if (line_.is_blank(end) || dash_end(end)) {
        return end;
      }
    }
    return line_.size();
  }

  const Characters& line_;
  Meter& meter_;
  std::vector<Piece> pieces_;
};

// One line to lines of at most `width` characters, where its pieces allow it.
class Wrapper {
 public:
  Wrapper(const Text& text, size_t width, bool break_long, bool on_hyphens, Meter& meter)
      : text_(text),
        line_(text.bytes()),
        width_(width),
        break_long_(break_long),
        on_hyphens_(on_hyphens),
        meter_(meter),
        pieces_(Pieces(line_, on_hyphens, meter).take()) {}

  // The lines as ranges of characters: a line is made of neighbours.
  template <typename Emit>
  void run(Emit emit) {
    size_t num_lines = 0;
    for (size_t next = 0; next < pieces_.size();) {
      meter_.charge(1);
      if (num_lines > 0 && is_blank(pieces_[next])) {
        ++next;
        if (next == pieces_.size()) {
          break;
        }
      }
      const size_t begin = pieces_[next].begin;
      size_t end = begin;
      Pieces::Piece tail{begin, begin};  // the line's last piece
      for (; next < pieces_.size() && pieces_[next].end - begin <= width_; ++next) {
        tail = pieces_[next];
        end = tail.end;
      }
      if (next < pieces_.size() && pieces_[next].end - pieces_[next].begin > width_) {
        break_piece(next, begin, end, tail);
      }
      const size_t kept = is_blank(tail) ? tail.begin : end;  // a line does not end in blanks
      if (kept > begin) {
        emit(text_.substr(line_.offset(begin), line_.offset(kept)));
        ++num_lines;
      }
    }
  }

 private:
  bool is_blank(const Pieces::Piece& piece) const {
    for (size_t i = piece.begin; i < piece.end; ++i) {
      if (!is_space(line_[i])) {
        return false;
      }
    }
    return true;
  }

  // A piece longer than a line: as much of it as fits goes to the line that ends at `end`.
  void break_piece(size_t& next, size_t begin, size_t& end, Pieces::Piece& tail) {
    Pieces::Piece& piece = pieces_[next];
    if (!break_long_) {
      if (end == begin) {
        tail = piece;
        end = piece.end;
        ++next;
      }
      return;
    }
    const size_t room = width_ - (end - begin);
    size_t cut = piece.begin + room;
    meter_.charge_characters(room);
    if (on_hyphens_ && room > 0) {
      size_t hyphen = cut;  // becomes the place behind the last one
      while (hyphen > piece.begin && line_[hyphen - 1] != '-') {
        --hyphen;
      }
      size_t other = piece.begin;
      while (other < hyphen && line_[other] == '-') {
        ++other;
      }
      if (other < hyphen) {
        cut = hyphen;
      }
    }
    tail = {piece.begin, cut};  // no piece where there was no room, which keeps a blank before it
    end = cut;
    piece.begin = cut;
  }

  const Text& text_;
  Characters line_;
  size_t width_;
  bool break_long_;
  bool on_hyphens_;
  Meter& meter_;
  std::vector<Pieces::Piece> pieces_;
};

constexpr size_t kWrapBytes = 28;  // of memory for each character while it is wrapped: its code, place and piece

Value filter_wordwrap(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("wordwrap", arguments, {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  Meter& meter = interpreter.meter();
  const Text newline = given[2].is_none() ? Text("\n", true) : given.text(2);
  if (!input.as_text()) {
    require_defined(input);
    fail("wordwrap: expected a string, found {}", type_name(input));
  }
  const int64_t width = given.integer(0, 79);
  Text out;
  bool is_first = true;
  for (const Text& line : split_lines(*input.as_text(), false, meter)) {
    if (width <= 0) {
      fail("wordwrap: expected a width above 0, found {}", width);
    }
    meter.charge(1 + line.size() / 8);
    const Held held(line.size() * kWrapBytes);
    bool is_first_part = true;
    const auto emit = [&](const Text& part) {
      meter.charge_growth(out.size(), newline.size() + part.size());
      if (!is_first_part) {
        out.append(newline);
      }
      is_first_part = false;
      out.append(part);
    };
    if (!std::exchange(is_first, false)) {
      meter.charge_growth(out.size(), newline.size());
      out.append(newline);
    }
    Wrapper(line, static_cast<size_t>(width), given.flag(1, true), given.flag(3, true), meter).run(emit);
  }
  return Value(std::move(out));
}

// Without comments and tags, from the left; one that does not end stays, and so does what follows it.
Text without_tags(const Text& text, Meter& meter) {
  meter.charge_characters(text.size());
  const std::string_view bytes = text.bytes();
  Text out;
  size_t pos = 0;
  for (size_t begin = bytes.find('<'); begin != npos; begin = bytes.find('<', pos)) {
    meter.charge(1);
    const bool is_comment = bytes.substr(begin).starts_with("<!--");
    const size_t end = is_comment ? bytes.find("-->", begin + 4) : bytes.find('>', begin);
    if (end == npos) {
      break;
    }
    out.append(text, pos, begin);
    pos = end + (is_comment ? 3 : 1);
  }
  out.append(text, pos, text.size());
  return out;
}

Value filter_striptags(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const Parameters given("striptags", arguments, {});
  Meter& meter = interpreter.meter();
  const Text text = without_tags(to_text(input, meter), meter);
  Text joined;
  for (const Text& word : split_at_space(text, -1, meter)) {
    if (!joined.empty()) {
      joined.append(" ", true);
    }
    joined.append(word);
  }
  return Value(unescape_html(joined, meter));
}

constexpr NamedFilter kLayoutFilters[] = {{"striptags", filter_striptags}, {"wordwrap", filter_wordwrap}};

}  // namespace

std::span<const NamedFilter> layout_filters() {
  return kLayoutFilters;
}

}  // namespace llmrt::jinja
