#include "etrt/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <utility>

#include "etrt/stats.h"
#include "state/state_fixtures.h"

namespace etrt {
namespace {

using internal::ask;
using internal::cache;
using internal::make_stream;
using internal::MethodRun;
using internal::ok;
using internal::selected_session;
using internal::SessionImpl;
using testing::HasSubstr;

/// The session that a run on this thread would use, or nullptr.
SessionImpl* selected() {
  Result<internal::SelectedSession> session = selected_session();
  if (session.ok()) return &**session;
  EXPECT_EQ(session.status().code(), Code::kNoSession);
  return nullptr;
}

TEST(Selection, NoneSaysHowToSelectOne) {
  EXPECT_EQ(selected(), nullptr);
  const Status status = selected_session().status();
  for (const char* way : {"SessionScope", "with etrt.Session() as session:", "set_default_session"}) {
    EXPECT_THAT(status.message(), HasSubstr(way));
  }
}

TEST(Selection, ScopesNestAndRestore) {
  const Session outer;
  const Session inner;
  {
    const SessionScope use_outer(outer);
    EXPECT_EQ(selected(), outer.impl().get());
    {
      const SessionScope use_inner(inner);
      EXPECT_EQ(selected(), inner.impl().get());
      const SessionScope again(outer);
      EXPECT_EQ(selected(), outer.impl().get());
    }
    EXPECT_EQ(selected(), outer.impl().get());
  }
  EXPECT_EQ(selected(), nullptr);
}

TEST(Selection, EachThreadHasItsOwn) {
  const Session mine;
  const Session theirs;
  const SessionScope use(mine);
  std::thread([&] {
    EXPECT_EQ(selected(), nullptr);
    const SessionScope use_theirs(theirs);
    EXPECT_EQ(selected(), theirs.impl().get());
  }).join();
  EXPECT_EQ(selected(), mine.impl().get());
}

TEST(Selection, TheDefaultIsForThreadsThatHaveSelectedNone) {
  const Session fallback;
  const Session chosen;
  set_default_session(&fallback);
  EXPECT_EQ(selected(), fallback.impl().get());
  std::thread([&] { EXPECT_EQ(selected(), fallback.impl().get()); }).join();
  {
    const SessionScope use(chosen);
    EXPECT_EQ(selected(), chosen.impl().get());
  }
  set_default_session(&chosen);
  EXPECT_EQ(selected(), chosen.impl().get());
  set_default_session(nullptr);
  EXPECT_EQ(selected(), nullptr);
}

TEST(Selection, AReplacedDefaultStaysForTheRunThatUsesIt) {
  const auto stream = make_stream();
  auto session = std::make_unique<Session>();
  set_default_session(session.get());
  {
    Result<internal::SelectedSession> run = selected_session();
    ASSERT_TRUE(run.ok());
    SessionImpl::Lease lease = *(*run)->lease();
    set_default_session(nullptr);
    session.reset();
    Result<std::span<internal::State* const>> states = lease.states(ask({cache("k")}), *stream);
    EXPECT_TRUE(states.ok());  // A use after free, to AddressSanitizer, if nothing held it.
  }
}

TEST(Selection, TheDefaultCanBeChangedWhileThreadsUseIt) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!stop) {
        Result<internal::SelectedSession> session = selected_session();
        if (session.ok()) {
          EXPECT_GE((*session)->length(), 0);
        }
      }
    });
  }
  for (int i = 0; i < 500; ++i) {
    const Session session;
    set_default_session(&session);
  }
  set_default_session(nullptr);
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

TEST(Selection, ADestroyedSessionKeepsItsMemoryButTakesNoRun) {
  const auto stream = make_stream();
  const Stats before = stats();
  auto session = std::make_unique<Session>();
  {
    const SessionScope use(*session);
    ok(MethodRun{ask({cache("k")}), {0}, 1}(**selected_session(), *stream));
    session.reset();
    EXPECT_EQ(stats().sessions, before.sessions + 1);
    EXPECT_EQ(stats().session_bytes, before.session_bytes + 256);
    const Status status = MethodRun{ask({cache("k")}), {1}, 1}(**selected_session(), *stream);
    EXPECT_EQ(status.code(), Code::kNoSession);
    EXPECT_THAT(status.message(), HasSubstr("destroyed"));
  }
  EXPECT_EQ(stats().sessions, before.sessions);
  EXPECT_EQ(stats().session_bytes, before.session_bytes);
}

TEST(Selection, ADestroyedDefaultIsHeldUntilItIsReplaced) {
  const Stats before = stats();
  {
    const Session session;
    set_default_session(&session);
  }
  EXPECT_EQ(stats().sessions, before.sessions + 1);
  ASSERT_TRUE(selected_session().ok());
  EXPECT_EQ((*selected_session())->lease().status().code(), Code::kNoSession);
  set_default_session(nullptr);
  EXPECT_EQ(stats().sessions, before.sessions);
}

TEST(Session, StartsEmpty) {
  Session session;
  EXPECT_EQ(session.length(), 0);
  EXPECT_EQ(session.bytes(), 0U);
  EXPECT_EQ(session.status(), SessionStatus::kReady);
  EXPECT_TRUE(session.states().empty());
  EXPECT_EQ(session.view("k").status().code(), Code::kNotFound);
  ok(session.reset());
}

TEST(Session, ReadsAndResetsWhatRunsLeave) {
  const auto stream = make_stream();
  Session session;
  const SessionScope use(session);
  ok(MethodRun{ask({cache("k")}), {0}, 3}(**selected_session(), *stream));
  EXPECT_EQ(session.length(), 3);
  EXPECT_EQ(session.bytes(), 256U);
  ASSERT_EQ(session.states().size(), 1U);
  EXPECT_EQ(session.states()[0].id, "k");
  Result<TensorView> view = session.view("k");
  ASSERT_TRUE(view.ok()) << view.status().message();
  EXPECT_EQ(view->bytes(), 256U);
  EXPECT_EQ(session.view("k", "m")->data, view->data);
  {
    Result<SessionImpl::Lease> run = session.impl()->lease();
    EXPECT_EQ(session.status(), SessionStatus::kBusy);
    EXPECT_EQ(session.reset().code(), Code::kBusy);
    EXPECT_EQ(session.length(), 3);
  }
  ok(session.reset());
  EXPECT_EQ(session.length(), 0);
}

TEST(Session, Moves) {
  const auto stream = make_stream();
  const Stats before = stats();
  {
    Session first;
    ok(MethodRun{ask({cache("k")}), {0}, 3}(*first.impl(), *stream));
    Session second(std::move(first));
    EXPECT_EQ(second.length(), 3);
    Session third;
    ok(MethodRun{ask({cache("k"), cache("v")}), {0}, 1}(*third.impl(), *stream));
    third = std::move(second);
    EXPECT_EQ(third.length(), 3);
    EXPECT_EQ(stats().sessions, before.sessions + 1);
    EXPECT_EQ(stats().session_bytes, before.session_bytes + 256);
    first = std::move(third);  // A moved-from session can be assigned to.
    EXPECT_EQ(first.length(), 3);
    ok(first.reset());
  }
  EXPECT_EQ(stats().sessions, before.sessions);
  EXPECT_EQ(stats().session_bytes, before.session_bytes);
}

}  // namespace
}  // namespace etrt
