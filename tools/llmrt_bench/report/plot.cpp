#include "tools/llmrt_bench/report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/llmrt_bench/report/html.h"
#include "tools/llmrt_bench/report/scale.h"

namespace llmrt::bench {
namespace {

constexpr double kWidth = 640, kHeight = 380;
constexpr double kCharWidth = 7.5, kTextHeight = 12;  // of the page's small text, rather too much
constexpr int kNumStyles = 8;                         // twin: --s0 to --s7 in report_page.cpp

struct Box {
  double left, top, right, bottom;
  bool meets(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
  bool is_inside(const Box& other) const {
    return left >= other.left && right <= other.right && top >= other.top && bottom <= other.bottom;
  }
};

double text_width(const std::string& text) {
  return kCharWidth * static_cast<double>(std::count_if(text.begin(), text.end(), [](char c) {
           return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
         }));
}

std::string text_at(double x, double y, const char* anchor, const std::string& text, const char* attributes = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", x, y, anchor, attributes,
                     escaped(text));
}

std::string line(double x1, double y1, double x2, double y2, const char* kind) {
  return fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", kind, x1, y1, x2,
                     y2);
}

// Circle, square, diamond, triangle: a series can be told without its colour.
std::string mark(int style, double x, double y, const std::string& tip) {
  constexpr double r = 4;
  std::string shape;
  switch (style % 4) {
    case 0:
      shape = fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"", x, y, r);
      break;
    case 1:
      shape = fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\"", x - r, y - r, 2 * r, 2 * r);
      break;
    case 2:
      shape = fmt::format("<path d=\"M{:.1f} {:.1f}l{} {}l{} {}l{} {}z\"", x, y - r - 1, r + 1, r + 1, -r - 1, r + 1,
                          -r - 1, -r - 1);
      break;
    default:
      shape = fmt::format("<path d=\"M{:.1f} {:.1f}l{} {}h{}z\"", x, y - r - 1, r + 1, 2 * r + 1, -2 * r - 2);
  }
  return fmt::format("{} class=\"mark m{}\"><title>{}</title></{}>\n", shape, style % kNumStyles, escaped(tip),
                     style % 4 == 0   ? "circle"
                     : style % 4 == 1 ? "rect"
                                      : "path");
}

std::string line_class(const PlotSeries& series, int style) {
  return fmt::format("line l{}{}{}", style % kNumStyles, series.is_dashed ? " dashed" : "",
                     series.is_guide ? " guide" : "");
}

std::string legend_entry(const PlotSeries& series, int style) {
  const std::string line =
      series.has_line ? fmt::format("<path class=\"{}\" d=\"M0 6h26\"/>", line_class(series, style)) : "";
  return fmt::format("<span class=\"entry\"><svg width=\"26\" height=\"12\" aria-hidden=\"true\">{}{}</svg>{}</span>",
                     line, series.has_marks ? mark(style, 13, 6, series.name) : "", escaped(series.name));
}

std::string figure(const std::string& title, const std::string& note, const std::string& legend, double height,
                   const std::string& svg) {
  return fmt::format(
      "<figure><figcaption>{}</figcaption>{}<div class=\"legend\">{}</div>\n"
      "<svg class=\"plot\" viewBox=\"0 0 {} {:.0f}\" role=\"img\" aria-label=\"{}\">\n{}</svg></figure>\n",
      escaped(title), note.empty() ? "" : fmt::format("<p class=\"note\">{}</p>", escaped(note)), legend, kWidth,
      height, escaped(title), svg);
}

// Draws one plot; the frame's place follows from the widest tick of y.
class Drawing {
 public:
  explicit Drawing(const Plot& plot)
      : plot_(plot), x_(scale_of(&PlotPoint::x, plot.x)), y_(scale_of(&PlotPoint::y, plot.y)) {
    double widest = 0;
    for (const double tick : y_.ticks(6)) widest = std::max(widest, text_width(number_text(tick)));
    frame_ = {widest + 34, 10, kWidth - 14, kHeight - 46};
  }

  std::string html() {
    std::string legend;
    draw_axes();
    for (size_t i = 0; i < plot_.series.size(); ++i) {
      const PlotSeries& series = plot_.series[i];
      const int style = style_of(i);
      if (!series.name.empty()) legend += legend_entry(series, style);
      if (series.has_line) draw_line(series, style);
    }
    for (size_t i = 0; i < plot_.series.size(); ++i)
      if (plot_.series[i].has_marks) draw_marks(plot_.series[i], style_of(i));
    draw_labels();
    return figure(plot_.title, plot_.note, legend, kHeight, svg_);
  }

