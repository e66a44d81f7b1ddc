#include "tools/llmrt_bench/agree/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "tools/llmrt_bench/kv/kv_numerics.h"
#include "tools/llmrt_bench/record/comparison.h"

namespace llmrt::bench {
namespace {

namespace json = boost::json;

constexpr const char* kTest = "answers";

// The shortest decimal that reads back as the same float: half of what its digits as a double would take.
double short_double(float value) {
  return std::strtod(fmt::format("{}", value).c_str(), nullptr);
}

template <typename T>
void check_count(const char* name, const std::vector<T>& list, size_t expected) {
  if (list.size() != expected)
    throw std::runtime_error(fmt::format("{}: expected {} entries, found {}", name, expected, list.size()));
}
float logprob_of(const json::value& value) {
  const auto logprob = value.to_number<float>();
  if (!(logprob <= 1e-3f))  // rounding may lift a certain token above 0
    throw std::runtime_error(fmt::format("expected a log-probability, found {}", json::serialize(value)));
  return logprob;
}

Result<Answers> read_row(const SavedRecord& record, const RecordRow& row) {
  Answers answers;
  answers.device_id = row.device;
  answers.name = fmt::format("{}: {} {}", record.path, row.device, record.device_name(row.device));
  for (const auto& token : row.details.at("tokens").as_array()) answers.tokens.push_back(token.to_number<int32_t>());
  for (const auto& logprob : row.details.at("logprobs").as_array()) answers.logprobs.push_back(logprob_of(logprob));
  check_count("logprobs", answers.logprobs, answers.tokens.size());
  for (const auto& position : row.details.at("top").as_array()) {
    auto& top = answers.top.emplace_back();
    for (const auto& entry : position.as_array())
      top.push_back({entry.at(0).to_number<int32_t>(), logprob_of(entry.at(1))});
    if (top.empty()) throw std::runtime_error("top: expected at least one token at each position, found none");
  }
  if (!answers.top.empty()) check_count("top", answers.top, answers.tokens.size());
  for (const auto& path : row.details.at("greedy").as_array()) {
    auto& steps = answers.greedy.emplace_back();
    for (const auto& step : path.as_array())
      steps.push_back({step.at(0).to_number<int32_t>(), step.at(1).to_number<float>()});
  }
  if (const json::value& logits = row.details.at("logits"); !logits.is_null()) {
    Result<LogitsFile> file = logits_file_of(logits.as_object(), record.path);
    if (!file) return file.error();
    answers.logits = *file;
  }
  return answers;
}

// Sums over positions.
struct KlSum {
  double sum = 0, greatest = 0;
  uint64_t num_same_best = 0;

