// What the delegate does around an engine, seen with one that computes nothing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/stats_counters.h"
#include "delegate/probe_engine.h"
#include "etrt/etrt.h"
#include "state/allocation_counter.h"

namespace etrt {
namespace {

using executorch::runtime::Error;
using test::ProbeDelegate;
using ::testing::HasSubstr;

class Run : public testing::Test {
 protected:
  void TearDown() override { test::set_probe_hook({}); }
};

TEST_F(Run, AllocatesNothingAfterTheFirst) {
  ProbeDelegate delegate(60);
  ASSERT_TRUE(delegate.loaded()) << last_error();
  Session session;
  SessionScope use(session);
  ASSERT_EQ(delegate.run(0), Error::Ok) << last_error();
  const long before = allocations();
  for (std::int64_t position = 1; position < 8; ++position) ASSERT_EQ(delegate.run(position), Error::Ok);
  EXPECT_EQ(allocations() - before, 0);
}

TEST_F(Run, RebindsOnlyWhenTheSessionChanges) {
  ProbeDelegate delegate(3);
  Session a;
  Session b;
  const auto rebinds_of = [&](Session& session, std::int64_t position) {
    SessionScope use(session);
    const std::uint64_t before = stats().rebinds;
    EXPECT_EQ(delegate.run(position), Error::Ok) << last_error();
    return stats().rebinds - before;
  };
  EXPECT_EQ(rebinds_of(a, 0), 3U);
  EXPECT_EQ(rebinds_of(a, 1), 0U);
  EXPECT_EQ(rebinds_of(b, 0), 3U);
  EXPECT_EQ(rebinds_of(a, 2), 3U);
}

TEST_F(Run, AliasedOutputsAreBoundToTheirInputs) {
  ProbeDelegate delegate(2);
  Session session;
  SessionScope use(session);
  std::vector<void*> seen;
  test::set_probe_hook([&](const std::vector<void*>& bound) {
    seen = bound;
    return Status();
  });
  ASSERT_EQ(delegate.run(0), Error::Ok) << last_error();
  ASSERT_EQ(seen.size(), 6U);  // position, s0, s1, y, s0_out, s1_out
  EXPECT_EQ(seen[1], seen[4]);
  EXPECT_EQ(seen[2], seen[5]);
  EXPECT_NE(seen[1], seen[2]);
  EXPECT_EQ(seen[1], session.view("s0")->data);
}

TEST_F(Run, ADeliberateCopyOfACacheIsCounted) {
  ProbeDelegate delegate(1);
  Session session;
  SessionScope use(session);
  std::vector<float> elsewhere(32);
  test::set_probe_hook([&](const std::vector<void*>& bound) {
    internal::copy_cache_bytes(elsewhere.data(), bound[1], elsewhere.size() * sizeof(float));
    return Status();
  });
  const std::uint64_t before = stats().kv_bytes_copied;
  ASSERT_EQ(delegate.run(0), Error::Ok);
  EXPECT_EQ(stats().kv_bytes_copied - before, 128U);
}

TEST_F(Run, AFailureInTheEngineFailsTheSessionUntilReset) {
  ProbeDelegate delegate(1);
  Session session;
  Session other;
  {
    SessionScope use(session);
    ASSERT_EQ(delegate.run(0), Error::Ok);
    test::set_probe_hook([](const std::vector<void*>&) { return Status(Code::kDevice, "the engine broke"); });
    EXPECT_NE(delegate.run(1), Error::Ok);
    EXPECT_THAT(last_error(), HasSubstr("the engine broke"));
    test::set_probe_hook({});
    EXPECT_EQ(session.status(), SessionStatus::kFailed);
    EXPECT_EQ(delegate.run(1), Error::InvalidState);
    EXPECT_THAT(last_error(), HasSubstr("the engine broke"));
    EXPECT_THAT(last_error(), HasSubstr("reset"));
  }
  {
    SessionScope use(other);
    EXPECT_EQ(delegate.run(0), Error::Ok) << "other sessions go on: " << last_error();
  }
  SessionScope use(session);
  ASSERT_TRUE(session.reset().ok());
  EXPECT_EQ(session.status(), SessionStatus::kReady);
  EXPECT_EQ(session.length(), 0);
  EXPECT_EQ(delegate.run(0), Error::Ok) << last_error();
}

TEST_F(Run, OneLoadedMethodOnTwoThreadsIsRefused) {
  ProbeDelegate delegate(1);
  std::atomic<bool> inside{false};
  std::atomic<bool> leave{false};
  test::set_probe_hook([&](const std::vector<void*>&) {
    inside = true;
    while (!leave) std::this_thread::yield();
    return Status();
  });
  std::thread first([&] {
    Session session;
    SessionScope use(session);
    EXPECT_EQ(delegate.run(0), Error::Ok) << last_error();
  });
  while (!inside) std::this_thread::yield();
  Session session;
  SessionScope use(session);
  EXPECT_EQ(delegate.run(0), Error::InvalidState);
  EXPECT_THAT(last_error(), HasSubstr("another thread"));
  leave = true;
  first.join();
  test::set_probe_hook({});
  EXPECT_EQ(delegate.run(0), Error::Ok) << last_error();
}

TEST_F(Run, OneSessionInTwoRunsIsRefused) {
  ProbeDelegate one(1);
  ProbeDelegate two(1);
  Session session;
  Error nested = Error::Ok;
  test::set_probe_hook([&](const std::vector<void*>&) {
    test::set_probe_hook({});
    nested = two.run(1);
    return Status();
  });
  SessionScope use(session);
  EXPECT_EQ(one.run(0), Error::Ok) << last_error();
  EXPECT_EQ(nested, Error::InvalidState);
  EXPECT_EQ(session.length(), 1);
  EXPECT_EQ(two.run(1), Error::Ok) << last_error();
}

TEST_F(Run, ManyLoadsShareOneEngineAndOneContext) {
  const std::uint64_t engines = stats().engines;
  const std::uint64_t contexts = stats().contexts;
  {
    ProbeDelegate a(5);
    ProbeDelegate b(5);
    Session session;
    SessionScope use(session);
    ASSERT_EQ(a.run(0), Error::Ok);
    ASSERT_EQ(b.run(1), Error::Ok);
    EXPECT_EQ(stats().engines, engines + 1);
    EXPECT_EQ(stats().contexts, contexts + 1);
  }
  EXPECT_EQ(stats().engines, engines);
  EXPECT_EQ(stats().contexts, contexts);
}

}  // namespace
}  // namespace etrt
