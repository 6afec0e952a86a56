#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "conformance/engine_suite.h"
#include "engines/cpu/append_engine.h"

namespace etrt::conformance {
namespace {

INSTANTIATE_TEST_SUITE_P(Cpu, EngineSuite,
                         testing::Values(EngineUnderTest{.name = "cpu",
                                                         .load = test::load_append_engine,
                                                         .prefill = test::kAppendPrefill,
                                                         .decode = test::kAppendDecode,
                                                         .tells_ranges = false}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace etrt::conformance
