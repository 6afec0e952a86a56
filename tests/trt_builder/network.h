#pragma once

#include <NvInfer.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <vector>

/// TensorRT's network API as expressions on tensors, alike on TensorRT 8.6, 10, 11 and TensorRT-RTX.
/// Everything here throws std::runtime_error for what TensorRT refuses: this is a tool for tests.
namespace etrt::trt_builder {

using nvinfer1::DataType;
using nvinfer1::ITensor;
using Extents = std::vector<std::int64_t>;

/// A cache update is a layer of its own, which names its alias.
bool has_kv_cache_update() noexcept;

/// Not the bytes, which must live until the network has been built.
struct Values {
  DataType type = DataType::kFLOAT;
  Extents shape;
  const void* data = nullptr;
};

/// A network under construction. Tensors belong to it. Each tensor keeps the type that it is
/// made with, also where TensorRT 8 would choose a faster one.
class Network {
 public:
  explicit Network(nvinfer1::INetworkDefinition& network) : network_(network) {}

  /// -1 where a profile decides the extent.
  ITensor* input(const std::string& name, DataType type, const Extents& shape);
  void output(ITensor* tensor, const std::string& name);
  /// What the tensor was made with; TensorRT 8 answers kFLOAT for some that aren't.
  DataType type(ITensor* tensor) const;

  ITensor* constant(const Values& values);
  /// Copied, and converted to `type`, kFLOAT or kHALF.
  ITensor* constant(const Extents& shape, std::span<const float> values, DataType type = DataType::kFLOAT);
  ITensor* constant(const Extents& shape, const std::vector<std::int32_t>& values);
  /// 0, 1, ... count - 1 as int32 in `shape`.
  ITensor* iota(std::int64_t count, const Extents& shape);

  ITensor* cast(ITensor* x, DataType type);
  ITensor* copy(ITensor* x);
  ITensor* sigmoid(ITensor* x);
  ITensor* sqrt(ITensor* x);
  ITensor* binary(nvinfer1::ElementWiseOperation operation, ITensor* a, ITensor* b);
  ITensor* add(ITensor* a, ITensor* b) { return binary(nvinfer1::ElementWiseOperation::kSUM, a, b); }
  ITensor* multiply(ITensor* a, ITensor* b) { return binary(nvinfer1::ElementWiseOperation::kPROD, a, b); }
  ITensor* select(ITensor* condition, ITensor* yes, ITensor* no);
  ITensor* mean_of_last(ITensor* x);
  ITensor* softmax_of_last(ITensor* x);
  /// Of the last two dims; `transpose` is of b's.
  ITensor* matmul(ITensor* a, ITensor* b, bool transpose = false);
  /// x [..., in] of rank 3, weight [out, in].
  ITensor* linear(ITensor* x, ITensor* weight);
  /// 0 copies the extent of x's dim at that place, -1 follows.
  ITensor* reshape(ITensor* x, const Extents& shape);
  ITensor* transpose(ITensor* x, std::initializer_list<int> order);
  ITensor* concat(std::initializer_list<ITensor*> parts, int axis);
  ITensor* gather(ITensor* x, ITensor* indices, int axis, int batch_dims = 0);

  /// Extent `dim` of x, as a shape tensor [1].
  ITensor* extent(ITensor* x, int dim);
  ITensor* shape(std::initializer_list<std::int64_t> numbers);
  ITensor* add_shapes(ITensor* a, ITensor* b, bool subtract = false);
  ITensor* join_shapes(std::initializer_list<ITensor*> parts) { return concat(parts, 0); }
  /// Elements [start, start + size) of each dim.
  ITensor* slice(ITensor* x, ITensor* start, ITensor* size);

  /// cache [B, H, S, D] with update [B, H, n, D] at rows [position[b], position[b] + n).
  /// Its output may share the cache's memory: see the comment there.
  ITensor* append(ITensor* cache, ITensor* update, ITensor* position);

 private:
  /// The layer's output, which has `type`.
  template <typename Layer>
  ITensor* result(Layer* layer, DataType type, const char* what);
  /// The same for a layer that computes, whose type TensorRT 8 is told.
  template <typename Layer>
  ITensor* computed(Layer* layer, DataType type, const char* what);
  std::vector<std::byte>& keep(std::size_t bytes) { return kept_.emplace_back(bytes); }

  nvinfer1::INetworkDefinition& network_;
  std::deque<std::vector<std::byte>> kept_;  ///< What constants point to.
  std::map<ITensor*, DataType> types_;
};

}  // namespace etrt::trt_builder
