#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "engine/engine.h"

/// What every engine must do, whatever computes: include this in a test program and
/// INSTANTIATE_TEST_SUITE_P(<Engine>, EngineSuite, testing::Values(EngineUnderTest{...})).
///
/// The engine holds one program with two entries, prefill (1..N rows) and decode (1 row),
/// bindings in this order:
///   inputs   cache [1, H, S, D] float32, update [1, H, n, D] float32, position [1] int32
///   outputs  cache_out = cache with rows [position, position + n) replaced by update
///            y[h, t] = sum of cache_out[h, r] over r <= position + t, r < S
/// Values are small integers, so that every engine's arithmetic is exact and results can
/// be compared bit for bit.
namespace etrt::conformance {

struct EngineUnderTest {
  std::string name;
  std::function<Result<std::shared_ptr<Engine>>()> load;
  std::size_t prefill = 0;  ///< Index of the entry.
  std::size_t decode = 1;
  bool tells_ranges = true;      ///< Of dynamic extents; an ExecuTorch program tells the greatest ones alone.
  bool wants_alignment = false;  ///< Refuses addresses that aren't multiples of Device::kAlignment.
};
inline void PrintTo(const EngineUnderTest& engine, std::ostream* os) { *os << engine.name; }

enum Binding : std::size_t { kCache, kUpdate, kPosition, kCacheOut, kY, kBindings };

/// Device memory with the values of a host vector.
class Tensor {
 public:
  template <typename T>
  Tensor(Device& device, Stream& stream, const std::vector<T>& values) {
    Result<Buffer> buffer = device.allocate_zeroed(values.size() * sizeof(T), stream);
    EXPECT_TRUE(buffer.ok()) << buffer.status().message();
    if (!buffer.ok()) return;
    buffer_ = std::move(*buffer);
    set(stream, values);
  }

  template <typename T>
  void set(Stream& stream, const std::vector<T>& values) {
    EXPECT_TRUE(stream.copy(buffer_.data(), values.data(), values.size() * sizeof(T)).ok());
    EXPECT_TRUE(stream.synchronize().ok());
  }

  std::vector<float> get(Stream& stream) const {
    std::vector<float> values(buffer_.bytes() / sizeof(float));
    EXPECT_TRUE(stream.copy(values.data(), buffer_.data(), buffer_.bytes()).ok());
    EXPECT_TRUE(stream.synchronize().ok());
    return values;
  }

  void* data() const noexcept { return buffer_.data(); }

 private:
  Buffer buffer_;
};

class EngineSuite : public testing::TestWithParam<EngineUnderTest> {
 protected:
  void SetUp() override {
    Result<std::shared_ptr<Engine>> engine = GetParam().load();
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engine_ = *engine;
    Result<std::unique_ptr<Stream>> stream = device().create_stream();
    ASSERT_TRUE(stream.ok()) << stream.status().message();
    stream_ = std::move(*stream);
    ASSERT_EQ(prefill().bindings.size(), kBindings);
    ASSERT_EQ(decode().bindings.size(), kBindings);
    const Shape& cache = prefill().bindings[kCache].shape;
    ASSERT_EQ(cache.rank(), 4U);
    ASSERT_TRUE(cache.is_static());
    heads_ = cache[1];
    capacity_ = cache[2];
    head_dim_ = cache[3];
    most_ = prefill().bindings[kUpdate].max_shape[2];
    ASSERT_GE(most_, 4);
    ASSERT_GE(capacity_, 2 * most_);
  }

  Device& device() const { return engine_->device(); }
  const EngineEntry& prefill() const { return engine_->entries()[GetParam().prefill]; }
  const EngineEntry& decode() const { return engine_->entries()[GetParam().decode]; }

  std::unique_ptr<ExecutionContext> context(std::size_t entry) const {
    Result<std::unique_ptr<ExecutionContext>> made = engine_->create_context(entry);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? std::move(*made) : nullptr;
  }

  std::size_t floats(std::int64_t rows) const { return static_cast<std::size_t>(heads_ * rows * head_dim_); }
  Shape rows_shape(std::int64_t rows) const { return {1, heads_, rows, head_dim_}; }

  /// Row values that tell head, position and sequence apart.
  float value(std::int64_t head, std::int64_t position, std::int64_t dim, int sequence) const {
    return static_cast<float>((head * 31 + position * 7 + dim * 3 + sequence * 13) % 17 - 8);
  }

