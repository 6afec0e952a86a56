#include "trt_builder/network.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#define ETRT_BUILDER_AT_LEAST(major, minor) \
  (NV_TENSORRT_MAJOR > (major) || (NV_TENSORRT_MAJOR == (major) && NV_TENSORRT_MINOR >= (minor)))
// TensorRT-RTX numbers its versions from 1 and has the interface of TensorRT 10 and later.
#define ETRT_BUILDER_RTX (NV_TENSORRT_MAJOR == 1)
#define ETRT_BUILDER_STRONG (ETRT_BUILDER_RTX || ETRT_BUILDER_AT_LEAST(10, 0))
#define ETRT_BUILDER_KV ((ETRT_BUILDER_RTX && NV_TENSORRT_MINOR >= 4) || ETRT_BUILDER_AT_LEAST(10, 15))

namespace etrt::trt_builder {

using nvinfer1::ElementWiseOperation;

namespace {

nvinfer1::Dims dims(std::span<const std::int64_t> extents) {
  nvinfer1::Dims result{};
  result.nbDims = static_cast<std::int32_t>(extents.size());
  for (std::size_t i = 0; i < extents.size(); ++i) {
    result.d[i] = static_cast<std::decay_t<decltype(result.d[0])>>(extents[i]);
  }
  return result;
}

nvinfer1::Dims repeated(std::int32_t rank, int value) {
  return dims(Extents(static_cast<std::size_t>(rank), value));
}

/// What shapes are made of.
constexpr DataType kShapeType =
    ETRT_BUILDER_STRONG ? static_cast<DataType>(8) : DataType::kINT32;  // 8: kINT64

}  // namespace

bool has_kv_cache_update() noexcept { return ETRT_BUILDER_KV != 0; }

template <typename Layer>
ITensor* Network::result(Layer* layer, DataType type, const char* what) {
  if (layer == nullptr || layer->getOutput(0) == nullptr) {
    throw std::runtime_error(std::string("TensorRT refuses a layer: ") + what);
  }
  types_[layer->getOutput(0)] = type;
  return layer->getOutput(0);
}

// TensorRT 8 takes types as hints unless they are set for a layer, and finds no implementation for
// some graphs where they are set for layers that only move data.
template <typename Layer>
ITensor* Network::computed(Layer* layer, DataType type, const char* what) {
  ITensor* tensor = result(layer, type, what);
#if !ETRT_BUILDER_STRONG
  if (type == DataType::kFLOAT || type == DataType::kHALF) {
    layer->setPrecision(type);
    layer->setOutputType(0, type);
  }
#endif
  return tensor;
}

DataType Network::type(ITensor* tensor) const { return types_.at(tensor); }

ITensor* Network::input(const std::string& name, DataType type, const Extents& shape) {
  ITensor* tensor = network_.addInput(name.c_str(), type, dims(shape));
  if (tensor == nullptr) throw std::runtime_error("TensorRT refuses input " + name);
  types_[tensor] = type;
  return tensor;
}

void Network::output(ITensor* tensor, const std::string& name) {
  tensor->setName(name.c_str());
  network_.markOutput(*tensor);
#if !ETRT_BUILDER_STRONG
  tensor->setType(type(tensor));  // Only so does TensorRT 8 keep to it.
  tensor->setAllowedFormats(1U << static_cast<unsigned>(nvinfer1::TensorFormat::kLINEAR));
#endif
}

ITensor* Network::constant(const Values& values) {
  std::int64_t count = 1;
  for (const std::int64_t extent : values.shape) count *= extent;
  auto* layer = network_.addConstant(dims(values.shape), {values.type, values.data, count});
  return result(layer, values.type, "constant");
}

ITensor* Network::constant(const Extents& shape, std::span<const float> values, DataType type) {
  const bool half = type == DataType::kHALF;
  std::vector<std::byte>& bytes = keep(values.size() * (half ? sizeof(_Float16) : sizeof(float)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto narrow = static_cast<_Float16>(values[i]);
    if (half) {
      std::memcpy(bytes.data() + i * sizeof(narrow), &narrow, sizeof(narrow));
    } else {
      std::memcpy(bytes.data() + i * sizeof(float), &values[i], sizeof(float));
    }
  }
  return constant({type, shape, bytes.data()});
}

ITensor* Network::constant(const Extents& shape, const std::vector<std::int32_t>& values) {
  std::vector<std::byte>& bytes = keep(values.size() * sizeof(std::int32_t));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return constant({DataType::kINT32, shape, bytes.data()});
}

ITensor* Network::iota(std::int64_t count, const Extents& shape) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i);
  return constant(shape, values);
}

