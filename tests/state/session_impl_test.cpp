#include "state/session_impl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "etrt/stats.h"
#include "state/faulty_device.h"
#include "state/state_fixtures.h"

namespace etrt::internal {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using Lengths = std::vector<std::int64_t>;

class SessionImplTest : public testing::Test {
 protected:
  FaultyDevice device;  ///< Before the session: a device outlives what it has allocated.
  std::shared_ptr<SessionImpl> session = std::make_shared<SessionImpl>();
  std::unique_ptr<Stream> stream = make_stream();

  static void hold(Stream& held, Gate& gate) {
    ok(as_host_stream(held)->submit([](void* g) { static_cast<Gate*>(g)->wait(); }, &gate));
  }
  std::vector<std::string> ids() const {
    std::vector<std::string> all;
    for (const StateInfo& info : session->states()) all.push_back(info.model_id + "." + info.id);
    return all;
  }
  Lengths lengths(const std::string& id) const {
    for (const StateInfo& info : session->states()) {
      if (info.id == id) return info.lengths;
    }
    return {};
  }
  Status refused(const std::shared_ptr<const StateRequest>& request) { return refused(request, *stream); }
  Status refused(const std::shared_ptr<const StateRequest>& request, Stream& on) {
    SessionImpl::Lease lease = take(session);
    Result<std::span<State* const>> states = lease.states(request, on);
    EXPECT_FALSE(states.ok());
    return states.status();
  }
  /// A run that leaves the session failed with `text`.
  void break_it(const std::string& text) {
    SessionImpl::Lease lease = take(session);
    lease.fail({Code::kDevice, text}, *stream);
  }
};

// --- lease ---

TEST_F(SessionImplTest, OneLeaseAtATime) {
  {
    SessionImpl::Lease lease = take(session);
    EXPECT_EQ(session->status(), SessionStatus::kBusy);
    for (const Status& status :
         {session->lease().status(), session->reset(), session->view("k", "").status()}) {
      EXPECT_EQ(status.code(), Code::kBusy);
      EXPECT_THAT(status.message(), HasSubstr("use another session"));
    }
    std::thread([&] { EXPECT_EQ(session->lease().status().code(), Code::kBusy); }).join();
    const SessionImpl::Lease moved = std::move(lease);
    EXPECT_EQ(session->status(), SessionStatus::kBusy);
  }
  EXPECT_EQ(session->status(), SessionStatus::kReady);
  EXPECT_TRUE(session->lease().ok());
}

TEST_F(SessionImplTest, TwoThreadsNeverHoldOneSession) {
  int unguarded = 0;
  std::atomic<int> taken{0};
  std::atomic<int> busy{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        Result<SessionImpl::Lease> lease = session->lease();
        if (lease.ok()) {
          ++unguarded;
          ++taken;
        } else {
          EXPECT_EQ(lease.status().code(), Code::kBusy);
          ++busy;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(unguarded, taken);
  EXPECT_EQ(taken + busy, 8000);
}

TEST_F(SessionImplTest, FailedUntilReset) {
  ok(MethodRun{ask({cache("k")}), {0}, 3}(*session, *stream));
  break_it("the engine caught fire");
  EXPECT_EQ(session->status(), SessionStatus::kFailed);
  for (int i = 0; i < 2; ++i) {
    for (const Status& status : {session->lease().status(), session->view("k", "").status()}) {
      EXPECT_EQ(status.code(), Code::kFailed);
      EXPECT_THAT(status.message(), HasSubstr("the engine caught fire"));
      EXPECT_THAT(status.message(), HasSubstr("reset() it"));
    }
  }
  EXPECT_EQ(session->length(), 3);  // Still readable.
  ok(session->reset());
  EXPECT_EQ(session->status(), SessionStatus::kReady);
  EXPECT_EQ(session->length(), 0);
  ok(MethodRun{ask({cache("k")}), {0}, 1}(*session, *stream));
}

TEST_F(SessionImplTest, DestroyedIsRefusedAlsoAfterARunThatWasUnderWay) {
  {
    const SessionImpl::Lease lease = take(session);
    session->destroy();
    EXPECT_EQ(session->lease().status().code(), Code::kNoSession);
  }
  EXPECT_EQ(session->lease().status().code(), Code::kNoSession);
  EXPECT_THAT(session->lease().status().message(), HasSubstr("destroyed"));
}

// --- states ---

TEST_F(SessionImplTest, StatesAppearOnFirstUse) {
  const auto request = ask({cache("k"), recurrent("s")});
  SessionImpl::Lease lease = take(session);
  Result<std::span<State* const>> states = lease.states(request, *stream);
  ASSERT_TRUE(states.ok()) << states.status().message();
  ASSERT_EQ(states->size(), 2U);
  EXPECT_EQ((*states)[0]->spec, request->specs[0]);
  EXPECT_EQ((*states)[1]->spec, request->specs[1]);
  EXPECT_EQ(session->bytes(), 256U + 2 * 12);
  EXPECT_THAT(ids(), ElementsAre("m.k", "m.s"));

  Result<std::span<State* const>> again = lease.states(request, *stream);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->data(), states->data());
}

TEST_F(SessionImplTest, InfoSaysWhatThereIs) {
  StateSpec two_rows{.id = "k", .dtype = DType::kFloat16, .shape = {2, 1, 8, 4}, .sequence_dim = 2};
  ok(MethodRun{ask({two_rows, recurrent("s")}), {0, 0}, 5}(*session, *stream));
  const std::vector<StateInfo> infos = session->states();
  ASSERT_EQ(infos.size(), 2U);
  EXPECT_EQ(infos[0].model_id, "m");
  EXPECT_EQ(infos[0].id, "k");
  EXPECT_EQ(infos[0].dtype, DType::kFloat16);
  EXPECT_EQ(infos[0].shape, (Shape{2, 1, 8, 4}));
  EXPECT_EQ(infos[0].sequence_dim, 2);
  EXPECT_EQ(infos[0].update, Update::kInPlace);
  EXPECT_EQ(infos[0].device, DeviceId{});
  EXPECT_EQ(infos[0].bytes, 128U);
  EXPECT_THAT(infos[0].lengths, ElementsAre(5, 5));
  EXPECT_EQ(infos[1].sequence_dim, -1);
  EXPECT_EQ(infos[1].update, Update::kSwap);
  EXPECT_EQ(infos[1].bytes, 24U);
  EXPECT_THAT(infos[1].lengths, ElementsAre(5));
}

TEST_F(SessionImplTest, MethodsShareStatesByModelAndId) {
  const auto prefill = ask({cache("k"), cache("v")});
  const auto decode = ask({cache("v"), recurrent("s")});
  const auto stranger = ask({cache("k")}, "another model");
  SessionImpl::Lease lease = take(session);
  const std::span<State* const> first = *lease.states(prefill, *stream);
  const std::span<State* const> second = *lease.states(decode, *stream);
  const std::span<State* const> third = *lease.states(stranger, *stream);
  EXPECT_EQ(second[0], first[1]);
  EXPECT_NE(third[0], first[0]);
  EXPECT_EQ((*lease.states(prefill, *stream)).data(), first.data());  // Others don't move it.
  EXPECT_THAT(ids(), ElementsAre("another model.k", "m.k", "m.s", "m.v"));
}

TEST_F(SessionImplTest, AnswersOfRequestsThatAreGoneAreForgotten) {
  State* before = nullptr;
  {
    const auto request = ask({cache("k")});
    SessionImpl::Lease lease = take(session);
    before = (*lease.states(request, *stream))[0];
  }
  std::weak_ptr<const StateRequest> old = ask({cache("k")});
  EXPECT_FALSE(old.expired());  // The session's answer holds it.
  SessionImpl::Lease lease = take(session);
  ASSERT_TRUE(lease.states(ask({cache("v")}), *stream).ok());
  EXPECT_TRUE(old.expired());
  EXPECT_EQ((*lease.states(ask({cache("k")}), *stream))[0], before);  // The state stays.
}

TEST_F(SessionImplTest, InitialValues) {
  StateSpec k = cache("k");
  std::vector<float> values(64);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  k.initial = floats(values);
  k.initial_length = 3;
  StateSpec s = recurrent("s");
  s.initial = floats({1, 2, 3});
  SessionImpl::Lease lease = take(session);
  Result<std::span<State* const>> states = lease.states(ask({k, s, cache("zero")}), *stream);
  ASSERT_TRUE(states.ok()) << states.status().message();
  ok(stream->synchronize());
  EXPECT_EQ(read_floats(*(*states)[0]), values);
  EXPECT_EQ(read_floats(*(*states)[1]), (std::vector<float>{1, 2, 3}));
  EXPECT_THAT(read_floats(*(*states)[2]), Each(0.0F));
  EXPECT_THAT(lengths("k"), ElementsAre(3));
  EXPECT_EQ(session->length(), 0);
}

TEST_F(SessionImplTest, AStateThatDoesNotFitIsNamedAndNothingIsAdded) {
  ok(MethodRun{ask({cache("b")}), {0}, 2}(*session, *stream));
  StateSpec larger = cache("b");
  larger.shape = {1, 2, 16, 4};
  const Status status = refused(ask({cache("a"), larger, cache("c")}));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(
      status.message(),
      "state \"b\" of model \"m\" is float32 [1, 2, 8, 4] in this session, but this method declares float32 "
      "[1, 2, 16, 4]: use another session, or give the files different model ids");
  EXPECT_THAT(ids(), ElementsAre("m.b"));
  EXPECT_EQ(session->bytes(), 256U);
  ok(MethodRun{ask({cache("b")}), {2}, 2}(*session, *stream));
  EXPECT_EQ(session->length(), 4);
}

TEST_F(SessionImplTest, OneIdTwiceIsRefused) {
  const Status status = refused(ask({cache("k"), cache("k")}));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("state \"k\" of model \"m\" twice"));
  EXPECT_THAT(ids(), ElementsAre());
}

TEST_F(SessionImplTest, OutOfMemoryLeavesTheSessionAsItWas) {
  ok(MethodRun{ask({cache("b")}), {0}, 2}(*session, *stream));
  const std::uint64_t bytes_before = stats().session_bytes;
  StateSpec huge = cache("huge");
  huge.shape = {1, 1, std::int64_t{1} << 58, 1};
  const Status status = refused(ask({cache("a"), huge, cache("b")}));
  EXPECT_EQ(status.code(), Code::kOutOfMemory);
  EXPECT_THAT(status.message(), HasSubstr("state \"huge\" of model \"m\""));
  EXPECT_THAT(status.message(), HasSubstr("1152921504606846976 bytes"));
  EXPECT_THAT(ids(), ElementsAre("m.b"));
  EXPECT_EQ(session->bytes(), 256U);
  EXPECT_EQ(stats().session_bytes, bytes_before);
  EXPECT_EQ(session->status(), SessionStatus::kReady);
  ok(MethodRun{ask({cache("a"), cache("b")}), {0}, 1}(*session, *stream));
}

TEST_F(SessionImplTest, AFaultWhileInitialisingLeavesNothingBehind) {
  const std::unique_ptr<Stream> on = make_stream(device);
  StateSpec s = recurrent("s");
  s.initial = floats({1, 2, 3});
  StateSpec t = s;
  t.id = "t";
  const auto request = ask({s, t}, "m", device);
  int FaultyDevice::*const faults[] = {&FaultyDevice::allocations_until_failure,
                                       &FaultyDevice::copies_until_failure,
                                       &FaultyDevice::records_until_failure};
  for (int FaultyDevice::*fault : faults) {
    device.*fault = fault == &FaultyDevice::records_until_failure ? 0 : 1;
    EXPECT_FALSE(refused(request, *on).ok());
    EXPECT_THAT(ids(), ElementsAre());
    EXPECT_EQ(session->bytes(), 0U);
    EXPECT_EQ(device.blocks_alive, 0U);
  }
  SessionImpl::Lease lease = take(session);
  EXPECT_TRUE(lease.states(request, *on).ok());
  EXPECT_EQ(device.blocks_alive, 4U);
}

TEST_F(SessionImplTest, StatesStayOnTheirDevice) {
  ok(MethodRun{ask({cache("k")}), {0}, 1}(*session, *stream));
  const std::unique_ptr<Stream> on = make_stream(device);
  const Status status = refused(ask({cache("k")}, "m", device), *on);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("state \"k\" of model \"m\" is on host in this session"));
  EXPECT_THAT(status.message(), HasSubstr("cuda:5"));
}

