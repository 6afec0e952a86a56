#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "device/gate.h"
#include "device/host/host_stream.h"
#include "state/session_impl.h"
#include "state/state.h"

namespace etrt::internal {

inline void ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }

/// float32 [1, 2, 8, 4], a sequence along dim 2.
inline StateSpec cache(std::string id) {
  return {.id = std::move(id), .dtype = DType::kFloat32, .shape = {1, 2, 8, 4}, .sequence_dim = 2};
}

/// float32 [3], no sequence, updated by swap.
inline StateSpec recurrent(std::string id) {
  return {.id = std::move(id), .dtype = DType::kFloat32, .shape = {3}, .update = Update::kSwap};
}

inline std::shared_ptr<const std::vector<std::byte>> floats(const std::vector<float>& values) {
  auto bytes = std::make_shared<std::vector<std::byte>>(values.size() * sizeof(float));
  std::memcpy(bytes->data(), values.data(), bytes->size());
  return bytes;
}

inline std::shared_ptr<const StateRequest> ask(std::vector<StateSpec> specs, std::string model_id = "m",
                                               Device& device = host_device()) {
  return intern({.model_id = std::move(model_id), .specs = std::move(specs), .device = &device});
}

inline std::unique_ptr<Stream> make_stream(Device& device = host_device()) {
  Result<std::unique_ptr<Stream>> stream = device.create_stream();
  EXPECT_TRUE(stream.ok()) << stream.status().message();
  return *std::move(stream);
}

inline SessionImpl::Lease take(const std::shared_ptr<SessionImpl>& session) {
  Result<SessionImpl::Lease> lease = session->lease();
  EXPECT_TRUE(lease.ok()) << lease.status().message();
  return *std::move(lease);
}

/// What the run that follows reads from a float32 state of the host.
inline std::vector<float> read_floats(const State& state) {
  std::vector<float> values(state.spec.bytes() / sizeof(float));
  std::memcpy(values.data(), state.read(), state.spec.bytes());
  return values;
}

/// One run of a method, as a delegate does it, with `engine` in the engine's place: it is called
/// on the calling thread or the stream's with the states of the run.
struct MethodRun {
  std::shared_ptr<const StateRequest> request;
  std::vector<std::int64_t> positions;
  std::int64_t count = 1;
  void (*engine)(std::span<State* const> states) = [](std::span<State* const>) {};

  Status operator()(SessionImpl& session, Stream& stream) const {
    Result<SessionImpl::Lease> lease = session.lease();
    if (!lease.ok()) return lease.status();
    Result<std::span<State* const>> states = lease->states(request, stream);
    if (!states.ok()) return states.status();
    Result<PositionPlan> plan = plan_positions(*states, positions, count);
    if (!plan.ok()) return plan.status();
    if (Status ordered = lease->order_after_previous(stream); !ordered.ok()) return ordered;
    if (Status queued = lease->restart(*states, *plan, stream); !queued.ok()) {
      lease->fail(queued, stream);
      return queued;
    }
    struct Call {
      void (*engine)(std::span<State* const>);
      std::span<State* const> states;
    } call{engine, *states};
    Status done = as_host_stream(stream)->run(
        [](void* c) { static_cast<Call*>(c)->engine(static_cast<Call*>(c)->states); }, &call);
    if (done.ok()) done = lease->record(stream);
    if (!done.ok()) {
      lease->fail(done, stream);
      return done;
    }
    lease->commit(*states, *plan);
    return {};
  }
};

}  // namespace etrt::internal
