// Our delegate and others on one cache: XNNPACK's, and a small one with a stream.

#include <executorch/runtime/backend/interface.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "delegate/model.h"
#include "device/device.h"
#include "device/host/host_stream.h"
#include "etrt/etrt.h"

namespace etrt {
namespace {

namespace et = executorch::runtime;
using executorch::extension::make_tensor_ptr;
using executorch::extension::TensorPtr;
using test::Model;
using Tokens = std::vector<std::int64_t>;
using Floats = std::vector<float>;

constexpr std::size_t kCacheSize = 2 * 32 * 4;
const Tokens kPrompt{5, 17, 3};

TensorPtr cache_at(void* data) { return make_tensor_ptr({1, 2, 32, 4}, static_cast<float*>(data)); }

Floats run(Model& model, const std::string& method, const Tokens& tokens, std::int64_t position,
           void* cache) {
  const auto count = static_cast<std::int32_t>(tokens.size());
  return model.run(
      method, {make_tensor_ptr({1, count}, tokens), make_tensor_ptr({1}, Tokens{position}), cache_at(cache)});
}

/// XNNPACK doubles what is at `from` to `to`.
void xnnpack_twice(void* from, void* to) {
  Model twice("xnnpack_twice");
  const TensorPtr out = cache_at(to);
  ASSERT_EQ(twice.module().set_output(*out), et::Error::Ok);
  ASSERT_FALSE(twice.run("forward", {cache_at(from)}).empty());
}

void expect_twice(const Floats& doubled, const float* values) {
  for (std::size_t i = 0; i < doubled.size(); ++i) ASSERT_EQ(doubled[i], 2 * values[i]) << i;
}

TEST(MixedDelegatesShareStorage, CacheOfTheCaller) {
  Model model("callers_cache");
  Floats cache(kCacheSize);
  ASSERT_FALSE(run(model, "prefill", kPrompt, 0, cache.data()).empty()) << last_error();
  Floats doubled(kCacheSize);
  xnnpack_twice(cache.data(), doubled.data());
  expect_twice(doubled, cache.data());
  EXPECT_NE(doubled[0], 0);

  // The other direction: ours reads what XNNPACK has written to the cache itself.
  const Floats source = cache;
  const Floats before = run(model, "decode", {9}, 3, cache.data());
  xnnpack_twice(const_cast<float*>(source.data()), cache.data());
  const Floats after = run(model, "decode", {9}, 3, cache.data());
  EXPECT_NE(after, before);
  Floats by_hand = source;
  for (float& value : by_hand) value *= 2;
  EXPECT_EQ(run(model, "decode", {9}, 3, by_hand.data()), after);
}

TEST(MixedDelegatesShareStorage, StateOfASessionThatIsViewed) {
  Model model("index_put");  // prefill: tokens, position; the session's cache [1, 2, 32, 4].
  Session session;
  SessionScope use(session);
  ASSERT_FALSE(model.run("prefill", kPrompt, {0}).empty()) << last_error();
  const Result<TensorView> view = session.view("cache");
  ASSERT_TRUE(view.ok()) << view.status().message();
  auto* values = static_cast<float*>(view->data);
  Floats doubled(kCacheSize);
  xnnpack_twice(values, doubled.data());
  expect_twice(doubled, values);

  Session untouched;
  Floats expected;
  {
    SessionScope other(untouched);
    model.run("prefill", kPrompt, {0});
    expected = model.run("prefill", {9}, {3});
  }
  xnnpack_twice(doubled.data(), values);
  EXPECT_NE(model.run("prefill", {9}, {3}), expected);
}

TEST(MixedDelegatesShareStorage, StateThatTheSessionAdopts) {
  Model model("index_put");
  Floats elsewhere(kCacheSize);
  Session session;
  const TensorView memory{.data = elsewhere.data(), .dtype = DType::kFloat32, .shape = {1, 2, 32, 4}};
  ASSERT_TRUE(session.adopt("cache", memory, 0).ok());
  SessionScope use(session);
  const Stats before = stats();
  const Floats first = model.run("prefill", kPrompt, {0});
  ASSERT_FALSE(first.empty()) << last_error();
  EXPECT_EQ(stats().kv_bytes_copied, before.kv_bytes_copied);
  EXPECT_EQ(session.bytes(), 0U) << "the memory is the caller's";
  EXPECT_NE(elsewhere[0], 0);
  Floats doubled(kCacheSize);
  xnnpack_twice(elsewhere.data(), doubled.data());

  // Another conversation goes on with what XNNPACK has written.
  Session second;
  ASSERT_TRUE(
      second.adopt("cache", {.data = doubled.data(), .dtype = DType::kFloat32, .shape = {1, 2, 32, 4}}, 3)
          .ok());
  const Floats own = model.run("prefill", {9}, {3});
  SessionScope use_second(second);
  const Floats other = model.run("prefill", {9}, {3});
  ASSERT_FALSE(other.empty()) << last_error();
  EXPECT_NE(other, own);
  EXPECT_EQ(second.length(), 4);
}

TEST(MixedDelegates, PrefillOnXnnpackDecodeOnOurs) {
  Model ours("callers_cache");
  Floats cache(kCacheSize);
  ASSERT_FALSE(run(ours, "prefill", kPrompt, 0, cache.data()).empty()) << last_error();
  const Floats expected = run(ours, "decode", {9}, 3, cache.data());

  Model prefill("xnnpack_prefill");
  Floats zeros(kCacheSize);
  Floats shared(kCacheSize);
  Floats y(24);
  const TensorPtr y_out = make_tensor_ptr({1, 2, 3, 4}, y.data());
  const TensorPtr cache_out = cache_at(shared.data());
  ASSERT_EQ(prefill.module().load_method("forward"), et::Error::Ok);
  ASSERT_EQ(prefill.module().set_output(*y_out, 0), et::Error::Ok);
  ASSERT_EQ(prefill.module().set_output(*cache_out, 1), et::Error::Ok);
  run(prefill, "forward", kPrompt, 0, zeros.data());
  ASSERT_EQ(prefill.error(), et::Error::Ok);
  const Floats decoded = run(ours, "decode", {9}, 3, shared.data());
  ASSERT_EQ(decoded.size(), expected.size()) << last_error();
  for (std::size_t i = 0; i < decoded.size(); ++i) EXPECT_NEAR(decoded[i], expected[i], 1e-5F);
}

/// A delegate with the contract of ExecuTorch's CUDA delegate, on the host: its kernels are
/// queued on the caller's stream, and it returns at once. Adds 1 to its only argument, once
/// `gate` is open.
class QueueBackend final : public et::BackendInterface {
 public:
  bool is_available() const override { return true; }
  et::Result<et::DelegateHandle*> init(et::BackendInitContext&, et::FreeableBuffer*,
                                       et::ArrayRef<et::CompileSpec>) const override {
    return nullptr;
  }
  et::Error execute(et::BackendExecutionContext&, et::DelegateHandle*,
                    et::Span<et::EValue*> args) const override {
    Result<Stream*> stream = StreamScope::innermost(host_device());
    if (!stream.ok() || *stream == nullptr) return et::Error::InvalidState;
    const auto kernel = [](void* data) {
      while (!gate.load()) std::this_thread::yield();
      auto* values = static_cast<float*>(data);
      for (std::size_t i = 0; i < kCacheSize; ++i) values[i] += 1;
    };
    void* data = args[0]->toTensor().mutable_data_ptr();
    return as_host_stream(**stream)->submit(kernel, data).ok() ? et::Error::Ok : et::Error::Internal;
  }

