// A caller's cache in host memory for an engine on a GPU: copied there and back only if the method says so,
// and counted. The GPU is one whose memory is the host's, so what has been copied can be seen.

#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/backend/interface.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "blob/blob.h"
#include "engine/engine.h"
#include "etrt/etrt.h"
#include "state/faulty_device.h"

namespace etrt {
namespace {

namespace et = executorch::runtime;
using executorch::extension::make_tensor_ptr;
using executorch::extension::TensorPtr;
using testing::HasSubstr;
using Floats = std::vector<float>;

constexpr std::int64_t kCapacity = 8;
const Shape kCacheShape{1, 1, kCapacity, 1};

/// Bindings: cache, x [1], position int64 [1] -> cache_out with x at the position, y [1]: the sum of
/// cache_out.
enum Binding : std::size_t { kCache, kX, kPosition, kCacheOut, kY };

class SumContext final : public ExecutionContext {
 public:
  Status set_input_shape(std::size_t, const Shape&) override { return {}; }
  Status bind(std::size_t binding, void* data) override {
    bound_[binding] = data;
    return {};
  }
  Status enqueue(Stream&, bool) override {
    if (bound_[kCacheOut] != bound_[kCache]) return {Code::kInternal, "the cache isn't shared"};
    auto* cache = static_cast<float*>(bound_[kCache]);
    cache[*static_cast<std::int64_t*>(bound_[kPosition])] = *static_cast<float*>(bound_[kX]);
    *static_cast<float*>(bound_[kY]) = std::accumulate(cache, cache + kCapacity, 0.0F);
    return {};
  }
  Result<Shape> output_shape(std::size_t binding) const override {
    return binding == kY ? Shape{1} : kCacheShape;
  }
  bool shapes_before_run() const noexcept override { return true; }

 private:
  std::array<void*, 5> bound_{};
};

class SumEngine final : public Engine {
 public:
  explicit SumEngine(Device& device) : device_(device) {
    EngineEntry entry;
    entry.name = "0";
    const auto add = [&](const char* name, DType dtype, const Shape& shape, bool is_input) {
      EngineBinding binding;
      binding.name = name;
      binding.dtype = dtype;
      binding.shape = binding.min_shape = binding.max_shape = shape;
      binding.is_input = is_input;
      entry.bindings.push_back(std::move(binding));
    };
    add("cache", DType::kFloat32, kCacheShape, true);
    add("x", DType::kFloat32, {1}, true);
    add("position", DType::kInt64, {1}, true);
    add("cache_out", DType::kFloat32, kCacheShape, false);
    add("y", DType::kFloat32, {1}, false);
    entries_.push_back(std::move(entry));
  }
  Device& device() const noexcept override { return device_; }
  std::span<const EngineEntry> entries() const noexcept override { return entries_; }
  Result<std::unique_ptr<ExecutionContext>> create_context(std::size_t) override {
    return std::unique_ptr<ExecutionContext>(std::make_unique<SumContext>());
  }

 private:
  Device& device_;
  std::vector<EngineEntry> entries_;
};

class SumLoader final : public EngineLoader {
 public:
  SumLoader() {
    if (!register_engine_loader("sum", *this)) std::abort();
  }
  Result<std::unique_ptr<Engine>> load(EngineBytes, const EngineOptions&) override {
    return std::unique_ptr<Engine>(std::make_unique<SumEngine>(gpu_));
  }

