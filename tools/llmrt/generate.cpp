#include "tools/llmrt/generate.h"

#include "core/base/utf8.h"
#include "server/choice.h"
#include "tools/number_range.h"

namespace llmrt::cli {
namespace {

class Collect final : public EventSink {
 public:
  void on_events(std::span<const TokenEvent> batch) override {
    events.insert(events.end(), batch.begin(), batch.end());
  }
  std::vector<TokenEvent> events;
};

}  // namespace

void add_sampling_options(CLI::App& command, SamplingOptions& options, const std::string& max_tokens_default) {
  const char* group = "Sampling";
  options.numbers.add_options(command, group);
  command.add_option("--seed", options.seed, "the same seed gives the same answer; default: a random one")
      ->check(any_number<int64_t>())
      ->type_name("N")
      ->group(group);
  command
      .add_option("--max-tokens", options.max_tokens, "length of the answer, at most; default: " + max_tokens_default)
      ->check(number_range(1u, 1u << 30).description(""))
      ->type_name("N")
      ->group(group);
  command.add_option("--bad-word", options.bad_words, "never write this text; may be given several times")
      ->type_name("TEXT")
      ->group(group);
  command.add_option("--stop", options.stop, "end the answer before this text; may be given several times")
      ->type_name("TEXT")
      ->group(group);
}

void write_fields(const SamplingOptions& options, boost::json::object& body) {
  options.numbers.write(&body);
  if (options.seed) body["seed"] = *options.seed;
  if (options.max_tokens > 0) body["max_tokens"] = options.max_tokens;
  if (!options.bad_words.empty()) body["bad_words"] = boost::json::value_from(options.bad_words);
  if (!options.stop.empty()) body["stop"] = boost::json::value_from(options.stop);
}

Result<Answer> generate(Engine& engine, const server::ServedModel& model, server::ApiRequest wanted,
                        const std::function<void(const std::string&)>& on_text, TraceWriter* trace) {
  const auto sink = std::make_shared<Collect>();
  server::PromptRequest& prompt = wanted.prompts.front();
  server::Choice choice(&model, wanted.form, prompt);
  Answer answer;
  Utf8Assembler characters;  // of all tokens
  std::optional<Error> error;
  answer.num_prompt_tokens = prompt.request.prompt.size();
  prompt.request.sink = sink;
  if (trace) trace->record(&prompt.request);
  const SteadyClock clock;
  const TimeNs begin = clock.now_ns();
  Result<RequestId> id = engine.submit(std::move(prompt.request));
  if (!id) return id.error();
  while (!choice.finished()) {
    if (interrupted()) {
      answer.was_interrupted = true;
      engine.cancel(*id);
    }
    if (Result<bool> worked = engine.tick(); !worked) return worked.error();
    for (const TokenEvent& event : std::exchange(sink->events, {})) {
      server::ChoiceDelta delta = choice.advance(event);
      if (delta.error) {
        error = std::move(delta.error);  // with the answer's end: no event follows
        break;
      }
      if (answer.num_generated == 0 && choice.num_generated() > 0) {
        answer.first_token_ns = clock.now_ns();
        answer.first_token_s = ms_between(begin, answer.first_token_ns) * 1e-3;
        answer.first_token_device_ms = engine.stats().device_ms;
      }
      answer.num_generated = choice.num_generated();
      if (event.token >= 0 && model.tokenizer) characters.push(model.tokenizer->token_bytes(event.token));
      const bool is_cut = event.finish == FinishReason::kLength || event.finish == FinishReason::kCancelled ||
                          event.finish == FinishReason::kTimeout;
      if (is_cut && event.cut_bytes == 0 && characters.held_bytes() > 0) {
        answer.cut_bytes = characters.held_bytes();
        std::string whole;
        append_utf8(whole, kReplacementCharacter);
        if (delta.text.ends_with(whole)) delta.text.resize(delta.text.size() - whole.size());
      }
      if (!delta.text.empty() && on_text) on_text(delta.text);
      answer.text += delta.text;
      answer.token_ids.insert(answer.token_ids.end(), delta.token_ids.begin(), delta.token_ids.end());
      answer.finish = delta.finish;
    }
  }
  answer.all_s = ms_between(begin, clock.now_ns()) * 1e-3;
  engine.drained(*id);  // however it ended: a chat goes on with this engine
  if (Result<bool> worked = engine.tick(); !worked) return worked.error();
  if (error) return *error;
  return answer;
}

void tell_cut(const Answer& answer) {
  if (answer.cut_bytes > 0)
    fmt::print(stderr, "note: the answer ends inside a character; its first {} bytes are left out\n", answer.cut_bytes);
}

std::string speed_text(const Answer& answer) {
  std::string text = fmt::format("{} prompt tokens in {:.2f} s", answer.num_prompt_tokens, answer.first_token_s);
  const double decode_s = answer.all_s - answer.first_token_s;
  if (answer.num_generated > 1 && decode_s > 0)
    text += fmt::format(", {} tokens at {:.1f} a second", answer.num_generated,
                        static_cast<double>(answer.num_generated - 1) / decode_s);
  return text;
}

}  // namespace llmrt::cli
