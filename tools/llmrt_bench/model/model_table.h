// The rows of `llmrt-bench model` for people and for programs, as they come. CSV and JSON have the fields of
// llama-bench and llama-batched-bench (pl, pp, tg, n_kv, t_pp, ...) under their names where the same thing is measured
// here.
#pragma once

#include <memory>
#include <string>

#include "tools/llmrt_bench/model/model_rows.h"

namespace llmrt::bench {

enum class TableFormat { kMarkdown, kCsv, kJson };
inline constexpr const char* kTableFormats[] = {"md", "csv", "json"};

// Prints to standard output: the head when it is made, the foot when it goes.
class ModelTable {
 public:
  ModelTable(TableFormat format, const Model& model, const EngineConfig& config, bool has_price);
  ~ModelTable();
  ModelTable(const ModelTable&) = delete;
  ModelTable& operator=(const ModelTable&) = delete;

  void print(const ModelRow& row);

 private:
  void print_markdown(const ModelRow& row) const;
  boost::json::object fields(const ModelRow& row) const;

  TableFormat format_;
  const Model& model_;
  const EngineConfig& config_;
  bool has_price_;
  int num_rows_ = 0;
};

}  // namespace llmrt::bench
