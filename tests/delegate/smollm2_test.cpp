// SmolLM2-135M as a TensorRT plan in float16, against eager PyTorch in float32 on the same weights:
// trt_builder writes smollm2.plan, and smollm2_weights.py smollm2.tokens.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "delegate/plan_delegate.h"
#include "device/cuda/device_memory.h"
#include "engines/tensorrt/gpu/plans.h"
#include "etrt/etrt.h"

namespace etrt {
namespace {

using Tokens = std::vector<std::int32_t>;
using test::PlanDelegate;

constexpr std::size_t kMustAgree = 32;

struct Conversation {
  Tokens prompt;
  Tokens greedy;
};

std::vector<Conversation> expected() {
  std::ifstream file(test::plans_folder() / "smollm2.tokens");
  std::vector<Conversation> all;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    Tokens ids;
    for (std::int32_t id = 0; words >> id;) ids.push_back(id);
    if (kind == "prompt") {
      all.push_back({ids, {}});
    } else {
      all.back().greedy = ids;
    }
  }
  return all;
}

std::int32_t likeliest(const std::vector<float>& logits) {
  EXPECT_FALSE(logits.empty()) << last_error();
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class SmolLm2 : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::vector<std::byte> plan = test::plan_bytes("smollm2");
    prefill_ = new PlanDelegate("smollm2", plan, "prefill");
    ASSERT_TRUE(prefill_->loaded()) << last_error();
    decode_ = new PlanDelegate("smollm2", plan, "decode");
    ASSERT_TRUE(decode_->loaded()) << last_error();
    EXPECT_EQ(stats().engines, 1U) << "prefill and decode must share one engine";
  }
  static void TearDownTestSuite() {
    delete prefill_;
    delete decode_;
  }

  /// `count` tokens from the model itself.
  static Tokens converse(const Tokens& prompt, std::size_t count) {
    Session session;
    SessionScope use(session);
    Tokens tokens{likeliest(prefill_->run(prompt, 0))};
    auto position = static_cast<std::int32_t>(prompt.size());
    while (tokens.size() < count) tokens.push_back(likeliest(decode_->run({tokens.back()}, position++)));
    return tokens;
  }

  static inline PlanDelegate* prefill_ = nullptr;
  static inline PlanDelegate* decode_ = nullptr;
};

TEST_F(SmolLm2, GreedyTokensAgreeWithEagerPyTorch) {
  const std::vector<Conversation> all = expected();
  ASSERT_EQ(all.size(), 3U);
  const std::uint64_t copied = stats().kv_bytes_copied;
  std::printf("prompt  tokens  first difference  agree when fed PyTorch's tokens\n");
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [prompt, greedy] = all[i];
    const Tokens own = converse(prompt, greedy.size());
    const auto differ =
        static_cast<std::size_t>(std::mismatch(own.begin(), own.end(), greedy.begin()).first - own.begin());

    Session session;
    SessionScope use(session);
    std::size_t agree = likeliest(prefill_->run(prompt, 0)) == greedy[0] ? 1 : 0;
    auto position = static_cast<std::int32_t>(prompt.size());
    for (std::size_t t = 1; t < greedy.size(); ++t) {
      agree += likeliest(decode_->run({greedy[t - 1]}, position++)) == greedy[t] ? 1 : 0;
    }
    std::printf("%6zu  %6zu  %16s  %zu of %zu\n", i, greedy.size(),
                differ == own.size() ? "none" : std::to_string(differ).c_str(), agree, greedy.size());
    EXPECT_GE(differ, kMustAgree) << "prompt " << i;
  }
  EXPECT_EQ(stats().kv_bytes_copied, copied);
}

TEST_F(SmolLm2, ChunkedPrefillAndSingleTokensAgree) {
  const Conversation first = expected().at(0);
  const Tokens whole = converse(first.prompt, kMustAgree);
  Session session;
  SessionScope use(session);
  std::int32_t next = 0;
  std::int32_t position = 0;
  for (std::size_t from = 0; from < first.prompt.size(); from += 7) {
    const Tokens part(
        first.prompt.begin() + static_cast<std::ptrdiff_t>(from),
        first.prompt.begin() + static_cast<std::ptrdiff_t>(std::min(from + 7, first.prompt.size())));
    next = likeliest(prefill_->run(part, position));
    position += static_cast<std::int32_t>(part.size());
  }
  for (const std::int32_t token : whole) {
    ASSERT_EQ(next, token);
    next = likeliest(decode_->run({next}, position++));
  }
}

TEST_F(SmolLm2, TwoSessionsInterleaved) {
  const std::vector<Conversation> all = expected();
  const Tokens alone[2] = {converse(all[0].prompt, 64), converse(all[1].prompt, 64)};
  Session sessions[2];
  Tokens tokens[2];
  for (std::size_t s = 0; s < 2; ++s) {
    SessionScope use(sessions[s]);
    tokens[s].push_back(likeliest(prefill_->run(all[s].prompt, 0)));
  }
  for (std::int32_t step = 0; step < 63; ++step) {
    for (std::size_t s = 0; s < 2; ++s) {
      SessionScope use(sessions[s]);
      const auto position = static_cast<std::int32_t>(all[s].prompt.size()) + step;
      tokens[s].push_back(likeliest(decode_->run({tokens[s].back()}, position)));
    }
  }
  EXPECT_EQ(tokens[0], alone[0]);
  EXPECT_EQ(tokens[1], alone[1]);
}

TEST_F(SmolLm2, NoMemoryForASession) {
  const Conversation first = expected().at(0);
  const Tokens whole = converse(first.prompt, 4);
  std::vector<Session> sessions(16);  // Some find room in what CUDA's pool has kept; not all.
  std::size_t refused = sessions.size();
  {
    const test::AllDeviceMemory taken;
    for (std::size_t i = 0; i < sessions.size() && refused == sessions.size(); ++i) {
      SessionScope use(sessions[i]);
      if (!prefill_->run(first.prompt, 0).empty()) continue;
      refused = i;
      EXPECT_THAT(last_error(), testing::HasSubstr("Destroy sessions"));
      EXPECT_EQ(sessions[i].status(), SessionStatus::kReady);
      EXPECT_EQ(sessions[i].length(), 0);
    }
  }
  ASSERT_LT(refused, sessions.size());
  SessionScope use(sessions[refused]);
  EXPECT_EQ(likeliest(prefill_->run(first.prompt, 0)), whole[0]) << "once there is memory again";
}

TEST_F(SmolLm2, Speed) {
  const Conversation first = expected().at(0);
  Tokens prompt;
  while (prompt.size() < 512) prompt.push_back(first.prompt[prompt.size() % first.prompt.size()]);
  Session session;
  SessionScope use(session);
  std::int32_t next = likeliest(prefill_->run(prompt, 0));
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) next = likeliest(prefill_->run(prompt, 0));
  const double prefill = seconds_since(start);
  std::int32_t position = 512;
  for (int i = 0; i < 8; ++i) next = likeliest(decode_->run({next}, position++));
  const std::uint64_t rebinds = stats().rebinds;
  start = std::chrono::steady_clock::now();
  for (int i = 0; i < 256; ++i) next = likeliest(decode_->run({next}, position++));
  const double decode = seconds_since(start);
  EXPECT_EQ(stats().rebinds, rebinds);
  std::printf("prefill of 512 tokens: %.2f ms, %.0f tokens/s; decode: %.3f ms, %.0f tokens/s\n",
              prefill * 100, 5120 / prefill, decode * 1000 / 256, 256 / decode);
}

}  // namespace
}  // namespace etrt
