#include "etrt/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "base/last_error.h"

namespace etrt {
namespace {

TEST(Status, SuccessIsTheDefault) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(status);
  EXPECT_EQ(status.code(), Code::kOk);
  EXPECT_EQ(status.message(), "");
}

TEST(Status, CarriesCodeAndMessage) {
  const Status status(Code::kOutOfRange, "position 40 is outside capacity 32");
  EXPECT_FALSE(status);
  EXPECT_EQ(to_string(status.code()), "OutOfRange");
  EXPECT_EQ(status.message(), "position 40 is outside capacity 32");
}

TEST(Result, HoldsAValueThatCanBeMovedOut) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  ASSERT_TRUE(result);
  EXPECT_TRUE(result.status().ok());
  const std::unique_ptr<int> value = *std::move(result);
  EXPECT_EQ(*value, 7);
}

TEST(Result, HoldsAnError) {
  const Result<int> result(Status(Code::kBusy, "in a run"));
  EXPECT_FALSE(result);
  EXPECT_EQ(result.status().code(), Code::kBusy);
}

TEST(LastError, IsTheThreadsOwn) {
  internal::set_last_error("here");
  std::string there = "unset";
  std::thread([&] {
    there = last_error();
    internal::set_last_error("elsewhere");
  }).join();
  EXPECT_EQ(there, "");
  EXPECT_STREQ(last_error(), "here");
}

}  // namespace
}  // namespace etrt
