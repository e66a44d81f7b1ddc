// Events as vLLM puts them on the wire: [time, [events], rank] in MessagePack. An event is an array, tag first, as all
// routers that read vLLM's events understand it, or a map with the tag as "type", as vLLM itself does since 2026-06.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/kv_events/event_feed.h"

namespace llmrt {

enum class KvEventEncoding : uint8_t { kArray, kMap };

// Events that follow each other are one, where they may be: blocks of one text, blocks that go from one tier.
// `time_s`: since 1970. The rank is 0: all engines of a model are told as one.
std::string encode_events(double time_s, std::span<const KvEvent> events, KvEventEncoding encoding);

}  // namespace llmrt
