// Aim: what a router builds from the events of an engine is what the engine's cache has, also when the queue between
// them was full; and the bytes are those of MessagePack.
// Method: a picture that follows the events, against the keys of a PrefixDigests, in seeded random runs of a KvSpace;
// bytes by hand.
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "core/kv/block_index.h"
#include "core/kv/prefix_digests.h"
#include "core/kv_events/event_batch.h"
#include "core/kv_events/msgpack_writer.h"
#include "core/kv_events/publisher.h"
#include "kv_rows.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

const Digest kSalted = Sha256().add_text("salted").finish();

// What a router knows: it finds a block by its tokens and its parent's.
struct Picture {
  std::map<uint64_t, Tokens> texts;  // up to each block's end
  std::set<std::pair<PrefixTier, uint64_t>> there;

  void take(std::span<const KvEvent> events) {
    for (const KvEvent& event : events) {
      if (event.kind == KvEvent::Kind::kCleared) {
        texts.clear();
        there.clear();
        continue;
      }
      const EventBlock& block = *event.block;
      if (event.kind == KvEvent::Kind::kRemoved) {
        REQUIRE(there.erase({event.tier, block.hash}) == 1);
        continue;
      }
      Tokens text;
      if (block.parent) {
        REQUIRE(texts.contains(*block.parent));
        text = texts[*block.parent];
      }
      text.insert(text.end(), block.tokens.begin(), block.tokens.end());
      texts[block.hash] = text;
      REQUIRE(there.emplace(event.tier, block.hash).second);
    }
  }
  bool has(uint64_t hash) const {
    return there.contains({PrefixTier::kDevice, hash}) || there.contains({PrefixTier::kHost, hash});
  }
};

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<uint8_t>(byte));
  return text;
}

}  // namespace

