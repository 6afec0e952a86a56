#include "delegate/cuda/append_delegate.h"

#include <executorch/extension/tensor/tensor.h>

#include <cstring>
#include <stdexcept>

#include "engines/tensorrt/gpu/plans.h"

namespace etrt::test {

namespace et = executorch::runtime;
using executorch::aten::Device;
using executorch::aten::ScalarType;
using executorch::extension::make_tensor_ptr;
using executorch::extension::TensorPtr;

namespace {

Blob blob_of(bool prefill, Ownership ownership) {
  const Shape cache{1, 2, 16, 4};
  const Shape rows{1, 2, prefill ? -1 : 1, 4};
  Blob blob;
  blob.engine_kind = find_engine_loader("tensorrt").ok() ? "tensorrt" : "tensorrt_rtx";
  blob.engine_entry = prefill ? "0" : "1";
  blob.bindings = {{"cache", DType::kFloat32, cache, true},
                   {"update", DType::kFloat32, rows, true},
                   {"position", DType::kInt32, Shape{1}, true},
                   {"cache_out", DType::kFloat32, cache, false},
                   {"y", DType::kFloat32, rows, false}};
  const bool session = ownership == Ownership::kSession;
  blob.aliases = {{"cache_out", "cache", AliasKind::kUser, ownership, session ? "cache" : ""}};
  BlobState state;
  state.id = state.input = "cache";
  state.output = "cache_out";
  state.ownership = ownership;
  state.shape = cache;
  state.sequence_dim = 2;
  blob.states = {state};
  if (session) blob.model_id = "append";
  blob.position = BlobPosition{"position", prefill ? BlobCount{"update", 2, 1} : BlobCount{}};
  return blob;
}

TensorPtr device_tensor(std::vector<std::int32_t> shape, float* data, bool on_host = false) {
  const auto device =
      on_host ? Device(executorch::aten::DeviceType::CPU) : Device(executorch::aten::DeviceType::CUDA, 0);
  return make_tensor_ptr(std::move(shape), data, ScalarType::Float, device);
}

et::Error execute(const et::BackendInterface& backend, et::DelegateHandle* handle,
                  const std::vector<TensorPtr>& tensors) {
  std::vector<et::EValue> values;
  for (const TensorPtr& tensor : tensors) values.emplace_back(*tensor);
  std::vector<et::EValue*> arguments;
  for (et::EValue& value : values) arguments.push_back(&value);
  et::BackendExecutionContext context;
  return backend.execute(context, handle, {arguments.data(), arguments.size()});
}

}  // namespace

DeviceFloats::DeviceFloats(std::size_t count) : count_(count) {
  void* data = nullptr;
  if (cudaMalloc(&data, count * sizeof(float)) != cudaSuccess) throw std::runtime_error("no device memory");
  data_ = static_cast<float*>(data);
  set(std::vector<float>(count));
}

void DeviceFloats::set(const std::vector<float>& values) {
  const cudaError_t error =
      cudaMemcpy(data_, values.data(), values.size() * sizeof(float), cudaMemcpyDefault);
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

std::vector<float> DeviceFloats::get() const {
  std::vector<float> values(count_);
  const cudaError_t error = cudaMemcpy(values.data(), data_, count_ * sizeof(float), cudaMemcpyDefault);
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
  return values;
}

AppendDelegate::AppendDelegate(const char* method, Ownership ownership, bool stage)
    : backend_(et::get_backend_class("TensorRTBackend")), caller_owned_(ownership == Ownership::kCaller) {
  const std::vector<std::byte> plan = plan_bytes("append");
  Blob blob = blob_of(std::strcmp(method, "prefill") == 0, ownership);
  blob.engine = plan;
  const Result<std::vector<std::byte>> bytes = write_blob(blob);
  if (!bytes) throw std::runtime_error(bytes.status().message());
  et::MemoryAllocator allocator(0, nullptr);
  et::BackendInitContext context(&allocator, nullptr, method);
  et::FreeableBuffer processed(bytes->data(), bytes->size(), nullptr);
  char on[] = "1";
  const et::CompileSpec spec{"stage_host_caches", {on, 1}};
  auto handle = backend_->init(context, &processed, {&spec, stage ? 1U : 0U});
  if (handle.ok()) handle_ = *handle;
}

AppendDelegate::~AppendDelegate() {
  if (handle_ != nullptr) backend_->destroy(handle_);
}

std::vector<float> AppendDelegate::run(const std::vector<float>& rows, std::int32_t position, float* cache,
                                       bool cache_on_host) {
  const auto n = static_cast<std::int32_t>(rows.size() / 8);
  std::vector<float> y(rows.size());
  std::vector<TensorPtr> tensors;
  if (caller_owned_) tensors.push_back(device_tensor({1, 2, 16, 4}, cache, cache_on_host));
  tensors.push_back(make_tensor_ptr({1, 2, n, 4}, rows));
  tensors.push_back(make_tensor_ptr({1}, std::vector<std::int32_t>{position}));
  tensors.push_back(device_tensor({1, 2, n, 4}, y.data(), /*on_host=*/true));
  return execute(*backend_, handle_, tensors) == et::Error::Ok ? y : std::vector<float>{};
}

et::Error AppendDelegate::queue(float* rows, std::int32_t n, std::int32_t position, float* cache, float* y) {
  return execute(*backend_, handle_,
                 {device_tensor({1, 2, 16, 4}, cache), device_tensor({1, 2, n, 4}, rows),
                  make_tensor_ptr({1}, std::vector<std::int32_t>{position}), device_tensor({1, 2, n, 4}, y)});
}

}  // namespace etrt::test