ITensor* Network::cast(ITensor* x, DataType type) {
  if (types_.at(x) == type) return x;
  auto* layer = network_.addCast(*x, type);
  return computed(layer, type, "cast");
}

ITensor* Network::copy(ITensor* x) { return result(network_.addIdentity(*x), type(x), "identity"); }

ITensor* Network::sigmoid(ITensor* x) {
  auto* layer = network_.addActivation(*x, nvinfer1::ActivationType::kSIGMOID);
  return computed(layer, type(x), "sigmoid");
}

ITensor* Network::sqrt(ITensor* x) {
  auto* layer = network_.addUnary(*x, nvinfer1::UnaryOperation::kSQRT);
  return computed(layer, type(x), "sqrt");
}

ITensor* Network::binary(ElementWiseOperation operation, ITensor* a, ITensor* b) {
  auto* layer = network_.addElementWise(*a, *b, operation);
  const bool compares =
      operation == ElementWiseOperation::kLESS || operation == ElementWiseOperation::kGREATER;
  return computed(layer, compares ? DataType::kBOOL : type(a), "elementwise");
}

ITensor* Network::select(ITensor* condition, ITensor* yes, ITensor* no) {
  auto* layer = network_.addSelect(*condition, *yes, *no);
  return result(layer, type(yes), "select");
}

ITensor* Network::mean_of_last(ITensor* x) {
  const std::uint32_t axes = 1U << static_cast<unsigned>(x->getDimensions().nbDims - 1);
  auto* layer = network_.addReduce(*x, nvinfer1::ReduceOperation::kAVG, axes, /*keepDimensions=*/true);
  return computed(layer, type(x), "mean");
}

ITensor* Network::softmax_of_last(ITensor* x) {
  auto* layer = network_.addSoftMax(*x);
  ITensor* y = computed(layer, type(x), "softmax");
  layer->setAxes(1U << static_cast<unsigned>(x->getDimensions().nbDims - 1));
  return y;
}

ITensor* Network::matmul(ITensor* a, ITensor* b, bool transpose) {
  using nvinfer1::MatrixOperation;
  auto* layer = network_.addMatrixMultiply(*a, MatrixOperation::kNONE, *b,
                                           transpose ? MatrixOperation::kTRANSPOSE : MatrixOperation::kNONE);
  return computed(layer, type(a), "matrix product");
}

ITensor* Network::linear(ITensor* x, ITensor* weight) {
  const nvinfer1::Dims shape = weight->getDimensions();
  return matmul(x, reshape(weight, {1, shape.d[0], shape.d[1]}), /*transpose=*/true);
}

ITensor* Network::reshape(ITensor* x, const Extents& shape) {
  auto* layer = network_.addShuffle(*x);
  ITensor* y = result(layer, type(x), "reshape");
  layer->setReshapeDimensions(dims(shape));
  return y;
}

ITensor* Network::transpose(ITensor* x, std::initializer_list<int> order) {
  auto* layer = network_.addShuffle(*x);
  ITensor* y = result(layer, type(x), "transpose");
  nvinfer1::Permutation permutation{};
  std::copy(order.begin(), order.end(), permutation.order);
  layer->setFirstTranspose(permutation);
  return y;
}

ITensor* Network::concat(std::initializer_list<ITensor*> parts, int axis) {
  const std::vector<ITensor*> list(parts);
  auto* layer = network_.addConcatenation(list.data(), static_cast<std::int32_t>(list.size()));
  ITensor* y = result(layer, type(list[0]), "concatenation");
  layer->setAxis(axis);
  return y;
}

