#include <boost/json.hpp>

#include <algorithm>
#include <filesystem>

#include "tools/llmrt/model_files.h"
#include "tools/llmrt/program.h"

namespace llmrt::cli {
namespace {

struct ListOptions {
  std::string folder;
  bool json = false;
};

std::vector<ModelFile> models_in(const std::string& folder) {
  if (!folder.empty()) {
    auto found = find_models(folder);
    if (!found) fail(found.error());
    return *std::move(found);
  }
  std::vector<ModelFile> all;
  for (const std::string& place : {std::string("."), cache_folder()})
    if (auto found = find_models(place)) all.insert(all.end(), found->begin(), found->end());
  return all;
}

void print_table(const std::vector<ModelFile>& models) {
  size_t width = 4;
  for (const ModelFile& model : models) width = std::max(width, std::min<size_t>(model.name.size(), 48));
  fmt::print("{:<{}}  {:>9}  {:<14} {:<8} {:>8}  {}\n", "name", width, "size", "architecture", "weights", "context",
             "path");
  for (const ModelFile& model : models) {
    const ModelSummary summary = summarize_model(model.path);
    fmt::print("{:<{}}  {:>9}  {:<14} {:<8} {:>8}  {}\n", model.name, width, bytes_text(summary.bytes),
               summary.architecture.empty() ? "-" : summary.architecture,
               summary.encoding.empty() ? "-" : summary.encoding,
               summary.context == 0 ? "-" : std::to_string(summary.context), model.path);
    if (!summary.problem.empty()) fmt::print("{:<{}}  cannot be served: {}\n", "", width, summary.problem);
  }
}

void print_list_json(const std::vector<ModelFile>& models) {
  boost::json::array out;
  for (const ModelFile& model : models) {
    const ModelSummary summary = summarize_model(model.path);
    out.push_back(
        {{"name", model.name},
         {"path", model.path},
         {"bytes", summary.bytes},
         {"architecture", summary.architecture},
         {"encoding", summary.encoding},
         {"context_length", summary.context},
         {"problem", summary.problem.empty() ? boost::json::value(nullptr) : boost::json::value(summary.problem)}});
  }
  fmt::print("{}\n", boost::json::serialize(out));
}

}  // namespace

void add_list(CLI::App& app) {
  CLI::App* command = app.add_subcommand("list", "List the models in a folder, or in Hugging Face's cache");
  const auto options = std::make_shared<ListOptions>();
  command
      ->add_option("folder", options->folder,
                   "a folder with GGUF files and Hugging Face folders; default: this one and Hugging Face's cache")
      ->type_name("FOLDER");
  command->add_flag("--json", options->json, "print JSON");
  command->footer(
      "Shows the names that llmrt serve --models-dir FOLDER gives them. Reads headers alone; llmrt inspect judges one "
      "file.");
  command->callback([options] {
    const std::vector<ModelFile> models = models_in(options->folder);
    if (options->json)
      print_list_json(models);
    else if (models.empty())
      fmt::print(stderr, "no models in {}\n",
                 options->folder.empty() ? fmt::format("this folder or {}", cache_folder()) : options->folder);
    else
      print_table(models);
  });
}

}  // namespace llmrt::cli
