#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/device.h"
#include "device/gate.h"

/// What every Device has to do. One instantiation for each device:
///   INSTANTIATE_TEST_SUITE_P(Host, DeviceSuite, testing::Values(DeviceUnderTest{...}));
namespace etrt::conformance {

struct DeviceUnderTest {
  std::string name;
  Device& (*device)();
  /// Queues work on `stream` that isn't done until `gate` opens.
  Status (*hold)(Stream& stream, Gate& gate);
};

inline void PrintTo(const DeviceUnderTest& device, std::ostream* out) { *out << device.name; }

class DeviceSuite : public testing::TestWithParam<DeviceUnderTest> {
 protected:
  /// Opens its gate at the latest when it goes out of scope: declare it after what it holds up.
  class Held {
   public:
    explicit Held(Gate& gate) : gate_(gate) {}
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() { gate_.open(); }
    void open() { gate_.open(); }

   private:
    Gate& gate_;
  };

  Device& device() const { return GetParam().device(); }

  std::unique_ptr<Stream> stream() const {
    Result<std::unique_ptr<Stream>> made = device().create_stream();
    EXPECT_TRUE(made.ok()) << made.status().message();
    return *std::move(made);
  }
  std::unique_ptr<Event> event() const {
    Result<std::unique_ptr<Event>> made = device().create_event();
    EXPECT_TRUE(made.ok()) << made.status().message();
    return *std::move(made);
  }
  Buffer zeroed(std::size_t bytes, Stream& on) const {
    Result<Buffer> made = device().allocate_zeroed(bytes, on);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return *std::move(made);
  }
  Buffer staging(std::size_t bytes) const {
    Result<Buffer> made = device().allocate_staging(bytes);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return *std::move(made);
  }
  Held hold(Stream& on) {
    Gate& gate = gates_.emplace_back();
    ok(GetParam().hold(on, gate));
    return Held(gate);
  }

  static void ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }

  static std::uint8_t* at(const Buffer& buffer, std::size_t offset = 0) {
    return static_cast<std::uint8_t*>(buffer.data()) + offset;
  }
  /// The contents once `on` has got here.
  std::vector<std::uint8_t> contents(const Buffer& buffer, Stream& on) const {
    Buffer host = staging(buffer.bytes());
    ok(on.copy(host.data(), buffer.data(), buffer.bytes()));
    ok(on.synchronize());
    return {at(host), at(host) + host.bytes()};
  }
  static std::vector<std::uint8_t> bytes(std::size_t count, std::uint8_t value) {
    return std::vector<std::uint8_t>(count, value);
  }

 private:
  std::deque<Gate> gates_;  ///< Here, because queued work refers to them when a test ends early.
};

TEST_P(DeviceSuite, AllocationsAreAlignedAndZeroed) {
  const std::unique_ptr<Stream> s = stream();
  for (const std::size_t size : {1UL, 255UL, 256UL, 257UL, 65536UL, (1UL << 20) + 1, 5UL << 20}) {
    for (int round = 0; round < 2; ++round) {  // The second may get memory that the first has dirtied.
      const Buffer buffer = zeroed(size, *s);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % Device::kAlignment, 0U) << size;
      EXPECT_EQ(buffer.bytes(), size);
      EXPECT_EQ(buffer.device(), &device());
      EXPECT_EQ(contents(buffer, *s), bytes(size, 0)) << size;
      ok(s->fill(buffer.data(), 0xAB, size));
      ok(s->synchronize());
    }
  }
}

TEST_P(DeviceSuite, UndefinedAndStagingMemoryIsAligned) {
  const std::unique_ptr<Stream> s = stream();
  Result<Buffer> plain = device().allocate(1000, *s);
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(plain->data()) % Device::kAlignment, 0U);
  EXPECT_EQ(plain->bytes(), 1000U);
  ok(s->fill(plain->data(), 7, 1000));
  EXPECT_EQ(contents(*plain, *s), bytes(1000, 7));

  const Buffer host = staging(1000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(host.data()) % Device::kAlignment, 0U);
  at(host)[999] = 3;  // The host can write it.
  EXPECT_EQ(host.bytes(), 1000U);
}

TEST_P(DeviceSuite, NoBytesGiveNoPointer) {
  const std::unique_ptr<Stream> s = stream();
  const Buffer none = zeroed(0, *s);
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_EQ(none.bytes(), 0U);
  EXPECT_EQ(staging(0).data(), nullptr);
  ok(s->copy(nullptr, nullptr, 0));
  ok(s->fill(nullptr, 1, 0));
}