TEST_F(SessionImplTest, OneSessionCanHaveStatesOnSeveralDevices) {
  {
    const std::unique_ptr<Stream> on = make_stream(device);
    const auto there = ask({recurrent("s")}, "m", device);
    SessionImpl::Lease lease = take(session);
    State& state = *(*lease.states(there, *on))[0];
    std::memset(state.read(), 0x55, 12);
    ASSERT_TRUE(lease.states(ask({cache("k")}), *stream).ok());
    EXPECT_EQ(state.device->id(), (DeviceId{DeviceType::kCuda, 5}));
  }
  ok(session->reset());
  Result<TensorView> view = session->view("s", "m");
  ASSERT_TRUE(view.ok()) << view.status().message();
  EXPECT_EQ(view->device, (DeviceId{DeviceType::kCuda, 5}));
  EXPECT_EQ(*static_cast<std::uint8_t*>(view->data), 0);
  session.reset();
  EXPECT_EQ(device.blocks_alive, 0U);
}

// --- runs ---

TEST_F(SessionImplTest, LengthsFollowRuns) {
  const MethodRun prefill{ask({cache("k"), recurrent("s")}), {0}, 3};
  ok(prefill(*session, *stream));
  EXPECT_EQ(session->length(), 3);
  ok(MethodRun{prefill.request, {3}, 1}(*session, *stream));
  EXPECT_EQ(session->length(), 4);
  EXPECT_THAT(lengths("k"), ElementsAre(4));
  EXPECT_THAT(lengths("s"), ElementsAre(4));
  EXPECT_EQ((MethodRun{prefill.request, {5}, 1}(*session, *stream)).code(), Code::kOutOfRange);
  EXPECT_EQ((MethodRun{prefill.request, {4}, 5}(*session, *stream)).code(), Code::kOutOfRange);
  EXPECT_EQ(session->length(), 4);
  EXPECT_EQ(session->status(), SessionStatus::kReady);
  ok(MethodRun{prefill.request, {0}, 2}(*session, *stream));
  EXPECT_EQ(session->length(), 2);
}

