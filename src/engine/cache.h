#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/context_pool.h"
#include "engine/engine.h"

namespace etrt {

/// An engine in use, with the pools of its contexts. Shared by every method and load
/// that names the same bytes.
class SharedEngine {
 public:
  SharedEngine(std::unique_ptr<Engine> engine, std::size_t serialized_bytes);
  ~SharedEngine();
  SharedEngine(const SharedEngine&) = delete;
  SharedEngine& operator=(const SharedEngine&) = delete;

  Engine& engine() const noexcept { return *engine_; }
  ContextPool& pool(std::size_t entry) noexcept { return *pools_[entry]; }

 private:
  std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<ContextPool>> pools_;
  std::size_t serialized_bytes_;
};

/// What makes two engines the same one.
struct EngineIdentity {
  std::string kind;
  std::string key;  ///< Content key of the bytes: engine_key, else the digest.
  EngineOptions options;
};

/// The engine of `identity`, loaded from what `bytes` returns unless it is alive already,
/// in which case `bytes` isn't called. Concurrent calls for one identity load once.
/// An engine lives as long as somebody holds it.
/// Errors: those of `bytes` and of the loader; kUnsupported for an unknown kind.
Result<std::shared_ptr<SharedEngine>> find_or_load_engine(const EngineIdentity& identity,
                                                          const std::function<Result<EngineBytes>()>& bytes);

}  // namespace etrt
