#include <gtest/gtest.h>

#include "etrt/session.h"
#include "state/allocation_counter.h"
#include "state/state_fixtures.h"

namespace etrt::internal {
namespace {

class SteadyState : public testing::Test {
 protected:
  /// 60 states: 30 layers' k and v, or 58 of them and two that swap.
  static std::shared_ptr<const StateRequest> request(bool swaps) {
    std::vector<StateSpec> specs;
    for (int i = 0; i < 60; ++i) {
      const std::string id = "layers." + std::to_string(i) + ".state";
      specs.push_back(swaps && i >= 58 ? recurrent(id) : cache(id));
      specs.back().shape[0] = 1;
    }
    for (StateSpec& spec : specs) {
      if (spec.is_sequence()) spec.shape[2] = 512;
    }
    return ask(std::move(specs));
  }

  /// As a delegate does it, each time.
  static void run(const std::shared_ptr<const StateRequest>& wanted, Stream& stream, std::int64_t position) {
    const std::int64_t positions[] = {position};
    Result<SelectedSession> session = selected_session();
    ASSERT_TRUE(session.ok());
    Result<SessionImpl::Lease> lease = (*session)->lease();
    ASSERT_TRUE(lease.ok());
    Result<std::span<State* const>> states = lease->states(wanted, stream);
    ASSERT_TRUE(states.ok());
    Result<PositionPlan> plan = plan_positions(*states, positions, 1);
    ASSERT_TRUE(plan.ok());
    ASSERT_TRUE(lease->order_after_previous(stream).ok());
    ASSERT_TRUE(lease->restart(*states, *plan, stream).ok());
    ASSERT_TRUE(as_host_stream(stream)->run([](void*) {}, nullptr).ok());
    ASSERT_TRUE(lease->record(stream).ok());
    lease->commit(*states, *plan);
  }
};

TEST_F(SteadyState, RunsAllocateNothing) {
  for (const bool swaps : {false, true}) {
    const auto wanted = request(swaps);
    const std::unique_ptr<Stream> stream = make_stream();
    const Session session;
    const SessionScope use(session);
    run(wanted, *stream, 0);
    const long before = allocations();
    for (std::int64_t position = 1; position < 500; ++position) run(wanted, *stream, position);
    run(wanted, *stream, 0);  // A runner that only resets its counter.
    EXPECT_EQ(allocations(), before);
    EXPECT_EQ(session.length(), 1);
  }
}

TEST_F(SteadyState, TheDefaultSessionAllocatesNothingEither) {
  const auto wanted = request(false);
  const std::unique_ptr<Stream> stream = make_stream();
  const Session session;
  set_default_session(&session);
  run(wanted, *stream, 0);
  const long before = allocations();
  run(wanted, *stream, 1);
  EXPECT_EQ(allocations(), before);
  set_default_session(nullptr);
}

TEST_F(SteadyState, ChangingStreamsAllocatesNothing) {
  const auto wanted = request(false);
  const std::unique_ptr<Stream> streams[] = {make_stream(), make_stream()};
  const Session session;
  const SessionScope use(session);
  // Work is left behind, so that there is something to wait for and to queue.
  const auto step = [&](std::int64_t position) {
    Stream& stream = *streams[position % 2];
    ASSERT_TRUE(as_host_stream(stream)->submit([](void*) {}, nullptr).ok());
    run(wanted, stream, position);
  };
  for (std::int64_t position = 0; position < 50; ++position) step(position);
  const long before = allocations();
  for (std::int64_t position = 50; position < 500; ++position) step(position);
  EXPECT_EQ(allocations(), before);
}

TEST_F(SteadyState, TheCounterCounts) {
  const long before = allocations();
  const auto stream = make_stream();
  EXPECT_GT(allocations(), before);
}

}  // namespace
}  // namespace etrt::internal
