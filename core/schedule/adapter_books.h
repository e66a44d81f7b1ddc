// Which adapters the device holds, as the scheduler asks of the engine, which keeps them. A row holds its adapter from
// its start until it stops: so long the adapter's slot keeps what it has. The engine's thread.
#pragma once

#include <cstdint>

#include "core/base/status.h"
#include "core/request/request.h"

namespace llmrt {

enum class AdapterState {
  kReady,    // rows may start with it
  kLoading,  // it is on its way to the device
  kNoRoom,   // others hold the slots, or the room
};

class AdapterBooks {
 public:
  virtual ~AdapterBooks() = default;

  // Of the adapter of a request that could start if it had it. One that is not there is brought in as soon as there is
  // room, those first that were asked for first. Error: there will never be room.
  virtual Result<AdapterState> state_of(const Request& request, TimeNs now) = 0;
  // Its slot, which the row of the request holds from now on. It is ready.
  virtual uint32_t hold(const Request& request, TimeNs now) = 0;
  // The row stops; the request may go on later, and keeps its place among those that ask.
  virtual void release(RequestId request_id) = 0;
  // The request is over; it holds nothing.
  virtual void forget(RequestId request_id) = 0;
  virtual bool holds(RequestId request_id) const = 0;
  // How many rows hold one.
  virtual uint32_t num_holds() const = 0;
};

}  // namespace llmrt
