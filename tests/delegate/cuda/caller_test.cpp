// Caches in device memory that the caller owns or other kernels write too, on a TensorRT plan.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "delegate/cuda/append_delegate.h"
#include "delegate/cuda/kernels.h"
#include "etrt/etrt.h"

namespace etrt {
namespace {

using executorch::runtime::Error;
using test::AppendDelegate;
using test::DeviceFloats;
using test::kCacheFloats;
using testing::HasSubstr;
using Floats = std::vector<float>;

/// n rows for both heads, all `value`.
Floats rows(std::size_t n, float value) { return Floats(2 * n * 4, value); }

float at(const Floats& cache, std::size_t head, std::size_t row) { return cache[(head * 16 + row) * 4]; }

TEST(KvAliasing, CallerVisibleMutation) {
  AppendDelegate prefill("prefill", Ownership::kCaller);
  AppendDelegate decode("decode", Ownership::kCaller);
  ASSERT_TRUE(prefill.loaded() && decode.loaded()) << last_error();
  const DeviceFloats cache(kCacheFloats);
  const Stats before = stats();
  const Floats y = prefill.run(rows(3, 2), 0, cache.data());
  ASSERT_EQ(y.size(), 24U) << last_error();
  EXPECT_EQ(y[0], 2);
  EXPECT_EQ(y[8], 6);
  EXPECT_EQ(decode.run(rows(1, 5), 3, cache.data()), rows(1, 11)) << last_error();
  const Floats after = cache.get();
  for (const std::size_t head : {0U, 1U}) {
    EXPECT_EQ(at(after, head, 2), 2);
    EXPECT_EQ(at(after, head, 3), 5);
    EXPECT_EQ(at(after, head, 4), 0);
  }
  EXPECT_EQ(stats().kv_bytes_copied, before.kv_bytes_copied);
  EXPECT_EQ(stats().sessions, before.sessions);
}

TEST(KvAliasing, CallerSuppliedContents) {
  AppendDelegate decode("decode", Ownership::kCaller);
  DeviceFloats cache(kCacheFloats);
  cache.set(Floats(kCacheFloats, 3));
  EXPECT_EQ(decode.run(rows(1, 1), 4, cache.data()), rows(1, 13)) << last_error();
}

TEST(KvAliasing, ManyCachesOfTheCallerOneAtATime) {
  AppendDelegate decode("decode", Ownership::kCaller);
  const DeviceFloats one(kCacheFloats);
  const DeviceFloats two(kCacheFloats);
  for (std::int32_t position = 0; position < 4; ++position) {
    const auto sum = static_cast<float>(position + 1);
    const std::uint64_t before = stats().rebinds;
    EXPECT_EQ(decode.run(rows(1, 1), position, one.data()), rows(1, sum)) << last_error();
    EXPECT_EQ(stats().rebinds, before + 1);
    EXPECT_EQ(decode.run(rows(1, 10), position, two.data()), rows(1, 10 * sum)) << last_error();
    EXPECT_EQ(decode.run(rows(1, 10), position, two.data()), rows(1, 10 * sum)) << "the same again";
    EXPECT_EQ(stats().rebinds, before + 2);
  }
}

TEST(BadInput, CachesThatTheEngineCannotUse) {
  AppendDelegate decode("decode", Ownership::kCaller);
  const DeviceFloats cache(kCacheFloats + 64);
  Floats on_host(kCacheFloats);
  EXPECT_TRUE(decode.run(rows(1, 1), 0, on_host.data(), /*cache_on_host=*/true).empty());
  EXPECT_THAT(last_error(), HasSubstr("is in host memory"));
  EXPECT_TRUE(decode.run(rows(1, 1), 0, cache.data() + 1).empty());
  EXPECT_THAT(last_error(), HasSubstr("aligned to 256 bytes"));
  EXPECT_TRUE(decode.run(rows(1, 1), 16, cache.data()).empty());
  EXPECT_THAT(last_error(), HasSubstr("capacity 16"));
  EXPECT_EQ(cache.get(), Floats(kCacheFloats + 64));
  EXPECT_EQ(decode.run(rows(1, 1), 0, cache.data()), rows(1, 1)) << last_error();
}

TEST(KvAliasing, HostCachesAreStagedOnRequestAndCounted) {
  AppendDelegate decode("decode", Ownership::kCaller, /*stage=*/true);
  Floats on_host(kCacheFloats, 1);
  const std::uint64_t before = stats().kv_bytes_copied;
  EXPECT_EQ(decode.run(rows(1, 7), 1, on_host.data(), /*cache_on_host=*/true), rows(1, 8)) << last_error();
  EXPECT_EQ(at(on_host, 0, 1), 7);
  EXPECT_EQ(at(on_host, 1, 2), 1);
  EXPECT_EQ(stats().kv_bytes_copied - before, 2 * kCacheFloats * sizeof(float));
}

TEST(MixedDelegatesShareStorage, CacheOfTheCaller) {
  AppendDelegate decode("decode", Ownership::kCaller);
  const DeviceFloats cache(kCacheFloats);
  ASSERT_EQ(decode.run(rows(1, 1), 0, cache.data()), rows(1, 1)) << last_error();
  ASSERT_EQ(test::add_one(cache.data(), kCacheFloats, 0, nullptr), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(at(cache.get(), 0, 0), 2) << "the kernel sees what the engine wrote";
  EXPECT_EQ(decode.run(rows(1, 1), 1, cache.data()), rows(1, 3)) << "and the engine the kernel's";
}

TEST(MixedDelegatesShareStorage, StateOfASession) {
  AppendDelegate decode("decode", Ownership::kSession);
  ASSERT_TRUE(decode.loaded()) << last_error();
  Session session;
  SessionScope use(session);
  ASSERT_EQ(decode.run(rows(1, 1), 0), rows(1, 1)) << last_error();
  const Result<TensorView> view = session.view("cache");
  ASSERT_TRUE(view.ok()) << view.status().message();
  EXPECT_EQ(view->device, (DeviceId{DeviceType::kCuda, 0}));
  ASSERT_EQ(test::add_one(static_cast<float*>(view->data), kCacheFloats, 0, nullptr), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(decode.run(rows(1, 1), 1), rows(1, 3)) << last_error();
}

TEST(MixedDelegates, PrefillByKernelsDecodeOnOurs) {
  const DeviceFloats cache(kCacheFloats);
  DeviceFloats prompt(24);
  prompt.set(rows(3, 4));
  ASSERT_EQ(test::append(cache.data(), prompt.data(), 0, 3, nullptr), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  AppendDelegate decode("decode", Ownership::kSession);
  Session session;
  const TensorView memory{.data = cache.data(),
                          .dtype = DType::kFloat32,
                          .shape = {1, 2, 16, 4},
                          .device = {DeviceType::kCuda, 0}};
  const Status adopted = session.adopt("cache", memory, 3);
  ASSERT_TRUE(adopted.ok()) << adopted.message();
  SessionScope use(session);
  EXPECT_EQ(decode.run(rows(1, 1), 3), rows(1, 13)) << last_error();
  EXPECT_EQ(session.length(), 4);
  EXPECT_EQ(at(cache.get(), 1, 3), 1);
}

/// add_one, decode, add_one, decode; y of the second decode and the host's waits. With
/// `one_stream` all is on one stream; otherwise ours is on another.
Floats steps(bool one_stream, std::uint64_t* host_syncs) {
  constexpr long long kSlow = 200'000'000;  // About a tenth of a second.
  AppendDelegate decode("decode", Ownership::kCaller);
  const DeviceFloats cache(kCacheFloats);
  DeviceFloats one(8);
  one.set(rows(1, 1));
  const DeviceFloats y(8);
  EXPECT_EQ(decode.run(rows(1, 0), 0, cache.data()), rows(1, 0)) << last_error();  // Makes the context.
  cudaStream_t kernels = nullptr;
  cudaStream_t ours = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&kernels, cudaStreamNonBlocking), cudaSuccess);
  EXPECT_EQ(cudaStreamCreateWithFlags(&ours, cudaStreamNonBlocking), cudaSuccess);
  {
    const StreamScope use(one_stream ? kernels : ours);
    const std::uint64_t before = stats().host_syncs;
    EXPECT_EQ(test::add_one(cache.data(), kCacheFloats, kSlow, kernels), cudaSuccess);
    EXPECT_EQ(decode.queue(one.data(), 1, 1, cache.data(), y.data()), Error::Ok) << last_error();
    EXPECT_EQ(test::add_one(cache.data(), kCacheFloats, kSlow, kernels), cudaSuccess);
    EXPECT_EQ(decode.queue(one.data(), 1, 2, cache.data(), y.data()), Error::Ok) << last_error();
    EXPECT_EQ(cudaStreamQuery(kernels), cudaErrorNotReady) << "the host has waited for the kernels";
    *host_syncs = stats().host_syncs - before;
  }
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(kernels), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(ours), cudaSuccess);
  return y.get();
}

TEST(MixedDelegatesOrderedOnCallerStream, DependentWorkIsInOrder) {
  std::uint64_t host_syncs = 0;
  // Row 0: 0 + 1 + 1, row 1: 1 + 1, row 2: 1.
  EXPECT_EQ(steps(/*one_stream=*/true, &host_syncs), rows(1, 5));
  EXPECT_EQ(host_syncs, 0U);
  // The check of the check: on another stream, ours doesn't wait for the slow kernels.
  EXPECT_NE(steps(/*one_stream=*/false, &host_syncs), rows(1, 5));
}

}  // namespace
}  // namespace etrt
