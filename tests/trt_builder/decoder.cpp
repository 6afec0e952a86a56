#include "trt_builder/decoder.h"

#include <cmath>
#include <string>

namespace etrt::trt_builder {

using nvinfer1::ElementWiseOperation;

namespace {

class Decoder {
 public:
  Decoder(Network& net, Weights& weights, const DecoderConfig& config)
      : net_(net), weights_(weights), c_(config), head_dim_(config.width / config.heads) {}

  Description add() {
    tokens_ = net_.input("tokens", DataType::kINT32, {c_.batch, -1});
    position_ = net_.input("position", DataType::kINT32, {c_.batch});
    add_tables();
    ITensor* embedding =
        weights_.constant(net_, "model.embed_tokens.weight", {c_.vocabulary, c_.width}, c_.type);
    ITensor* x = net_.cast(net_.gather(embedding, tokens_, 0), DataType::kFLOAT);
    for (std::int64_t layer = 0; layer < c_.layers; ++layer) x = add_layer(x, layer);
    if (c_.last_only) x = last_token(x);
    ITensor* logits = net_.linear(norm(x, "model.norm.weight"), embedding);
    net_.output(net_.cast(logits, DataType::kFLOAT), "logits");
    for (const auto& [name, tensor] : caches_) net_.output(tensor, name + "_out");
    return describe();
  }

 private:
  ITensor* weight(const std::string& name, std::int64_t out, std::int64_t in) {
    return weights_.constant(net_, name, {out, in}, c_.type);
  }

  /// What all layers share: RoPE's factors and the mask, for the tokens' positions.
  void add_tables() {
    ITensor* count = net_.extent(tokens_, 1);
    ITensor* each = net_.slice(net_.iota(c_.capacity, {1, c_.capacity}), net_.shape({0, 0}),
                               net_.join_shapes({net_.shape({1}), count}));   // [1, T]
    ITensor* index = net_.add(each, net_.reshape(position_, {c_.batch, 1}));  // [B, T]

    std::vector<float> cosines;
    std::vector<float> sines;
    for (std::int64_t row = 0; row < c_.capacity; ++row) {
      for (std::int64_t d = 0; d < head_dim_; ++d) {
        const auto half = static_cast<double>(head_dim_) / 2;
        const double angle = static_cast<double>(row) *
                             std::pow(c_.rope_theta, -std::fmod(static_cast<double>(d), half) / half);
        cosines.push_back(static_cast<float>(std::cos(angle)));
        sines.push_back(
            static_cast<float>(static_cast<double>(d) < half ? -std::sin(angle) : std::sin(angle)));
      }
    }
    const auto look_up = [&](const std::vector<float>& table) {
      return net_.reshape(net_.gather(net_.constant({c_.capacity, head_dim_}, table), index, 0),
                          {0, 0, 1, head_dim_});
    };
    cos_ = look_up(cosines);
    sin_ = look_up(sines);
    std::vector<std::int32_t> swap;
    for (std::int64_t d = 0; d < head_dim_; ++d) {
      swap.push_back(static_cast<std::int32_t>((d + head_dim_ / 2) % head_dim_));
    }
    swap_ = net_.constant({head_dim_}, swap);

    ITensor* hidden = net_.binary(ElementWiseOperation::kGREATER, net_.iota(c_.capacity, {1, 1, c_.capacity}),
                                  net_.reshape(index, {0, 0, 1}));  // [B, T, S]
    const std::vector<float> none{0};
    const std::vector<float> least{-1e9F};
    ITensor* bias = net_.select(hidden, net_.constant({1, 1, 1}, least), net_.constant({1, 1, 1}, none));
    bias_ = net_.transpose(net_.reshape(bias, {0, 0, -1, 1, 1}), {0, 3, 4, 1, 2});  // [B, 1, 1, T, S]
  }

  ITensor* norm(ITensor* x, const std::string& name) {
    const std::vector<float> epsilon{static_cast<float>(c_.epsilon)};
    ITensor* scale =
        net_.reshape(weights_.constant(net_, name, {c_.width}, DataType::kFLOAT), {1, 1, c_.width});
    ITensor* size =
        net_.sqrt(net_.add(net_.mean_of_last(net_.multiply(x, x)), net_.constant({1, 1, 1}, epsilon)));
    return net_.cast(net_.multiply(net_.binary(ElementWiseOperation::kDIV, x, size), scale), c_.type);
  }

  /// x [B, T, heads, D]
  ITensor* rotate(ITensor* x) {
    return net_.add(net_.multiply(x, cos_), net_.multiply(net_.gather(x, swap_, 3), sin_));
  }