TEST_F(SessionImplTest, LengthIsWhereEveryRowCanAppend) {
  EXPECT_EQ(session->length(), 0);
  ok(MethodRun{ask({recurrent("s")}), {}, 1}(*session, *stream));
  EXPECT_EQ(session->length(), 1);  // No sequence: what is absorbed.
  StateSpec rows{.id = "k", .shape = {2, 1, 8, 4}, .sequence_dim = 2};
  ok(MethodRun{ask({rows}), {0}, 5}(*session, *stream));
  ok(MethodRun{ask({rows}), {5, 2}, 1}(*session, *stream));
  EXPECT_THAT(lengths("k"), ElementsAre(6, 3));
  EXPECT_EQ(session->length(), 3);
}

/// Adds 1 to every element, as an engine with a swapped state would.
void increment(std::span<State* const> states) {
  for (State* state : states) {
    const auto* from = static_cast<const float*>(state->read());
    auto* to = static_cast<float*>(state->write());
    for (std::size_t i = 0; i < state->spec.bytes() / sizeof(float); ++i) to[i] = from[i] + 1;
  }
}

TEST_F(SessionImplTest, SwappedBuffersChangePlacesAfterARun) {
  const MethodRun run{ask({recurrent("s")}), {}, 1, &increment};
  std::vector<void*> read;
  for (int i = 1; i <= 3; ++i) {
    ok(run(*session, *stream));
    Result<TensorView> view = session->view("s", "");
    ASSERT_TRUE(view.ok()) << view.status().message();
    EXPECT_EQ(*static_cast<float*>(view->data), static_cast<float>(i));
    read.push_back(view->data);
  }
  EXPECT_NE(read[0], read[1]);
  EXPECT_EQ(read[0], read[2]);
}

