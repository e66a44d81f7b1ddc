#include "core/kv_events/event_batch.h"

#include "core/kv_events/msgpack_writer.h"

namespace llmrt {
namespace {

using Run = std::span<const KvEvent>;

bool goes_on(const KvEvent& last, const KvEvent& next) {
  if (last.kind != next.kind || last.tier != next.tier || next.kind == KvEvent::Kind::kCleared) return false;
  return next.kind == KvEvent::Kind::kRemoved || next.block->parent == last.block->hash;
}

// The fields of an event, with their names in a map and without in an array.
class EventWriter {
 public:
  EventWriter(MsgpackWriter* out, KvEventEncoding encoding, const char* tag, size_t num_fields)
      : out_(*out), is_map_(encoding == KvEventEncoding::kMap) {
    if (is_map_)
      out_.map(num_fields + 1);
    else
      out_.array(num_fields + 1);
    field("type").text(tag);
  }
  MsgpackWriter& field(const char* name) {
    if (is_map_) out_.text(name);
    return out_;
  }

 private:
  MsgpackWriter& out_;
  const bool is_map_;
};

const char* medium_of(PrefixTier tier) {
  return tier == PrefixTier::kDevice ? "GPU" : "CPU";
}

void write_hashes(Run run, MsgpackWriter& out) {
  out.array(run.size());
  for (const KvEvent& event : run) out.number(event.block->hash);
}

void write_stored(Run run, KvEventEncoding encoding, MsgpackWriter* out) {
  EventWriter event(out, encoding, "BlockStored", 7);
  const EventBlock& first = *run[0].block;
  write_hashes(run, event.field("block_hashes"));
  if (first.parent)
    event.field("parent_block_hash").number(*first.parent);
  else
    event.field("parent_block_hash").nil();
  event.field("token_ids").array(run.size() * first.tokens.size());
  for (const KvEvent& stored : run)
    for (const int32_t token : stored.block->tokens) out->number(static_cast<uint64_t>(token));
  event.field("block_size").number(uint64_t{first.tokens.size()});
  event.field("lora_id").nil();
  event.field("medium").text(medium_of(run[0].tier));
  event.field("lora_name").nil();
}

void write_run(Run run, KvEventEncoding encoding, MsgpackWriter* out) {
  if (run[0].kind == KvEvent::Kind::kStored) return write_stored(run, encoding, out);
  if (run[0].kind == KvEvent::Kind::kCleared) {
    EventWriter(out, encoding, "AllBlocksCleared", 0);
    return;
  }
  EventWriter event(out, encoding, "BlockRemoved", 2);
  write_hashes(run, event.field("block_hashes"));
  event.field("medium").text(medium_of(run[0].tier));
}

}  // namespace

std::string encode_events(double time_s, std::span<const KvEvent> events, KvEventEncoding encoding) {
  std::vector<Run> runs;
  for (size_t first = 0, end = 0; first < events.size(); first = end) {
    for (end = first + 1; end < events.size() && goes_on(events[end - 1], events[end]);) ++end;
    runs.push_back(events.subspan(first, end - first));
  }
  MsgpackWriter out;
  out.array(3);
  out.number(time_s);
  out.array(runs.size());
  for (const Run run : runs) write_run(run, encoding, &out);
  out.number(uint64_t{0});
  return out.bytes();
}

}  // namespace llmrt
