#include "engine/in_place_check.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/format.h"

namespace etrt {

namespace {

using Bytes = std::vector<std::byte>;

Shape shape_of(const EngineBinding& binding, bool greatest) {
  return greatest ? binding.max_shape : binding.min_shape;
}

std::size_t bytes_of(const EngineBinding& binding, const Shape& shape) {
  return static_cast<std::size_t>(shape.elements().value_or(0)) * size_of(binding.dtype);
}

/// The same for the same `seed`.
Bytes made_up(const EngineBinding& binding, const Shape& shape, std::uint32_t seed) {
  Bytes bytes(bytes_of(binding, shape));
  const std::size_t size = size_of(binding.dtype);
  for (std::size_t offset = 0; offset < bytes.size(); offset += size) {
    seed = seed * 1664525U + 1013904223U;
    const std::uint32_t random = seed >> 16U;
    switch (binding.dtype) {
      case DType::kFloat32: {
        const float value = static_cast<float>(random) / 32768.0F - 1.0F;
        std::memcpy(&bytes[offset], &value, size);
        break;
      }
      case DType::kFloat64: {
        const double value = static_cast<double>(random) / 32768.0 - 1.0;
        std::memcpy(&bytes[offset], &value, size);
        break;
      }
      case DType::kFloat16:
      case DType::kBFloat16: {
        // A sign and an exponent below that of 1, in either format.
        const auto value = static_cast<std::uint16_t>((random & 0x8000U) | (0x3000U + (random & 0x07FFU)));
        std::memcpy(&bytes[offset], &value, size);
        break;
      }
      default:
        bytes[offset] = static_cast<std::byte>(random & 1U);
    }
  }
  return bytes;
}

/// One run; the outputs' bytes by binding, empty for inputs.
class Trial {
 public:
  Trial(Engine& engine, std::size_t entry, Stream& stream, bool greatest)
      : engine_(engine), entry_(entry), stream_(stream), greatest_(greatest) {}

  Result<std::vector<Bytes>> run(std::span<const AliasedPair> shared) {
    const std::vector<EngineBinding>& bindings = engine_.entries()[entry_].bindings;
    Result<std::unique_ptr<ExecutionContext>> made = engine_.create_context(entry_);
    if (!made) return made.status();
    ExecutionContext& context = **made;
    std::vector<Buffer> memory(bindings.size());
    std::vector<Bytes> values(bindings.size());
    for (std::size_t i = 0; i < bindings.size(); ++i) {
      const EngineBinding& binding = bindings[i];
      const auto pair = std::ranges::find(shared, i, &AliasedPair::output);
      const std::size_t home = pair == shared.end() ? i : pair->input;
      if (home == i) {
        Result<Buffer> buffer =
            engine_.device().allocate_zeroed(bytes_of(binding, binding.max_shape), stream_);
        if (!buffer) return buffer.status();
        memory[i] = std::move(*buffer);
      }
      if (Status s = context.bind(i, memory[home].data()); !s) return s;
      if (!binding.is_input) continue;
      const Shape shape = shape_of(binding, greatest_);
      if (Status s = context.set_input_shape(i, shape); !s) return s;
      values[i] = made_up(binding, shape, static_cast<std::uint32_t>(i));
      if (Status s = stream_.copy(memory[i].data(), values[i].data(), values[i].size()); !s) return s;
    }
    Status status = context.enqueue(stream_, /*wait=*/true);
    if (const Status done = stream_.synchronize(); status.ok()) status = done;
    if (!status) return status;
    std::vector<Bytes> outputs(bindings.size());
    for (std::size_t i = 0; i < bindings.size(); ++i) {
      if (bindings[i].is_input) continue;
      const auto pair = std::ranges::find(shared, i, &AliasedPair::output);
      Result<Shape> shape = context.output_shape(i);
      if (!shape) return shape.status();
      outputs[i].resize(bytes_of(bindings[i], *shape));
      const void* source = memory[pair == shared.end() ? i : pair->input].data();
      if (Status s = stream_.copy(outputs[i].data(), source, outputs[i].size()); !s) return s;
    }
    if (Status s = stream_.synchronize(); !s) return s;
    return outputs;
  }

 private:
  Engine& engine_;
  std::size_t entry_;
  Stream& stream_;
  bool greatest_;
};

Status check_pair(const std::vector<EngineBinding>& bindings, const AliasedPair& pair) {
  if (pair.input >= bindings.size() || pair.output >= bindings.size() || !bindings[pair.input].is_input ||
      bindings[pair.output].is_input) {
    return {Code::kInvalidArgument,
            formatted("bindings {} and {} are no input and output of the engine", pair.input, pair.output)};
  }
  const EngineBinding& in = bindings[pair.input];
  const EngineBinding& out = bindings[pair.output];
  if (in.dtype == out.dtype && in.shape == out.shape && in.shape.is_static()) return {};
  return {Code::kInvalidArgument,
          formatted("output \"{}\" is {} {} and input \"{}\" is {} {}: they can share memory only if they "
                    "are alike and static",
                    out.name, to_string(out.dtype), to_string(out.shape), in.name, to_string(in.dtype),
                    to_string(in.shape))};
}

}  // namespace

Result<std::vector<std::string>> outputs_that_differ_in_place(Engine& engine, std::size_t entry,
                                                              std::span<const AliasedPair> pairs) {
  if (entry >= engine.entries().size()) {
    return Status(Code::kInvalidArgument,
                  formatted("entry {} of an engine that has {}", entry, engine.entries().size()));
  }
  const std::vector<EngineBinding>& bindings = engine.entries()[entry].bindings;
  for (const AliasedPair& pair : pairs) {
    if (Status s = check_pair(bindings, pair); !s) return s;
  }
  Result<std::unique_ptr<Stream>> stream = engine.device().create_stream();
  if (!stream) return stream.status();
  std::vector<std::string> differ;
  for (const bool greatest : {false, true}) {
    Trial trial(engine, entry, **stream, greatest);
    Result<std::vector<Bytes>> apart = trial.run({});
    if (!apart) return apart.status();
    Result<std::vector<Bytes>> together = trial.run(pairs);
    if (!together) return together.status();
    for (std::size_t i = 0; i < bindings.size(); ++i) {
      if ((*apart)[i] == (*together)[i] || std::ranges::count(differ, bindings[i].name) != 0) continue;
      differ.push_back(bindings[i].name);
    }
  }
  return differ;
}

}  // namespace etrt