TEST_F(SessionImplTest, RecurrentStatesStartOverAtZero) {
  StateSpec s = recurrent("s");
  s.initial = floats({10, 20, 30});
  const auto request = ask({s, recurrent("zero"), cache("k")});
  const auto values = [&](const char* id) {
    Result<TensorView> view = session->view(id, "");
    EXPECT_TRUE(view.ok());
    const auto* data = static_cast<const float*>(view->data);
    return std::vector<float>(data, data + 3);
  };
  ok(MethodRun{request, {0}, 2, &increment}(*session, *stream));
  ok(MethodRun{request, {2}, 2, &increment}(*session, *stream));
  ok(MethodRun{request, {4}, 1, &increment}(*session, *stream));
  EXPECT_THAT(values("s"), ElementsAre(13, 23, 33));
  EXPECT_THAT(values("zero"), ElementsAre(3, 3, 3));
  ok(MethodRun{request, {0}, 1, &increment}(*session, *stream));
  EXPECT_THAT(values("s"), ElementsAre(11, 21, 31));
  EXPECT_THAT(values("zero"), ElementsAre(1, 1, 1));
  EXPECT_THAT(values("k"), ElementsAre(4, 4, 4));  // A sequence is overwritten, not cleared.
  EXPECT_THAT(lengths("s"), ElementsAre(1));
  EXPECT_EQ((MethodRun{request, {3}, 1, &increment}(*session, *stream)).code(), Code::kOutOfRange);
  EXPECT_THAT(values("s"), ElementsAre(11, 21, 31));
}

