// What the project is for, on real programs through ExecuTorch's Module. The same tests run
// on every engine: ETRT_TEST_MODELS names a folder with that engine's programs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "delegate/model.h"
#include "etrt/etrt.h"

namespace etrt {
namespace {

using test::Model;
using ::testing::HasSubstr;
using Tokens = std::vector<std::int64_t>;
using Floats = std::vector<float>;
using executorch::runtime::Error;

constexpr std::int64_t kCapacity = 32;  // Of tiny_decoder.
const Tokens kPrompt{5, 17, 3, 42, 8};
const Tokens kOtherPrompt{60, 2, 2, 31};

/// Logits of the last token.
Floats last(const Floats& logits, std::size_t tokens) {
  if (tokens == 0 || logits.size() % tokens != 0) return logits;
  const std::size_t vocabulary = 64;
  return Floats(logits.end() - static_cast<std::ptrdiff_t>(std::min(vocabulary, logits.size())),
                logits.end());
}

std::int64_t argmax(const Floats& logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

void expect_near(const Floats& a, const Floats& b, float tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << "at " << i;
}

/// Prefill, then greedy decode; the logits of every step, one after another.
Floats converse(Model& model, const Tokens& prompt, int steps) {
  Floats all = last(model.run("prefill", prompt, {0}), prompt.size());
  Floats logits = all;
  auto position = static_cast<std::int64_t>(prompt.size());
  for (int i = 0; i < steps && !logits.empty(); ++i) {
    logits = model.run("decode", {argmax(logits)}, {position++});
    EXPECT_FALSE(logits.empty()) << last_error();
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

TEST(KvAliasing, RepeatedCallsOnOneMethod) {
  Model model("tiny_decoder");
  Session session;
  SessionScope use(session);
  const std::uint64_t copied = stats().kv_bytes_copied;
  // Token by token through one method, against all at once in another session.
  Floats step;
  for (std::size_t i = 0; i < kPrompt.size(); ++i) {
    step = model.run("decode", {kPrompt[i]}, {static_cast<std::int64_t>(i)});
    ASSERT_FALSE(step.empty()) << last_error();
    EXPECT_EQ(session.length(), static_cast<std::int64_t>(i) + 1);
  }
  Session other;
  SessionScope use_other(other);
  expect_near(step, last(model.run("prefill", kPrompt, {0}), kPrompt.size()), 1e-4F);
  EXPECT_EQ(stats().kv_bytes_copied, copied);
}

TEST(KvAliasing, FreshLoadFromKnownState) {
  // Zeros: a new load in a new session gives what the first one gave.
  Floats first;
  {
    Model model("tiny_decoder");
    Session session;
    SessionScope use(session);
    first = converse(model, kPrompt, 4);
  }
  Model model("tiny_decoder");
  Session session;
  SessionScope use(session);
  EXPECT_EQ(converse(model, kPrompt, 4), first);
  ASSERT_TRUE(session.reset().ok());
  EXPECT_EQ(session.length(), 0);
  EXPECT_EQ(converse(model, kPrompt, 4), first);
}

TEST(KvAliasing, FreshLoadFromKnownStateThatIsNotZero) {
  // The buffer of `initial` starts as 0.5, 1.5, 2.5, ...; its method adds the input to it
  // and returns the sum of the buffer before that.
  Model model("initial");
  for (int load = 0; load < 2; ++load) {
    Session session;
    SessionScope use(session);
    const Floats before = model.run("forward", Floats{1, 1, 1, 1}, {4}, {});
    ASSERT_EQ(before.size(), 4U) << last_error();
    EXPECT_EQ(before, (Floats{0.5F, 1.5F, 2.5F, 3.5F}));
    EXPECT_EQ(model.run("forward", Floats{1, 1, 1, 1}, {4}, {}), (Floats{1.5F, 2.5F, 3.5F, 4.5F}));
    ASSERT_TRUE(session.reset().ok());
    EXPECT_EQ(model.run("forward", Floats{1, 1, 1, 1}, {4}, {}), (Floats{0.5F, 1.5F, 2.5F, 3.5F}));
  }
}

TEST(KvAliasing, SequenceIsolation) {
  Model model("tiny_decoder");
  Session alone_a;
  Session alone_b;
  Floats expected_a;
  Floats expected_b;
  {
    SessionScope use(alone_a);
    expected_a = converse(model, kPrompt, 6);
  }
  {
    SessionScope use(alone_b);
    expected_b = converse(model, kOtherPrompt, 6);
  }
  ASSERT_NE(expected_a, expected_b);

  struct Turn {
    Session session;
    Floats logits;
    Floats all;
    std::int64_t position;
  };
  Turn a{{}, {}, {}, static_cast<std::int64_t>(kPrompt.size())};
  Turn b{{}, {}, {}, static_cast<std::int64_t>(kOtherPrompt.size())};
  {
    SessionScope use(a.session);
    a.all = a.logits = last(model.run("prefill", kPrompt, {0}), kPrompt.size());
  }
  {
    SessionScope use(b.session);
    b.all = b.logits = last(model.run("prefill", kOtherPrompt, {0}), kOtherPrompt.size());
  }
  for (int i = 0; i < 6; ++i) {
    for (Turn* turn : {&a, &b}) {
      SessionScope use(turn->session);
      turn->logits = model.run("decode", {argmax(turn->logits)}, {turn->position++});
      turn->all.insert(turn->all.end(), turn->logits.begin(), turn->logits.end());
    }
  }
  EXPECT_EQ(a.all, expected_a);  // Bit for bit.
  EXPECT_EQ(b.all, expected_b);
}

TEST(KvAliasing, ConcurrentSessions) {
  constexpr int kThreads = 8;
  std::vector<Floats> expected(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    Model model("tiny_decoder");
    Session session;
    SessionScope use(session);
    expected[static_cast<std::size_t>(t)] = converse(model, {t, t + 1, 2 * t}, 8);
  }
  Model keep("tiny_decoder");
  ASSERT_EQ(keep.module().load_method("decode"), Error::Ok);
  const std::uint64_t engines = stats().engines;
  std::atomic<int> wrong{0};
  std::atomic<std::uint64_t> most_engines{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Model model("tiny_decoder");
      for (int round = 0; round < 3; ++round) {
        Session session;
        SessionScope use(session);
        if (converse(model, {t, t + 1, 2 * t}, 8) != expected[static_cast<std::size_t>(t)]) ++wrong;
        std::uint64_t seen = most_engines;
        while (seen < stats().engines && !most_engines.compare_exchange_weak(seen, stats().engines)) {
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(most_engines, engines) << "every Module must share one engine";
}

TEST(KvAliasing, PrefillThenDecodeShareCache) {
  Model model("tiny_decoder");
  const auto prompt_and_next = [](Tokens t) {
    t.push_back(9);
    return t;
  }(kPrompt);
  const auto length = static_cast<std::int64_t>(kPrompt.size());
  Session whole;
  Floats expected;
  {
    SessionScope use(whole);
    expected = last(model.run("prefill", prompt_and_next, {0}), prompt_and_next.size());
  }
  Session session;
  SessionScope use(session);
  model.run("prefill", kPrompt, {0});
  expect_near(model.run("decode", {9}, {length}), expected, 1e-4F);

  // The check of the check: given different sessions, decode doesn't see what prefill wrote.
  Session prefilled;
  Session elsewhere;
  {
    SessionScope scope(prefilled);
    model.run("prefill", kPrompt, {0});
  }
  {
    SessionScope scope(elsewhere);
    model.run("prefill", kOtherPrompt, {0});
    model.run("decode", {1}, {4});
    const Floats other = model.run("decode", {9}, {length});
    ASSERT_EQ(other.size(), expected.size()) << last_error();
    EXPECT_NE(other, expected);
    float difference = 0;
    for (std::size_t i = 0; i < other.size(); ++i)
      difference = std::max(difference, std::abs(other[i] - expected[i]));
    EXPECT_GT(difference, 1e-3F);
  }
}

TEST(KvAliasing, TwoModulesShareASession) {
  Model one("tiny_decoder");
  Model two("tiny_decoder");
  Session alone;
  Floats expected;
  {
    SessionScope use(alone);
    expected = converse(one, kPrompt, 1);
  }
  Session session;
  SessionScope use(session);
  const Floats prefill = last(one.run("prefill", kPrompt, {0}), kPrompt.size());
  const Floats decode = two.run("decode", {argmax(prefill)}, {static_cast<std::int64_t>(kPrompt.size())});
  EXPECT_EQ(decode, Floats(expected.end() - static_cast<std::ptrdiff_t>(decode.size()), expected.end()));
}

TEST(KvAliasing, NoSessionSelected) {
  Model model("tiny_decoder");
  EXPECT_TRUE(model.run("prefill", kPrompt, {0}).empty());
  EXPECT_EQ(model.error(), Error::InvalidState);
  EXPECT_THAT(last_error(), HasSubstr("no session is selected"));
  EXPECT_THAT(last_error(), HasSubstr("SessionScope"));
  // The next good call works: with a scope, and with a default for the process.
  Session session;
  {
    SessionScope use(session);
    EXPECT_FALSE(model.run("prefill", kPrompt, {0}).empty()) << last_error();
  }
  set_default_session(&session);
  EXPECT_FALSE(model.run("decode", {1}, {5}).empty()) << last_error();
  EXPECT_EQ(session.length(), 6);
  set_default_session(nullptr);
  EXPECT_TRUE(model.run("decode", {1}, {6}).empty());
}

TEST(KvAliasing, PositionBeyondCapacity) {
  Model model("tiny_decoder");
  Session session;
  SessionScope use(session);
  for (std::int64_t position = 0; position < kCapacity; ++position) {
    ASSERT_FALSE(model.run("decode", {position}, {position}).empty()) << last_error();
  }
  EXPECT_TRUE(model.run("decode", {1}, {kCapacity}).empty());
  EXPECT_EQ(model.error(), Error::InvalidArgument);
  EXPECT_THAT(last_error(), HasSubstr("capacity 32"));
  EXPECT_TRUE(model.run("prefill", kPrompt, {kCapacity - 4}).empty());
  EXPECT_THAT(last_error(), HasSubstr("capacity 32"));
  EXPECT_EQ(session.length(), kCapacity);
  EXPECT_EQ(session.status(), SessionStatus::kReady);
  EXPECT_FALSE(model.run("decode", {31}, {kCapacity - 1}).empty()) << "the next good call works";
}

TEST(KvAliasing, PositionLeavesAHole) {
  Model model("tiny_decoder");
  Session session;
  SessionScope use(session);
  model.run("prefill", kPrompt, {0});
  EXPECT_TRUE(model.run("decode", {1}, {7}).empty());
  EXPECT_THAT(last_error(), HasSubstr("hole"));
  EXPECT_THAT(last_error(), HasSubstr("length 5"));
  EXPECT_TRUE(model.run("decode", {1}, {-1}).empty());
  EXPECT_EQ(session.length(), 5);
  EXPECT_FALSE(model.run("decode", {1}, {5}).empty());
}

TEST(KvAliasing, RunnerThatOnlyResetsItsCounter) {
  Model model("tiny_decoder");
  Session fresh;
  Floats expected;
  {
    SessionScope use(fresh);
    expected = converse(model, kOtherPrompt, 4);
  }
  Session session;
  SessionScope use(session);
  converse(model, kPrompt, 8);
  EXPECT_EQ(converse(model, kOtherPrompt, 4), expected);
  EXPECT_EQ(session.length(), static_cast<std::int64_t>(kOtherPrompt.size()) + 4);
}

TEST(KvAliasing, RecurrentStateSwaps) {
  Model model("gated_delta");
  const auto prompt = [](float seed, std::int32_t tokens) {
    Floats values(static_cast<std::size_t>(tokens) * 16);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(seed * static_cast<float>(i + 1));
    return values;
  };
  // Two chunks and a step; against one chunk of all.
  Session whole;
  Floats expected;
  {
    SessionScope use(whole);
    expected = model.run("prefill", prompt(0.7F, 8), {1, 8, 16}, {0});
    ASSERT_EQ(expected.size(), 8U * 16U) << last_error();
  }
  const Floats all = prompt(0.7F, 8);
  const auto part = [&](std::size_t from, std::size_t to) {
    return Floats(all.begin() + static_cast<std::ptrdiff_t>(from * 16),
                  all.begin() + static_cast<std::ptrdiff_t>(to * 16));
  };
  Session session;
  SessionScope use(session);
  Floats got = model.run("prefill", part(0, 3), {1, 3, 16}, {0});
  for (const Floats& more : {model.run("prefill", part(3, 7), {1, 4, 16}, {3}),
                             model.run("decode", part(7, 8), {1, 1, 16}, {7})}) {
    ASSERT_FALSE(more.empty()) << last_error();
    got.insert(got.end(), more.begin(), more.end());
  }
  expect_near(got, expected, 1e-4F);

  std::set<Update> updates;
  for (const StateInfo& state : session.states()) updates.insert(state.update);
  EXPECT_EQ(updates, (std::set<Update>{Update::kInPlace, Update::kSwap}));

  // A recurrent state can't be rewound in the middle, but starts over at 0.
  EXPECT_TRUE(model.run("decode", part(4, 5), {1, 1, 16}, {4}).empty());
  EXPECT_THAT(last_error(), HasSubstr("can't be moved to position 4"));
  EXPECT_EQ(session.length(), 8);
  EXPECT_EQ(model.run("prefill", prompt(0.7F, 8), {1, 8, 16}, {0}), expected);
}

TEST(KvAliasing, BlobWithoutAliases) {
  Model model("no_state");
  const Floats out = model.run("forward", Floats{1, 2, 3, 4}, {1, 4}, {});
  ASSERT_FALSE(out.empty()) << last_error() << ": no session is needed without states";
  EXPECT_EQ(out, model.run("forward", Floats{1, 2, 3, 4}, {1, 4}, {}));
}

}  // namespace
}  // namespace etrt
