#include "core/router/prefix_hits.h"

#include <algorithm>
#include <deque>

#include "core/kv/block_index.h"

namespace llmrt {
namespace {

// Keys of the full blocks of a request's tokens, each computed when it is first asked for.
class PrefixKeys {
 public:
  PrefixKeys(const PrefixSource& source, uint32_t block_tokens, const Request& request)
      : source_(source), block_tokens_(block_tokens), request_(request) {}

  bool is_of(const PrefixSource& source, uint32_t block_tokens) const {
    const auto position = [](const PrefixSource& of) { return of.mark ? int64_t{of.mark->position} : -1; };
    return block_tokens == block_tokens_ && source.identity == source_.identity &&
           position(source) == position(source_);
  }
  // The last token is never taken from a cache.
  size_t size() const {
    const size_t num_tokens = request_.prompt.size() + request_.begun.size();
    return num_tokens == 0 ? 0 : (num_tokens - 1) / block_tokens_;
  }
  const Digest& operator[](size_t block) {
    for (size_t i = keys_.size(); i <= block; ++i) {
      block_.resize(block_tokens_);
      for (uint32_t k = 0; k < block_tokens_; ++k) block_[k] = token_at(i * block_tokens_ + k);
      keys_.push_back(chain_key(i == 0 ? source_.identity : keys_.back(), block_));
    }
    return keys_[block];
  }

 private:
  int32_t token_at(size_t position) const {
    if (source_.mark && source_.mark->position == position) return source_.mark->token;
    const std::vector<int32_t>& prompt = request_.prompt;
    return position < prompt.size() ? prompt[position] : request_.begun[position - prompt.size()];
  }

  const PrefixSource source_;
  const uint32_t block_tokens_;
  const Request& request_;
  std::vector<Digest> keys_;
  std::vector<int32_t> block_;
};

}  // namespace

PrefixView listen_to(const std::shared_ptr<Engine>& engine) {
  PrefixView view{engine, nullptr};
  if (engine->config().prefix_cache == PrefixCacheKind::kOff) return view;
  const auto digests = std::make_shared<PrefixDigests>();
  engine->listen(digests);
  view.digests = digests;
  return view;
}

std::vector<uint64_t> cached_tokens(std::span<const PrefixView> views, const Request& request) {
  std::vector<uint64_t> cached(views.size());
  std::deque<PrefixKeys> chains;  // as many as engines differ in what their blocks are named by
  for (size_t i = 0; i < views.size(); ++i) {
    const PrefixView& view = views[i];
    if (!view.digests || view.digests->size() == 0) continue;
    const uint32_t block_tokens = view.engine->memory_plan().block_tokens;
    const PrefixSource source = view.engine->prefix_source(request);
    const auto is_same = [&](const PrefixKeys& chain) { return chain.is_of(source, block_tokens); };
    const auto found = std::ranges::find_if(chains, is_same);
    PrefixKeys& keys = found == chains.end() ? chains.emplace_back(source, block_tokens, request) : *found;
    size_t num_known = 0;
    while (num_known < keys.size() && view.digests->contains(keys[num_known])) ++num_known;
    cached[i] = num_known * block_tokens;
  }
  return cached;
}

}  // namespace llmrt
