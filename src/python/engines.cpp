#include "python/engines.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/in_place_check.h"
#include "python/status_error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace etrt::python {

namespace {

std::unique_ptr<Engine> load(const std::string& kind, const nb::bytes& data) {
  Result<EngineLoader*> loader = find_engine_loader(kind);
  check(loader.status());
  const auto* begin = static_cast<const std::byte*>(data.data());
  auto owned = std::make_shared<std::vector<std::byte>>(begin, begin + data.size());
  Result<std::unique_ptr<Engine>> engine = (*loader)->load({*owned, owned}, {});
  check(engine.status());
  return std::move(*engine);
}

std::vector<std::int64_t> extents(const Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

/// Entry -> its bindings in engine order.
nb::dict bindings(const std::string& kind, const nb::bytes& data) {
  const std::unique_ptr<Engine> engine = load(kind, data);
  nb::dict entries;
  for (const EngineEntry& entry : engine->entries()) {
    nb::list list;
    for (const EngineBinding& binding : entry.bindings) {
      nb::dict d;
      d["name"] = binding.name;
      d["dtype"] = to_string(binding.dtype);
      d["shape"] = extents(binding.shape);
      d["min"] = extents(binding.min_shape);
      d["max"] = extents(binding.max_shape);
      d["is_input"] = binding.is_input;
      list.append(d);
    }
    entries[entry.name.c_str()] = list;
  }
  return entries;
}

std::vector<std::string> differ_in_place(const std::string& kind, const nb::bytes& data, std::size_t entry,
                                         const std::vector<std::pair<std::size_t, std::size_t>>& pairs) {
  const std::unique_ptr<Engine> engine = load(kind, data);
  std::vector<AliasedPair> aliased;
  for (const auto& [input, output] : pairs) aliased.push_back({input, output});
  Result<std::vector<std::string>> differ = outputs_that_differ_in_place(*engine, entry, aliased);
  check(differ.status());
  return std::move(*differ);
}

}  // namespace

void add_engine_functions(nb::module_& module) {
  module.def("engine_bindings", &bindings, "kind"_a, "data"_a,
             "Of serialized engine bytes: entry name -> bindings, in engine order.");
  module.def(
      "differ_in_place", &differ_in_place, "kind"_a, "data"_a, "entry"_a, "pairs"_a,
      "Names of the outputs that come out otherwise when the outputs of (input, output) pairs, indices of "
      "bindings, share their inputs' memory.");
}

}  // namespace etrt::python
