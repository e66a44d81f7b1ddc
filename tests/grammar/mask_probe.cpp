// Masks of a real vocabulary: how long they take, whether answers drawn under them end, and whether they are what
// trying every token says. For Python scripts (mask_times.py, mask_walks.py).
//
//   mask_probe VOCABULARY.gguf < LINES
//
// Writes a line {"tokens": 151665, "load_ms": 900, "bytes": ...} about the vocabulary, then for each line of JSON
//
//   {"schema": ..., "lenient": false, "walks": 3, "tokens_max": 200, "follow": false, "brute_states": 0, "seed": 1}
//
// one line: {"compiled": false, "code": ..., "message": ...} or {"compiled": true, "compile_ms": schema to network,
// "first_ms": the same and the first mask, "bytes": held at the end, "made_us": [masks that were made], "step_us": [all
// steps: the token before is taken and a mask is there], "answers": [{"end": "whole" | "cut" | "dead", "text": ...}],
// "brute": states whose masks were tried token by token, "wrong": [...]}. With "follow" the texts of whole answers are
// written once more, under a fresh grammar, as the tokenizer spells them; figures are then of these.
//
// All times are the thread's own. A walk draws at temperature 1.5 from a few of the allowed tokens, with normal logits
// and a bonus for those that close something. Behind tokens_max tokens it takes a short way to an end, which is no part
// of the figures; it counts as cut where none is found in time.
#include <boost/json.hpp>
#include <iostream>
#include <set>
#include <string>

#include "core/base/utf8.h"
#include "core/grammar/compiled_grammar.h"
#include "core/grammar/json_schema.h"
#include "core/model/read_metadata.h"
#include "core/platform/thread_clock.h"
#include "core/text/tokenizer.h"
#include "core/weights/weight_source.h"
#include "tests/grammar/token_drawer.h"
#include "tests/grammar/way_out.h"

namespace llmrt {
namespace {

namespace json = boost::json;

struct Model {
  std::unique_ptr<Tokenizer> tokenizer;
  std::shared_ptr<const TokenVocabulary> vocabulary;
};

Result<Model> load(const std::string& path) {
  Result<WeightSource> source = open_weight_source(path);
  if (!source) return source.error();
  const auto tokens = source->metadata.strings("tokenizer.ggml.tokens");
  if (!tokens) return tokens.error();
  auto read = read_vocabulary(source->metadata, static_cast<uint32_t>(tokens->size()));
  if (!read) return read.error();
  if (!*read) return make_error(ErrorCode::kUnsupported, "no tokenizer in {}", path);
  Model model;
  auto tokenizer = Tokenizer::create(**read);
  if (!tokenizer) {
    // How a text is split into words is nothing to masks.
    (*read)->pre = "";
    tokenizer = Tokenizer::create(**read);
  }
  if (!tokenizer) return tokenizer.error();
  model.tokenizer = std::move(*tokenizer);
  model.vocabulary = TokenVocabulary::create(*model.tokenizer);
  return model;
}

struct Order {
  json::value schema;
  SchemaOptions options = {};
  uint32_t walks = 0, tokens_max = 0, brute_states = 0;
  bool follow = false;
};

struct Figures {
  double compile_ms = 0, first_ms = 0;
  json::array made_us, step_us;
  size_t bytes = 0;
};

Status build(const Order& order, GrammarBuilder* builder) {
  SchemaNotes notes;
  Result<SymbolId> symbol = add_json_schema(builder, order.schema, order.options, &notes);
  if (!symbol) return symbol.error();
  builder->set_start(*symbol);
  return {};
}

Result<std::unique_ptr<ParseStates>> make_states(const Order& order) {
  GrammarBuilder builder;
  if (Status built = build(order, &builder); !built) return built.error();
  Result<Network> network = make_network(&builder);
  if (!network) return network.error();
  return std::make_unique<ParseStates>(std::make_shared<const Network>(std::move(*network)),
                                       std::move(builder.regexes()));
}

class Walker {
 public:
  Walker(const Model& model, const Order& order, fakes::TokenDrawer* drawer)
      : model_(model), order_(order), drawer_(*drawer) {}

  Status open() {
    figures = {};
    const double begin_ms = thread_cpu_ms();
    GrammarBuilder builder;
    if (Status built = build(order_, &builder); !built) return built;
    auto made = CompiledGrammar::create(&builder, model_.vocabulary, nullptr, mask_figures_);
    if (!made) return made.error();
    grammar_ = *made;
    figures.compile_ms = thread_cpu_ms() - begin_ms;
    if (Status first = grammar_->prepare(); !first) return first;
    figures.first_ms = thread_cpu_ms() - begin_ms;
    return {};
  }