  static inline std::atomic<bool> gate{true};
};

void add_one(void* cache) {
  static QueueBackend backend;
  static const et::Error registered = et::register_backend({"QueueBackend", &backend});
  ASSERT_EQ(registered, et::Error::Ok);
  const TensorPtr tensor = cache_at(cache);
  et::EValue value(*tensor);
  std::array<et::EValue*, 1> arguments{&value};
  et::BackendExecutionContext context;
  ASSERT_EQ(et::get_backend_class("QueueBackend")->execute(context, nullptr, {arguments.data(), 1}),
            et::Error::Ok);
}

/// Adds 1 to the cache, decodes twice with another addition between; the logits of the second step.
/// With `one_stream` all of it is queued on one stream before any of it runs; otherwise ours
/// goes its own way.
Floats steps(bool one_stream, std::uint64_t* host_syncs) {
  Model model("callers_cache");
  Floats cache(kCacheSize);
  if (run(model, "prefill", kPrompt, 0, cache.data()).empty()) ADD_FAILURE() << last_error();
  EXPECT_EQ(model.module().load_method("decode"), et::Error::Ok);
  auto stream = *host_device().create_stream();
  const auto token = make_tensor_ptr({1, 1}, Tokens{9});
  const auto third = make_tensor_ptr({1}, Tokens{3});
  const auto fourth = make_tensor_ptr({1}, Tokens{4});
  const auto tensor = cache_at(cache.data());
  const auto decode = [&](const TensorPtr& position) {
    auto output = model.module().execute("decode", {*token, *position, *tensor});
    EXPECT_TRUE(output.ok()) << last_error();
    return output.ok() ? output->front().toTensor().const_data_ptr<float>() : nullptr;
  };
  QueueBackend::gate = false;
  const float* logits = nullptr;
  {
    const StreamScope use(*stream);
    const std::uint64_t before = stats().host_syncs;
    add_one(cache.data());
    if (one_stream) {
      decode(third);
      add_one(cache.data());
      logits = decode(fourth);
    } else {
      auto elsewhere = *host_device().create_stream();
      const StreamScope other(*elsewhere);
      decode(third);
      logits = decode(fourth);
      EXPECT_TRUE(elsewhere->synchronize().ok());
    }
    *host_syncs = stats().host_syncs - before;
  }
  Floats early(logits, logits + 8);
  QueueBackend::gate = true;
  EXPECT_TRUE(stream->synchronize().ok());
  return one_stream ? Floats(logits, logits + 8) : early;
}

TEST(MixedDelegatesOrderedOnCallerStream, DependentWorkIsInOrder) {
  // The same by hand, one after the other.
  Model model("callers_cache");
  Floats cache(kCacheSize);
  ASSERT_FALSE(run(model, "prefill", kPrompt, 0, cache.data()).empty()) << last_error();
  for (float& value : cache) value += 1;
  run(model, "decode", {9}, 3, cache.data());
  for (float& value : cache) value += 1;
  const Floats expected = run(model, "decode", {9}, 4, cache.data());

  std::uint64_t host_syncs = 0;
  EXPECT_EQ(steps(/*one_stream=*/true, &host_syncs), expected);
  EXPECT_EQ(host_syncs, 0U);
  // The check of the check: on a stream of its own, ours doesn't wait for the slow kernel.
  EXPECT_NE(steps(/*one_stream=*/false, &host_syncs), expected);
}

}  // namespace
}  // namespace etrt
