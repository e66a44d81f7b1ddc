#include "tools/llmrt_bench/load/adapter_mix.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

namespace llmrt::bench {
namespace {

constexpr double kZipfMax = 10;

template <class Number>
bool reads_whole(std::string_view text, Number* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string AdapterMix::name() const {
  return count == 0 ? "none" : fmt::format("{}:{:g}", count, zipf);
}

Result<AdapterMix> parse_adapter_mix(const std::string& option, const std::string& text) {
  if (text == "none") return AdapterMix();
  AdapterMix mix;
  const size_t colon = text.find(':');
  bool is_read = reads_whole(std::string_view(text).substr(0, colon), &mix.count);
  if (colon != std::string::npos) is_read &= reads_whole(std::string_view(text).substr(colon + 1), &mix.zipf);
  if (is_read && mix.count >= 1 && mix.count <= kItemAdaptersMax && mix.zipf >= 0 && mix.zipf <= kZipfMax) return mix;
  return make_error(ErrorCode::kInvalidArgument,
                    "{}: expected none or COUNT:EXPONENT, with 1 to {} adapters and an exponent of 0 to {:g}, found {}",
                    option, kItemAdaptersMax, kZipfMax, text);
}

AdapterDraws::AdapterDraws(const AdapterMix& mix, uint64_t seed) : draws_(seed) {
  double end = 0;
  for (uint32_t i = 1; i <= mix.count; ++i) ends_.push_back(end += std::pow(i, -mix.zipf));
}

uint32_t AdapterDraws::next() {
  if (ends_.empty()) return 0;
  const double drawn = draws_.unit() * ends_.back();
  return static_cast<uint32_t>(std::ranges::lower_bound(ends_, drawn) - ends_.begin()) + 1;
}

std::vector<AdapterCount> count_adapters(std::span<const LoadItem> items, std::span<const Outcome> outcomes) {
  std::map<uint32_t, AdapterCount> counts;
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].adapter == 0) continue;
    AdapterCount& count = counts[items[i].adapter];
    count.adapter = items[i].adapter;
    ++count.num_requests;
    if (outcomes[i].failure) continue;
    ++count.num_completed;
    if (const auto ttft_ms = outcomes[i].ttft_ms()) count.ttft_ms.push_back(*ttft_ms);
  }
  std::vector<AdapterCount> sorted;
  for (auto& [adapter, count] : counts) sorted.push_back(std::move(count));
  std::ranges::stable_sort(sorted, std::greater(), &AdapterCount::num_requests);
  return sorted;
}

std::string adapters_text(std::span<const AdapterCount> counts) {
  if (counts.empty()) return "";
  size_t num_requests = 0;
  for (const AdapterCount& count : counts) num_requests += count.num_requests;
  return fmt::format("adapters: {} asked for by {} requests, the most popular by {}\n", counts.size(), num_requests,
                     counts.front().num_requests);
}

boost::json::array adapters_json(std::span<const AdapterCount> counts) {
  boost::json::array out;
  for (const AdapterCount& count : counts) {
    boost::json::object entry{
        {"adapter", count.adapter}, {"requests", count.num_requests}, {"completed", count.num_completed}};
    if (!count.ttft_ms.empty()) entry["ttft_p50_ms"] = percentile(count.ttft_ms, 0.5);
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace llmrt::bench
