// What a user gets for bad input: a message that says what was wrong, the session as it was
// before, and a next good call that works.

#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <executorch/runtime/backend/interface.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "blob/blob.h"
#include "delegate/model.h"
#include "etrt/etrt.h"

namespace etrt {
namespace {

namespace et = executorch::runtime;
using executorch::extension::make_tensor_ptr;
using executorch::extension::Module;
using test::Model;
using ::testing::HasSubstr;

std::vector<char> read_file(const std::string& name) {
  std::ifstream file(test::models_folder() + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A program that is in memory.
std::unique_ptr<Module> load_bytes(const std::vector<char>& bytes) {
  return std::make_unique<Module>(
      std::make_unique<executorch::extension::BufferDataLoader>(bytes.data(), bytes.size()));
}

/// Calls the delegate itself with arguments that ExecuTorch's Module would refuse earlier.
class DelegateArguments : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(model_.module().load_method("decode"), et::Error::Ok);
    const std::vector<float> warm = model_.run("prefill", {1, 2, 3}, {0});
    ASSERT_FALSE(warm.empty()) << last_error();
  }
  void expect_as_before_and_usable() {
    EXPECT_EQ(session_.length(), 3);
    EXPECT_EQ(session_.status(), SessionStatus::kReady);
    EXPECT_FALSE(model_.run("decode", {7}, {3}).empty()) << last_error();
  }

  Session session_;
  SessionScope use_{session_};
  Model model_{"tiny_decoder"};
};

TEST_F(DelegateArguments, TooManyPositions) {
  // [T] consecutive indices are for one batch row and T tokens; here T is 2.
  EXPECT_TRUE(model_.run("prefill", {1, 2}, {3, 4, 5}).empty());
  expect_as_before_and_usable();
}

TEST_F(DelegateArguments, TooManyTokens) {
  EXPECT_TRUE(model_.run("prefill", std::vector<std::int64_t>(17, 1), {3}).empty());
  expect_as_before_and_usable();
}

TEST_F(DelegateArguments, WrongDtype) {
  auto tokens = make_tensor_ptr({1, 1}, std::vector<float>{1});
  auto position = make_tensor_ptr({1}, std::vector<std::int64_t>{3});
  EXPECT_NE(model_.module().execute("decode", {*tokens, *position}).error(), et::Error::Ok);
  expect_as_before_and_usable();
}

TEST(BadInput, PositionOfTheWrongFormIsNamed) {
  Model model("index_copy_tokens");  // position [T], one index per token.
  Session session;
  SessionScope use(session);
  ASSERT_FALSE(model.run("prefill", {1, 2, 3}, {0, 1, 2}).empty()) << last_error();
  EXPECT_TRUE(model.run("prefill", {1, 2, 3}, {3, 5, 4}).empty());
  EXPECT_THAT(last_error(), HasSubstr("consecutive"));
  EXPECT_EQ(session.length(), 3);
  EXPECT_FALSE(model.run("prefill", {1, 2, 3}, {3, 4, 5}).empty()) << last_error();
}

TEST(BadInput, BusySession) {
  // One thread keeps the session in runs; another is refused now and then, never served
  // wrongly.
  Session session;
  std::atomic<bool> stop{false};
  std::atomic<int> busy{0};
  std::atomic<int> other{0};
  const auto work = [&](int id) {
    Model model("tiny_decoder");
    SessionScope use(session);
    while (!stop) {
      if (!model.run("prefill", std::vector<std::int64_t>(16, id), {0}).empty()) continue;
      if (std::string(last_error()).find("Busy") != std::string::npos) {
        if (++busy >= 3) stop = true;
      } else {
        ++other;
        stop = true;
      }
    }
  };
  std::thread one(work, 1);
  std::thread two(work, 2);
  one.join();
  two.join();
  EXPECT_GE(busy, 1);
  EXPECT_EQ(other, 0) << last_error();
  Model model("tiny_decoder");
  SessionScope use(session);
  EXPECT_FALSE(model.run("prefill", {1, 2}, {0}).empty()) << last_error();
}

TEST(BadInput, AStateOfAnotherShapeUnderTheSameModelId) {
  Model small("conflict_small");
  Model large("conflict_large");
  Session session;
  SessionScope use(session);
  ASSERT_FALSE(small.run("decode", {1}, {0}).empty()) << last_error();
  EXPECT_TRUE(large.run("decode", {1}, {1}).empty());
  EXPECT_THAT(last_error(), HasSubstr("in this session, but this method declares"));
  EXPECT_EQ(session.length(), 1);
  EXPECT_FALSE(small.run("decode", {1}, {1}).empty()) << last_error();
  Session another;
  SessionScope use_another(another);
  EXPECT_FALSE(large.run("decode", {1}, {0}).empty()) << last_error();
}

TEST(BadInput, TruncatedProgram) {
  const std::vector<char> whole = read_file("tiny_decoder.pte");
  ASSERT_FALSE(whole.empty());
  for (const std::size_t part : {whole.size() / 4, whole.size() / 2, whole.size() - 4096}) {
    const std::vector<char> bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(part));
    EXPECT_NE(load_bytes(bytes)->load_method("decode"), et::Error::Ok) << part << " of " << whole.size();
  }
}

TEST(BadInput, OneBitOfTheEngineFlipped) {
  const std::vector<char> whole = read_file("tiny_decoder.pte");
  // The engine is an ExecuTorch program of its own; find its magic after the outer one's.
  const std::string text(whole.begin(), whole.end());
  const std::size_t engine = text.find("ET12", 64);
  ASSERT_NE(engine, std::string::npos);
  for (const std::size_t offset : {std::size_t{0}, std::size_t{100}, std::size_t{5000}, std::size_t{40000}}) {
    std::vector<char> bytes = whole;
    ASSERT_LT(engine + offset, bytes.size());
    bytes[engine + offset] = static_cast<char>(bytes[engine + offset] ^ 4);
    EXPECT_NE(load_bytes(bytes)->load_method("decode"), et::Error::Ok) << "at " << offset;
    EXPECT_THAT(last_error(), HasSubstr("digest")) << "at " << offset;
  }
}

/// Loads a delegate from bytes, as ExecuTorch would.
et::Error init(const std::vector<std::byte>& blob) {
  et::BackendInterface* backend = et::get_backend_class("TensorRTBackend");
  if (backend == nullptr) return et::Error::NotFound;
  et::MemoryAllocator allocator(0, nullptr);
  et::BackendInitContext context(&allocator, nullptr, "forward");
  et::FreeableBuffer processed(blob.data(), blob.size(), nullptr);
  auto handle = backend->init(context, &processed, {});
  if (handle.ok()) backend->destroy(*handle);
  return handle.error();
}

Blob small_blob() {
  Blob blob;
  blob.bindings = {{"x", DType::kFloat32, Shape{1}, true}, {"y", DType::kFloat32, Shape{1}, false}};
  return blob;
}

TEST(BadInput, EngineKindThatIsNotBuiltIn) {
  static const std::vector<std::byte> engine(64, std::byte{1});
  Blob blob = small_blob();
  blob.engine_kind = "tensorrt_rtx";
  blob.engine = engine;
  const Result<std::vector<std::byte>> bytes = write_blob(blob);
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  EXPECT_EQ(init(*bytes), et::Error::NotSupported);
  EXPECT_THAT(last_error(), HasSubstr("\"tensorrt_rtx\" isn't in this build, which has: cpu"));
}

TEST(BadInput, EngineThatIsNoProgram) {
  static const std::vector<std::byte> engine(64, std::byte{1});
  Blob blob = small_blob();
  blob.engine_kind = "cpu";
  blob.engine = engine;
  const Result<std::vector<std::byte>> bytes = write_blob(blob);
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  EXPECT_EQ(init(*bytes), et::Error::InvalidProgram);
  EXPECT_THAT(last_error(), HasSubstr("no ExecuTorch program"));
}

TEST(BadInput, EngineKeyThatTheProgramLacks) {
  Blob blob = small_blob();
  blob.engine_kind = "cpu";
  blob.engine_key = "0123456789abcdef";
  const Result<std::vector<std::byte>> bytes = write_blob(blob);
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  EXPECT_EQ(init(*bytes), et::Error::NotFound);
  EXPECT_THAT(last_error(), HasSubstr("0123456789abcdef"));
}

TEST(BadInput, BlobThatIsNone) {
  EXPECT_EQ(init(std::vector<std::byte>(8)), et::Error::InvalidProgram);
  EXPECT_EQ(init(std::vector<std::byte>(64)), et::Error::InvalidProgram);
  EXPECT_THAT(last_error(), HasSubstr("magic"));
}

}  // namespace
}  // namespace etrt