  json::object walk() {
    begin();
    std::string text;
    for (uint32_t step = 0; step < order_.tokens_max; ++step) {
      const NextTokens next = step_on();
      if (next.state == NextTokens::State::kFailed) return answer("dead", next.error->message);
      const int32_t token = drawer_.draw(*next.mask);
      if (!take(token)) return answer("dead", "a token of the mask was not taken");
      text += model_.vocabulary->bytes(token);
      if (matcher_->ended()) return whole(text);
    }
    return end_soon(std::move(text));
  }

  // As a model would write the text. False: its spelling is not in the grammar.
  bool follow(std::string_view text) {
    begin();
    for (const TokenId token : model_.tokenizer->encode(text, {.parse_special = false, .add_bos = false})) {
      if (step_on().state == NextTokens::State::kFailed || !take(token)) return false;
    }
    return true;
  }

  Figures finish() {
    figures.bytes = grammar_->held_bytes();
    return std::move(figures);
  }

  Figures figures;

 private:
  static json::object answer(const char* end, std::string_view text) { return {{"end", end}, {"text", text}}; }
  static json::object whole(const std::string& text) {
    return is_valid_utf8(text) ? answer("whole", text) : answer("dead", "the answer is no UTF-8");
  }

  // The rest byte by byte, by states of its own: each byte's token must be in the mask.
  json::object end_soon(std::string text) {
    is_counted_ = false;
    if (!ways_) {
      Result<std::unique_ptr<ParseStates>> states = make_states(order_);
      if (!states) return answer("dead", states.error().message);
      states_ = std::move(*states);
      ways_ = std::make_unique<fakes::WayOut>(states_.get());
    }
    auto rest = ways_->find(states_->after(states_->start(), text));
    uint32_t num_detours = 0;
    for (size_t i = 0; rest && i < rest->size(); ++i) {
      const NextTokens next = step_on();
      int32_t token = drawer_.of_byte((*rest)[i]);
      if (next.state == NextTokens::State::kFailed) return answer("dead", next.error->message);
      if (token < 0) return answer("cut", "");
      const bool is_detour = !next.mask->allows(token);
      if (is_detour && !states_->network().has_marks) return answer("dead", "a byte that leads to the end is denied");
      // The way is one of states, which do not know that an item was there before.
      if (is_detour && ++num_detours > kDetoursMax) return answer("cut", "");
      if (is_detour) token = drawer_.draw(*next.mask);
      if (!take(token)) return answer("dead", "a token of the mask is not taken");
      text += model_.vocabulary->bytes(token);
      if (matcher_->ended()) break;
      if (!is_detour) continue;
      rest = ways_->find(states_->after(states_->start(), text));
      i = SIZE_MAX;  // from its beginning
    }
    if (!rest) return answer("cut", "");
    return matcher_->accepts() ? whole(text) : answer("dead", "the answer is not taken for whole");
  }

  void begin() {
    is_counted_ = true;
    matcher_ = grammar_->start();
    taken_us_ = 0;
  }
  NextTokens step_on() {
    const uint64_t made = mask_figures_->num_made;
    const double begin_ms = thread_cpu_ms();
    NextTokens next = matcher_->next();
    if (next.state == NextTokens::State::kLate) next = matcher_->next();
    const double us = 1e3 * (thread_cpu_ms() - begin_ms);
    if (is_counted_ && mask_figures_->num_made != made) figures.made_us.push_back(us);
    if (is_counted_) figures.step_us.push_back(us + taken_us_);
    return next;
  }
  bool take(int32_t token) {
    const double begin_ms = thread_cpu_ms();
    const bool taken = matcher_->advance(token);
    taken_us_ = 1e3 * (thread_cpu_ms() - begin_ms);
    return taken;
  }

  const Model& model_;
  const Order& order_;
  fakes::TokenDrawer& drawer_;
  std::shared_ptr<MaskFigures> mask_figures_ = std::make_shared<MaskFigures>();
  std::shared_ptr<const CompiledGrammar> grammar_;
  std::unique_ptr<ConstraintMatcher> matcher_;
  std::unique_ptr<ParseStates> states_;
  std::unique_ptr<fakes::WayOut> ways_;
  double taken_us_ = 0;
  static constexpr uint32_t kDetoursMax = 100;
  bool is_counted_ = true;
};

// Masks against states that no mask was made of, token by token.
class BruteForce {
 public:
  BruteForce(const Model& model, const Order& order, fakes::TokenDrawer* drawer)
      : model_(model), order_(order), drawer_(*drawer) {}

  Status open() {
    for (auto* states : {&walked_, &tried_}) {
      Result<std::unique_ptr<ParseStates>> made = make_states(order_);
      if (!made) return made.error();
      *states = std::move(*made);
    }
    maker_ = std::make_unique<MaskMaker>(model_.vocabulary.get(), walked_.get());
    return {};
  }

  uint32_t num_checked = 0;
  json::array wrong;

