// Caches that the caller owns, on real programs through ExecuTorch's Module.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "delegate/model.h"
#include "etrt/etrt.h"

namespace etrt {
namespace {

using executorch::extension::make_tensor_ptr;
using executorch::extension::TensorPtr;
using executorch::runtime::Error;
using test::Model;
using ::testing::HasSubstr;
using Tokens = std::vector<std::int64_t>;
using Floats = std::vector<float>;

/// A cache float32 [1, 2, 32, 4] of the caller's, as callers_cache and both_owners want it.
class Cache {
 public:
  static constexpr std::int64_t kRow = 4;
  static constexpr std::int64_t kCapacity = 32;

  TensorPtr tensor() { return make_tensor_ptr({1, 2, 32, 4}, values.data()); }
  bool row_is_zero(std::int64_t position) const {
    const auto begin = values.begin() + position * kRow;
    return std::all_of(begin, begin + kRow, [](float v) { return v == 0; });
  }

  Floats values = Floats(2 * kCapacity * kRow);
};

Floats run(Model& model, const std::string& method, const Tokens& tokens, std::int64_t position,
           TensorPtr cache) {
  const auto count = static_cast<std::int32_t>(tokens.size());
  return model.run(method, {make_tensor_ptr({1, count}, tokens), make_tensor_ptr({1}, Tokens{position}),
                            std::move(cache)});
}

TEST(KvAliasing, CallerVisibleMutation) {
  Model model("callers_cache");
  Cache cache;
  const Stats before = stats();
  ASSERT_FALSE(run(model, "prefill", {5, 17, 3}, 0, cache.tensor()).empty()) << last_error();
  for (const std::int64_t row : {0, 1, 2}) EXPECT_FALSE(cache.row_is_zero(row)) << row;
  EXPECT_TRUE(cache.row_is_zero(3));
  const Floats prefilled = cache.values;
  ASSERT_FALSE(run(model, "decode", {9}, 3, cache.tensor()).empty()) << last_error();
  EXPECT_FALSE(cache.row_is_zero(3));
  EXPECT_TRUE(std::equal(prefilled.begin(), prefilled.begin() + 3 * Cache::kRow, cache.values.begin()));
  EXPECT_EQ(stats().kv_bytes_copied, before.kv_bytes_copied);
  EXPECT_EQ(stats().sessions, before.sessions) << "no session is needed";
}

TEST(KvAliasing, CallerSuppliedContents) {
  Model model("callers_cache");
  Cache first;
  ASSERT_FALSE(run(model, "prefill", {5, 17, 3}, 0, first.tensor()).empty()) << last_error();
  Cache second;
  second.values = first.values;
  const Floats expected = run(model, "decode", {9}, 3, first.tensor());
  EXPECT_EQ(run(model, "decode", {9}, 3, second.tensor()), expected);
  Cache empty;
  EXPECT_NE(run(model, "decode", {9}, 3, empty.tensor()), expected);
}

TEST(KvAliasing, ManyCachesOfTheCallerOneAtATime) {
  Model model("callers_cache");
  Cache alone;
  const Floats expected = run(model, "decode", {9}, 0, alone.tensor());
  const std::uint64_t contexts = stats().contexts;
  std::vector<Cache> caches(8);
  std::uint64_t before = stats().rebinds;
  for (Cache& cache : caches) EXPECT_EQ(run(model, "decode", {9}, 0, cache.tensor()), expected);
  EXPECT_EQ(stats().rebinds - before, caches.size());
  before = stats().rebinds;
  for (std::int64_t i = 1; i < 5; ++i) run(model, "decode", {9}, i, caches.back().tensor());
  EXPECT_EQ(stats().rebinds, before) << "one cache, one binding";
  EXPECT_EQ(stats().contexts, contexts);
}

TEST(KvAliasing, OneMethodMixesBothOwners) {
  Model model("both_owners");
  Cache cache;
  EXPECT_TRUE(run(model, "prefill", {5, 17}, 0, cache.tensor()).empty()) << "the session's part needs one";
  Session session;
  SessionScope use(session);
  ASSERT_FALSE(run(model, "prefill", {5, 17}, 0, cache.tensor()).empty()) << last_error();
  ASSERT_EQ(session.states().size(), 1U);
  EXPECT_EQ(session.states()[0].id, "cache");
  EXPECT_EQ(session.length(), 2);
  // The session's cache holds twice what the caller's does.
  const auto* mine = static_cast<const float*>(session.view("cache")->data);
  for (std::size_t i = 0; i < 2 * Cache::kRow; ++i) EXPECT_EQ(mine[i], 2 * cache.values[i]) << i;

  // Each of the two counts: another cache with this session, another session with this cache.
  Cache saved = cache;
  const Floats expected = run(model, "decode", {9}, 2, cache.tensor());
  Cache empty;
  EXPECT_NE(run(model, "decode", {9}, 2, empty.tensor()), expected);
  EXPECT_EQ(run(model, "decode", {9}, 2, saved.tensor()), expected);
}

TEST(KvAliasing, BufferAboveTheDelegate) {
  // The cache is in each program's own memory, so two loads have two.
  Model model("above");
  const auto tokens = [](Tokens values) { return values; };
  const Floats whole = model.run("prefill", tokens({5, 17, 3, 8}), {0});
  ASSERT_FALSE(whole.empty()) << last_error();
  Model other("above");
  ASSERT_FALSE(other.run("prefill", tokens({5, 17, 3}), {0}).empty());
  const Floats step = other.run("prefill", tokens({8}), {3});
  ASSERT_EQ(step.size(), 8U);
  for (std::size_t head = 0; head < 2; ++head) {
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(step[head * 4 + i], whole[head * 16 + 12 + i], 1e-5F);
  }
}

TEST(KvAliasing, AMethodThatOnlyWritesTheCallersCache) {
  Model model("write_only");
  Floats cache(32);
  for (std::int64_t i = 0; i < 3; ++i) {
    const Floats length = run(model, "decode", {7 + i}, i, make_tensor_ptr({1, 1, 32, 1}, cache.data()));
    EXPECT_EQ(length, (Floats{static_cast<float>(i + 1)})) << last_error();
  }
  EXPECT_EQ(Floats(cache.begin(), cache.begin() + 4), (Floats{7, 8, 9, 0}));
}

TEST(BadInput, CachesOfTheCaller) {
  Model model("callers_cache");
  Cache cache;
  ASSERT_FALSE(run(model, "decode", {1}, 0, cache.tensor()).empty()) << last_error();
  const Floats before = cache.values;

  // ExecuTorch's Module refuses other dtypes and ranks itself; these reach the delegate.
  EXPECT_TRUE(run(model, "decode", {1}, 32, cache.tensor()).empty());
  EXPECT_THAT(last_error(), HasSubstr("capacity 32"));
  EXPECT_TRUE(run(model, "prefill", {1, 2, 3}, 30, cache.tensor()).empty());
  EXPECT_THAT(last_error(), HasSubstr("30 + 3"));
  EXPECT_TRUE(run(model, "decode", {1}, -1, cache.tensor()).empty());

  auto doubles = make_tensor_ptr({1, 2, 32, 4}, std::vector<double>(256));
  EXPECT_TRUE(run(model, "decode", {1}, 1, doubles).empty());
  auto small = make_tensor_ptr({1, 2, 16, 4}, Floats(128));
  EXPECT_TRUE(run(model, "decode", {1}, 1, small).empty());
  EXPECT_EQ(cache.values, before);
  EXPECT_FALSE(run(model, "decode", {1}, 1, cache.tensor()).empty()) << last_error();
}

}  // namespace
}  // namespace etrt