 private:
  AxisScale scale_of(double PlotPoint::*of, const PlotAxis& axis) const {
    std::vector<double> values;
    for (const PlotSeries& series : plot_.series)
      for (const PlotPoint& point : series.points)
        if (!series.is_guide && is_drawable(point)) values.push_back(point.*of);
    values.insert(values.end(), axis.shown.begin(), axis.shown.end());
    return AxisScale(values, axis.is_log, axis.from_zero);
  }
  bool is_drawable(const PlotPoint& point) const {
    return is_plottable(point.x, plot_.x.is_log) && is_plottable(point.y, plot_.y.is_log);
  }
  int style_of(size_t i) const { return plot_.series[i].style >= 0 ? plot_.series[i].style : static_cast<int>(i); }
  double px(double x) const { return frame_.left + x_.at(x) * (frame_.right - frame_.left); }
  double py(double y) const { return frame_.bottom - y_.at(y) * (frame_.bottom - frame_.top); }

  void draw_axes() {
    double free_from = 0;
    for (const double tick : x_.ticks(8)) {
      const std::string text = number_text(tick);
      const double at = px(tick), half = text_width(text) / 2;
      if (at - half < free_from || at + half > kWidth) continue;
      free_from = at + half + 6;
      svg_ += line(at, frame_.top, at, frame_.bottom, "grid") + text_at(at, frame_.bottom + 16, "middle", text);
    }
    for (const double tick : y_.ticks(6))
      svg_ += line(frame_.left, py(tick), frame_.right, py(tick), "grid") +
              text_at(frame_.left - 6, py(tick) + 4, "end", number_text(tick));
    svg_ += line(frame_.left, frame_.bottom, frame_.right, frame_.bottom, "axis") +
            line(frame_.left, frame_.top, frame_.left, frame_.bottom, "axis");
    const double middle = (frame_.top + frame_.bottom) / 2;
    svg_ += text_at((frame_.left + frame_.right) / 2, kHeight - 8, "middle", plot_.x.title, "class=\"title\"");
    svg_ += text_at(14, middle, "middle", plot_.y.title,
                    fmt::format("class=\"title\" transform=\"rotate(-90 14 {:.1f})\"", middle).c_str());
  }

  void draw_line(const PlotSeries& series, int style) {
    std::string path;
    const std::vector<PlotPoint> points = clipped(series);
    for (const PlotPoint& point : points)
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", px(point.x), py(point.y));
    if (path.empty()) return;
    take_line(points);
    svg_ += fmt::format("<path class=\"{}\" d=\"{}\"/>\n", line_class(series, style), path);
  }

  // No label stands on a line.
  void take_line(const std::vector<PlotPoint>& points) {
    constexpr double kStep = 4;  // pixels
    for (size_t i = 0; i + 1 < points.size(); ++i) {
      const double x = px(points[i].x), y = py(points[i].y);
      const double dx = px(points[i + 1].x) - x, dy = py(points[i + 1].y) - y;
      const int count = static_cast<int>(std::ceil(std::hypot(dx, dy) / kStep));
      for (int step = 0; step <= count; ++step) {
        const double at_x = x + dx * step / std::max(count, 1), at_y = y + dy * step / std::max(count, 1);
        taken_.push_back({at_x - 1, at_y - 1, at_x + 1, at_y + 1});
      }
    }
  }

  // Guides end at the frame; the axes are as wide as all other points.
  std::vector<PlotPoint> clipped(const PlotSeries& series) const {
    std::vector<PlotPoint> points;
    std::ranges::copy_if(series.points, std::back_inserter(points), [&](const PlotPoint& p) { return is_drawable(p); });
    if (!series.is_guide) return points;
    constexpr int kSteps = 256;  // pieces of a straight line between two points
    std::vector<PlotPoint> inside;
    for (size_t i = 0; i + 1 < points.size(); ++i)
      for (int step = 0; step <= kSteps; ++step) {
        const auto between = [&](double a, double b, bool is_log) {
          const double t = static_cast<double>(step) / kSteps;
          return is_log ? a * std::pow(b / a, t) : a + (b - a) * t;
        };
        const PlotPoint point{between(points[i].x, points[i + 1].x, plot_.x.is_log),
                              between(points[i].y, points[i + 1].y, plot_.y.is_log)};
        if (x_.shows(point.x) && y_.shows(point.y)) inside.push_back(point);
      }
    return inside;
  }

  void draw_marks(const PlotSeries& series, int style) {
    for (const PlotPoint& point : series.points) {
      if (!is_drawable(point)) continue;
      const double x = px(point.x), y = py(point.y);
      svg_ += mark(style, x, y, point.tip.empty() ? point.label : point.tip);
      taken_.push_back({x - 5, y - 5, x + 5, y + 5});
    }
  }

