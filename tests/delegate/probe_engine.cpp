#include "delegate/probe_engine.h"

#include <executorch/extension/tensor/tensor.h>

#include <array>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "blob/blob.h"

namespace etrt::test {

namespace et = executorch::runtime;

namespace {

ProbeHook& hook() {
  static ProbeHook h;
  return h;
}

const Shape kStateShape{1, 1, 8, 4};

/// "s0", "s1", ...
std::string state_name(int index) {
  std::string name("s");
  name += std::to_string(index);
  return name;
}

EngineBinding binding(std::string name, DType dtype, Shape shape, bool is_input) {
  EngineBinding b;
  b.name = std::move(name);
  b.dtype = dtype;
  b.shape = b.min_shape = b.max_shape = shape;
  b.is_input = is_input;
  return b;
}

class ProbeContext final : public ExecutionContext {
 public:
  explicit ProbeContext(std::size_t bindings) : bound_(bindings) {}
  Status set_input_shape(std::size_t, const Shape&) override { return {}; }
  Status bind(std::size_t index, void* data) override {
    bound_[index] = data;
    return {};
  }
  Status enqueue(Stream&, bool) override {
    const ProbeHook run = hook();  // A hook may replace itself.
    return run ? run(bound_) : Status();
  }
  Result<Shape> output_shape(std::size_t) const override { return Shape{1}; }
  bool shapes_before_run() const noexcept override { return true; }

 private:
  std::vector<void*> bound_;
};

class ProbeEngine final : public Engine {
 public:
  explicit ProbeEngine(int states) {
    EngineEntry entry;
    entry.name = "forward";
    entry.bindings.push_back(binding("position", DType::kInt64, {1}, true));
    for (int i = 0; i < states; ++i) {
      entry.bindings.push_back(binding(state_name(i), DType::kFloat32, kStateShape, true));
    }
    entry.bindings.push_back(binding("y", DType::kFloat32, {1}, false));
    for (int i = 0; i < states; ++i) {
      entry.bindings.push_back(binding(state_name(i) + "_out", DType::kFloat32, kStateShape, false));
    }
    entries_.push_back(std::move(entry));
  }
  Device& device() const noexcept override { return host_device(); }
  std::span<const EngineEntry> entries() const noexcept override { return entries_; }
  Result<std::unique_ptr<ExecutionContext>> create_context(std::size_t entry) override {
    return std::unique_ptr<ExecutionContext>(new ProbeContext(entries_[entry].bindings.size()));
  }

 private:
  std::vector<EngineEntry> entries_;
};

/// The engine's bytes: the number of states in decimal.
class ProbeLoader final : public EngineLoader {
 public:
  ProbeLoader() {
    if (!register_engine_loader("probe", *this)) std::abort();
  }
  Result<std::unique_ptr<Engine>> load(EngineBytes bytes, const EngineOptions&) override {
    const std::string text(reinterpret_cast<const char*>(bytes.bytes.data()), bytes.bytes.size());
    return std::unique_ptr<Engine>(new ProbeEngine(std::atoi(text.c_str())));
  }
} loader;

std::vector<std::byte> probe_blob(int states) {
  const std::string engine = std::to_string(states);
  Blob blob;
  blob.engine_kind = "probe";
  blob.engine_entry = "forward";
  blob.model_id = "probe";
  blob.engine = std::as_bytes(std::span(engine));
  blob.bindings.push_back({"position", DType::kInt64, Shape{1}, true});
  for (int i = 0; i < states; ++i) {
    const std::string name = state_name(i);
    blob.bindings.push_back({name, DType::kFloat32, kStateShape, true});
    blob.aliases.push_back({name + "_out", name, AliasKind::kUser, Ownership::kSession, name});
    BlobState state;
    state.id = name;
    state.input = name;
    state.output = name + "_out";
    state.shape = kStateShape;
    state.sequence_dim = 2;
    blob.states.push_back(std::move(state));
  }
  blob.bindings.push_back({"y", DType::kFloat32, Shape{1}, false});
  for (int i = 0; i < states; ++i) {
    blob.bindings.push_back({state_name(i) + "_out", DType::kFloat32, kStateShape, false});
  }
  if (states > 0) blob.position = BlobPosition{"position", {}};
  Result<std::vector<std::byte>> bytes = write_blob(blob);
  if (!bytes) std::abort();
  return std::move(*bytes);
}

}  // namespace

void set_probe_hook(ProbeHook h) { hook() = std::move(h); }

struct ProbeDelegate::Arguments {
  std::int64_t position_value = 0;
  float y_value = 0;
  executorch::extension::TensorPtr position = executorch::extension::make_tensor_ptr(
      std::vector<executorch::aten::SizesType>{1}, &position_value, executorch::aten::ScalarType::Long);
  executorch::extension::TensorPtr y = executorch::extension::make_tensor_ptr(
      std::vector<executorch::aten::SizesType>{1}, &y_value, executorch::aten::ScalarType::Float);
  std::array<et::EValue, 2> values{et::EValue(*position), et::EValue(*y)};
  std::array<et::EValue*, 2> pointers{&values[0], &values[1]};
};

ProbeDelegate::ProbeDelegate(int states)
    : backend_(et::get_backend_class("TensorRTBackend")), arguments_(std::make_unique<Arguments>()) {
  const std::vector<std::byte> blob = probe_blob(states);
  et::MemoryAllocator allocator(0, nullptr);
  et::BackendInitContext context(&allocator, nullptr, "forward");
  et::FreeableBuffer processed(blob.data(), blob.size(), nullptr);
  auto handle = backend_->init(context, &processed, {});
  if (handle.ok()) handle_ = *handle;
}

ProbeDelegate::~ProbeDelegate() {
  if (handle_ != nullptr) backend_->destroy(handle_);
}

et::Error ProbeDelegate::run(std::int64_t position) {
  arguments_->position_value = position;
  et::BackendExecutionContext context;
  return backend_->execute(context, handle_, {arguments_->pointers.data(), arguments_->pointers.size()});
}

}  // namespace etrt::test