TEST_P(DeviceSuite, MemoryThatCannotBeHadIsAnError) {
  const std::unique_ptr<Stream> s = stream();
  for (const std::size_t size : {std::size_t{1} << 60, std::numeric_limits<std::size_t>::max() - 1,
                                 std::numeric_limits<std::size_t>::max()}) {
    for (const bool zero : {true, false}) {
      Result<Buffer> none = zero ? device().allocate_zeroed(size, *s) : device().allocate(size, *s);
      ASSERT_FALSE(none.ok()) << size;
      EXPECT_EQ(none.status().code(), Code::kOutOfMemory);
      EXPECT_THAT(none.status().message(), testing::HasSubstr(std::to_string(size)));
    }
    Result<Buffer> none = device().allocate_staging(size);
    ASSERT_FALSE(none.ok()) << size;
    EXPECT_EQ(none.status().code(), Code::kOutOfMemory);
  }
  EXPECT_EQ(contents(zeroed(64, *s), *s), bytes(64, 0));  // The device is none the worse.
}

TEST_P(DeviceSuite, StreamsHaveTheirDeviceAndAnIdOfTheirOwn) {
  std::unique_ptr<Stream> first = stream();
  EXPECT_EQ(&first->device(), &device());
  const std::uint64_t old = first->id();
  EXPECT_NE(old, 0U);
  first.reset();
  const std::unique_ptr<Stream> second = stream();
  EXPECT_GT(second->id(), old);
}

TEST_P(DeviceSuite, WorkIsDoneInOrder) {
  const std::unique_ptr<Stream> s = stream();
  const Buffer a = zeroed(300, *s);
  const Buffer b = zeroed(300, *s);
  Held held = hold(*s);
  ok(s->fill(a.data(), 1, 300));
  ok(s->copy(b.data(), a.data(), 300));
  ok(s->fill(a.data(), 2, 300));
  ok(s->copy(at(b, 100), a.data(), 100));
  ok(s->fill(at(a, 299), 3, 1));
  held.open();
  std::vector<std::uint8_t> expected = bytes(300, 1);
  std::fill(expected.begin() + 100, expected.begin() + 200, std::uint8_t{2});
  EXPECT_EQ(contents(b, *s), expected);
  expected = bytes(300, 2);
  expected[299] = 3;
  EXPECT_EQ(contents(a, *s), expected);
}

TEST_P(DeviceSuite, QueueingDoesNotWait) {
  const std::unique_ptr<Stream> s = stream();
  const std::unique_ptr<Stream> other = stream();
  const std::unique_ptr<Event> e = event();
  const Buffer a = zeroed(64, *s);
  const Buffer host = staging(64);
  std::fill_n(at(host), 64, std::uint8_t{0});
  at(host)[0] = 9;
  Held held = hold(*s);
  // Each of these would hang if it waited for the stream.
  ok(s->fill(a.data(), 1, 64));
  ok(s->copy(a.data(), host.data(), 1));
  ok(s->copy(at(host, 32), a.data(), 32));
  ok(s->record(*e));
  ok(other->wait(*e));
  ok(other->copy(at(host, 1), a.data(), 1));
  EXPECT_FALSE(e->done());
  EXPECT_EQ(at(host)[32], 0);
  held.open();
  ok(other->synchronize());
  EXPECT_TRUE(e->done());
  EXPECT_EQ(at(host)[32], 9);
  EXPECT_EQ(at(host)[33], 1);
  EXPECT_EQ(at(host)[1], 9);
}

TEST_P(DeviceSuite, SynchronizeWaits) {
  const std::unique_ptr<Stream> s = stream();
  const Buffer a = zeroed(8, *s);
  const Buffer host = staging(8);
  Held held = hold(*s);
  ok(s->fill(a.data(), 5, 8));
  ok(s->copy(host.data(), a.data(), 8));
  std::thread opener([&] { held.open(); });
  ok(s->synchronize());
  EXPECT_EQ(at(host)[7], 5);
  opener.join();
}

TEST_P(DeviceSuite, AnEventThatWasNeverRecordedIsDone) {
  const std::unique_ptr<Stream> s = stream();
  const std::unique_ptr<Event> e = event();
  EXPECT_TRUE(e->done());
  ok(e->synchronize());
  ok(s->wait(*e));
  ok(s->synchronize());
}

