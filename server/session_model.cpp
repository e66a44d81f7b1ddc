#include "server/session_model.h"

#include <memory>
#include <optional>
#include <thread>

namespace llmrt::server {

namespace asio = boost::asio;

// The client is looked at meanwhile: start_watch() was called.
asio::awaitable<ApiResult<ServedLease>> Session::wait_for_model(ModelIdx model) {
  struct Arrival {
    explicit Arrival(asio::any_io_executor executor) : arrived(executor, asio::steady_timer::time_point::max()) {}
    asio::steady_timer arrived;
    std::optional<Result<ModelLease>> lease;
  };
  const asio::any_io_executor executor = socket_.get_executor();
  const auto arrival = std::make_shared<Arrival>(executor);
  const WaiterId waiter = state_->models->acquire(model, [arrival, executor](Result<ModelLease> lease) {
    auto kept = std::make_shared<Result<ModelLease>>(std::move(lease));
    asio::post(executor, [arrival, kept] {
      arrival->lease.emplace(std::move(*kept));
      arrival->arrived.cancel();
    });
  });
  boost::system::error_code ignored;
  while (!arrival->lease && !client_gone_) {
    arrival->arrived.expires_after(std::chrono::milliseconds(50));
    co_await arrival->arrived.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  if (!arrival->lease) {
    state_->models->cancel(waiter);
    co_return to_api_error(make_error(ErrorCode::kCancelled, "the client has gone"));
  }
  if (!arrival->lease->ok()) co_return to_api_error(arrival->lease->error());
  co_return to_served(std::move(**arrival->lease));
}

}  // namespace llmrt::server
