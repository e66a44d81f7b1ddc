#!/usr/bin/env python3
"""Plants bugs into the core, one at a time, and demands that engine_sim finds each of them.

    tests/sim/planted_bugs.py BUILD_DIR [--seeds N] [--only WORD]

A bug is one replaced place in one source file. The file is copied, changed and compiled as the build would; the object
goes first into engine_sim's link line, so that the archive's own version is not taken. A place that is not found exactly
once is an error: a bug that was not planted proves nothing.
"""

import argparse
import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Several times what all seeds take without a bug, also beside other work: what is slow has not been found.
HANGS_S = 900
# Some bugs take memory for ever, and would take it from whatever else runs.
MEMORY_BYTES = 4 << 30

# (name, file, what stands there, what is planted)
BUGS = [
    # Static and dynamic batching
    ("a request joins a batch that runs", "core/schedule/batches.cpp",
     "config_.batching == Batching::kContinuous || sequence.ticket.batch == batch_.number",
     "sequence.ticket.batch <= batch_.number"),
    ("who ends while he waits is still of the batch", "core/schedule/batches.cpp",
     "is_of_batch && --batch_", "is_of_batch && sequence.runs() && --batch_"),
    ("beams of one request are in two batches", "core/schedule/batches.cpp",
     "batch_.num_left >= config_.sequences_max && !is_beam_of_last", "batch_.num_left >= config_.sequences_max"),
    # KV cache
    ("a table's first block is never given back", "core/kv/prefix_sharing.cpp",
     "for (; !blocks.empty(); blocks.pop_back()) release(blocks.back(), forget);",
     "for (; blocks.size() > 1; blocks.pop_back()) release(blocks.back(), forget);\n  blocks.clear();"),
    ("what begins behind spoilt blocks is trusted", "core/kv/prefix_sharing.cpp",
     "is_forgotten_[own] = parent != kNoBlock && is_forgotten_[parent];", "is_forgotten_[own] = false;"),
    ("a block stays spoilt when it leaves the cache", "core/kv/prefix_sharing.cpp",
     "groups_.pool(0).set_keeps_content(node, false);\n  is_forgotten_[node] = false;",
     "groups_.pool(0).set_keeps_content(node, false);"),
    ("the device keeps a stale table entry of a preempted row", "core/kv/cache_groups.cpp",
     "table.first = table.num_sent = table.num_cached = table.num_tokens = 0;",
     "table.first = table.num_cached = table.num_tokens = 0;\n  table.num_sent = std::min(table.num_sent, 1u);"),
    ("blocks of a row that is given back stay taken", "core/schedule/prefixes.cpp",
     "kv_.release(sequence.residency.tables, forget);", ""),
    ("blocks leak when a deadline passes", "core/schedule/exits.cpp",
     "if (sequence.runs()) {", "if (sequence.runs() && finish != FinishReason::kTimeout) {"),
    ("a block is taken one token late", "core/schedule/steps.cpp",
     "make_room(sequence, sequence.progress.computed + 1, now)",
     "make_room(sequence, sequence.progress.computed, now)"),
    ("a chunk gets too few blocks", "core/schedule/chunks.cpp",
     "kv_.grow(sequence.residency.tables, end + within)", "kv_.grow(sequence.residency.tables, end + within - 1)"),
    ("new blocks overwrite the first table entries", "core/schedule/plan_writer.cpp",
     "sequence.residency.slot, table.num_sent, group,", "sequence.residency.slot, 0, group,"),
    ("old blocks are sent for new table entries", "core/schedule/plan_writer.cpp",
     "table.blocks.data() + table.num_sent,", "table.blocks.data(),"),
    ("a freed block is handed out while it is held", "core/kv/block_pool.cpp",
     "unlink(block);\n  records_[block].keeps_content = false;",
     "--list_of(block).size;\n  records_[block].keeps_content = false;"),
    ("two rows share a slot", "core/schedule/running.cpp",
     "free_slots_.push_back(residency.slot);", "free_slots_.push_back(0);"),
    ("keys: the last one is not looked at", "core/engine/lower.cpp",
     "std::min(from + length, num_keys)", "std::min(from + length, num_keys - 1)"),
    ("keys: one split is not merged", "core/engine/lower.cpp",
     "work_->num_partials, num_splits}", "work_->num_partials, num_splits - 1}"),
    ("the device writes keys to the neighbour's place", "tests/fakes/fake_backend.cpp",
     "Result<Cell*> cell = cell_at(g, row.slot, position);", "Result<Cell*> cell = cell_at(g, row.slot, position ^ 1);"),
    ("the device swaps two table entries", "tests/fakes/fake_backend.cpp",
     "std::copy_n(words, update.payload_words, slot.tables[update.arg1].begin() + update.arg0);",
     "std::vector<uint32_t>& table = slot.tables[update.arg1];\n"
     "std::reverse_copy(words, words + update.payload_words, table.begin() + update.arg0);\n"
     "if (update.payload_words > 2) table[update.arg0] = table[update.arg0 + 1];"),
    # prefix cache
    ("parts of blocks are shared without a salt", "core/schedule/prefixes.cpp",
     "if (!sequence.origin.has_salt) match.drop_partial();", ""),
    ("a key without the client's salt", "core/schedule/prefixes.cpp", ".add_text(request.cache_salt)", ""),
    ("a key without the adapter", "core/schedule/prefixes.cpp", ".add(request.adapter_id)", ""),
    ("a key without what came before", "core/kv/radix_prefix_cache.cpp",
     "if (a.parent != b.parent) return a.parent < b.parent;", ""),
    ("a copied block lacks its last token", "core/schedule/plan_writer.cpp",
     "push_back({sequence.residency.copy_source, target, sequence.residency.copy_tokens});",
     "push_back({sequence.residency.copy_source, target, std::max(1u, sequence.residency.copy_tokens - 1)});"),
    ("a block that is written to is copied from nobody", "core/schedule/plan_writer.cpp",
     "plan->block_copies.push_back({sequence.residency.copy_source, target, sequence.residency.copy_tokens});",
     "(void)target, (void)plan;"),
    ("the source of a copy is not held", "core/schedule/prefixes.cpp", "kv_.pin(match.partial_block);", ""),
    ("shared blocks are held by nobody", "core/kv/prefix_sharing.cpp",
     "for (const BlockId block : match.blocks) groups_.pool(0).retain(block);", ""),
    ("a block that was handed out is still found", "core/kv/prefix_sharing.cpp",
     "  cache_->erase(node);\n", ""),
    ("the device is not told that an equal block took a place", "core/kv/prefix_sharing.cpp",
     "table.num_sent = std::min(table.num_sent, i);", ""),
    ("blocks are kept one token early", "core/schedule/prefixes.cpp",
     "std::min<size_t>(sequence.progress.computed, sequence.tokens.size());",
     "std::min<size_t>(sequence.progress.computed + 1, sequence.tokens.size());"),
    ("no token is left to compute", "core/request/sequence.cpp",
     "known = num_known() - 1;", "known = num_known();"),
    ("prompt tokens that are scored are skipped", "core/request/sequence.cpp",
     "return progress.scored < num_prompt ? std::min(known, progress.scored - 1) : known;", "return known;"),
    ("blocks that are let go first are lost last", "core/kv/block_pool.cpp",
     "free_.first : cached_.first;", "free_.first : cached_.last;"),
    # host tier
    ("a block is given up unstored", "core/schedule/plan_writer.cpp",
     "append(kv_.stores(), &plan->block_stores);", ""),
    ("a block is not loaded", "core/schedule/plan_writer.cpp",
     "append(kv_.loads(), &plan->block_loads);", ""),
    ("the first host block is loaded in place of the others", "core/kv/prefix_sharing.cpp",
     "tiers_.load(0, source, target);", "tiers_.load(0, match.host_blocks.front() + 0 * source, target);"),
    ("a host block that is loaded may be stored into", "core/kv/host_tier.cpp",
     "  pool_.retain(block);\n  held_.push_back(block);", ""),
    ("two stores of a step may have one target", "core/kv/host_tier.cpp",
     "  held_.push_back(block);\n  return block;", "  pool_.release(block);\n  return block;"),
    ("a host block keeps its old key", "core/kv/host_tier.cpp",
     "if (index_.contains(block)) index_.erase(block);\n  index_.insert(key, tokens, block);",
     "if (index_.contains(block)) return kNoBlock;\n  index_.insert(key, tokens, block);"),
    ("moves are made twice", "core/kv/tiers.cpp", "  stores_.clear();\n  loads_.clear();\n", ""),
    ("nobody comes of age", "core/schedule/start_order.cpp",
     "return sequence.ticket.num_overtaken >= kOvertakenMax;", "return sequence.ticket.num_overtaken > 1000000;"),
    ("who came of age is passed over in the same round", "core/schedule/admission.cpp",
     "      is_closed = goes_first;\n", "      if (goes_first) break;\n"),
    ("what needs no room later is admitted without", "core/schedule/reservations.cpp",
     "if (reserves_all(config_.on_exhaustion)) return sequence.positions_max();", ""),
    # branches
    ("a branch writes into the block that it shares", "core/kv/prefix_match.cpp",
     "uint32_t num_full = num_tokens / block_tokens;", "uint32_t num_full = ceil_div(num_tokens, block_tokens);"),
    ("the filled slots of a branch's block are not copied", "core/schedule/plan_writer.cpp",
     "plan->block_copies.push_back(", "if (sequence.branch == 0) plan->block_copies.push_back("),
    ("a branch's end takes the others' reference too", "core/kv/prefix_sharing.cpp",
     "for (; !blocks.empty(); blocks.pop_back()) release(blocks.back(), forget);",
     "for (; !blocks.empty(); blocks.pop_back()) {\n"
     "    if (groups_.pool(0).references(blocks.back()) == 2) groups_.pool(0).release(blocks.back());\n"
     "    release(blocks.back(), forget);\n  }"),
    ("branches share their noise", "core/schedule/arrivals.cpp", "own.sampling.branch += branch;", ""),
    ("a branch begins with tokens that are not computed", "core/schedule/prefixes.cpp",
     "std::min(common_tokens(other->tokens, wanted), other->progress.computed);",
     "common_tokens(other->tokens, wanted);"),
    ("a branch takes another's answer for its own", "core/schedule/prefixes.cpp",
     "std::min(common_tokens(other->tokens, wanted), other->progress.computed);",
     "std::min(static_cast<uint32_t>(wanted.size()), other->progress.computed);"),
    ("events of branches all name the first one", "core/schedule/journal.cpp",
     "event.branch = sequence.branch;", ""),
    # beams
    ("a beam goes on with the tokens of another", "core/schedule/beam_round.cpp",
     "before[steps[rank].parent]}", "before[rank]}"),
    ("what may follow a beam is taken for another's", "core/schedule/beam_round.cpp",
     "candidates[beam->beam.rank] = beam->beam.candidates;", "candidates[beam->branch] = beam->beam.candidates;"),
    ("beams that wait for each other hold what they wait for", "core/schedule/steps.cpp",
     "while (parts_.draft.is_empty() &&", "while (false &&"),
    ("a beam outlives the others' cancel", "core/schedule/scheduler.cpp",
     "flows_->exits.end_all(*sequence, RequestState::kCancelled,",
     "flows_->exits.end(*sequence, RequestState::kCancelled,"),
    # positions and tokens
    ("a preempted sequence goes on as if its keys were there", "core/schedule/admission.cpp",
     "sequence.progress.computed = match.num_tokens(parts_.kv.block_tokens());", ""),
    ("a decoding row starts one position late", "core/schedule/plan_writer.cpp",
     ".start = sequence.progress.computed,",
     ".start = sequence.progress.computed + (sequence.progress.computed > sequence.num_prompt),"),
    ("chunks all start at position 0", "core/schedule/plan_writer.cpp",
     ".start = sequence.progress.computed,",
     ".start = sequence.progress.computed < sequence.num_prompt ? 0 : sequence.progress.computed,"),
    ("a known token is taken from the device", "core/schedule/plan_writer.cpp",
     "const bool known = position < sequence.tokens.size();",
     "const bool known = position < sequence.num_prompt;"),
    ("a row gets its neighbour's last token", "tests/fakes/fake_backend.cpp",
     "slots_[row.slot].last_token : in.tokens[t]", "slots_[row.slot ^ (slots_.size() > 1)].last_token : in.tokens[t]"),
    ("the first token of a chunk is sampled", "core/engine/lower.cpp",
     "row.token_first + sample.token_offset,", "row.token_first,"),
    ("tiles of a prompt all begin at its first position", "core/engine/lower.cpp",
     "position = row.start + first;", "position = row.start;"),
    ("the token in flight of a preempted row is lost", "core/schedule/commits.cpp",
     "return sequence.state() == RequestState::kStreaming",
     "return sequence.state() == RequestState::kPreempted || sequence.state() == RequestState::kStreaming"),
    # random numbers, counts, bias
    ("the noise position forgets tokens in flight", "core/schedule/plan_writer.cpp",
     ".output_position = sequence.num_output(),",
     ".output_position = static_cast<uint32_t>(sequence.tokens.size()) - sequence.num_prompt,"),
    ("half of the seed is lost", "core/schedule/plan_writer.cpp",
     "row.seed_hi = static_cast<uint32_t>(params.seed >> 32);", "row.seed_hi = 0;"),
    ("a resumed row keeps the parameters of the slot's former owner", "core/schedule/running.cpp",
     "residency.row_is_set = false;", ""),
    ("penalty counts start empty after a preemption", "core/schedule/plan_writer.cpp",
     "if (sequence.residency.penalty_slot >= 0) {",
     "if (sequence.residency.penalty_slot >= 0 && sequence.record.num_preemptions == 0) {"),
    ("penalty counts take the output for prompt", "core/schedule/plan_writer.cpp",
     "sequence.num_prompt,", "static_cast<uint32_t>(sequence.tokens.size()),"),
    ("end tokens are banned one token too long", "core/request/logit_changes.cpp",
     "if (output_position < request.min_tokens) {", "if (output_position <= request.min_tokens) {"),
    ("a row keeps the logit changes of its first token", "core/request/sequence.cpp",
     "const uint32_t key = changes_key();", "const uint32_t key = 1;"),
    ("a row is planned before the token is known that its bans depend on", "core/request/logit_changes.cpp",
     "return sampling.no_repeat_ngram_size > 0 ||", "return (false && sampling.no_repeat_ngram_size > 0) ||"),
    ("bad words are looked for in the prompt alone", "core/request/logit_changes.cpp",
     "ban_words(tokens, sampling.bad_words, changes);",
     "ban_words(tokens.first(num_prompt), sampling.bad_words, changes);"),
    ("an n-gram is one token too long", "core/sample/token_bans.cpp",
     "const size_t num_before = n - 1;", "const size_t num_before = n;"),
    ("a bias takes a ban back", "core/request/logit_changes.cpp",
     "(*changes)[num_merged - 1].bias += change.bias;", "(*changes)[num_merged - 1].bias = change.bias;"),
    ("processors do not see the newest token", "core/request/logit_changes.cpp",
     "processor->process(tokens,", "processor->process(tokens.first(tokens.size() - 1),"),
    ("an answer that has begun draws its first tokens again", "core/request/sequence.cpp",
     "tokens.insert(tokens.end(), request.begun.begin(), request.begun.end());", ""),
    ("a stop string is not seen where the answer had begun", "core/engine/engine.cpp",
     "for (const TokenId token : request->begun)", "for (const TokenId token : std::vector<TokenId>())"),
    ("the policy's text is shown before it is decided", "core/engine/engine.cpp",
     "verdict.hold_bytes = std::max(verdict.hold_bytes, policy.hold_bytes);", ""),
    ("raw log-probabilities where processed ones are wanted", "core/engine/engine.cpp",
     "is_drawn && branch.is_processed ? result.processed_logprob : result.logprob;", "result.logprob;"),
    ("prompt tokens are scored again after a preemption", "core/schedule/yields.cpp",
     "sequence.move_to(RequestState::kPreempted);\n  parts_",
     "sequence.move_to(RequestState::kPreempted);\n  if (sequence.wants_scores()) sequence.progress.scored = 1;\n  parts_"),
    # beats
    ("a tail is planned from a stale token", "core/schedule/plan_writer.cpp",
     "const bool is_late = draws && sequence.changes_come_late();", "const bool is_late = false;"),
    ("a tail keeps the changes of the token before", "core/request/sequence.cpp",
     "if (reads_newest_) return static_cast<uint32_t>(tokens.size()) - num_prompt + 1;",
     "if (reads_newest_) return (static_cast<uint32_t>(tokens.size()) - num_prompt) / 2 + 1;"),
    ("a late row has its neighbour's changes", "core/schedule/plan_writer.cpp",
     "row->bias_first = static_cast<uint32_t>(plan->bias.size());", "(void)0;"),
    ("a parked row loses its token", "core/schedule/plan_writer.cpp", "  --progress.computed;\n", ""),
    ("a parked row's token is waited for", "core/schedule/plan_writer.cpp",
     "  Progress& progress = sequence->progress;\n  progress.in_flight.drop_draw();\n",
     "  Progress& progress = sequence->progress;\n"),
    ("a parked row draws all the same", "core/schedule/plan_writer.cpp", "        row.num_samples = 0;\n", ""),
    ("rows behind a parked one take its sample", "core/schedule/plan_writer.cpp",
     "own->samples[num_kept++] = own->samples[first + k];", "own->samples[num_kept] = own->samples[num_kept], ++num_kept;"),
    ("a result is taken for the wrong tail", "core/engine/flights.cpp",
     "  tail->memory_ms = output->memory_ms;\n",
     "  tail->memory_ms = output->memory_ms;\n  static std::vector<SampleResult> before;\n"
     "  if (before.size() == tail->results.size()) std::swap(before, tail->results);\n  else before = tail->results;\n"),
    ("a tail is launched twice", "core/engine/flights.cpp",
     "  step.tail = *ticket;\n", "  step.tail = *ticket;\n"
     "  if (auto again = backend_->submit(step.lowered.tail_submission()); !again) return again.error();\n"),
    ("a tail goes with the rows of the step before", "core/engine/flights.cpp",
     "lowering_->lower_tail(*step.flight.plan, &step.lowered); !status) return status;\n  if (step.lowered.sample",
     "lowering_->lower_tail(*steps_[(first_ + 1) % kMax].flight.plan, &step.lowered); !status) return status;\n  if (step.lowered.sample"),
    # ends and budgets
    ("deadlines of waiting requests are skipped", "core/schedule/timeouts.cpp",
     "times_.begin()->first > now)", "times_.begin()->first > now - 10'000'000)"),
    ("a request that runs may still be too late to start", "core/schedule/timeouts.cpp",
     "if (sequence.state() == RequestState::kQueued) no_later_than", "no_later_than"),
    ("the server's own limit ends with the wait", "core/schedule/timeouts.cpp",
     "  no_later_than(request.expiry_ns);",
     "  if (sequence.state() == RequestState::kQueued) no_later_than(request.expiry_ns);"),
    ("a beam may be too late to start while others run", "core/schedule/starts.cpp",
     "beam->request.start_by_ns = 0;", ""),
    ("a chunk of the least size passes the step", "core/schedule/pace.cpp",
     "std::max(whole_chunk(within, others), std::min(kChunkMin, tokens_left))",
     "std::max(whole_chunk(within, others), kChunkMin)"),
    ("a prompt's end passes the step", "core/schedule/pace.cpp",
     "std::min(end_tokens_max(chunk_tokens), tokens_left)", "end_tokens_max(chunk_tokens)"),
    ("rows that were left out lose their place in the tables", "core/schedule/steps.cpp",
     "if (parts_.kv.grow(sequence->residency.tables, sequence->progress.computed + 1)) draft",
     "if (sequence->progress.computed > 0) draft"),
    ("stop strings are not seen across tokens", "core/stop/stop_matcher.cpp",
     "++num_tokens_;", "++num_tokens_;\n  state_ = StringAutomaton::kStart;"),
    ("held text is shown too early", "core/request/string_automaton.cpp",
     "node.hold_bytes = node.first_child != 0 ? node.depth : fallback.hold_bytes;", "node.hold_bytes = 0;"),
    ("a step takes more tokens than it may", "core/schedule/step_draft.cpp",
     "  tokens_ -= count;", "  tokens_ -= count > 1 ? 1 : 0;"),
    ("a step samples more rows than it may", "core/schedule/step_draft.cpp",
     "samples_ -= sequence.samples_for(sequence.take.tokens) - samples_before;", "(void)samples_before;"),
    ("a lone sequence that outgrows the pool waits for ever", "core/schedule/steps.cpp",
     "if (!sequence.progress.in_flight.is_empty()) return false;", "return false;"),
    ("cancel forgets what waits in the queue's sum", "core/schedule/waiting.cpp",
     "tokens_[lane].fetch_sub(ticket.queued_tokens, std::memory_order_relaxed);",
     "if (sequence.state() != RequestState::kPreempted) "
     "tokens_[lane].fetch_sub(ticket.queued_tokens, std::memory_order_relaxed);"),
    ("cancel forgets that a branch waited", "core/schedule/waiting.cpp",
     "branches_.fetch_sub(1, std::memory_order_relaxed);",
     "if (sequence.record.num_preemptions == 0) branches_.fetch_sub(1);"),
    # classes
    ("who was just admitted yields again", "core/schedule/reclaim.cpp", " || other->ticket.tried_in == round", ""),
    ("a row that stops is still counted for its lane", "core/schedule/running.cpp",
     "--lane_rows_[static_cast<size_t>(sequence.lane())];", ""),
    ("two places of a queue are one", "core/schedule/waiting.cpp", "  ++num_added_;\n", ""),
    ("a chunk is computed for one that has just yielded", "core/schedule/steps.cpp",
     "if (sequence->lane() == lane && sequence->runs())", "if (sequence->lane() == lane)"),
]