TEST_P(DeviceSuite, AnEventMarksOnlyWhatWasQueuedBefore) {
  const std::unique_ptr<Stream> s = stream();
  const std::unique_ptr<Event> e = event();
  const Buffer a = zeroed(8, *s);
  ok(s->fill(a.data(), 1, 8));
  ok(s->record(*e));
  Held held = hold(*s);
  ok(e->synchronize());
  EXPECT_TRUE(e->done());
}

TEST_P(DeviceSuite, EventsOrderStreams) {
  const std::unique_ptr<Stream> first = stream();
  const std::unique_ptr<Stream> second = stream();
  const std::unique_ptr<Event> e = event();
  const Buffer a = zeroed(1000, *first);
  ok(first->synchronize());
  const Buffer b = zeroed(1000, *second);
  Held held = hold(*first);
  ok(first->fill(a.data(), 4, 1000));
  ok(first->record(*e));
  ok(second->wait(*e));
  ok(second->copy(b.data(), a.data(), 1000));
  std::thread opener([&] { held.open(); });
  EXPECT_EQ(contents(b, *second), bytes(1000, 4));
  opener.join();
}

TEST_P(DeviceSuite, StreamsAreIndependentWithoutEvents) {
  const std::unique_ptr<Stream> first = stream();
  const std::unique_ptr<Stream> second = stream();
  const Buffer b = zeroed(16, *second);
  Held held = hold(*first);
  ok(second->fill(b.data(), 6, 16));
  EXPECT_EQ(contents(b, *second), bytes(16, 6));  // Hangs if `second` is held up too.
}

TEST_P(DeviceSuite, AWaitKeepsToTheRecordThatItSaw) {
  const std::unique_ptr<Stream> slow = stream();
  const std::unique_ptr<Stream> quick = stream();
  const std::unique_ptr<Stream> waiting = stream();
  const std::unique_ptr<Event> e = event();
  const std::unique_ptr<Event> passed = event();
  const Buffer a = zeroed(64, *slow);
  ok(slow->synchronize());
  const Buffer b = zeroed(64, *waiting);
  Held held = hold(*slow);
  ok(slow->fill(a.data(), 8, 64));
  ok(slow->record(*e));
  ok(waiting->wait(*e));
  ok(waiting->copy(b.data(), a.data(), 64));
  ok(waiting->record(*passed));

  // The same event, on a stream that has nothing to do: done, but not what `waiting` waits for.
  ok(quick->record(*e));
  ok(e->synchronize());
  EXPECT_TRUE(e->done());
  EXPECT_FALSE(passed->done());
  held.open();
  EXPECT_EQ(contents(b, *waiting), bytes(64, 8));
}

TEST_P(DeviceSuite, ALaterRecordDoesNotProlongAWait) {
  const std::unique_ptr<Stream> recording = stream();
  const std::unique_ptr<Stream> waiting = stream();
  const std::unique_ptr<Event> e = event();
  const Buffer b = zeroed(64, *waiting);
  Held first = hold(*recording);
  ok(recording->record(*e));
  ok(waiting->wait(*e));
  ok(waiting->fill(b.data(), 1, 64));
  Held second = hold(*recording);
  ok(recording->record(*e));
  first.open();
  EXPECT_EQ(contents(b, *waiting), bytes(64, 1));  // Hangs if it waits for `second`.
  EXPECT_FALSE(e->done());
  second.open();
  ok(e->synchronize());
}

TEST_P(DeviceSuite, AnEventCanGoWhileAStreamWaitsForIt) {
  const std::unique_ptr<Stream> first = stream();
  const std::unique_ptr<Stream> second = stream();
  std::unique_ptr<Event> e = event();
  const Buffer a = zeroed(64, *first);
  ok(first->synchronize());
  Held held = hold(*first);
  ok(first->fill(a.data(), 3, 64));
  ok(first->record(*e));
  ok(second->wait(*e));
  e.reset();
  const Buffer host = staging(64);
  ok(second->copy(host.data(), a.data(), 64));
  held.open();
  ok(second->synchronize());
  EXPECT_EQ(at(host)[63], 3);
}

TEST_P(DeviceSuite, AStreamFinishesItsWorkBeforeItGoes) {
  std::unique_ptr<Stream> going = stream();
  const std::unique_ptr<Stream> other = stream();
  const std::unique_ptr<Event> e = event();
  const Buffer a = zeroed(4096, *going);
  {
    Held held = hold(*going);
    ok(going->fill(a.data(), 1, 4096));
    ok(going->record(*e));
    ok(other->wait(*e));
    ok(going->fill(a.data(), 2, 4096));
    std::thread opener([&] { held.open(); });
    going.reset();
    opener.join();
  }
  EXPECT_TRUE(e->done());
  EXPECT_EQ(contents(a, *other), bytes(4096, 2));
}

