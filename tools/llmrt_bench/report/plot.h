// Plots as inline SVG, with a caption and a legend around it. Colours are the page's (report_page.cpp), so that one
// picture serves light and dark.
#pragma once

#include <string>
#include <vector>

namespace llmrt::bench {

struct PlotPoint {
  double x, y;
  std::string label = {};  // beside the point, where there is room
  std::string tip = {};    // shown when pointed at
};

struct PlotSeries {
  std::string name;
  std::vector<PlotPoint> points;
  bool has_line = true, has_marks = true;
  int style = -1;  // colour and mark; -1 = of its place among the series
  bool is_dashed = false;
  bool is_guide = false;  // a limit: thin, and no reason to widen an axis
};

struct PlotAxis {
  std::string title;  // with its unit
  bool is_log = false;
  bool from_zero = false;
  std::vector<double> shown = {};  // beside the points
};

struct Plot {
  std::string title, note;
  PlotAxis x, y;
  std::vector<PlotSeries> series;
};

// Horizontal bars: groups from top to bottom, in each a bar for every series, or, `is_stacked`, one behind the other.
struct BarPlot {
  std::string title, note, axis_title;
  std::vector<std::string> groups;
  struct Series {
    std::string name;
    std::vector<double> values;      // by group; NaN = none
    std::vector<std::string> texts;  // behind the bars; empty = none
  };
  std::vector<Series> series;
  bool is_stacked = false;
};

// A <figure>, without what is not plottable (scale.h).
std::string to_html(const Plot& plot);
std::string to_html(const BarPlot& plot);

}  // namespace llmrt::bench