  /// update for positions [first, first + rows).
  std::vector<float> update(std::int64_t first, std::int64_t rows, int sequence) const {
    std::vector<float> values;
    for (std::int64_t h = 0; h < heads_; ++h) {
      for (std::int64_t t = 0; t < rows; ++t) {
        for (std::int64_t d = 0; d < head_dim_; ++d) values.push_back(value(h, first + t, d, sequence));
      }
    }
    return values;
  }

  /// A cache that holds [0, length) of the sequence, and `rest` everywhere else.
  std::vector<float> expected_cache(std::int64_t length, int sequence, float rest = 0) const {
    std::vector<float> values;
    for (std::int64_t h = 0; h < heads_; ++h) {
      for (std::int64_t r = 0; r < capacity_; ++r) {
        for (std::int64_t d = 0; d < head_dim_; ++d) {
          values.push_back(r < length ? value(h, r, d, sequence) : rest);
        }
      }
    }
    return values;
  }

  /// y of the rows [first, first + rows).
  std::vector<float> expected_y(std::int64_t first, std::int64_t rows, int sequence) const {
    std::vector<float> values;
    for (std::int64_t h = 0; h < heads_; ++h) {
      for (std::int64_t t = 0; t < rows; ++t) {
        for (std::int64_t d = 0; d < head_dim_; ++d) {
          float sum = 0;
          for (std::int64_t r = 0; r <= first + t; ++r) sum += value(h, r, d, sequence);
          values.push_back(sum);
        }
      }
    }
    return values;
  }

  /// One run, waited for; y.
  std::vector<float> run(ExecutionContext& context, Stream& stream, void* cache_in, void* cache_out,
                         std::int64_t position, std::int64_t rows, int sequence) const {
    Tensor x(device(), stream, update(position, rows, sequence));
    Tensor p(device(), stream, std::vector<std::int32_t>{static_cast<std::int32_t>(position)});
    Tensor y(device(), stream, std::vector<float>(floats(most_), -1));
    EXPECT_TRUE(ok(context.set_input_shape(kUpdate, rows_shape(rows))));
    EXPECT_TRUE(ok(context.bind(kCache, cache_in)));
    EXPECT_TRUE(ok(context.bind(kCacheOut, cache_out)));
    EXPECT_TRUE(ok(context.bind(kUpdate, x.data())));
    EXPECT_TRUE(ok(context.bind(kPosition, p.data())));
    EXPECT_TRUE(ok(context.bind(kY, y.data())));
    EXPECT_TRUE(ok(context.enqueue(stream, /*wait=*/true)));
    std::vector<float> values = y.get(stream);
    values.resize(floats(rows));
    return values;
  }

  static testing::AssertionResult ok(const Status& status) {
    if (status.ok()) return testing::AssertionSuccess();
    return testing::AssertionFailure() << to_string(status.code()) << ": " << status.message();
  }