TEST_F(SessionImplTest, ARestartThatFailsFailsTheSession) {
  const std::unique_ptr<Stream> on = make_stream(device);
  const auto request = ask({recurrent("s")}, "m", device);
  {
    SessionImpl::Lease lease = take(session);
    const std::span<State* const> states = *lease.states(request, *on);
    const std::vector<std::int64_t> start{0};
    lease.commit(states, *plan_positions(states, start, 4));
  }
  {
    SessionImpl::Lease lease = take(session);
    const std::span<State* const> states = *lease.states(request, *on);
    const std::vector<std::int64_t> start{0};
    const PositionPlan plan = *plan_positions(states, start, 1);
    EXPECT_TRUE(plan.restart);
    device.copies_until_failure = 0;
    const Status status = lease.restart(states, plan, *on);
    EXPECT_EQ(status.code(), Code::kDevice);
    lease.fail(status, *on);
  }
  EXPECT_EQ(session->status(), SessionStatus::kFailed);
  ok(session->reset());
}

// --- streams ---

TEST_F(SessionImplTest, AnotherStreamWaitsForThePreviousOne) {
  const auto request = ask({recurrent("s")});
  const std::unique_ptr<Stream> other = make_stream();
  ok(MethodRun{request, {}, 1, &increment}(*session, *stream));
  Gate gate;
  State* state = nullptr;
  {
    SessionImpl::Lease lease = take(session);
    const std::span<State* const> states = *lease.states(request, *stream);
    state = states[0];
    ok(lease.order_after_previous(*stream));
    hold(*stream, gate);
    ok(as_host_stream(*stream)->submit(
        [](void* s) { static_cast<float*>(static_cast<State*>(s)->read())[0] = 50; }, state));
    ok(lease.record(*stream));
  }
  std::thread opener([&] { gate.open(); });
  ok(MethodRun{request, {}, 1, &increment}(*session, *other));
  opener.join();
  EXPECT_EQ(*static_cast<float*>(session->view("s", "")->data), 51);
}

TEST_F(SessionImplTest, TheFirstUseIsOrderedToo) {
  StateSpec s = recurrent("s");
  s.initial = floats({5, 6, 7});
  const auto request = ask({s});
  const std::unique_ptr<Stream> other = make_stream();
  Gate gate;
  hold(*stream, gate);
  {
    // A run that goes no further than its states: they are initialised on `stream`, later.
    SessionImpl::Lease lease = take(session);
    ASSERT_TRUE(lease.states(request, *stream).ok());
  }
  std::thread opener([&] { gate.open(); });
  ok(MethodRun{request, {}, 1, &increment}(*session, *other));
  opener.join();
  EXPECT_EQ(*static_cast<float*>(session->view("s", "")->data), 6);
}

TEST_F(SessionImplTest, TheSameStreamIsNotWaitedFor) {
  const auto request = ask({cache("k")});
  ok(MethodRun{request, {0}, 1}(*session, *stream));
  Gate gate;
  hold(*stream, gate);
  SessionImpl::Lease lease = take(session);
  ok(lease.record(*stream));
  ok(lease.order_after_previous(*stream));  // Would hang below if the stream waited for its own event.
  gate.open();
  ok(stream->synchronize());
}

TEST_F(SessionImplTest, ViewWaitsForEarlierWork) {
  const auto request = ask({recurrent("s")});
  Gate gate;
  {
    SessionImpl::Lease lease = take(session);
    const std::span<State* const> states = *lease.states(request, *stream);
    hold(*stream, gate);
    ok(stream->fill(states[0]->read(), 0x11, 12));
    ok(lease.record(*stream));
  }
  std::thread opener([&] { gate.open(); });
  Result<TensorView> view = session->view("s", "m");
  ASSERT_TRUE(view.ok()) << view.status().message();
  EXPECT_EQ(*static_cast<std::uint8_t*>(view->data), 0x11);
  EXPECT_EQ(view->dtype, DType::kFloat32);
  EXPECT_EQ(view->shape, Shape{3});
  EXPECT_EQ(view->device, DeviceId{});
  opener.join();
}