  ITensor* update(const std::string& name, ITensor* rows) {
    ITensor* cache = net_.input(name, c_.type, {c_.batch, c_.kv_heads, c_.capacity, head_dim_});
    ITensor* updated = net_.append(cache, net_.transpose(net_.cast(rows, c_.type), {0, 2, 1, 3}), position_);
    caches_.emplace_back(name, updated);
    return updated;
  }

  ITensor* attention(ITensor* x, std::int64_t layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".self_attn.";
    const std::int64_t group = c_.heads / c_.kv_heads;
    const auto split = [&](const std::string& name, std::int64_t heads) {
      return net_.reshape(net_.linear(x, weight(prefix + name, heads * head_dim_, c_.width)),
                          {0, 0, heads, head_dim_});
    };
    ITensor* k = update("k." + std::to_string(layer),
                        rotate(net_.cast(split("k_proj.weight", c_.kv_heads), DataType::kFLOAT)));
    ITensor* v = update("v." + std::to_string(layer), split("v_proj.weight", c_.kv_heads));

    const std::vector<float> scale{1.0F / std::sqrt(static_cast<float>(head_dim_))};
    ITensor* q = net_.multiply(rotate(net_.cast(split("q_proj.weight", c_.heads), DataType::kFLOAT)),
                               net_.constant({1, 1, 1, 1}, scale));
    // One matrix product for all query heads of a group: the cache isn't repeated.
    q = net_.transpose(net_.reshape(net_.cast(q, c_.type), {0, 0, c_.kv_heads, group, head_dim_}),
                       {0, 2, 3, 1, 4});
    ITensor* scores = net_.matmul(net_.reshape(q, {0, 0, -1, head_dim_}), k, /*transpose=*/true);
    scores = net_.reshape(net_.cast(scores, DataType::kFLOAT), {0, 0, group, -1, c_.capacity});
    ITensor* seen = net_.cast(net_.softmax_of_last(net_.add(scores, bias_)), c_.type);
    ITensor* mixed = net_.matmul(net_.reshape(seen, {0, 0, -1, c_.capacity}), v);
    mixed = net_.transpose(net_.reshape(mixed, {0, 0, group, -1, head_dim_}), {0, 3, 1, 2, 4});
    return net_.linear(net_.reshape(mixed, {0, 0, c_.width}),
                       weight(prefix + "o_proj.weight", c_.width, c_.width));
  }

  ITensor* feed_forward(ITensor* x, std::int64_t layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".mlp.";
    ITensor* gate = net_.linear(x, weight(prefix + "gate_proj.weight", c_.inner, c_.width));
    ITensor* up = net_.linear(x, weight(prefix + "up_proj.weight", c_.inner, c_.width));
    ITensor* inner = net_.multiply(net_.multiply(gate, net_.sigmoid(gate)), up);
    return net_.linear(inner, weight(prefix + "down_proj.weight", c_.width, c_.inner));
  }

  ITensor* add_layer(ITensor* x, std::int64_t layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    ITensor* seen = attention(norm(x, prefix + "input_layernorm.weight"), layer);
    x = net_.add(x, net_.cast(seen, DataType::kFLOAT));
    ITensor* thought = feed_forward(norm(x, prefix + "post_attention_layernorm.weight"), layer);
    return net_.add(x, net_.cast(thought, DataType::kFLOAT));
  }

  ITensor* last_token(ITensor* x) {
    ITensor* last = net_.add_shapes(net_.extent(tokens_, 1), net_.shape({1}), /*subtract=*/true);
    return net_.slice(x, net_.join_shapes({net_.shape({0}), last, net_.shape({0})}),
                      net_.shape({c_.batch, 1, c_.width}));
  }

  Description describe() const {
    Description description;
    description.profiles = {{"prefill", {1, c_.most_tokens}}, {"decode", {1, 1}}};
    description.position = "position";
    for (const auto& [name, tensor] : caches_) {
      description.aliases[name + "_out"] = name;
      description.states[name] = {.input = name, .sequence_dim = 2};
    }
    return description;
  }

  Network& net_;
  Weights& weights_;
  const DecoderConfig& c_;
  std::int64_t head_dim_;
  ITensor* tokens_ = nullptr;
  ITensor* position_ = nullptr;
  ITensor* cos_ = nullptr;  ///< [B, T, 1, D]
  ITensor* sin_ = nullptr;
  ITensor* swap_ = nullptr;  ///< [D]: the other half's place.
  ITensor* bias_ = nullptr;  ///< [B, 1, 1, T, S]
  std::vector<std::pair<std::string, ITensor*>> caches_;
};

}  // namespace

Description add_decoder(Network& network, Weights& weights, const DecoderConfig& config) {
  return Decoder(network, weights, config).add();
}

}  // namespace etrt::trt_builder
