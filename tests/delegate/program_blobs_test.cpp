// The blobs in real programs: ours read and written again, and older ones.

#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/backend/interface.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "blob/blob.h"
#include "delegate/model.h"
#include "engines/cpu/append_engine.h"
#include "etrt/etrt.h"

namespace etrt {
namespace {

namespace et = executorch::runtime;
using executorch::extension::make_tensor_ptr;
using test::Model;

struct Found {
  std::size_t offset;
  Blob blob;
};

/// The blobs in a program, by their magic and the metadata's offset.
std::vector<Found> blobs_in(const std::vector<std::byte>& program) {
  const std::string_view text(reinterpret_cast<const char*>(program.data()), program.size());
  std::vector<Found> found;
  for (std::size_t at = text.find("TR0"); at != std::string_view::npos; at = text.find("TR0", at + 1)) {
    if (text.substr(at + 4, 4) != std::string_view("\x20\0\0\0", 4)) continue;
    Result<Blob> blob = parse_blob(std::span(program).subspan(at));
    if (blob) found.push_back({at, *std::move(blob)});
  }
  return found;
}

TEST(KvAliasing, BlobRoundTrip) {
  // Written in Python, read and written in C++: the same bytes. Then the program with other
  // blobs of the same meaning (keys that aren't known are ignored) runs as before.
  for (const auto& [name, version, count] :
       {std::tuple{"tiny_decoder", BlobVersion::kTR03, 2U}, std::tuple{"gated_delta", BlobVersion::kTR03, 2U},
        std::tuple{"callers_cache", BlobVersion::kTR02, 2U},
        std::tuple{"no_state", BlobVersion::kTR01, 1U}}) {
    const std::vector<std::byte> program = test::read_model_file(std::string(name) + ".pte");
    const std::vector<Found> found = blobs_in(program);
    ASSERT_EQ(found.size(), count) << name;
    for (const Found& item : found) {
      EXPECT_EQ(item.blob.version, version) << name;
      const Result<std::vector<std::byte>> written = write_blob(item.blob);
      ASSERT_TRUE(written.ok()) << written.status().message();
      const auto original = std::span(program).subspan(item.offset, written->size());
      EXPECT_TRUE(std::ranges::equal(*written, original)) << name;
    }
  }

  std::vector<std::byte> program = test::read_model_file("tiny_decoder.pte");
  for (const Found& item : blobs_in(program)) {
    const std::vector<std::byte> written = *write_blob(item.blob);
    std::ranges::copy(written, program.begin() + static_cast<std::ptrdiff_t>(item.offset));
  }
  executorch::extension::Module module(
      std::make_unique<executorch::extension::BufferDataLoader>(program.data(), program.size()));
  Session session;
  SessionScope use(session);
  auto token = make_tensor_ptr({1, 1}, std::vector<std::int64_t>{5});
  auto position = make_tensor_ptr({1}, std::vector<std::int64_t>{0});
  const auto output = module.execute("decode", {*token, *position});
  ASSERT_TRUE(output.ok()) << last_error();
  Model model("tiny_decoder");
  Session other;
  SessionScope use_other(other);
  const std::vector<float> expected = model.run("decode", {5}, {0});
  const float* logits = output->front().toTensor().const_data_ptr<float>();
  EXPECT_EQ(std::vector<float>(logits, logits + expected.size()), expected);
}

/// A delegate of the append engine with the caller's cache, as torch_tensorrt's writer
/// describes it, but for the engine's kind and entry.
class OlderDelegate {
 public:
  OlderDelegate() {
    const std::vector<std::byte> engine = test::read_model_file("append.engine");
    std::string metadata =
        R"({"io_bindings":[{"name":"cache","dtype":"","shape":[],"is_input":true},)"
        R"({"name":"update","dtype":"","shape":[],"is_input":true},)"
        R"({"name":"position","dtype":"","shape":[],"is_input":true},)"
        R"({"name":"cache_out","dtype":"","shape":[],"is_input":false},)"
        R"({"name":"y","dtype":"","shape":[],"is_input":false}],)"
        R"("aliased_io":[{"output":"cache_out","input":"cache","kind":"user"}],)"
        R"("hardware_compatible":false,"device_id":0,"serialized_metadata":"","target_platform":"",)"
        R"("engine":"cpu","engine_entry":"decode"})";
    const auto size = static_cast<std::uint32_t>(metadata.size());
    metadata.resize((32 + metadata.size() + 15) / 16 * 16 - 32, '\0');
    std::string blob("TR02\x20\0\0\0", 8);
    const auto put = [&](std::uint64_t value, int bytes) {
      for (int i = 0; i < bytes; ++i) blob += static_cast<char>(value >> (8 * i));
    };
    put(size, 4);
    put(32 + metadata.size(), 4);
    put(engine.size(), 8);
    put(1, 8);
    blob += metadata;
    blob.append(reinterpret_cast<const char*>(engine.data()), engine.size());
    et::MemoryAllocator allocator(0, nullptr);
    et::BackendInitContext context(&allocator, nullptr, "decode");
    et::FreeableBuffer processed(blob.data(), blob.size(), nullptr);
    auto handle = backend_->init(context, &processed, {});
    if (handle.ok()) handle_ = *handle;
  }
  ~OlderDelegate() {
    if (handle_ != nullptr) backend_->destroy(handle_);
  }
  OlderDelegate(const OlderDelegate&) = delete;
  OlderDelegate& operator=(const OlderDelegate&) = delete;

