// Runs a text script against a Scheduler: each command stands on a line, what came of it on the lines below, indented.
// A test compares the transcript with the script itself, so the expectation is read where it happens.
//
//   config key=value ...      pool (blocks), block (tokens), window (of a second KV group of such blocks), states (of a
//                             further group), rows, step, samples, penalties, chunk, reserve, context,
//                             queue, watermark (in percent), cache (radix or hashed), batching (static or dynamic),
//                             wait (for a batch, in ms); must come first
//   add ID prompt=N max=N [n=N] [min=N] [same=N] [salt=TEXT] [deadline=MS] [expiry=MS] [start_by=MS] [class=NAME]
//                             [stop=TOKEN] [ngram=N] [bad=TOKEN,..] and the words scores, logprobs, penalty, bias,
//                             ignore_eos, beam. bans=N: a processor that bans N tokens. The prompts of all
//                             begin alike, with same=N for N tokens, then each goes its own way
//   plan                      "1[0,5)*": request 1, positions 0 to 4, draws; "?" the token is still on the device, "~3"
//                             three scored prompt tokens, "^" draws if its logit changes are there in time for the
//                             tail; "nothing" when there is no plan
//   tail                      completes the tail of the last plan: the requests that draw, and those that are parked
//   updates                   the row updates of the last plan;  bias: its bias entries;  copies: its block copies
//   commit [ID=FINISH ...]    the oldest plan, if any; "1=eos" lets request 1 end there, "1=error" fails. Token k of a
//                             request is 100 + k; length ends by itself
//   preemptions               what yielded since the last such line
//   masks late, masks ready  processors are not ready from now on, or are
//   free                      blocks, by KV group
//   cancel ID, leave ID (its client is gone), pause ID, go ID, drained ID, fail, time MS, states, queue, cached
#pragma once

#include <string>

namespace llmrt::test {

// The transcript: the script's own command lines with what this scheduler answers. Books are checked after each line.
std::string run_script(const std::string& script);
// A plan and its commit, so many times.
std::string plans(int count);
// Checks that it is the script itself.
void check_script(const std::string& script);

}  // namespace llmrt::test
