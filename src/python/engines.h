#pragma once

#include <nanobind/nanobind.h>

namespace etrt::python {

/// Adds engine_bindings() and differ_in_place(), for engines that no program is around yet.
void add_engine_functions(nanobind::module_& module);

}  // namespace etrt::python
