#include <executorch/extension/kernel_util/make_boxed_from_unboxed_functor.h>
#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <executorch/runtime/core/exec_aten/util/tensor_util.h>
#include <executorch/runtime/kernel/kernel_runtime_context.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/stats_counters.h"

namespace etrt {

namespace et = executorch::runtime;
using executorch::aten::ScalarType;
using executorch::aten::Tensor;

namespace {

std::int64_t index_at(const Tensor& position, std::int64_t i) {
  return position.scalar_type() == ScalarType::Long
             ? position.const_data_ptr<std::int64_t>()[i]
             : static_cast<std::int64_t>(position.const_data_ptr<std::int32_t>()[i]);
}

/// etrt::kv_cache_update.out: `out` is `cache` with `update` written along sequence_dim.
///
/// cache, out [.., S, ..], update the same but T along sequence_dim, T <= S, equal dtypes.
/// position int32 or int64: one start for all rows (0-d or [1]), one for each batch row
/// ([B], dim 0), or with B == 1 one consecutive index per token ([T], the first counts).
/// When out and cache share memory only the new rows are written; otherwise the whole
/// cache is copied and counted.
Tensor& kv_cache_update_out(et::KernelRuntimeContext& context, const Tensor& cache, const Tensor& update,
                            const Tensor& position, std::int64_t sequence_dim, Tensor& out) {
  const auto rank = static_cast<std::int64_t>(cache.dim());
  const std::int64_t dim = sequence_dim < 0 ? sequence_dim + rank : sequence_dim;
  ET_KERNEL_CHECK_MSG(context, dim >= 0 && dim < rank && update.dim() == rank, InvalidArgument, out,
                      "kv_cache_update: sequence_dim %d of a cache of rank %d and an update of rank %d",
                      static_cast<int>(sequence_dim), static_cast<int>(rank), static_cast<int>(update.dim()));
  ET_KERNEL_CHECK_MSG(context,
                      cache.scalar_type() == update.scalar_type() && cache.scalar_type() == out.scalar_type(),
                      InvalidArgument, out, "kv_cache_update: cache, update and out have different dtypes");
  ET_KERNEL_CHECK_MSG(context,
                      position.scalar_type() == ScalarType::Long || position.scalar_type() == ScalarType::Int,
                      InvalidArgument, out, "kv_cache_update: position must be int32 or int64");
  ET_KERNEL_CHECK(context, et::resize_tensor(out, cache.sizes()) == et::Error::Ok, InvalidArgument, out);

  std::int64_t outer = 1;
  std::size_t inner = et::elementSize(cache.scalar_type());
  for (std::int64_t i = 0; i < rank; ++i) {
    if (i != dim) {
      ET_KERNEL_CHECK_MSG(context, cache.size(i) == update.size(i), InvalidArgument, out,
                          "kv_cache_update: extent %d of cache and update differ", static_cast<int>(i));
    }
    if (i < dim) outer *= cache.size(i);
    if (i > dim) inner *= static_cast<std::size_t>(cache.size(i));
  }
  const std::int64_t capacity = cache.size(dim);
  const std::int64_t tokens = update.size(dim);
  const std::int64_t batch = dim > 0 ? cache.size(0) : 1;
  const std::int64_t positions = position.numel();
  const bool per_row = positions == batch && batch > 1;
  ET_KERNEL_CHECK_MSG(context, positions == 1 || per_row || (batch == 1 && positions == tokens),
                      InvalidArgument, out, "kv_cache_update: %d positions for %d rows and %d tokens",
                      static_cast<int>(positions), static_cast<int>(batch), static_cast<int>(tokens));
  for (std::int64_t i = 0; i < (per_row ? batch : 1); ++i) {
    const std::int64_t start = index_at(position, i);
    ET_KERNEL_CHECK_MSG(context, start >= 0 && start <= capacity - tokens, InvalidArgument, out,
                        "kv_cache_update: position %d and %d tokens don't fit in capacity %d",
                        static_cast<int>(start), static_cast<int>(tokens), static_cast<int>(capacity));
  }

  auto* target = out.mutable_data_ptr<std::uint8_t>();
  if (out.const_data_ptr() != cache.const_data_ptr()) {
    internal::copy_cache_bytes(target, cache.const_data_ptr(), cache.nbytes());
  }
  const auto* source = update.const_data_ptr<std::uint8_t>();
  const std::size_t rows = static_cast<std::size_t>(tokens) * inner;
  const std::int64_t outer_per_row = batch > 0 ? outer / batch : 0;
  for (std::int64_t o = 0; o < outer; ++o) {
    const std::int64_t start = index_at(position, per_row ? o / outer_per_row : 0);
    std::memcpy(target + static_cast<std::size_t>(o * capacity + start) * inner,
                source + static_cast<std::size_t>(o) * rows, rows);
  }
  return out;
}

}  // namespace

}  // namespace etrt

EXECUTORCH_LIBRARY(etrt, "kv_cache_update.out", etrt::kv_cache_update_out);
