#pragma once

#include <cstdint>

#include "trt_builder/description.h"
#include "trt_builder/network.h"
#include "trt_builder/weights.h"

namespace etrt::trt_builder {

struct DecoderConfig {
  std::int64_t batch = 1;
  std::int64_t layers = 2;
  std::int64_t width = 32;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 2;
  std::int64_t inner = 64;
  std::int64_t vocabulary = 64;
  std::int64_t capacity = 32;
  std::int64_t most_tokens = 16;  ///< Of a prefill.
  double rope_theta = 10000;
  double epsilon = 1e-5;
  DataType type = DataType::kFLOAT;  ///< Of weights, caches and matrix products; kFLOAT or kHALF.
  bool last_only = false;            ///< Logits of the last token alone.
};

/// A Llama-style decoder: RMSNorm, RoPE, grouped-query attention over caches, SwiGLU; the
/// embedding is also the head.
/// Inputs: tokens int32 [B, T], position int32 [B], k.0, v.0, k.1, ... [B, KV, S, D].
/// Outputs: logits float32 [B, T or 1, V], k.0_out, ...
Description add_decoder(Network& network, Weights& weights, const DecoderConfig& config);

}  // namespace etrt::trt_builder
