
#include <algorithm>
#include <map>
#include <mutex>

#include "base/format.h"
#include "engine/engine.h"

namespace etrt {

namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, EngineLoader*, std::less<>> loaders;
};

Registry& registry() {
  static Registry* r = new Registry;  // Outlives the static objects that register.
  return *r;
}

}  // namespace

int EngineEntry::find(std::string_view binding) const noexcept {
  const auto it = std::find_if(bindings.begin(), bindings.end(),
                               [&](const EngineBinding& b) { return b.name == binding; });
  return it == bindings.end() ? -1 : static_cast<int>(it - bindings.begin());
}

Status register_engine_loader(std::string kind, EngineLoader& loader) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  const auto [it, inserted] = r.loaders.emplace(std::move(kind), &loader);
  if (!inserted) {
    return {Code::kInvalidArgument,
            formatted("engine kind \"{}\" is registered already: link its library once", it->first)};
  }
  return {};
}

std::vector<std::string> engine_kinds() {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  std::vector<std::string> kinds;
  for (const auto& [kind, loader] : r.loaders) kinds.push_back(kind);
  return kinds;
}

Result<EngineLoader*> find_engine_loader(std::string_view kind) {
  Registry& r = registry();
  {
    std::lock_guard lock(r.mutex);
    if (const auto it = r.loaders.find(kind); it != r.loaders.end()) return it->second;
  }
  return Status(Code::kUnsupported,
                formatted("engine kind \"{}\" isn't in this build, which has: {}. Build etrt with that "
                          "engine, or export the model for one of these",
                          kind, joined(engine_kinds())));
}

}  // namespace etrt
