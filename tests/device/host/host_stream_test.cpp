#include "device/host/host_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "device/gate.h"

namespace etrt {
namespace {

class HostStreamTest : public testing::Test {
 protected:
  static std::shared_ptr<HostStream> make(HostStream::Mode mode = HostStream::Mode::kInlineWhenIdle) {
    return std::make_shared<HostStream>(host_device(), std::make_shared<internal::HostTimeline>(), mode);
  }
  static void ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }
  static void hold(HostStream& stream, Gate& gate) {
    ok(stream.submit([](void* held) { static_cast<Gate*>(held)->wait(); }, &gate));
  }
  /// Of this process.
  static std::ptrdiff_t thread_count() {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  }
  /// Where it ran.
  static void note_thread(void* id) { *static_cast<std::thread::id*>(id) = std::this_thread::get_id(); }
};

TEST_F(HostStreamTest, AnIdleStreamRunsOnTheCallingThread) {
  const auto stream = make();
  std::thread::id where;
  const std::ptrdiff_t threads = thread_count();
  ok(stream->run(&note_thread, &where));
  EXPECT_EQ(where, std::this_thread::get_id());

  std::vector<std::uint8_t> data(4);
  ok(stream->fill(data.data(), 7, 4));
  EXPECT_EQ(data[3], 7);  // No wait: nothing was left to do.
  ok(stream->synchronize());
  EXPECT_EQ(thread_count(), threads);
}

TEST_F(HostStreamTest, SubmittedWorkHasAThreadOfItsOwn) {
  const auto stream = make();
  std::thread::id first;
  std::thread::id second;
  ok(stream->submit(&note_thread, &first));
  ok(stream->submit(&note_thread, &second));
  ok(stream->synchronize());
  EXPECT_NE(first, std::thread::id());
  EXPECT_NE(first, std::this_thread::get_id());
  EXPECT_EQ(first, second);
  // Idle again.
  ok(stream->run(&note_thread, &first));
  EXPECT_EQ(first, std::this_thread::get_id());
}

TEST_F(HostStreamTest, RunQueuesBehindPendingWork) {
  const auto stream = make();
  Gate gate;
  hold(*stream, gate);
  int value = 0;
  ok(stream->submit([](void* v) { *static_cast<int*>(v) = 1; }, &value));
  std::thread opener([&] { gate.open(); });
  ok(stream->run(
      [](void* v) {
        EXPECT_EQ(*static_cast<int*>(v), 1);
        *static_cast<int*>(v) = 2;
      },
      &value));
  EXPECT_EQ(value, 2);
  opener.join();
}

TEST_F(HostStreamTest, OthersQueueBehindAnInlineRun) {
  struct Shared {
    std::shared_ptr<HostStream> stream = make();
    Gate started;
    std::vector<int> order;  // Without a lock: the stream's order is what guards it.
  } shared;
  std::thread other([&] {
    shared.started.wait();
    ok(shared.stream->submit([](void* s) { static_cast<Shared*>(s)->order.push_back(2); }, &shared));
    ok(shared.stream->run([](void* s) { static_cast<Shared*>(s)->order.push_back(3); }, &shared));
  });
  ok(shared.stream->run(
      [](void* s) {
        auto* mine = static_cast<Shared*>(s);
        mine->started.open();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // Time for `other` to get it wrong.
        mine->order.push_back(1);
      },
      &shared));
  other.join();
  EXPECT_THAT(shared.order, testing::ElementsAre(1, 2, 3));
}

TEST_F(HostStreamTest, WorkMayQueueMoreWork) {
  struct Chain {
    HostStream* stream;
    int left;
  };
  const auto stream = make();
  Chain chain{stream.get(), 100};
  const HostStream::Function step = [](void* c) {
    auto* mine = static_cast<Chain*>(c);
    if (--mine->left == 0) return;
    static_cast<void>(mine->stream->submit(
        [](void* again) {
          auto* rest = static_cast<Chain*>(again);
          rest->left = 0;
        },
        c));
  };
  ok(stream->run(step, &chain));
  ok(stream->synchronize());
  EXPECT_EQ(chain.left, 0);
}

TEST_F(HostStreamTest, TheQueueKeepsOrderAsItGrowsAndWraps) {
  const auto stream = make();
  struct Item {
    std::vector<int>* seen;
    int number;
  };
  std::vector<int> seen;
  std::vector<Item> items(500);
  int number = 0;
  for (const int burst : {5, 12, 40, 3, 400, 40}) {
    Gate gate;
    hold(*stream, gate);
    for (int i = 0; i < burst; ++i, ++number) {
      items[static_cast<std::size_t>(number)] = {&seen, number};
      ok(stream->submit(
          [](void* item) { static_cast<Item*>(item)->seen->push_back(static_cast<Item*>(item)->number); },
          &items[static_cast<std::size_t>(number)]));
    }
    gate.open();
    ok(stream->synchronize());
  }
  ASSERT_EQ(seen.size(), 500U);
  for (int i = 0; i < 500; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
}

TEST_F(HostStreamTest, WaitingForWhatIsDoneCostsNothing) {
  const auto first = make();
  const auto second = make();
  internal::HostEvent event;
  std::uint8_t byte = 0;
  ok(first->fill(&byte, 1, 1));
  ok(first->record(event));
  const std::ptrdiff_t threads = thread_count();
  ok(second->wait(event));
  std::thread::id where;
  ok(second->run(&note_thread, &where));
  EXPECT_EQ(where, std::this_thread::get_id());  // Nothing had been queued.
  EXPECT_EQ(thread_count(), threads);
}

TEST_F(HostStreamTest, WaitingForItselfCostsNothing) {
  const auto stream = make();
  internal::HostEvent event;
  Gate gate;
  hold(*stream, gate);
  ok(stream->record(event));
  ok(stream->wait(event));  // Would hang the stream if it were queued behind itself and waited.
  gate.open();
  ok(stream->synchronize());
}

TEST_F(HostStreamTest, AlwaysQueueNeverUsesTheCallingThread) {
  const auto stream = make(HostStream::Mode::kAlwaysQueue);
  std::thread::id where;
  ok(stream->run(&note_thread, &where));
  EXPECT_NE(where, std::this_thread::get_id());
}

TEST_F(HostStreamTest, AFaultIsReportedOnce) {
  const auto stream = make();
  const HostStream::Function break_it = [](void* s) {
    static_cast<HostStream*>(s)->report_fault({Code::kDevice, "first"});
    static_cast<HostStream*>(s)->report_fault({Code::kDevice, "second"});
  };
  ok(stream->submit(break_it, stream.get()));
  const Status fault = stream->synchronize();
  EXPECT_EQ(fault.code(), Code::kDevice);
  EXPECT_EQ(fault.message(), "first");
  ok(stream->synchronize());
}

/// An event that isn't the host's.
class OtherEvent final : public Event {
 public:
  bool done() const override { return true; }
  Status synchronize() override { return {}; }
};

TEST_F(HostStreamTest, EventsOfAnotherDeviceAreRefused) {
  const auto stream = make();
  OtherEvent other;
  EXPECT_EQ(stream->record(other).code(), Code::kInvalidArgument);
  EXPECT_EQ(stream->wait(other).code(), Code::kInvalidArgument);
}

TEST_F(HostStreamTest, RunsOfManyThreadsDoNotOverlap) {
  const auto stream = make();
  int unguarded = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) ok(stream->run([](void* n) { ++*static_cast<int*>(n); }, &unguarded));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(unguarded, 4000);
}

}  // namespace
}  // namespace etrt