TEST_P(DeviceSuite, MemoryOutlivesTheWorkThatUsesIt) {
  // Small and large: they may come from different places.
  for (const std::size_t size : {std::size_t{4096}, std::size_t{2} << 20}) {
    const std::unique_ptr<Stream> s = stream();
    const std::unique_ptr<Stream> other = stream();
    const std::unique_ptr<Event> e = event();
    const Buffer host = staging(size);
    Buffer a = zeroed(size, *s);
    Held held = hold(*s);
    ok(s->fill(a.data(), 11, size));
    ok(s->copy(host.data(), a.data(), size));
    ok(s->record(*e));
    a.release_after(*e);
    EXPECT_EQ(a.data(), nullptr);
    EXPECT_EQ(a.bytes(), 0U);
    const Buffer next = zeroed(size, *other);  // Must not be that memory yet.
    ok(other->fill(next.data(), 22, size));
    ok(other->synchronize());
    held.open();
    ok(s->synchronize());
    EXPECT_EQ(at(host)[0], 11);
    EXPECT_EQ(at(host)[size - 1], 11);
    EXPECT_EQ(contents(next, *other), bytes(size, 22));
  }
}

TEST_P(DeviceSuite, ReleasedMemoryComesBack) {
  const std::unique_ptr<Stream> s = stream();
  const std::unique_ptr<Event> e = event();
  // 1 TiB in all, one block at a time.
  for (int i = 0; i < 1024; ++i) {
    Buffer block = zeroed(std::size_t{1} << 30, *s);
    ASSERT_NE(block.data(), nullptr);
    ok(s->record(*e));
    if (i % 2 == 0) block.release_after(*e);
  }
}

TEST_P(DeviceSuite, BuffersMove) {
  const std::unique_ptr<Stream> s = stream();
  Buffer a = zeroed(64, *s);
  void* data = a.data();
  Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  Buffer c = zeroed(32, *s);
  c = std::move(b);
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(c.bytes(), 64U);
  EXPECT_EQ(contents(c, *s), bytes(64, 0));
}

TEST_P(DeviceSuite, ManyThreadsOnTheirOwnStreams) {
  constexpr std::size_t kThreads = 8;
  constexpr std::size_t kBytes = 2048;
  std::vector<std::thread> threads;
  std::vector<std::vector<std::uint8_t>> found(kThreads);
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      // Two streams that hand one buffer back and forth.
      const std::unique_ptr<Stream> left = stream();
      const std::unique_ptr<Stream> right = stream();
      const std::unique_ptr<Event> e = event();
      const Buffer a = zeroed(kBytes, *left);
      const Buffer b = zeroed(kBytes, *left);
      for (int i = 0; i < 50; ++i) {
        ok(left->fill(a.data(), static_cast<std::uint8_t>(t * 16 + static_cast<std::size_t>(i % 16)),
                      kBytes));
        ok(left->record(*e));
        ok(right->wait(*e));
        ok(right->copy(b.data(), a.data(), kBytes));
        ok(right->record(*e));
        ok(left->wait(*e));
      }
      found[t] = contents(b, *left);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t t = 0; t < kThreads; ++t) {
    EXPECT_EQ(found[t], bytes(kBytes, static_cast<std::uint8_t>(t * 16 + 49 % 16))) << t;
  }
}

TEST_P(DeviceSuite, ManyThreadsOnOneStreamKeepTheirOwnOrder) {
  constexpr std::size_t kThreads = 8;
  const std::unique_ptr<Stream> s = stream();
  const Buffer a = zeroed(kThreads * 64, *s);
  const Buffer b = zeroed(kThreads * 64, *s);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i <= 100; ++i) {
        ok(s->fill(at(a, t * 64), static_cast<std::uint8_t>(i), 64));
        ok(s->copy(at(b, t * 64), at(a, t * 64), 64));
      }
      ok(s->fill(at(a, t * 64), 0, 64));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(contents(b, *s), bytes(kThreads * 64, 100));
  EXPECT_EQ(contents(a, *s), bytes(kThreads * 64, 0));
}

}  // namespace etrt::conformance
