// The engine conformance suite on a real plan.
#include "conformance/engine_suite.h"
#include "engines/tensorrt/gpu/plans.h"

namespace etrt::conformance {
namespace {

INSTANTIATE_TEST_SUITE_P(TensorRt, EngineSuite,
                         testing::Values(EngineUnderTest{
                             .name = "Plan",
                             .load = [] { return test::load_plan(test::plan_bytes("append")); },
                             .wants_alignment = true}),
                         [](const auto& engine) { return engine.param.name; });

}  // namespace
}  // namespace etrt::conformance
