// One JSON file for each run of llmrt-bench (docs/bench.schema.json): what was run, by which build, on what, and every
// row of figures with its raw samples. The file is whole after each row, so a run that is cut short leaves what it had.
#pragma once

#include <boost/json.hpp>

#include <string>
#include <vector>

#include "core/backend/caps.h"
#include "core/base/status.h"
#include "core/model/model.h"

namespace llmrt::bench {

struct Value {
  std::string name, unit;  // "ms", "tok/s": of rates ("/s") more is better, of times less
  double value = 0;
  std::vector<double> samples = {};  // raw, in the order measured
};
// The median of samples.
Value median_value(std::string name, std::string unit, std::vector<double> samples);
// Where the value may lie as far as its samples tell (median_range); the value itself where there are none. A sample
// that is not a number, null in a file, tells nothing.
std::pair<double, double> range_of(const Value& value);
// Half of that range as a share of the value; 0 where there are no samples.
double spread_of(const Value& value);

boost::json::value number_or_null(double value);  // JSON has neither infinities nor what is not a number

struct RecordRow {
  std::string test;    // with the device it names the row among a run's
  std::string device;  // its id; empty = none
  std::vector<Value> values;
  boost::json::object details = {};  // what only the command knows, in no unit
};

class Record {
 public:
  // `work`: what was computed; runs with another work are not compared. `settings`: how. The file is written at once,
  // so that a path that cannot be written ends a run before it begins; an empty path writes nothing. Errors: io.
  static Result<Record> create(std::string command, boost::json::object work, boost::json::object settings,
                               std::string path);

  void add_device(const Caps& caps);
  void add(const RecordRow& row);
  // What should have become rows and did not, with the reason.
  void miss(const std::string& test, const std::string& device, const std::string& reason);
  // Marks the run as complete. Errors: of any write since the beginning.
  Status finish();

  const boost::json::object& json() const { return json_; }

 private:
  Record() = default;
  void write();

  std::string path_;
  bool is_stream_ = false;  // a pipe or a terminal: written once, at the end
  boost::json::object json_;
  Status status_;
};

// The part of `work` that names a model, wherever its file lies, and its cache.
boost::json::object model_work(const Model& model);
boost::json::object model_work(const Model& model, KvDType kv_dtype);

}  // namespace llmrt::bench