  bool loaded() const { return handle_ != nullptr; }
  et::Error run(std::span<et::EValue*> arguments) {
    et::BackendExecutionContext context;
    return backend_->execute(context, handle_, {arguments.data(), arguments.size()});
  }

 private:
  et::BackendInterface* backend_ = et::get_backend_class("TensorRTBackend");
  et::DelegateHandle* handle_ = nullptr;
};

TEST(KvAliasing, OlderBlobs) {
  // TR01, in a program.
  Model without_states("no_state");
  EXPECT_EQ(without_states.run("forward", std::vector<float>{1, 2, 3, 4}, {1, 4}, {}).size(), 4U)
      << last_error();

  // TR02, with the aliased output among the arguments, and without.
  OlderDelegate delegate;
  ASSERT_TRUE(delegate.loaded()) << last_error();
  std::vector<float> cache(128);
  std::vector<float> elsewhere(128, -1);
  std::vector<float> update(8, 3);
  std::vector<float> y(8);
  auto cache_tensor = make_tensor_ptr({1, 2, 16, 4}, cache.data());
  auto update_tensor = make_tensor_ptr({1, 2, 1, 4}, update.data());
  auto out_tensor = make_tensor_ptr({1, 2, 16, 4}, elsewhere.data());
  auto y_tensor = make_tensor_ptr({1, 2, 1, 4}, y.data());
  const std::uint64_t copied = stats().kv_bytes_copied;
  for (const bool present : {true, false}) {
    auto position = make_tensor_ptr({1}, std::vector<std::int32_t>{present ? 0 : 1});
    std::array<et::EValue, 5> values{*cache_tensor, *update_tensor, *position, *out_tensor, *y_tensor};
    std::vector<et::EValue*> arguments{&values[0], &values[1], &values[2]};
    if (present) arguments.push_back(&values[3]);
    arguments.push_back(&values[4]);
    ASSERT_EQ(delegate.run(arguments), et::Error::Ok) << last_error();
    EXPECT_EQ(y[0], present ? 3 : 6);
    if (!present) continue;
    // What follows in the program reads the updated cache, where it is.
    EXPECT_EQ(values[3].toTensor().const_data_ptr(), static_cast<const void*>(cache.data()));
    EXPECT_EQ(values[3].toTensor().const_data_ptr<float>()[0], 3);
  }
  EXPECT_EQ(cache[0], 3);
  EXPECT_EQ(cache[4], 3);
  EXPECT_EQ(cache[8], 0);
  EXPECT_EQ(elsewhere, std::vector<float>(128, -1)) << "the second cache isn't touched";
  EXPECT_EQ(stats().kv_bytes_copied, copied);
}

}  // namespace
}  // namespace etrt
