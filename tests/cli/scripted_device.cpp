// The program's device for tests of its terminal: it writes what the model is given to a file and answers with a text,
// token by token. For models whose token i is byte i (terminal_test.py writes one). By environment:
//   SCRIPTED_PROMPTS  the file
//   SCRIPTED_ANSWER   the answer; the end token follows
//   SCRIPTED_STEP_MS  how long a step takes
//   SCRIPTED_ABORTS   the first answer ends the process
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <thread>

#include "backends/backends.h"
#include "tests/fakes/fake_backend.h"

namespace llmrt {
namespace {

constexpr int32_t kEndToken = 257;

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

class ScriptedBackend final : public test::FakeBackend {
 public:
  ScriptedBackend() : FakeBackend({}), answer_(setting("SCRIPTED_ANSWER")) {}

  Result<Ticket> submit(const StepSubmission& step) override {
    if (!setting("SCRIPTED_ABORTS").empty() && step.num_sampled == 1) std::abort();
    Result<ForwardInputs> forward = ForwardInputs{};  // a tail alone has none
    if (step.forward) forward = unpack_forward(step.forward_inputs);
    if (!forward) return forward.error();
    for (const int32_t token : forward->tokens)
      if (token >= 0) prompt_ += token < 256 ? std::string(1, static_cast<char>(token)) : " t";
    std::vector<uint32_t> positions;
    if (step.sample) {
      Result<SampleInputs> sample = unpack_sample(step.sample_inputs);
      if (!sample) return sample.error();
      for (const SampleRecord& record : sample->records) positions.push_back(record.output_position);
    }
    positions_.push_back(std::move(positions));
    return FakeBackend::submit(step);
  }

  Result<StepOutput> wait(Ticket ticket) override {
    Result<StepOutput> output = FakeBackend::wait(ticket);
    if (!output) return output;
    const std::vector<uint32_t> positions = std::move(positions_.front());
    positions_.pop_front();
    if (positions.size() > 1) prompt_.clear();  // the engine measures its largest step
    for (size_t i = 0; i < output->results.size(); ++i) {
      const uint32_t position = positions[i];
      if (position == 0 && positions.size() == 1) write_prompt();
      output->results[i] = {};
      output->results[i].support = 1;
      output->results[i].token = position < answer_.size() ? static_cast<unsigned char>(answer_[position]) : kEndToken;
    }
    const std::string step_ms = setting("SCRIPTED_STEP_MS");
    if (!step_ms.empty() && !positions.empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(step_ms.c_str())));
    return output;
  }

 private:
  void write_prompt() {
    if (std::FILE* file = std::fopen(setting("SCRIPTED_PROMPTS").c_str(), "ab")) {
      std::fwrite(prompt_.data(), 1, prompt_.size(), file);
      std::fputc('\0', file);
      std::fclose(file);
    }
    prompt_.clear();
  }

  const std::string answer_;
  std::string prompt_;
  std::deque<std::vector<uint32_t>> positions_;  // of each step in flight
};

}  // namespace

std::vector<DeviceInfo> list_devices() {
  DeviceInfo device;
  device.id = "scripted:0";
  device.usable = true;
  return {device};
}

Result<std::unique_ptr<Backend>> open_device(const std::string&) {
  return std::unique_ptr<Backend>(std::make_unique<ScriptedBackend>());
}

}  // namespace llmrt
