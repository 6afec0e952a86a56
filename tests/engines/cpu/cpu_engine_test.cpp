// What is particular to the CPU engine; the rest is in the conformance suite.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "device/host/host_stream.h"
#include "engines/cpu/append_engine.h"

namespace etrt {
namespace {

using ::testing::HasSubstr;

TEST(CpuEngine, BytesThatAreNoProgramAreRefused) {
  std::vector<std::byte> bytes = test::read_model_file("append.engine");
  bytes.resize(bytes.size() / 2);
  const auto engine = test::load_cpu_engine(bytes, {});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), Code::kInvalidData);
  EXPECT_THAT(engine.status().message(), HasSubstr("no ExecuTorch program"));
}

TEST(CpuEngine, WeightStreamingIsRefused) {
  EngineOptions options;
  options.weight_streaming_budget = 1 << 20;
  const auto engine = test::load_cpu_engine(test::read_model_file("append.engine"), options);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), Code::kUnsupported);
  EXPECT_THAT(engine.status().message(), HasSubstr("weight_streaming_budget"));
}

// As TensorRT's enqueueV3: what is bound for the next run doesn't reach one that is queued.
TEST(CpuEngine, AQueuedRunKeepsItsAddresses) {
  const auto engine = test::load_append_engine();
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const EngineEntry& decode = (*engine)->entries()[test::kAppendDecode];
  auto context = *(*engine)->create_context(test::kAppendDecode);
  std::vector<float> first(128);
  std::vector<float> second(128);
  std::vector<float> update(8, 3);
  std::vector<float> y(8);
  std::int32_t position = 0;
  for (std::size_t i = 0; i < 3; ++i) ASSERT_TRUE(context->set_input_shape(i, decode.bindings[i].shape).ok());
  const auto bind = [&](std::vector<float>& cache) {
    void* const addresses[] = {cache.data(), update.data(), &position, cache.data(), y.data()};
    for (std::size_t i = 0; i < 5; ++i) ASSERT_TRUE(context->bind(i, addresses[i]).ok());
  };

  auto stream = *host_device().create_stream();
  std::atomic<bool> open{false};
  ASSERT_TRUE(as_host_stream(*stream)
                  ->submit(
                      [](void* gate) {
                        while (!static_cast<std::atomic<bool>*>(gate)->load()) std::this_thread::yield();
                      },
                      &open)
                  .ok());
  bind(first);
  ASSERT_TRUE(context->enqueue(*stream, /*wait=*/false).ok());
  bind(second);
  ASSERT_TRUE(context->enqueue(*stream, /*wait=*/false).ok());
  open = true;
  ASSERT_TRUE(stream->synchronize().ok());
  EXPECT_EQ(first[0], 3);
  EXPECT_EQ(second[0], 3);
}

// Nobody waits for a queued run, so what goes wrong in it is the stream's to tell.
TEST(CpuEngine, AFaultOfAQueuedRunComesFromTheStream) {
  const auto engine = test::load_append_engine();
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const EngineEntry& decode = (*engine)->entries()[test::kAppendDecode];
  auto context = *(*engine)->create_context(test::kAppendDecode);
  std::vector<float> cache(128);
  std::vector<float> update(8, 3);
  std::vector<float> y(8);
  std::int32_t position = 16;  // One past the last.
  for (std::size_t i = 0; i < 3; ++i) ASSERT_TRUE(context->set_input_shape(i, decode.bindings[i].shape).ok());
  void* const addresses[] = {cache.data(), update.data(), &position, cache.data(), y.data()};
  for (std::size_t i = 0; i < 5; ++i) ASSERT_TRUE(context->bind(i, addresses[i]).ok());
  auto stream = *host_device().create_stream();
  ASSERT_TRUE(context->enqueue(*stream, /*wait=*/false).ok());
  const Status fault = stream->synchronize();
  ASSERT_FALSE(fault.ok());
  EXPECT_THAT(fault.message(), HasSubstr("\"decode\""));
  EXPECT_TRUE(stream->synchronize().ok()) << "once";
  position = 15;
  ASSERT_TRUE(context->enqueue(*stream, /*wait=*/false).ok());
  ASSERT_TRUE(stream->synchronize().ok());
  EXPECT_EQ(cache[15 * 4], 3);
}

}  // namespace
}  // namespace etrt