ITensor* Network::gather(ITensor* x, ITensor* indices, int axis, int batch_dims) {
  auto* layer = network_.addGather(*x, *indices, axis);
  ITensor* y = result(layer, type(x), "gather");
  layer->setNbElementWiseDims(batch_dims);
  return y;
}

ITensor* Network::extent(ITensor* x, int dim) {
  ITensor* whole = result(network_.addShape(*x), kShapeType, "shape");
  return result(network_.addSlice(*whole, dims(Extents{dim}), dims(Extents{1}), dims(Extents{1})), kShapeType,
                "extent");
}

ITensor* Network::shape(std::initializer_list<std::int64_t> numbers) {
  const auto count = static_cast<std::int64_t>(numbers.size());
  const bool wide = kShapeType != DataType::kINT32;
  std::vector<std::byte>& bytes = keep(numbers.size() * (wide ? sizeof(std::int64_t) : sizeof(std::int32_t)));
  std::byte* next = bytes.data();
  for (const std::int64_t number : numbers) {
    const auto narrow = static_cast<std::int32_t>(number);
    const std::size_t size = wide ? sizeof(number) : sizeof(narrow);
    std::memcpy(next, wide ? static_cast<const void*>(&number) : &narrow, size);
    next += size;
  }
  return constant({kShapeType, {count}, bytes.data()});
}

ITensor* Network::add_shapes(ITensor* a, ITensor* b, bool subtract) {
  return binary(subtract ? ElementWiseOperation::kSUB : ElementWiseOperation::kSUM, a, b);
}

ITensor* Network::slice(ITensor* x, ITensor* start, ITensor* size) {
  const std::int32_t rank = x->getDimensions().nbDims;
  auto* layer = network_.addSlice(*x, repeated(rank, 0), repeated(rank, 1), repeated(rank, 1));
  ITensor* y = result(layer, type(x), "slice");
  layer->setInput(1, *start);
  layer->setInput(2, *size);
  return y;
}

ITensor* Network::append(ITensor* cache, ITensor* update, ITensor* position) {
#if ETRT_BUILDER_KV
  return result(network_.addKVCacheUpdate(*cache, *update, *position, nvinfer1::KVCacheMode::kLINEAR),
                type(cache), "cache update");
#else
  // A select between the old row and the new one, which is safe where input and output share
  // memory: an element of the output depends on no other element of the cache, and computing it
  // again from what has been written already gives the same value. So it doesn't matter in which
  // order TensorRT does it, nor whether it does it twice.
  const nvinfer1::Dims cached = cache->getDimensions();
  const std::int64_t batch = cached.d[0];
  const std::int64_t capacity = cached.d[2];
  ITensor* zero = constant({1, 1}, std::vector<std::int32_t>{0});
  ITensor* one = constant({1, 1}, std::vector<std::int32_t>{1});
  ITensor* rows = reshape(cast(extent(update, 2), DataType::kINT32), {1, 1});
  ITensor* row = binary(ElementWiseOperation::kSUB, iota(capacity, {1, capacity}),
                        reshape(position, {batch, 1}));  // Of the update, [B, S].
  ITensor* inside =
      binary(ElementWiseOperation::kAND,
             binary(ElementWiseOperation::kGREATER, row, binary(ElementWiseOperation::kSUB, zero, one)),
             binary(ElementWiseOperation::kLESS, row, rows));
  ITensor* clamped = binary(ElementWiseOperation::kMIN, binary(ElementWiseOperation::kMAX, row, zero),
                            binary(ElementWiseOperation::kSUB, rows, one));
  ITensor* fresh =
      batch == 1 ? gather(update, reshape(clamped, {capacity}), 2) : gather(update, clamped, 2, 1);
  return select(reshape(inside, {batch, 1, capacity, 1}), fresh, cache);
#endif
}

}  // namespace etrt::trt_builder
