// ExecuTorch's guard of the caller's stream. Its library is in no wheel: this program has its one function,
// with the name that libexecutorch_extension_cuda exports, and etrt's weak reference finds it.
#include "delegate/caller_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "etrt/stream.h"
#include "state/faulty_device.h"

struct CUstream_st {};

namespace {
std::optional<CUstream_st*> guarded;
}

namespace executorch::extension::cuda {
std::optional<CUstream_st*> getCallerStream();
[[gnu::visibility("default")]] std::optional<CUstream_st*> getCallerStream() { return guarded; }
}  // namespace executorch::extension::cuda

namespace etrt {
namespace {

/// A GPU whose borrowed streams say what they were made of.
class BorrowingDevice final : public Device {
 public:
  std::vector<void*> borrowed;

  DeviceId id() const noexcept override { return {DeviceType::kCuda, 0}; }
  Result<Buffer> allocate_zeroed(std::size_t, Stream&) override { return none(); }
  Result<Buffer> allocate(std::size_t, Stream&) override { return none(); }
  Result<Buffer> allocate_staging(std::size_t) override { return none(); }
  Result<std::unique_ptr<Stream>> create_stream() override { return none(); }
  Result<std::unique_ptr<Event>> create_event() override { return none(); }
  Result<std::unique_ptr<Stream>> borrow_stream(void* native) override {
    if (fails) return Status(Code::kDevice, "no such stream");
    borrowed.push_back(native);
    return std::unique_ptr<Stream>(new Borrowed(*this, native));
  }
  bool fails = false;

 protected:
  void free(void*, std::size_t, Event*) noexcept override {}

 private:
  class Borrowed final : public Stream {
   public:
    Borrowed(Device& device, void* native) : device_(device), native_(native) {}
    Device& device() const override { return device_; }
    Status copy(void*, const void*, std::size_t) override { return none(); }
    Status fill(void*, std::uint8_t, std::size_t) override { return none(); }
    Status record(Event&) override { return none(); }
    Status wait(Event&) override { return none(); }
    Status synchronize() override { return none(); }
    void* native_handle() const noexcept override { return native_; }

   private:
    Device& device_;
    void* native_;
  };

  static Status none() { return {Code::kUnsupported, "not here"}; }
};

class CallerStream : public testing::Test {
 protected:
  void SetUp() override {
    device_.borrowed.clear();
    device_.fails = false;
  }
  void TearDown() override { guarded.reset(); }

  void* selected() {
    const Result<Stream*> stream = caller_stream(device_);
    EXPECT_TRUE(stream.ok()) << stream.status().message();
    return stream.ok() && *stream != nullptr ? (*stream)->native_handle() : nullptr;
  }

  /// Not one of an earlier test: a thread keeps what it has borrowed last.
  static CUstream_st* new_stream() {
    static std::deque<CUstream_st> streams;
    return &streams.emplace_back();
  }

  static inline BorrowingDevice device_;  // Devices live until the process ends.
  CUstream_st* one_ = new_stream();
  CUstream_st* two_ = new_stream();
};

TEST_F(CallerStream, NoneWithoutAGuard) {
  EXPECT_EQ(selected(), nullptr);
  EXPECT_TRUE(device_.borrowed.empty());
}

TEST_F(CallerStream, TheGuardsStreamIsBorrowedOnce) {
  guarded = one_;
  EXPECT_EQ(selected(), one_);
  EXPECT_EQ(selected(), one_);
  EXPECT_EQ(device_.borrowed.size(), 1U);
  guarded = two_;
  EXPECT_EQ(selected(), two_);
  EXPECT_EQ(device_.borrowed.size(), 2U);
  guarded.reset();
  EXPECT_EQ(selected(), nullptr) << "the guard has ended";
}

TEST_F(CallerStream, StreamScopeComesFirst) {
  guarded = one_;
  const StreamScope use(two_);
  EXPECT_EQ(selected(), two_);
}

TEST_F(CallerStream, TheHostHasNone) {
  guarded = one_;
  const Result<Stream*> stream = caller_stream(host_device());
  ASSERT_TRUE(stream.ok());
  EXPECT_EQ(*stream, nullptr);
}

TEST_F(CallerStream, ARefusedStreamIsAnError) {
  guarded = one_;
  device_.fails = true;
  EXPECT_EQ(caller_stream(device_).status().message(), "no such stream");
}

}  // namespace
}  // namespace etrt
