// How a session reads a body with the model that it asks for: on a worker at once where the model is loaded; else the
// body waits as text while the model is loaded, and is read behind that.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "server/json_reader.h"
#include "server/model_choice.h"
#include "server/session.h"

namespace llmrt::server {

// What a body asks for, and the model that it holds.
template <typename Made>
struct Held {
  ServedLease lease;
  Made made;
};
template <typename Made>
using MakeOfBody = std::function<ApiResult<Made>(const boost::json::object& body, const ServedModel& model)>;

// What a worker makes of a body: all of it, or the text again, for a model that is not there.
template <typename Made>
struct BodyRead {
  ApiResult<Held<Made>> held;
  bool waits = false;
  ModelIdx model = 0;
  std::string text;
};

// With `lease` null: of whatever model it asks for.
template <typename Made>
BodyRead<Made> read_with_model(std::string body, const ModelHost& models, ServedLease lease,
                               const MakeOfBody<Made>& make) {
  BodyRead<Made> read;
  ApiResult<boost::json::object> object = read_body_object(std::move(body));
  if (auto* error = std::get_if<ApiError>(&object)) {
    read.held = std::move(*error);
    return read;
  }
  const boost::json::object& fields = std::get<boost::json::object>(object);
  if (!lease) {
    const ApiResult<ModelIdx> model = choose_model(models, fields);
    if (const auto* error = std::get_if<ApiError>(&model)) {
      read.held = *error;
      return read;
    }
    read.model = std::get<ModelIdx>(model);
    lease = to_served(models.acquire_now(read.model));
    if (!lease) {
      read.waits = true;
      read.text = boost::json::serialize(fields);
      return read;
    }
  }
  ApiResult<Made> made = make(fields, lease->model);
  if (auto* error = std::get_if<ApiError>(&made))
    read.held = std::move(*error);
  else
    read.held = Held<Made>{std::move(lease), std::get<Made>(std::move(made))};
  return read;
}

template <typename Made>
boost::asio::awaitable<ApiResult<Held<Made>>> Session::read_body_with_model(std::string body, MakeOfBody<Made> make) {
  const size_t num_bytes = body.size();
  const ModelHost& models = *state_->models;
  std::function<BodyRead<Made>()> work = [&] { return read_with_model<Made>(std::move(body), models, nullptr, make); };
  BodyRead<Made> read = co_await state_->workers->run(num_bytes, std::move(work));
  if (!read.waits) co_return std::move(read.held);
  if (!account_->set(MemoryAccount::kBody, read.text.capacity())) co_return state_->no_memory(ClientMemoryPart::kBody);
  ApiResult<ServedLease> lease = co_await wait_for_model(read.model);
  if (auto* error = std::get_if<ApiError>(&lease)) co_return std::move(*error);
  std::function<BodyRead<Made>()> again = [&] {
    return read_with_model<Made>(std::move(read.text), models, std::get<ServedLease>(std::move(lease)), make);
  };
  BodyRead<Made> second = co_await state_->workers->run(num_bytes, std::move(again));
  co_return std::move(second.held);
}

}  // namespace llmrt::server
