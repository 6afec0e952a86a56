#include "engine/cache.h"

#include <map>
#include <mutex>
#include <tuple>

#include "base/stats_counters.h"

namespace etrt {

namespace {

struct Slot {
  std::mutex loading;
  std::weak_ptr<SharedEngine> engine;
};

struct Cache {
  using Key = std::tuple<std::string, std::string, std::int32_t, std::int64_t, bool, std::string>;
  std::mutex mutex;
  std::map<Key, std::shared_ptr<Slot>> slots;
};

Cache& cache() {
  static Cache* c = new Cache;  // Programs may be destroyed by static destructors.
  return *c;
}

}  // namespace

SharedEngine::SharedEngine(std::unique_ptr<Engine> engine, std::size_t serialized_bytes)
    : engine_(std::move(engine)), serialized_bytes_(serialized_bytes) {
  for (std::size_t i = 0; i < engine_->entries().size(); ++i) {
    pools_.push_back(std::make_unique<ContextPool>(*engine_, i));
  }
  internal::add(internal::counters().engines);
  internal::add(internal::counters().engine_bytes, serialized_bytes_);
}

SharedEngine::~SharedEngine() {
  pools_.clear();
  internal::subtract(internal::counters().engines);
  internal::subtract(internal::counters().engine_bytes, serialized_bytes_);
}

Result<std::shared_ptr<SharedEngine>> find_or_load_engine(const EngineIdentity& identity,
                                                          const std::function<Result<EngineBytes>()>& bytes) {
  const EngineOptions& o = identity.options;
  const Cache::Key key{identity.kind,         identity.key,     o.device_id, o.weight_streaming_budget,
                       o.hardware_compatible, o.target_platform};
  std::shared_ptr<Slot> slot;
  {
    std::lock_guard lock(cache().mutex);
    std::erase_if(cache().slots, [](const auto& item) {
      return item.second.use_count() == 1 && item.second->engine.expired();
    });
    std::shared_ptr<Slot>& entry = cache().slots[key];
    if (!entry) entry = std::make_shared<Slot>();
    slot = entry;
  }
  std::lock_guard lock(slot->loading);
  if (std::shared_ptr<SharedEngine> alive = slot->engine.lock()) return alive;

  Result<EngineLoader*> loader = find_engine_loader(identity.kind);
  if (!loader) return loader.status();
  Result<EngineBytes> serialized = bytes();
  if (!serialized) return serialized.status();
  const std::size_t size = serialized->bytes.size();
  Result<std::unique_ptr<Engine>> engine = (*loader)->load(std::move(*serialized), o);
  if (!engine) return engine.status();
  auto shared = std::make_shared<SharedEngine>(std::move(*engine), size);
  slot->engine = shared;
  return shared;
}

}  // namespace etrt