  void run() {
    std::set<ParseStates::StateId> seen;
    for (uint32_t walk = 0; walk < 100 && num_checked < order_.brute_states; ++walk) {
      ParseStates::StateId state = walked_->start(), tried = tried_->start();
      for (uint32_t step = 0; step < order_.tokens_max && num_checked < order_.brute_states; ++step) {
        Result<TokenMaskPtr> mask = maker_->make(state, 1e9, [] {});
        if (!mask || tried_->failed()) return;
        if (seen.insert(state).second && !check(**mask, tried)) return;
        const int32_t token = drawer_.draw(**mask);
        if (model_.vocabulary->is_end(token)) break;
        state = walked_->after(state, model_.vocabulary->bytes(token));
        tried = tried_->after(tried, model_.vocabulary->bytes(token));
      }
    }
  }

 private:
  bool check(const TokenMask& mask, ParseStates::StateId state) {
    const TokenVocabulary& vocabulary = *model_.vocabulary;
    for (int32_t v = 0; v < static_cast<int32_t>(vocabulary.num_tokens()); ++v) {
      const std::string_view bytes = vocabulary.bytes(v);
      const bool may = vocabulary.is_end(v) ? tried_->accepts(state)
                       : bytes.empty()      ? false
                                            : tried_->after(state, bytes) != ParseStates::kDead;
      if (tried_->failed()) return false;  // no room: says nothing
      if (mask.allows(v) == may) continue;
      wrong.push_back(json::object{{"token", v}, {"allowed", !may}, {"may", may}});
      return false;
    }
    ++num_checked;
    return true;
  }

  const Model& model_;
  const Order& order_;
  fakes::TokenDrawer& drawer_;
  std::unique_ptr<ParseStates> walked_, tried_;
  std::unique_ptr<MaskMaker> maker_;
};

json::object refusal(const Status& status) {
  return {{"compiled", false}, {"code", error_code_name(status.error().code)}, {"message", status.error().message}};
}

json::object carry_out(const Model& model, const Order& order, fakes::TokenDrawer* drawer) {
  Walker walker(model, order, drawer);
  if (Status opened = walker.open(); !opened) return refusal(opened);
  json::array answers;
  for (uint32_t i = 0; i < order.walks; ++i) answers.push_back(walker.walk());
  uint32_t num_not_followed = 0;
  Figures figures = walker.finish();
  if (order.follow) {
    Walker follower(model, order, drawer);
    if (Status opened = follower.open(); !opened) return refusal(opened);
    for (const json::value& each : answers) {
      if (each.at("end") == "whole" && !follower.follow(each.at("text").as_string())) ++num_not_followed;
    }
    figures = follower.finish();
  }
  BruteForce brute(model, order, drawer);
  if (order.brute_states > 0) {
    if (Status opened = brute.open(); !opened) return refusal(opened);
    brute.run();
  }
  return {{"compiled", true},
          {"compile_ms", figures.compile_ms},
          {"first_ms", figures.first_ms},
          {"bytes", figures.bytes},
          {"made_us", std::move(figures.made_us)},
          {"step_us", std::move(figures.step_us)},
          {"answers", std::move(answers)},
          {"not_followed", num_not_followed},
          {"brute", brute.num_checked},
          {"wrong", std::move(brute.wrong)}};
}

json::object answer_line(const Model& model, const json::object& line) {
  const auto number = [&](const char* name) {
    const json::value* found = line.if_contains(name);
    return found != nullptr ? found->to_number<uint32_t>() : 0;
  };
  const auto flag = [&](const char* name) {
    const json::value* found = line.if_contains(name);
    return found != nullptr && found->as_bool();
  };
  Order order{.schema = line.at("schema"),
              .walks = number("walks"),
              .tokens_max = number("tokens_max"),
              .brute_states = number("brute_states"),
              .follow = flag("follow")};
  order.options.lenient = flag("lenient");
  order.options.coerce_one_of = flag("coerce_one_of");
  fakes::TokenDrawer drawer(*model.vocabulary, number("seed"));
  return carry_out(model, order, &drawer);
}

}  // namespace
}  // namespace llmrt

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "expected: mask_probe VOCABULARY.gguf\n";
    return 1;
  }
  const double begin_ms = llmrt::thread_cpu_ms();
  const llmrt::Result<llmrt::Model> model = llmrt::load(argv[1]);
  if (!model.ok()) {
    std::cerr << model.error().message << "\n";
    return 1;
  }
  const boost::json::object about = {{"tokens", model->vocabulary->num_tokens()},
                                     {"load_ms", llmrt::thread_cpu_ms() - begin_ms},
                                     {"bytes", model->vocabulary->held_bytes()}};
  std::cout << boost::json::serialize(about) << std::endl;
  boost::json::parse_options options;
  options.max_depth = 1024;
  options.numbers = boost::json::number_precision::precise;
  for (std::string line; std::getline(std::cin, line);) {
    const boost::json::value read = boost::json::parse(line, {}, options);
    std::cout << boost::json::serialize(llmrt::answer_line(*model, read.as_object())) << std::endl;
  }
}