class Build:
    def __init__(self, build_dir):
        self.dir = os.path.abspath(build_dir)
        with open(os.path.join(self.dir, "compile_commands.json")) as f:
            self.commands = {os.path.relpath(c["file"], ROOT): c for c in json.load(f)}
        lines = subprocess.run(["ninja", "-C", self.dir, "-t", "commands", "engine_sim"], check=True,
                               capture_output=True, text=True).stdout.splitlines()
        link = shlex.split(next(l for l in reversed(lines) if "-o tests/engine_sim " in l))
        first, last = [i for i, word in enumerate(link) if word == "&&"]  # ": && g++ ... && :"
        self.link = link[first + 1:last]

    def compile(self, source, planted):
        """Compiles the planted copy as the build compiles `source` (a path from the root)."""
        command = self.commands[source]
        words = shlex.split(command["command"])
        words[words.index("-o") + 1] = planted + ".o"
        words[words.index("-c") + 1] = planted
        subprocess.run(words, cwd=command["directory"], check=True)

    def link_with(self, planted_object, output):
        words = list(self.link)
        words[words.index("-o") + 1] = output
        first_archive = next(i for i, word in enumerate(words) if word.endswith(".a"))
        words.insert(first_archive, planted_object)
        subprocess.run(words, cwd=self.dir, check=True)