 private:
  internal::FaultyDevice gpu_;
} loader;

std::vector<std::byte> sum_blob() {
  Blob blob;
  blob.engine_kind = "sum";
  blob.engine_entry = "0";
  blob.bindings = {{"cache", DType::kFloat32, kCacheShape, true},
                   {"x", DType::kFloat32, Shape{1}, true},
                   {"position", DType::kInt64, Shape{1}, true},
                   {"cache_out", DType::kFloat32, kCacheShape, false},
                   {"y", DType::kFloat32, Shape{1}, false}};
  blob.aliases = {{"cache_out", "cache", AliasKind::kUser, Ownership::kCaller, ""}};
  BlobState state;
  state.id = state.input = "cache";
  state.output = "cache_out";
  state.ownership = Ownership::kCaller;
  state.shape = kCacheShape;
  state.sequence_dim = 2;
  blob.states = {state};
  blob.position = BlobPosition{"position", {}};
  const std::string engine = "sum";
  blob.engine = std::as_bytes(std::span(engine));
  Result<std::vector<std::byte>> bytes = write_blob(blob);
  if (!bytes) std::abort();
  return std::move(*bytes);
}

class Sum {
 public:
  explicit Sum(const char* stage_host_caches) {
    const std::vector<std::byte> blob = sum_blob();
    et::MemoryAllocator allocator(0, nullptr);
    et::BackendInitContext context(&allocator, nullptr, "forward");
    et::FreeableBuffer processed(blob.data(), blob.size(), nullptr);
    std::string value = stage_host_caches;
    const et::CompileSpec spec{"stage_host_caches", {value.data(), value.size()}};
    auto handle = backend_->init(context, &processed, {&spec, value.empty() ? 0U : 1U});
    if (handle.ok()) handle_ = *handle;
  }
  ~Sum() {
    if (handle_ != nullptr) backend_->destroy(handle_);
  }
  Sum(const Sum&) = delete;
  Sum& operator=(const Sum&) = delete;

  bool loaded() const { return handle_ != nullptr; }

  /// y; empty after an error.
  Floats run(Floats& cache, float x, std::int64_t position) {
    Floats y(1);
    const std::array<TensorPtr, 4> tensors{
        make_tensor_ptr({1, 1, kCapacity, 1}, cache.data()), make_tensor_ptr({1}, Floats{x}),
        make_tensor_ptr({1}, std::vector<std::int64_t>{position}), make_tensor_ptr({1}, y.data())};
    std::vector<et::EValue> values;
    for (const TensorPtr& tensor : tensors) values.emplace_back(*tensor);
    std::array<et::EValue*, 4> args{};
    for (std::size_t i = 0; i < args.size(); ++i) args[i] = &values[i];
    et::BackendExecutionContext context;
    const et::Error error = backend_->execute(context, handle_, {args.data(), args.size()});
    return error == et::Error::Ok ? y : Floats{};
  }

 private:
  et::BackendInterface* backend_ = et::get_backend_class("TensorRTBackend");
  et::DelegateHandle* handle_ = nullptr;
};

TEST(Staging, AHostCacheIsRefusedUnlessTheMethodSaysThatItMayBeCopied) {
  Sum sum("");
  ASSERT_TRUE(sum.loaded()) << last_error();
  Floats cache(kCapacity, 1);
  EXPECT_TRUE(sum.run(cache, 5, 0).empty());
  EXPECT_THAT(last_error(), HasSubstr("stage_host_caches=1"));
  EXPECT_EQ(cache, Floats(kCapacity, 1));
}

TEST(Staging, TheCallerSeesTheUpdateAndEachCopyIsCounted) {
  Sum sum("1");
  ASSERT_TRUE(sum.loaded()) << last_error();
  Floats one(kCapacity, 1);
  Floats two(kCapacity, 2);
  constexpr std::uint64_t kBytes = kCapacity * sizeof(float);
  const std::uint64_t before = stats().kv_bytes_copied;
  EXPECT_EQ(sum.run(one, 5, 0), Floats{12}) << last_error();
  EXPECT_EQ(sum.run(two, 5, 7), Floats{19}) << last_error();
  EXPECT_EQ(sum.run(one, 6, 1), Floats{17}) << last_error();
  EXPECT_EQ(one, (Floats{5, 6, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(two, (Floats{2, 2, 2, 2, 2, 2, 2, 5}));
  EXPECT_EQ(stats().kv_bytes_copied - before, 3 * 2 * kBytes) << "to the device and back, each run";
}

TEST(Staging, ARefusedRunLeavesTheCacheAndCountsNothing) {
  Sum sum("1");
  Floats cache(kCapacity, 1);
  const std::uint64_t before = stats().kv_bytes_copied;
  EXPECT_TRUE(sum.run(cache, 5, kCapacity).empty());
  EXPECT_THAT(last_error(), HasSubstr("capacity 8"));
  EXPECT_EQ(cache, Floats(kCapacity, 1));
  EXPECT_EQ(stats().kv_bytes_copied, before);
}

TEST(Staging, AnotherValueOfTheOptionIsRefused) {
  const Sum sum("yes");
  EXPECT_FALSE(sum.loaded());
  EXPECT_THAT(last_error(), HasSubstr("stage_host_caches"));
}

}  // namespace
}  // namespace etrt
