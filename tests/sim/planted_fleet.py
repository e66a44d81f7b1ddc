"""Bugs that fleet_sim, placement_test and fleet_test must find: (name, file, what stands there, what is planted)."""

FLEET, PLACEMENT = "core/router/fleet.cpp", "core/router/placement.cpp"

BUGS = [
    # answers that go on elsewhere
    ("a moved answer tells its last token again", FLEET,
     "rest.begun.insert(rest.begun.end(), branch.tokens.begin(), branch.tokens.end());",
     "rest.begun.insert(rest.begun.end(), branch.tokens.begin(), branch.tokens.end() - !branch.tokens.empty());"),
    ("a moved answer begins again", FLEET,
     "    rest.begun.insert(rest.begun.end(), branch.tokens.begin(), branch.tokens.end());\n", ""),
    ("a moved branch draws what branch 0 would", FLEET, "    rest.sampling.branch += branch_idx;\n", ""),
    ("the events of a moved branch say branch 0", FLEET, "      event.branch = branch_idx;\n", ""),
    ("the events of a moved branch have its new id", FLEET, "      event.request_id = id + branch_idx;\n", ""),
    ("the error of an answer that goes on is told", FLEET, "    if (fault && !fleet_->move(",
     "    if (fault) tell(std::span(&*fault, 1), branch_idx);\n    if (fault && !fleet_->move("),
    ("a prompt's log-probabilities are told again", FLEET,
     "    if (branch.has_told && request_.sampling.prompt_logprobs) return std::nullopt;\n", ""),
    ("where a branch has moved to is not noted", FLEET, "    branch.worker = worker;\n    branch.id = *id;\n", ""),
    ("the id of a moved branch is not noted", FLEET, "    branch.id = *id;\n    ++branch.stay;", "    ++branch.stay;"),
    ("the engine that has a branch now is not heard", FLEET, "    ++branch.stay;\n", ""),
    ("the engine where a request failed is not told that it has gone", FLEET,
     "    if (states_[from].engine) states_[from].engine->drained(before.id);\n", "    (void)before.id;\n"),
    ("a moved branch of a paused client is not paused", FLEET,
     "    if (branch.is_paused) engine.set_paused(*id, true);\n", ""),
    ("what has been moved is not counted", FLEET,
     "    ++states_[chosen->worker].figures.num_placed;\n    ++states_[chosen->worker].figures.num_moved_in;\n",
     "    ++states_[chosen->worker].figures.num_moved_in;\n"),
    ("nothing goes on elsewhere", FLEET, "  while (rest) {", "  while (rest && error.code == ErrorCode::kInternal) {"),
    # what clients say
    ("a cancel is lost", FLEET,
     "if (const auto found = find(id, /*cancels=*/true)) found->first->cancel(found->second, sent, why);",
     "find(id, /*cancels=*/true);"),
    ("a cancel goes to the id that the client knows", FLEET, "found->first->cancel(found->second, sent, why);",
     "found->first->cancel(id, sent, why);"),
    ("an answer that is drained stays at its engine", FLEET,
     "if (const auto found = find(id)) found->first->drained(found->second, sent);", ""),
    ("the fleet forgets no request", FLEET, "found->first->drained(found->second, sent);\n  forget(id);",
     "found->first->drained(found->second, sent);"),
    ("the fleet keeps cancelled requests", FLEET, "found->first->cancel(found->second, sent, why);\n  forget(id);",
     "found->first->cancel(found->second, sent, why);"),
    ("branches are noted at the wrong worker", FLEET, "      branches_[i].worker = worker;\n", ""),
    ("all branches have the id of the first", FLEET, "branches_[i].id = *id + i;", "branches_[i].id = *id;"),
    # workers that take nothing
    ("a drained worker gets requests", FLEET, "else if (state.figures.is_drained)", "else if (false)"),
    ("an engine that comes back counts its own ids", FLEET,
     "  engine->set_ids(last_id_);\n  WorkerFacts limits", "  WorkerFacts limits"),
    ("an engine that comes back has the limits of a large one", FLEET,
     "  state.limits = std::move(limits);\n", "  state.limits = states_[0].limits;\n"),
    # limits
    ("the context is no limit", PLACEMENT, "if (own > worker.context_max)",
     "if (own > 2 * uint64_t{worker.context_max})"),
    ("every worker is batch-invariant", PLACEMENT, "if (ask.batch_invariant && !worker.batch_invariant)",
     "if (ask.batch_invariant && worker.blocks_total == 0)"),
    # terms that show in times
    ("prompts that wait are an advantage", PLACEMENT, "(before_ms + own_ms) / share", "(own_ms - before_ms) / share"),
    ("the slowest worker is taken", PLACEMENT, "first = its.ttft_ms / config", "first = -its.ttft_ms / config"),
]

# By placement_test.
PLACED = [
    ("a late request is spread", PLACEMENT, "      first = its.lost;\n      second = its.late_ms;\n",
     "      first = its.late_ms;\n"),
    ("a full worker is as good as one with room", PLACEMENT, "return std::max({0.0, rows, blocks / blocks_row});",
     "return 0;"),
    ("blocks that are missing do not count", PLACEMENT, "std::max({0.0, rows, blocks / blocks_row})",
     "std::max(0.0, rows)"),
    ("room that is kept is given away", PLACEMENT, "if (!std::ranges::all_of(feasible, keeps))", "if (false)"),
    ("a cached prompt is computed", PLACEMENT, "std::min(ask.prompt_tokens, worker.cached_tokens)",
     "std::min<uint64_t>(ask.prompt_tokens, 0)"),
    ("the time per token does not count", PLACEMENT,
     "tokens * std::max(0.0, terms->tpot_ms - config.tpot_target_ms);", "0;"),
    ("rows that run may become late", PLACEMENT, "std::max(0.0, own_ms - answer * room_ms) * running", "0"),
    ("a long prompt's depth costs nothing", PLACEMENT, " + worker.prefill_pair_ms * own * deep / 2", ""),
    ("long requests are given up", PLACEMENT, "} else if (has_targets && ask.tokens() <= config.long_tokens) {",
     "} else if (has_targets) {"),
    ("a worker that is given up takes everything for ever", PLACEMENT,
     "  if (terms.ttft_ms > kLateTimes * config.ttft_target_ms) return kLostMost;\n", ""),
    ("round robin always takes the first", PLACEMENT, "feasible[turn % feasible.size()]", "feasible[0 * turn]"),
    ("least load counts only branches that run", PLACEMENT,
     "std::pair(workers[i].num_running + workers[i].num_waiting, -", "std::pair(workers[i].num_running, -"),
    ("what is not known is taken for the worst", PLACEMENT,
     "worker.prefill_tokens_ms : best.prefill_tokens_ms;", "worker.prefill_tokens_ms : 1e-3;"),
]

# By fleet_test.
TESTED = [
    ("a worker on trial gets every request", FLEET, "else if (state.trial == Trial::kUnderWay)", "else if (false)"),
    ("an engine that comes back is not used", FLEET, "  state.figures.is_lost = false;\n", "  state.engine.reset();\n"),
]