def plant(number, bug, build):
    """Builds engine_sim with the bug in it; returns the program's path."""
    _, file, old, new = bug
    with open(os.path.join(ROOT, file)) as f:
        text = f.read()
    if text.count(old) != 1:
        raise SystemExit(f"planted_bugs: {file}: expected this place once, found it {text.count(old)} times:\n{old}")
    root = os.path.join(build.dir, "planted", str(number))
    path = os.path.join(root, file)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(text.replace(old, new))
    build.compile(file, path)
    program = os.path.join(root, "engine_sim")
    build.link_with(path + ".o", program)
    return program


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def find(number, bug, build, num_seeds):
    """Whether engine_sim finds the bug, and what it says."""
    program = plant(number, bug, build)
    try:
        run = subprocess.run([program, "--seeds", str(num_seeds)], capture_output=True, text=True, timeout=HANGS_S,
                             preexec_fn=limit_memory)
    except subprocess.TimeoutExpired:
        return True, "it hangs"
    finally:
        shutil.rmtree(os.path.dirname(program))
    said = [line for line in run.stderr.strip().splitlines() if line]
    return run.returncode != 0, said[0][:150] if said else f"exit status {run.returncode}"


def main():
    parser = argparse.ArgumentParser(description="every planted bug must be found by engine_sim")
    parser.add_argument("build_dir")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--only", default="", help="bugs whose name holds this word")
    args = parser.parse_args()
    build = Build(args.build_dir)
    bugs = [bug for bug in BUGS if args.only in bug[0]]
    survivors = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        answers = pool.map(lambda item: find(*item, build, args.seeds), enumerate(bugs))
        for bug, (found, said) in zip(bugs, answers):
            survivors += not found
            print(f"{'found   ' if found else 'SURVIVED'}  {bug[0]}: {said}", flush=True)
    print(f"{len(bugs) - survivors} of {len(bugs)} planted bugs found")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