  // Beside their points where nothing stands yet; a label that finds no room is left to the tip.
  void draw_labels() {
    for (const PlotSeries& series : plot_.series)
      for (const PlotPoint& point : series.points) {
        if (point.label.empty() || !is_drawable(point)) continue;
        const double x = px(point.x), y = py(point.y), width = text_width(point.label);
        for (const auto& [dx, dy] : {std::pair{7.0, -7.0},
                                     {7.0, 16.0},
                                     {-7 - width, -7.0},
                                     {-7 - width, 16.0},
                                     {-width / 2, -9.0},
                                     {-width / 2, 19.0},
                                     {-width, -11.0},
                                     {-width, 21.0}}) {
          const Box box{x + dx, y + dy - kTextHeight, x + dx + width, y + dy + 2};
          if (!box.is_inside(frame_) || std::ranges::any_of(taken_, [&](const Box& b) { return b.meets(box); }))
            continue;
          svg_ += text_at(box.left, y + dy, "start", point.label, "class=\"label\"");
          taken_.push_back(box);
          break;
        }
      }
  }

  const Plot& plot_;
  AxisScale x_, y_;
  Box frame_{};
  std::vector<Box> taken_;
  std::string svg_;
};

std::string shortened(const std::string& text, size_t chars_max) {
  if (text.size() <= chars_max) return text;
  size_t end = chars_max - 1;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // no half character
  return text.substr(0, end) + "…";
}

}  // namespace

std::string to_html(const Plot& plot) {
  return Drawing(plot).html();
}

std::string to_html(const BarPlot& plot) {
  constexpr double kBar = 13, kGap = 12, kFoot = 46, kTop = 6;
  constexpr size_t kNameChars = 34;
  const size_t bars_group = plot.is_stacked ? 1 : plot.series.size();
  const double group_height = kBar * static_cast<double>(bars_group) + kGap;
  const double bottom = kTop + group_height * static_cast<double>(plot.groups.size());
  double names = 0, texts = 0;
  for (const std::string& group : plot.groups) names = std::max(names, text_width(shortened(group, kNameChars)));
  std::vector<double> ends{0}, sums(plot.groups.size());
  for (const BarPlot::Series& series : plot.series)
    for (size_t g = 0; g < plot.groups.size(); ++g) {
      if (!is_plottable(series.values[g], false)) continue;
      sums[g] = plot.is_stacked ? sums[g] + series.values[g] : series.values[g];
      ends.push_back(sums[g]);
      if (!series.texts.empty()) texts = std::max(texts, text_width(series.texts[g]));
    }
  const AxisScale scale(ends, false, true);
  const double left = names + 10, right = kWidth - std::max(texts + 6, 20.0);
  const auto px = [&](double value) { return left + scale.at(value) * (right - left); };
  std::string svg, legend;
  double free_from = 0;
  for (const double tick : scale.ticks(6)) {
    const double at = px(tick), half = text_width(number_text(tick)) / 2;
    svg += line(at, kTop, at, bottom, "grid");
    if (at - half < free_from) continue;
    free_from = at + half + 6;
    svg += text_at(at, bottom + 16, "middle", number_text(tick));
  }
  std::ranges::fill(sums, 0);
  for (size_t g = 0; g < plot.groups.size(); ++g) {
    const double top = kTop + group_height * static_cast<double>(g) + kGap / 2;
    svg += fmt::format(
        "<g><title>{}</title>{}</g>\n", escaped(plot.groups[g]),
        text_at(left - 6, top + (group_height - kGap) / 2 + 4, "end", shortened(plot.groups[g], kNameChars)));
    for (size_t i = 0; i < plot.series.size(); ++i) {
      const BarPlot::Series& series = plot.series[i];
      const double value = series.values[g], begin = plot.is_stacked ? sums[g] : 0;
      if (!is_plottable(value, false)) continue;
      sums[g] += value;
      const double y = plot.is_stacked ? top : top + kBar * static_cast<double>(i);
      const std::string text = series.texts.empty() ? number_text(value) : series.texts[g];
      svg += fmt::format(
          "<rect class=\"bar b{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\"><title>{}</title></rect>\n",
          i % kNumStyles, px(begin), y, std::max(0.0, px(begin + value) - px(begin)), kBar - 1,
          escaped(fmt::format("{}, {}: {}", plot.groups[g], series.name, text)));
      if (!series.texts.empty()) svg += text_at(px(begin + value) + 5, y + kBar - 3, "start", text);
    }
  }
  svg += line(left, kTop, left, bottom, "axis");
  svg += text_at((left + right) / 2, bottom + kFoot - 10, "middle", plot.axis_title, "class=\"title\"");
  for (size_t i = 0; i < plot.series.size(); ++i)
    legend += fmt::format(
        "<span class=\"entry\"><svg width=\"14\" height=\"12\" aria-hidden=\"true\"><rect class=\"bar b{}\" "
        "width=\"14\" height=\"12\"/></svg>{}</span>",
        i % kNumStyles, escaped(plot.series[i].name));
  return figure(plot.title, plot.note, legend, bottom + kFoot, svg);
}

}  // namespace llmrt::bench