  std::shared_ptr<Engine> engine_;
  std::unique_ptr<Stream> stream_;
  std::int64_t heads_ = 0, capacity_ = 0, head_dim_ = 0, most_ = 0;
};

TEST_P(EngineSuite, EntriesDescribeTheirBindings) {
  for (const EngineEntry* entry : {&prefill(), &decode()}) {
    const bool is_prefill = entry == &prefill();
    for (std::size_t i = 0; i < kBindings; ++i) {
      const EngineBinding& b = entry->bindings[i];
      EXPECT_EQ(b.is_input, i < kCacheOut) << i;
      EXPECT_EQ(b.dtype, i == kPosition ? DType::kInt32 : DType::kFloat32) << i;
      if (i != kCacheOut) {
        EXPECT_EQ(b.declared_alias, -1) << i;
      }
      if (b.shape.is_static()) {
        EXPECT_EQ(b.max_shape, b.shape) << i;
        if (b.is_input) {
          EXPECT_EQ(b.min_shape, b.shape) << i;
        }
      }
    }
    const std::int64_t most = is_prefill ? most_ : 1;
    EXPECT_EQ(entry->bindings[kCache].shape, Shape({1, heads_, capacity_, head_dim_}));
    EXPECT_EQ(entry->bindings[kCacheOut].shape, Shape({1, heads_, capacity_, head_dim_}));
    if (GetParam().tells_ranges) {
      EXPECT_EQ(entry->bindings[kUpdate].shape, rows_shape(is_prefill ? -1 : 1));
      EXPECT_EQ(entry->bindings[kUpdate].min_shape, rows_shape(1));
    }
    EXPECT_EQ(entry->bindings[kUpdate].max_shape, rows_shape(most));
    EXPECT_EQ(entry->bindings[kY].max_shape, rows_shape(most));
  }
}

TEST_P(EngineSuite, AppendWritesItsRowsAndNoOthers) {
  constexpr float kUntouched = 5;
  auto context = this->context(GetParam().prefill);
  Tensor cache(device(), *stream_, expected_cache(0, 0, kUntouched));
  EXPECT_EQ(run(*context, *stream_, cache.data(), cache.data(), 0, 3, 1), expected_y(0, 3, 1));
  EXPECT_EQ(cache.get(*stream_), expected_cache(3, 1, kUntouched));
}

TEST_P(EngineSuite, ChunksGiveWhatOneRunGives) {
  const std::int64_t total = 2 * most_;
  for (const std::int64_t chunk : {std::int64_t{1}, std::int64_t{3}, most_}) {
    auto context = this->context(GetParam().prefill);
    Tensor cache(device(), *stream_, expected_cache(0, 0));
    for (std::int64_t first = 0; first < total; first += chunk) {
      const std::int64_t rows = std::min(chunk, total - first);
      EXPECT_EQ(run(*context, *stream_, cache.data(), cache.data(), first, rows, 1),
                expected_y(first, rows, 1))
          << "chunk " << chunk << " at " << first;
    }
    EXPECT_EQ(cache.get(*stream_), expected_cache(total, 1)) << "chunk " << chunk;
  }
}

TEST_P(EngineSuite, TheLastRowOfTheCacheCanBeWritten) {
  auto context = this->context(GetParam().decode);
  Tensor cache(device(), *stream_, expected_cache(capacity_ - 1, 2));
  EXPECT_EQ(run(*context, *stream_, cache.data(), cache.data(), capacity_ - 1, 1, 2),
            expected_y(capacity_ - 1, 1, 2));
  EXPECT_EQ(cache.get(*stream_), expected_cache(capacity_, 2));
}

TEST_P(EngineSuite, AnOverwriteFromAnEarlierPositionReplaces) {
  auto context = this->context(GetParam().prefill);
  Tensor cache(device(), *stream_, expected_cache(most_, 1));
  EXPECT_EQ(run(*context, *stream_, cache.data(), cache.data(), 0, most_, 2), expected_y(0, most_, 2));
  EXPECT_EQ(cache.get(*stream_), expected_cache(most_, 2));
}

TEST_P(EngineSuite, TwoEntriesShareOneCache) {
  auto first = this->context(GetParam().prefill);
  auto second = this->context(GetParam().decode);
  Tensor cache(device(), *stream_, expected_cache(0, 0));
  run(*first, *stream_, cache.data(), cache.data(), 0, 4, 3);
  EXPECT_EQ(run(*second, *stream_, cache.data(), cache.data(), 4, 1, 3), expected_y(4, 1, 3));
  EXPECT_EQ(run(*second, *stream_, cache.data(), cache.data(), 5, 1, 3), expected_y(5, 1, 3));
  EXPECT_EQ(run(*first, *stream_, cache.data(), cache.data(), 6, 2, 3), expected_y(6, 2, 3));
  EXPECT_EQ(cache.get(*stream_), expected_cache(8, 3));
}

TEST_P(EngineSuite, ARebindMovesToAnotherCacheAndBack) {
  auto context = this->context(GetParam().decode);
  Tensor a(device(), *stream_, expected_cache(0, 0));
  Tensor b(device(), *stream_, expected_cache(0, 0));
  for (std::int64_t position = 0; position < 3; ++position) {
    EXPECT_EQ(run(*context, *stream_, a.data(), a.data(), position, 1, 1), expected_y(position, 1, 1));
    EXPECT_EQ(run(*context, *stream_, b.data(), b.data(), position, 1, 2), expected_y(position, 1, 2));
  }
  EXPECT_EQ(a.get(*stream_), expected_cache(3, 1));
  EXPECT_EQ(b.get(*stream_), expected_cache(3, 2));
}

TEST_P(EngineSuite, AnOutputElsewhereGetsTheWholeNewCacheUnlessTheEngineDeclaresAnAlias) {
  auto context = this->context(GetParam().prefill);
  Tensor before(device(), *stream_, expected_cache(2, 1));
  Tensor after(device(), *stream_, expected_cache(0, 0, -3));
  if (prefill().bindings[kCacheOut].declared_alias < 0) {
    EXPECT_EQ(run(*context, *stream_, before.data(), after.data(), 2, 2, 1), expected_y(2, 2, 1));
    EXPECT_EQ(before.get(*stream_), expected_cache(2, 1));
    EXPECT_EQ(after.get(*stream_), expected_cache(4, 1));
  } else {
    EXPECT_EQ(prefill().bindings[kCacheOut].declared_alias, int{kCache});
    EXPECT_EQ(run(*context, *stream_, before.data(), before.data(), 2, 1, 1), expected_y(2, 1, 1));
    ASSERT_TRUE(ok(context->bind(kCacheOut, after.data())));
    const Status refused = context->enqueue(*stream_, /*wait=*/true);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << refused.message();
    EXPECT_EQ(after.get(*stream_), expected_cache(0, 0, -3));
    EXPECT_EQ(run(*context, *stream_, before.data(), before.data(), 3, 1, 1), expected_y(3, 1, 1));
  }
}

TEST_P(EngineSuite, ShapesOutsideTheEntryAreRefusedAndChangeNothing) {
  auto context = this->context(GetParam().prefill);
  Tensor cache(device(), *stream_, expected_cache(0, 0));
  ASSERT_TRUE(ok(context->set_input_shape(kUpdate, rows_shape(2))));
  for (const Shape& shape : {rows_shape(most_ + 1), rows_shape(0), Shape{1, heads_ + 1, 2, head_dim_},
                             Shape{1, heads_, 2}, Shape{1, heads_, 2, head_dim_, 1}}) {
    const Status refused = context->set_input_shape(kUpdate, shape);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << to_string(shape);
    EXPECT_NE(refused.message().find(to_string(shape)), std::string::npos) << refused.message();
    EXPECT_NE(refused.message().find(std::to_string(most_)), std::string::npos) << refused.message();
  }
  Result<Shape> y = context->shapes_before_run() ? context->output_shape(kY) : Result<Shape>(rows_shape(2));
  ASSERT_TRUE(y.ok());
  EXPECT_EQ(*y, rows_shape(2));
  EXPECT_EQ(run(*context, *stream_, cache.data(), cache.data(), 0, 2, 1), expected_y(0, 2, 1));

  auto one_row = this->context(GetParam().decode);
  EXPECT_EQ(one_row->set_input_shape(kUpdate, rows_shape(2)).code(), Code::kInvalidArgument);
  EXPECT_EQ(run(*one_row, *stream_, cache.data(), cache.data(), 2, 1, 1), expected_y(2, 1, 1));
}

TEST_P(EngineSuite, OutputShapesFollowTheInputs) {
  auto context = this->context(GetParam().prefill);
  Tensor cache(device(), *stream_, expected_cache(0, 0));
  for (const std::int64_t rows : {std::int64_t{2}, most_, std::int64_t{1}}) {
    run(*context, *stream_, cache.data(), cache.data(), 0, rows, 1);
    Result<Shape> y = context->output_shape(kY);
    ASSERT_TRUE(y.ok()) << y.status().message();
    EXPECT_EQ(*y, rows_shape(rows));
    Result<Shape> cache_out = context->output_shape(kCacheOut);
    ASSERT_TRUE(cache_out.ok()) << cache_out.status().message();
    EXPECT_EQ(*cache_out, Shape({1, heads_, capacity_, head_dim_}));
  }
}

TEST_P(EngineSuite, BadAddressesAreRefusedAndChangeNothing) {
  auto context = this->context(GetParam().decode);
  Tensor cache(device(), *stream_, expected_cache(0, 0));
  run(*context, *stream_, cache.data(), cache.data(), 0, 1, 1);
  EXPECT_EQ(context->bind(kCache, nullptr).code(), Code::kInvalidArgument);
  EXPECT_EQ(context->bind(kBindings, cache.data()).code(), Code::kInvalidArgument);
  if (GetParam().wants_alignment) {
    const Status refused = context->bind(kCache, static_cast<char*>(cache.data()) + 16);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument);
    EXPECT_NE(refused.message().find("256"), std::string::npos) << refused.message();
  }
  EXPECT_EQ(run(*context, *stream_, cache.data(), cache.data(), 1, 1, 1), expected_y(1, 1, 1));
}

