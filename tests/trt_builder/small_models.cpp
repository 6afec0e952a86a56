#include "trt_builder/small_models.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "trt_builder/weights.h"

namespace etrt::trt_builder {

using nvinfer1::ElementWiseOperation;

namespace {

const std::vector<float> kZero{0};

/// 1 where row s of a cache is visible for row t of an update at `position`, else 0: [1, T, S].
ITensor* visible(Network& net, ITensor* rows, int dim, ITensor* position, std::int64_t capacity) {
  ITensor* each = net.slice(net.iota(capacity, {1, capacity, 1}), net.shape({0, 0, 0}),
                            net.join_shapes({net.shape({1}), net.extent(rows, dim), net.shape({1})}));
  ITensor* last = net.add(each, net.reshape(position, {1, 1, 1}));
  ITensor* hidden = net.binary(ElementWiseOperation::kGREATER, net.iota(capacity, {1, 1, capacity}), last);
  const std::vector<float> one{1};
  return net.select(hidden, net.constant({1, 1, 1}, kZero), net.constant({1, 1, 1}, one));
}

/// Rows [start, start + count) along dim 1 of x [1, N, width].
ITensor* rows(Network& net, ITensor* x, ITensor* start, ITensor* count, std::int64_t width) {
  return net.slice(x, net.join_shapes({net.shape({0}), start, net.shape({0})}),
                   net.join_shapes({net.shape({1}), count, net.shape({width})}));
}

}  // namespace

Description add_append(Network& net) {
  ITensor* cache = net.input("cache", DataType::kFLOAT, {1, 2, 16, 4});
  ITensor* x = net.input("update", DataType::kFLOAT, {1, 2, -1, 4});
  ITensor* position = net.input("position", DataType::kINT32, {1});
  ITensor* updated = net.append(cache, x, position);
  net.output(updated, "cache_out");
  ITensor* sees = net.reshape(visible(net, x, 2, position, 16), {1, 1, -1, 16});
  net.output(net.matmul(sees, updated), "y");
  Description description;
  description.profiles = {{"prefill", {1, 8}}, {"decode", {1, 1}}};
  description.aliases = {{"cache_out", "cache"}};
  description.states["cache"] = {.input = "cache", .sequence_dim = 2};
  description.position = "position";
  return description;
}

Description add_gated_delta(Network& net) {
  constexpr std::int64_t kWidth = 16;
  constexpr std::int64_t kMost = 16;
  constexpr std::int64_t kCapacity = 32;
  constexpr float kDecay = 0.875F;
  FormulaWeights weights;
  const auto linear = [&](ITensor* in, const char* name) {
    return net.linear(in, weights.constant(net, name, {kWidth, kWidth}, DataType::kFLOAT));
  };
  ITensor* x = net.input("x", DataType::kFLOAT, {1, -1, kWidth});
  ITensor* position = net.input("position", DataType::kINT32, {1});
  ITensor* window = net.input("window", DataType::kFLOAT, {1, 3, kWidth});
  ITensor* memory = net.input("memory", DataType::kFLOAT, {1, kWidth, kWidth});
  ITensor* cache = net.input("cache", DataType::kFLOAT, {1, 1, kCapacity, kWidth});
  ITensor* count = net.extent(x, 1);

  // A causal convolution over the last 4 inputs.
  ITensor* inputs = net.concat({window, x}, 1);
  ITensor* mixed = nullptr;
  for (std::int64_t tap = 0; tap < 4; ++tap) {
    const std::string name = "tap." + std::to_string(tap);
    ITensor* scaled = net.multiply(rows(net, inputs, net.shape({tap}), count, kWidth),
                                   weights.constant(net, name, {1, 1, kWidth}, DataType::kFLOAT));
    mixed = mixed == nullptr ? scaled : net.add(mixed, scaled);
  }
  ITensor* c = net.multiply(mixed, net.sigmoid(mixed));
  ITensor* window_out = rows(net, inputs, count, net.shape({3}), kWidth);

  // S_t = decay S_(t-1) + k_t v_t', y_t = S_t' q_t, for all tokens at once.
  std::vector<float> powers;   // decay^(t + 1)
  std::vector<float> reverse;  // decay^(kMost - 1 - s)
  std::vector<float> between;  // decay^(t - s)
  for (std::int64_t t = 0; t < kMost; ++t) {
    powers.push_back(std::pow(kDecay, static_cast<float>(t + 1)));
    reverse.push_back(std::pow(kDecay, static_cast<float>(kMost - 1 - t)));
    for (std::int64_t s = 0; s < kMost; ++s)
      between.push_back(s <= t ? std::pow(kDecay, static_cast<float>(t - s)) : 0);
  }
  ITensor* one = net.shape({1});
  ITensor* rest = net.add_shapes(net.shape({kMost}), count, /*subtract=*/true);
  ITensor* last = net.add_shapes(count, one, /*subtract=*/true);
  ITensor* power = net.constant({1, kMost, 1}, powers);
  ITensor* q = linear(c, "q");
  ITensor* k = linear(c, "k");
  ITensor* v = linear(c, "v");
  ITensor* near = net.slice(net.constant({1, kMost, kMost}, between), net.shape({0, 0, 0}),
                            net.join_shapes({one, count, count}));
  ITensor* y = net.add(net.matmul(net.multiply(net.matmul(q, k, /*transpose=*/true), near), v),
                       net.multiply(net.matmul(q, memory), rows(net, power, net.shape({0}), count, 1)));
  ITensor* kept = net.multiply(memory, rows(net, power, last, one, 1));
  ITensor* aged = net.multiply(k, rows(net, net.constant({1, kMost, 1}, reverse), rest, count, 1));
  ITensor* memory_out = net.add(kept, net.matmul(net.transpose(aged, {0, 2, 1}), v));

  // Attention, keys and values the same.
  ITensor* updated = net.append(cache, net.reshape(y, {1, 1, -1, kWidth}), position);
  ITensor* sees = net.reshape(visible(net, x, 1, position, kCapacity), {1, 1, -1, kCapacity});
  const std::vector<float> large{1e9F};
  ITensor* bias = net.multiply(
      net.binary(ElementWiseOperation::kSUB, sees, net.constant({1, 1, 1, 1}, std::vector<float>{1})),
      net.constant({1, 1, 1, 1}, large));
  ITensor* scores = net.matmul(net.reshape(y, {1, 1, -1, kWidth}), updated, /*transpose=*/true);
  ITensor* seen = net.matmul(net.softmax_of_last(net.add(scores, bias)), updated);
  net.output(net.add(x, net.reshape(seen, {1, -1, kWidth})), "y");
  net.output(window_out, "window_out");
  net.output(memory_out, "memory_out");
  net.output(updated, "cache_out");

  Description description;
  description.profiles = {{"prefill", {1, kMost}}, {"decode", {1, 1}}};
  for (const std::string id : {"window", "memory", "cache"}) {
    description.aliases[id + "_out"] = id;
    description.states[id] = {.input = id, .sequence_dim = id == "cache" ? 2 : -1, .swap = id != "cache"};
  }
  description.position = "position";
  return description;
}

Description add_initial(Network& net) {
  ITensor* x = net.input("x", DataType::kFLOAT, {4});
  ITensor* total = net.input("total", DataType::kFLOAT, {4});
  net.output(net.copy(total), "y");
  net.output(net.add(total, x), "total_out");
  Description description;
  description.profiles = {{"forward", {1, 1}}};
  description.aliases = {{"total_out", "total"}};
  description.states["total"] = {.input = "total", .swap = true, .initial = {0.5F, 1.5F, 2.5F, 3.5F}};
  return description;
}

Description add_no_state(Network& net) {
  ITensor* x = net.input("x", DataType::kFLOAT, {1, 4});
  net.output(net.multiply(x, x), "y");
  Description description;
  description.profiles = {{"forward", {1, 1}}};
  return description;
}

Description add_reverse(Network& net) {
  constexpr std::int64_t kCount = std::int64_t{1} << 20;
  ITensor* x = net.input("x", DataType::kFLOAT, {1});
  ITensor* values = net.input("values", DataType::kFLOAT, {kCount});
  std::vector<std::int32_t> order(static_cast<std::size_t>(kCount));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(order.size() - 1 - i);
  ITensor* turned = net.add(net.gather(values, net.constant({kCount}, order), 0), x);
  net.output(net.copy(x), "y");
  net.output(turned, "values_out");
  Description description;
  description.profiles = {{"forward", {1, 1}}};
  description.aliases = {{"values_out", "values"}};
  description.states["values"] = {.input = "values", .swap = true};
  return description;
}

}  // namespace etrt::trt_builder
