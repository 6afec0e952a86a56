#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/engine.h"

namespace etrt {

/// An execution context with what was last set on it, so that a run sets only what
/// changed.
struct PooledContext {
  PooledContext() = default;
  /// Waits for the last run: TensorRT forbids ending a context before.
  ~PooledContext();
  PooledContext(const PooledContext&) = delete;
  PooledContext& operator=(const PooledContext&) = delete;

  std::unique_ptr<ExecutionContext> context;
  std::unique_ptr<Stream> stream;  ///< The context's own, for runs without a caller's stream.
  std::unique_ptr<Event> done;     ///< End of the last run.
  std::uint64_t last_stream = 0;   ///< Stream::id() of the last run; 0: none yet.
  std::vector<void*> bound;        ///< Address of each binding; nullptr: none yet.
  std::vector<Shape> shapes;       ///< Input shapes; of outputs unused.
  std::vector<bool> shape_set;
  std::vector<Buffer> staging;      ///< Device memory for bindings whose arguments are on the host.
  std::vector<Buffer> pinned;       ///< Host memory for them, which the device copies without a detour.
  const void* last_user = nullptr;  ///< Session of the last run: an address to compare, never followed.

  /// Sets what differs from the last run. Errors: as ExecutionContext.
  Status set_shape(std::size_t binding, const Shape& shape);
  /// True in `*changed` if the address is another one than before.
  Status bind(std::size_t binding, void* data, bool* changed);
};

/// The contexts of one entry of an engine. There are as many as runs were ever in
/// flight at once, not as many as sessions or loaded methods: weights that an engine
/// packs for each context are held that often.
/// Thread-safe.
class ContextPool {
 public:
  ContextPool(Engine& engine, std::size_t entry) : engine_(&engine), entry_(entry) {}
  ~ContextPool();
  ContextPool(const ContextPool&) = delete;
  ContextPool& operator=(const ContextPool&) = delete;

  /// Gives its context back to the pool when it ends.
  class Lease {
   public:
    Lease(ContextPool& pool, std::unique_ptr<PooledContext> context)
        : pool_(&pool), context_(std::move(context)) {}
    Lease(Lease&&) noexcept = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease();
    PooledContext* operator->() const noexcept { return context_.get(); }
    PooledContext& operator*() const noexcept { return *context_; }
    /// The context is destroyed instead: after a failed run its contents are unknown.
    void discard() noexcept;

   private:
    ContextPool* pool_;
    std::unique_ptr<PooledContext> context_;
  };

  /// An idle context, of those the one that `user` used last, else a new one. Doesn't
  /// allocate when one is idle.
  Result<Lease> acquire(const void* user);

 private:
  void release(std::unique_ptr<PooledContext> context) noexcept;

  Engine* engine_;
  std::size_t entry_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<PooledContext>> idle_;
  std::size_t made_ = 0;
};

}  // namespace etrt
