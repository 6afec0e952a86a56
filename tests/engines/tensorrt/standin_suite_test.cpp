// The engine conformance suite on the adapter, over stand-in plans.
#include "conformance/engine_suite.h"
#include "engines/tensorrt/fixtures.h"

namespace etrt::conformance {
namespace {

EngineUnderTest stand_in(std::string name, bool declares_alias) {
  return {.name = std::move(name),
          .load = [declares_alias]() -> Result<std::shared_ptr<Engine>> {
            tensorrt::standin::Spec spec;
            spec.declares_alias = declares_alias;
            auto engine =
                tensorrt::load(spec, std::make_shared<tensorrt::standin::Control>(), {}, declares_alias);
            if (!engine) return engine.status();
            return std::shared_ptr<Engine>(std::move(*engine));
          },
          .wants_alignment = true};
}

INSTANTIATE_TEST_SUITE_P(TensorRtStandIn, EngineSuite,
                         testing::Values(stand_in("UserAlias", false), stand_in("DeclaredAlias", true)),
                         [](const auto& engine) { return engine.param.name; });

}  // namespace
}  // namespace etrt::conformance
