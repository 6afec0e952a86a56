#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace etrt {
namespace {

std::vector<std::string>& lines() {
  static std::vector<std::string> collected;
  return collected;
}

void collect(LogLevel level, std::string_view message) {
  lines().push_back(std::to_string(static_cast<int>(level)) + " " + std::string(message));
}

class Log : public testing::Test {
 protected:
  ~Log() override { set_log_sink(nullptr); }
};

// The tests run without ETRT_LOG: warnings pass, information doesn't.
TEST_F(Log, SinkGetsWhatTheLevelLetsThrough) {
  lines().clear();
  set_log_sink(&collect);
  log(LogLevel::kError, "first");
  log(LogLevel::kWarning, "second");
  log(LogLevel::kInfo, "third");
  EXPECT_THAT(lines(), testing::ElementsAre("0 first", "1 second"));
  EXPECT_TRUE(log_enabled(LogLevel::kError));
  EXPECT_FALSE(log_enabled(LogLevel::kDebug));
}

TEST_F(Log, DefaultIsOneLineOnStandardError) {
  set_log_sink(nullptr);
  testing::internal::CaptureStderr();
  log(LogLevel::kWarning, "a cache was copied");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "etrt: warning: a cache was copied\n");
}

}  // namespace
}  // namespace etrt