TEST_P(EngineSuite, ARunWithoutEveryAddressIsRefused) {
  auto context = this->context(GetParam().decode);
  Tensor cache(device(), *stream_, expected_cache(0, 0));
  ASSERT_TRUE(ok(context->bind(kCache, cache.data())));
  EXPECT_EQ(context->enqueue(*stream_, true).code(), Code::kInvalidArgument);
  EXPECT_EQ(cache.get(*stream_), expected_cache(0, 0));
}

TEST_P(EngineSuite, AnUnknownEntryIsRefused) {
  EXPECT_EQ(engine_->create_context(engine_->entries().size()).status().code(), Code::kInvalidArgument);
}

TEST_P(EngineSuite, RunsOfOneStreamAreInOrderWithoutTheHost) {
  auto first = this->context(GetParam().prefill);
  auto second = this->context(GetParam().decode);
  Tensor cache(device(), *stream_, expected_cache(0, 0));
  Tensor many(device(), *stream_, update(0, most_, 1));
  Tensor one(device(), *stream_, update(most_, 1, 1));
  Tensor at_start(device(), *stream_, std::vector<std::int32_t>{0});
  Tensor after(device(), *stream_, std::vector<std::int32_t>{static_cast<std::int32_t>(most_)});
  Tensor y(device(), *stream_, std::vector<float>(floats(most_), -1));
  Tensor last(device(), *stream_, std::vector<float>(floats(1), -1));
  ASSERT_TRUE(ok(first->set_input_shape(kUpdate, rows_shape(most_))));
  for (const auto& [context, x, p, out] :
       {std::tuple{first.get(), &many, &at_start, &y}, std::tuple{second.get(), &one, &after, &last}}) {
    ASSERT_TRUE(ok(context->bind(kCache, cache.data())));
    ASSERT_TRUE(ok(context->bind(kCacheOut, cache.data())));
    ASSERT_TRUE(ok(context->bind(kUpdate, x->data())));
    ASSERT_TRUE(ok(context->bind(kPosition, p->data())));
    ASSERT_TRUE(ok(context->bind(kY, out->data())));
    ASSERT_TRUE(ok(context->enqueue(*stream_, /*wait=*/false)));
  }
  EXPECT_EQ(last.get(*stream_), expected_y(most_, 1, 1));
  EXPECT_EQ(cache.get(*stream_), expected_cache(most_ + 1, 1));
}

