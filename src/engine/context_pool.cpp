#include "engine/context_pool.h"

#include <algorithm>
#include <utility>

#include "base/stats_counters.h"

namespace etrt {

PooledContext::~PooledContext() {
  if (done) static_cast<void>(done->synchronize());
}

Status PooledContext::set_shape(std::size_t binding, const Shape& shape) {
  if (shape_set[binding] && shapes[binding] == shape) return {};
  shape_set[binding] = false;
  if (Status s = context->set_input_shape(binding, shape); !s) return s;
  shapes[binding] = shape;
  shape_set[binding] = true;
  return {};
}

Status PooledContext::bind(std::size_t binding, void* data, bool* changed) {
  *changed = bound[binding] != data;
  if (!*changed) return {};
  bound[binding] = nullptr;
  if (Status s = context->bind(binding, data); !s) return s;
  bound[binding] = data;
  return {};
}

ContextPool::~ContextPool() { internal::subtract(internal::counters().contexts, idle_.size()); }

ContextPool::Lease::~Lease() {
  if (context_) pool_->release(std::move(context_));
}

void ContextPool::Lease::discard() noexcept {
  if (!context_) return;
  context_.reset();
  internal::subtract(internal::counters().contexts);
  std::lock_guard lock(pool_->mutex_);
  --pool_->made_;
}

Result<ContextPool::Lease> ContextPool::acquire(const void* user) {
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto it = std::find_if(idle_.begin(), idle_.end(), [&](const auto& c) { return c->last_user == user; });
      if (it == idle_.end()) it = std::prev(idle_.end());
      std::unique_ptr<PooledContext> context = std::move(*it);
      *it = std::move(idle_.back());
      idle_.pop_back();
      return Lease(*this, std::move(context));
    }
    idle_.reserve(++made_);  // So that release() never allocates.
  }
  auto give_up = [&](Status s) {
    std::lock_guard lock(mutex_);
    --made_;
    return s;
  };
  auto made = std::make_unique<PooledContext>();
  Result<std::unique_ptr<ExecutionContext>> context = engine_->create_context(entry_);
  if (!context) return give_up(context.status());
  made->context = std::move(*context);
  Result<std::unique_ptr<Stream>> stream = engine_->device().create_stream();
  if (!stream) return give_up(stream.status());
  made->stream = std::move(*stream);
  Result<std::unique_ptr<Event>> done = engine_->device().create_event();
  if (!done) return give_up(done.status());
  made->done = std::move(*done);
  const std::size_t n = engine_->entries()[entry_].bindings.size();
  made->bound.resize(n, nullptr);
  made->shapes.resize(n);
  made->shape_set.resize(n, false);
  made->staging.resize(n);
  made->pinned.resize(n);
  internal::add(internal::counters().contexts);
  return Lease(*this, std::move(made));
}

void ContextPool::release(std::unique_ptr<PooledContext> context) noexcept {
  std::lock_guard lock(mutex_);
  idle_.push_back(std::move(context));
}

}  // namespace etrt