// --- view ---

TEST_F(SessionImplTest, ViewSaysWhatThereIs) {
  EXPECT_EQ(session->view("k", "").status().code(), Code::kNotFound);
  EXPECT_THAT(session->view("k", "").status().message(), HasSubstr("none yet"));
  ok(MethodRun{ask({cache("k"), cache("v")}), {0}, 1}(*session, *stream));
  ok(MethodRun{ask({cache("k")}, "draft"), {0}, 1}(*session, *stream));
  EXPECT_TRUE(session->view("v", "").ok());
  EXPECT_NE(session->view("k", "m")->data, session->view("k", "draft")->data);
  const Status ambiguous = session->view("k", "").status();
  EXPECT_EQ(ambiguous.code(), Code::kInvalidArgument);
  EXPECT_THAT(ambiguous.message(), HasSubstr("(\"k\" of model \"draft\", \"k\" of model \"m\")"));
  const Status none = session->view("v", "draft").status();
  EXPECT_EQ(none.code(), Code::kNotFound);
  EXPECT_EQ(none.message(),
            "the session has no state \"v\" of model \"draft\"; it has \"k\" of model \"draft\", \"k\" of "
            "model \"m\", "
            "\"v\" of model \"m\"");
}

// --- reset ---

TEST_F(SessionImplTest, ResetGoesBackToTheInitialValues) {
  StateSpec k = cache("k");
  k.initial = floats(std::vector<float>(64, 9));
  k.initial_length = 1;
  const auto request = ask({k, recurrent("s")});
  ok(MethodRun{request, {0}, 2, &increment}(*session, *stream));
  void* before = session->view("k", "")->data;
  ok(session->reset());
  Result<TensorView> view = session->view("k", "");
  EXPECT_EQ(view->data, before);
  EXPECT_EQ(*static_cast<float*>(view->data), 9);
  EXPECT_EQ(*static_cast<float*>(session->view("s", "")->data), 0);
  EXPECT_THAT(lengths("k"), ElementsAre(1));
  EXPECT_THAT(lengths("s"), ElementsAre(0));
  EXPECT_EQ(session->bytes(), 256U + 24);
  SessionImpl::Lease lease = take(session);
  EXPECT_EQ((*lease.states(request, *stream))[0]->read(), before);
}

TEST_F(SessionImplTest, ResetOfAnEmptySession) {
  ok(session->reset());
  break_it("before there were states");
  ok(session->reset());
  EXPECT_EQ(session->status(), SessionStatus::kReady);
}

TEST_F(SessionImplTest, ResetComesAfterEarlierWorkAndBeforeLaterWork) {
  const auto request = ask({recurrent("s")});
  ok(MethodRun{request, {}, 1, &increment}(*session, *stream));
  Gate gate;
  {
    SessionImpl::Lease lease = take(session);
    const std::span<State* const> states = *lease.states(request, *stream);
    hold(*stream, gate);
    ok(stream->fill(states[0]->read(), 0x11, 12));
    ok(lease.record(*stream));
  }
  ok(session->reset());  // Doesn't wait for the gate.
  EXPECT_EQ(session->length(), 0);
  std::thread opener([&] { gate.open(); });
  const std::unique_ptr<Stream> other = make_stream();
  ok(MethodRun{request, {}, 1, &increment}(*session, *other));
  opener.join();
  EXPECT_EQ(*static_cast<float*>(session->view("s", "")->data), 1);
}

TEST_F(SessionImplTest, ResetWaitsForTheWorkOfAFailedRun) {
  const auto request = ask({recurrent("s")});
  Gate gate;
  {
    SessionImpl::Lease lease = take(session);
    const std::span<State* const> states = *lease.states(request, *stream);
    hold(*stream, gate);
    ok(stream->fill(states[0]->read(), 0x11, 12));
    lease.fail({Code::kDevice, "half-way"}, *stream);
  }
  ok(session->reset());
  std::thread opener([&] { gate.open(); });
  EXPECT_EQ(*static_cast<float*>(session->view("s", "")->data), 0);
  opener.join();
}