  void add(double kl, bool is_same_best) {
    sum += kl;
    greatest = std::max(greatest, kl);
    num_same_best += is_same_best;
  }
  void finish(size_t num_positions, Agreement* agreement) const {
    if (num_positions == 0) return;
    agreement->mean_kl = sum / static_cast<double>(num_positions);
    agreement->greatest_kl = greatest;
    agreement->same_best = static_cast<double>(num_same_best) / static_cast<double>(num_positions);
  }
};

Status compare_logits(const Answers& a, const Answers& b, KlSum* kl) {
  for (const Answers* one : {&a, &b})
    if (one->logits->num_positions != one->tokens.size())
      return make_error(ErrorCode::kCorruptFile, "{}: logits: expected {} positions, found {}", one->name,
                        one->tokens.size(), one->logits->num_positions);
  if (a.logits->vocab_size != b.logits->vocab_size)
    return make_error(ErrorCode::kInvalidArgument, "{} and {}: logits: expected one vocabulary, found {} and {} tokens",
                      a.name, b.name, a.logits->vocab_size, b.logits->vocab_size);
  Result<LogitsReader> reader_a = LogitsReader::open(*a.logits);
  if (!reader_a) return reader_a.error();
  Result<LogitsReader> reader_b = LogitsReader::open(*b.logits);
  if (!reader_b) return reader_b.error();
  for (size_t i = 0; i < a.tokens.size(); ++i) {
    const auto logits_a = reader_a->next(), logits_b = reader_b->next();
    if (!logits_a) return logits_a.error();
    if (!logits_b) return logits_b.error();
    kl->add(kl_divergence(*logits_a, *logits_b), best_token(*logits_a) == best_token(*logits_b));
  }
  return {};
}

std::map<int32_t, double> known_tokens(const Answers& answers, size_t position) {
  std::map<int32_t, double> known{{answers.tokens[position], answers.logprobs[position]}};
  for (const TopLogprob& top : answers.top[position]) known.emplace(top.token, top.logprob);
  return known;
}

// Merging outcomes never adds to a KL divergence, so this is at most the whole one.
double bucketed_kl(const std::map<int32_t, double>& a, const std::map<int32_t, double>& b) {
  double kl = 0, known_a = 0, known_b = 0;
  for (const auto& [token, log_p] : a) {
    const auto other = b.find(token);
    if (other == b.end()) continue;
    kl += std::exp(log_p) * (log_p - other->second);
    known_a += std::exp(log_p);
    known_b += std::exp(other->second);
  }
  // Where all of it is known, what is left is rounding.
  constexpr double kRestMin = 1e-6;
  const double rest_a = std::max(1 - known_a, kRestMin), rest_b = std::max(1 - known_b, kRestMin);
  return std::max(0.0, kl + rest_a * std::log(rest_a / rest_b));
}

void compare_greedy(const Answers& a, const Answers& b, Agreement* agreement) {
  agreement->num_paths = std::min(a.greedy.size(), b.greedy.size());
  for (size_t path = 0; path < agreement->num_paths; ++path) {
    const auto& steps_a = a.greedy[path];
    const auto& steps_b = b.greedy[path];
    const auto [at_a, at_b] = std::ranges::mismatch(steps_a, steps_b, {}, &GreedyStep::token, &GreedyStep::token);
    if (at_a != steps_a.end() && at_b != steps_b.end())
      agreement->divergences.push_back({path, static_cast<size_t>(at_a - steps_a.begin()), *at_a, *at_b});
  }
}

}  // namespace

double Answers::nll() const {
  double sum = 0;
  for (const float logprob : logprobs) sum -= logprob;
  return logprobs.empty() ? 0 : sum / static_cast<double>(logprobs.size());
}

double Agreement::worst_margin() const {
  double worst = 0;
  for (const Divergence& at : divergences) worst = std::max<double>(worst, std::min(at.a.margin, at.b.margin));
  return worst;
}

RecordRow to_row(const Answers& answers) {
  json::array logprobs, top, greedy;
  for (const float logprob : answers.logprobs) logprobs.push_back(short_double(logprob));
  for (const auto& position : answers.top) {
    json::array list;
    for (const TopLogprob& entry : position) list.push_back(json::array{entry.token, short_double(entry.logprob)});
    top.push_back(std::move(list));
  }
  for (const auto& steps : answers.greedy) {
    json::array path;
    for (const GreedyStep& step : steps) path.push_back(json::array{step.token, short_double(step.margin)});
    greedy.push_back(std::move(path));
  }
  return {kTest,
          answers.device_id,
          {{"nll", "nats", answers.nll()}},
          {{"tokens", json::value_from(answers.tokens)},
           {"logprobs", std::move(logprobs)},
           {"top", std::move(top)},
           {"greedy", std::move(greedy)},
           {"logits", answers.logits ? json::value(answers.logits->to_json()) : json::value(nullptr)}}};
}

Result<std::vector<Answers>> read_answers(const SavedRecord& record) {
  if (record.command != "agree")
    return make_error(ErrorCode::kInvalidArgument, "{}: expected a record of agree, found one of {}", record.path,
                      record.command);
  std::vector<Answers> all;
  try {
    for (const RecordRow& row : record.rows) {
      if (row.test != kTest) continue;
      Result<Answers> answers = read_row(record, row);
      if (!answers)
        return make_error(answers.error().code, "{}: {}: {}", record.path, row.device, answers.error().message);
      all.push_back(*std::move(answers));
    }
  } catch (const std::exception& error) {
    return make_error(ErrorCode::kCorruptFile, "{}: rows[{}].details: {}", record.path, all.size(), error.what());
  }
  return all;
}

Status check_same_work(const std::string& name_a, json::object work_a, const std::string& name_b, json::object work_b,
                       bool any_weights) {
  for (json::object* work : {&work_a, &work_b}) {
    work->erase("kv_dtype");
    for (const char* name : {"model_digest", "architecture", "encoding"})
      if (any_weights) work->erase(name);
  }
  const std::vector<std::string> others = differences("work", work_a, work_b);
  if (others.empty()) return {};
  return make_error(ErrorCode::kInvalidArgument, "{} and {}: expected the same text and {}, found {}", name_a, name_b,
                    any_weights ? "windows" : "model", fmt::join(others, "; "));
}

Result<Agreement> compare_answers(const Answers& a, const Answers& b) {
  if (a.tokens != b.tokens)
    return make_error(ErrorCode::kInvalidArgument, "{} and {}: expected the same tokens, found others", a.name, b.name);
  Agreement agreement;
  const size_t num_positions = a.tokens.size();
  for (size_t i = 0; i < num_positions; ++i) {
    const double difference = std::fabs(static_cast<double>(a.logprobs[i]) - b.logprobs[i]);
    agreement.mean_difference += difference / static_cast<double>(num_positions);
    agreement.greatest_difference = std::max(agreement.greatest_difference, difference);
  }
  KlSum kl;
  if (a.logits && b.logits) {
    agreement.is_whole = true;
    if (Status status = compare_logits(a, b, &kl); !status) return status.error();
    kl.finish(num_positions, &agreement);
  } else if (!a.top.empty() && !b.top.empty()) {
    for (size_t i = 0; i < num_positions; ++i)
      kl.add(bucketed_kl(known_tokens(a, i), known_tokens(b, i)), a.top[i].front().token == b.top[i].front().token);
    kl.finish(num_positions, &agreement);
  }
  compare_greedy(a, b, &agreement);
  return agreement;
}

}  // namespace llmrt::bench