TEST_CASE("a router's picture is what the cache has of plain texts, however long it does not look") {
  const uint64_t seed = GENERATE(range(1, 9));
  const size_t events_max = GENERATE(20, 100'000);
  CAPTURE(seed, events_max);
  std::mt19937_64 random(seed);
  const KvPoolSize size = blocks(24, 4);
  const PrefixCacheKind kind_of_cache = seed % 2 ? PrefixCacheKind::kRadix : PrefixCacheKind::kHashed;
  KvSpace kv({&size, 1}, kind_of_cache, {seed % 3 ? 12u : 0u, seed % 3 ? 4u : 0u});
  int num_wakes = 0;
  const auto feed = std::make_shared<KvEventFeed>(kIdentity, events_max, [&] { ++num_wakes; });
  auto listener = KvEventFeed::join(feed, kIdentity);
  PrefixDigests digests;
  kv.listen(listener.get());
  kv.listen(&digests);
  Picture picture;
  std::vector<std::pair<Digest, Tokens>> texts;
  uint64_t num_lost = 0, num_events = 0, num_seen = 0, num_unknown = 0;
  for (int turn = 0; turn < 400; ++turn) {
    Tokens tokens(4 + random() % 40);
    const int32_t kind = static_cast<int32_t>(random() % 3);
    for (uint32_t i = 0; i < tokens.size(); ++i)
      tokens[i] = i % 8 == 7 && random() % 3 == 0 ? 1000 + static_cast<int32_t>(random() % 3)
                                                  : kind * 100 + static_cast<int32_t>(i);
    const bool is_salted = random() % 5 == 0;
    if (random() % 6 == 0 && tokens.size() > 9) tokens[9] = INT32_MIN + 2;  // the mark of an adapter
    texts.emplace_back(is_salted ? kSalted : kIdentity, tokens);
    Row row;
    row.tokens = tokens;
    PrefixMatch match = kv.match(texts.back().first, std::span(tokens).first(tokens.size() - 1));
    match.drop_partial();
    row.tables = kv.make_tables(64);
    kv.share(row.tables, match);
    if (!match.host_blocks.empty()) kv.load(row.tables, match);
    row.computed = match.num_tokens(4);
    kv.keep(row.tables, texts.back().first, std::span(tokens).first(row.computed));
    const auto end = static_cast<uint32_t>(tokens.size());
    REQUIRE(kv.grow(row.tables, end));
    kv.keep(row.tables, texts.back().first, tokens);
    kv.forget_moves();
    kv.set_worth_storing(row.tables, random() % 3 > 0);
    kv.release(row.tables, random() % 10 == 0);
    if (random() % 30 == 0 && !match.blocks.empty()) kv.forget(kv.root(match.blocks[0]));
    if (random() % 8 != 0) continue;
    const KvEventFeed::Taken taken = feed->take();
    num_lost += taken.has_lost;
    num_events += taken.events.size();
    REQUIRE((!taken.has_lost || taken.events[0].kind == KvEvent::Kind::kCleared));
    picture.take(taken.events);
    std::set<uint64_t> expected;
    for (const auto& [identity, text] : texts) {
      Digest key = identity;
      for (size_t i = 0; i + 4 <= text.size(); i += 4) {
        const auto chunk = std::span(text).subspan(i, 4);
        key = chain_key(key, chunk);
        if (!digests.contains(key)) break;
        if (identity != kIdentity || std::ranges::any_of(chunk, [](int32_t token) { return token < 0; })) break;
        expected.insert(short_key(key));
        if (!picture.has(short_key(key))) {  // it had no beginning when all was told anew
          REQUIRE(num_lost > 0);
          ++num_unknown;
          break;
        }
        ++num_seen;
        REQUIRE(picture.texts.at(short_key(key)) == Tokens(text.begin(), text.begin() + static_cast<int>(i) + 4));
      }
    }
    // A block may be there that has lost its parent: no text finds it.
    for (const auto& [tier, hash] : picture.there) {
      if (expected.contains(hash)) continue;
      REQUIRE((tier == PrefixTier::kHost || kind_of_cache == PrefixCacheKind::kHashed));
    }
  }
  CHECK(num_events > 100);
  CHECK(num_wakes > 10);
  CHECK(num_unknown * 100 < num_seen);
  CHECK((num_lost > 3) == (events_max == 20));
  CHECK_FALSE(feed->take().is_over);
  listener.reset();
  CHECK(feed->take().is_over);
  CHECK(KvEventFeed::join(feed, kIdentity) == nullptr);
}

TEST_CASE("engines of one model are told as one: a block is there while one of them has it") {
  const uint64_t seed = GENERATE(range(1, 7));
  const size_t events_max = GENERATE(6, 100'000);
  CAPTURE(seed, events_max);
  std::mt19937_64 random(seed);
  const auto feed = std::make_shared<KvEventFeed>(kIdentity, events_max, [] {});
  CHECK(KvEventFeed::join(feed, kSalted) == nullptr);
  // Three engines, of which some are lost and come back with nothing.
  struct OneEngine {
    std::shared_ptr<PrefixListener> listener;
    std::vector<std::pair<Digest, Digest>> path;  // of one text: keys with those before
    std::vector<Tokens> tokens;
    std::vector<bool> on_host;
  };
  std::vector<OneEngine> engines(3);
  for (OneEngine& engine : engines) engine.listener = KvEventFeed::join(feed, kIdentity);
  Picture picture;
  for (int turn = 0; turn < 600; ++turn) {
    OneEngine& engine = engines[random() % engines.size()];
    const uint64_t dice = random() % 20;
    if (dice == 0 && turn < 580) {
      engine = {KvEventFeed::join(feed, kIdentity), {}, {}, {}};  // the new one is there before the old one goes
    } else if (dice < 12) {
      const Digest before = engine.path.empty() ? kIdentity : engine.path.back().first;
      const Tokens tokens = {static_cast<int32_t>(random() % 2), 5};
      engine.path.emplace_back(chain_key(before, tokens), before);
      engine.tokens.push_back(tokens);
      engine.on_host.push_back(false);
      engine.listener->kept({engine.path.back().first, before, engine.path.size() == 1, engine.tokens.back()});
    } else if (!engine.path.empty() && dice < 14 && !engine.on_host.back()) {
      engine.listener->stored(engine.path.back().first);
      engine.on_host.back() = true;
    } else if (!engine.path.empty()) {
      if (engine.on_host.back()) engine.listener->gone(PrefixTier::kHost, engine.path.back().first);
      engine.listener->gone(PrefixTier::kDevice, engine.path.back().first);
      engine.path.pop_back();
      engine.tokens.pop_back();
      engine.on_host.pop_back();
    }
    if (random() % 5 != 0) continue;
    picture.take(feed->take().events);
    std::set<std::pair<PrefixTier, uint64_t>> expected;
    for (const OneEngine& each : engines)
      for (size_t i = 0; i < each.path.size(); ++i) {
        expected.emplace(PrefixTier::kDevice, short_key(each.path[i].first));
        if (each.on_host[i]) expected.emplace(PrefixTier::kHost, short_key(each.path[i].first));
      }
    REQUIRE(picture.there == expected);
  }
  engines.pop_back();
  CHECK_FALSE(feed->take().is_over);
  engines.clear();
  CHECK(feed->take().is_over);
}

TEST_CASE("events are MessagePack as vLLM writes it, blocks of one text in one event") {
  const auto first = std::make_shared<const EventBlock>(EventBlock{0x1122334455667788, std::nullopt, {1, 300}});
  const auto second = std::make_shared<const EventBlock>(EventBlock{7, 0x1122334455667788, {70000, 127}});
  const auto other = std::make_shared<const EventBlock>(EventBlock{9, 0x1122334455667788, {2, 3}});
  using enum KvEvent::Kind;
  const std::vector<KvEvent> events = {{kCleared},
                                       {kStored, PrefixTier::kDevice, first},
                                       {kStored, PrefixTier::kDevice, second},
                                       {kStored, PrefixTier::kDevice, other},
                                       {kRemoved, PrefixTier::kDevice, other},
                                       {kRemoved, PrefixTier::kDevice, second},
                                       {kRemoved, PrefixTier::kHost, first}};
  const std::string stored = "ab426c6f636b53746f726564", removed = "ac426c6f636b52656d6f766564",
                    cleared = "b0416c6c426c6f636b73436c6561726564", gpu = "a3475055", cpu = "a3435055";
  CHECK(hex(encode_events(1.5, events, KvEventEncoding::kArray)) ==
        "93cb3ff8000000000000"
        "95"
        "91" +
            cleared + "98" + stored +
            "92cf112233445566778807"
            "c0"
            "9401cd012cce000111707f"
            "02"
            "c0" +
            gpu +
            "c0"
            "98" +
            stored +
            "9109"
            "cf1122334455667788"
            "920203"
            "02"
            "c0" +
            gpu +
            "c0"
            "93" +
            removed + "920907" + gpu + "93" + removed + "91cf1122334455667788" + cpu + "00");
  const std::string map = encode_events(0, std::span(events).first(2), KvEventEncoding::kMap);
  const std::string type = "a474797065";
  CHECK(
      hex(map).starts_with("93cb0000000000000000"
                           "92"
                           "81" +
                           type + cleared + "88" + type + stored));
  for (const char* name : {"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium"})
    CHECK_THAT(map, Catch::Matchers::ContainsSubstring(name));
}

TEST_CASE("numbers, texts and containers have the shortest form") {
  MsgpackWriter out;
  for (const uint64_t value : {0x7full, 0x80ull, 0xffull, 0x100ull, 0xffffull, 0x10000ull, 0x100000000ull})
    out.number(value);
  CHECK(hex(out.bytes()) == "7fcc80ccffcd0100cdffffce00010000cf0000000100000000");
  MsgpackWriter sizes;
  sizes.array(15);
  sizes.array(16);
  sizes.array(0x10000);
  sizes.map(15);
  sizes.map(16);
  CHECK(hex(sizes.bytes()) == "9fdc0010dd000100008fde0010");
  MsgpackWriter texts;
  texts.text(std::string(31, 'a'));
  texts.text(std::string(32, 'a'));
  CHECK(hex(texts.bytes()).substr(0, 2) == "bf");
  CHECK(hex(texts.bytes()).substr(64, 4) == "d920");
}

TEST_CASE("an endpoint that cannot be is told") {
  const auto calls = open_zmq();
  if (!calls) {
    CHECK_THAT(calls.error().message, Catch::Matchers::ContainsSubstring("apt install libzmq5"));
    SKIP(calls.error().message);
  }
  for (const char* endpoint : {"tcp://*:port", "nothing", "ipc:///none/such/folder/x"}) {
    const auto opened = KvEventPublisher::open({.endpoint = endpoint, .replay_endpoint = ""}, silent_log());
    REQUIRE_FALSE(opened.ok());
    CHECK_THAT(opened.error().message, Catch::Matchers::ContainsSubstring(endpoint));
  }
  const auto opened =
      KvEventPublisher::open({.endpoint = "tcp://*:*", .replay_endpoint = "tcp://127.0.0.1:*"}, silent_log());
  REQUIRE(opened.ok());
  CHECK_THAT((*opened)->endpoint(), Catch::Matchers::StartsWith("tcp://0.0.0.0:"));
  CHECK_THAT((*opened)->replay_endpoint(), Catch::Matchers::StartsWith("tcp://127.0.0.1:"));
  const auto listener = (*opened)->listener("t", kIdentity);  // lives on
}