TEST_F(SessionImplTest, AResetThatCannotBeginChangesNothing) {
  const std::unique_ptr<Stream> on = make_stream(device);
  {
    SessionImpl::Lease lease = take(session);
    const std::span<State* const> states = *lease.states(ask({recurrent("s")}, "m", device), *on);
    lease.commit(states, {.positions = {}, .count = 3});
  }
  device.streams_fail = true;
  EXPECT_EQ(session->reset().code(), Code::kDevice);
  EXPECT_EQ(session->status(), SessionStatus::kReady);
  EXPECT_EQ(session->length(), 3);

  device.streams_fail = false;
  device.copies_until_failure = 0;
  EXPECT_EQ(session->reset().code(), Code::kDevice);
  EXPECT_EQ(session->status(), SessionStatus::kFailed);
  EXPECT_THAT(session->lease().status().message(), HasSubstr("the faulty device failed"));
  ok(session->reset());
  EXPECT_EQ(session->status(), SessionStatus::kReady);
  EXPECT_EQ(session->length(), 0);
}

// --- memory ---

TEST_F(SessionImplTest, StatsCountSessionsAndBytes) {
  const Stats before = stats();
  auto second = std::make_shared<SessionImpl>();
  EXPECT_EQ(stats().sessions, before.sessions + 1);
  ok(MethodRun{ask({cache("k"), recurrent("s")}), {0}, 1}(*second, *stream));
  ok(MethodRun{ask({cache("k")}), {0}, 1}(*session, *stream));
  EXPECT_EQ(stats().session_bytes, before.session_bytes + 256 + 24 + 256);
  ok(second->reset());
  EXPECT_EQ(stats().session_bytes, before.session_bytes + 256 + 24 + 256);
  second.reset();
  EXPECT_EQ(stats().sessions, before.sessions);
  EXPECT_EQ(stats().session_bytes, before.session_bytes + 256);
}

TEST_F(SessionImplTest, MemoryOutlivesTheSessionForQueuedWork) {
  Gate gate;
  void* data = nullptr;
  const std::vector<std::uint8_t> source(256, 0x22);
  std::vector<std::uint8_t> target(256);
  {
    SessionImpl::Lease lease = take(session);
    data = (*lease.states(ask({cache("k")}), *stream))[0]->read();
    hold(*stream, gate);
    ok(stream->copy(data, source.data(), 256));
    ok(stream->copy(target.data(), data, 256));
    ok(lease.record(*stream));
  }
  session.reset();  // Doesn't wait for the gate.
  gate.open();
  ok(stream->synchronize());
  EXPECT_EQ(target, source);
}

TEST_F(SessionImplTest, InitialValuesOutliveACopyThatIsQueued) {
  Gate gate;
  hold(*stream, gate);
  {
    StateSpec s = recurrent("s");
    s.initial = floats({1, 2, 3});
    SessionImpl::Lease lease = take(session);
    ASSERT_TRUE(lease.states(ask({s}), *stream).ok());
  }
  std::thread opener([&] { gate.open(); });
  session.reset();  // A use after free, to AddressSanitizer, if it went ahead of the copy.
  opener.join();
  ok(stream->synchronize());
}

// --- threads ---

TEST_F(SessionImplTest, ReadersDisturbNoRun) {
  const auto request = ask({cache("k"), recurrent("s")});
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t) {
    readers.emplace_back([&] {
      while (!stop) {
        EXPECT_LE(session->length(), 8);
        EXPECT_LE(session->bytes(), 280U);
        EXPECT_LE(session->states().size(), 2U);
        EXPECT_NE(session->status(), SessionStatus::kFailed);
      }
    });
  }
  for (int round = 0; round < 200; ++round) {
    for (std::int64_t position = 0; position < 8; ++position) {
      ok(MethodRun{request, {position}, 1, &increment}(*session, *stream));
    }
    ok(session->reset());
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
}

TEST_F(SessionImplTest, SessionsAreIndependent) {
  const auto request = ask({cache("k"), recurrent("s")});
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&request, t] {
      const auto mine = std::make_shared<SessionImpl>();
      const std::unique_ptr<Stream> on = make_stream();
      const std::unique_ptr<Stream> other = make_stream();
      for (int i = 0; i < t + 1; ++i) {
        ok(MethodRun{request, {std::int64_t{i}}, 1, &increment}(*mine, i % 2 == 0 ? *on : *other));
      }
      EXPECT_EQ(mine->length(), t + 1);
      EXPECT_EQ(*static_cast<float*>(mine->view("s", "")->data), static_cast<float>(t + 1));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace etrt::internal