TEST_P(EngineSuite, AnEventOrdersRunsOfTwoStreams) {
  Result<std::unique_ptr<Stream>> other = device().create_stream();
  Result<std::unique_ptr<Event>> event = device().create_event();
  ASSERT_TRUE(other.ok() && event.ok());
  auto first = this->context(GetParam().prefill);
  auto second = this->context(GetParam().decode);
  Tensor cache(device(), *stream_, expected_cache(0, 0));
  Tensor many(device(), *stream_, update(0, most_, 1));
  Tensor at_start(device(), *stream_, std::vector<std::int32_t>{0});
  Tensor y(device(), *stream_, std::vector<float>(floats(most_), -1));
  ASSERT_TRUE(ok(first->set_input_shape(kUpdate, rows_shape(most_))));
  ASSERT_TRUE(ok(first->bind(kCache, cache.data())));
  ASSERT_TRUE(ok(first->bind(kCacheOut, cache.data())));
  ASSERT_TRUE(ok(first->bind(kUpdate, many.data())));
  ASSERT_TRUE(ok(first->bind(kPosition, at_start.data())));
  ASSERT_TRUE(ok(first->bind(kY, y.data())));
  ASSERT_TRUE(ok(first->enqueue(*stream_, /*wait=*/false)));
  ASSERT_TRUE(ok(stream_->record(**event)));
  ASSERT_TRUE(ok((*other)->wait(**event)));
  EXPECT_EQ(run(*second, **other, cache.data(), cache.data(), most_, 1, 1), expected_y(most_, 1, 1));
}

TEST_P(EngineSuite, ContextsOfManyThreadsDontMeet) {
  constexpr int kThreads = 4;
  const std::int64_t total = 2 * most_;
  std::vector<std::thread> threads;
  for (int sequence = 1; sequence <= kThreads; ++sequence) {
    threads.emplace_back([&, sequence] {
      auto first = this->context(GetParam().prefill);
      auto second = this->context(GetParam().decode);
      Result<std::unique_ptr<Stream>> stream = device().create_stream();
      ASSERT_TRUE(stream.ok() && first && second);
      Tensor cache(device(), **stream, expected_cache(0, 0));
      EXPECT_EQ(run(*first, **stream, cache.data(), cache.data(), 0, most_, sequence),
                expected_y(0, most_, sequence));
      for (std::int64_t position = most_; position < total; ++position) {
        EXPECT_EQ(run(*second, **stream, cache.data(), cache.data(), position, 1, sequence),
                  expected_y(position, 1, sequence));
      }
      EXPECT_EQ(cache.get(**stream), expected_cache(total, sequence));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace etrt::conformance
