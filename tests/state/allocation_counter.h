#pragma once

/// Heap allocations of the whole process so far: a program that links allocation_counter.cpp
/// has its operator new counted.
long allocations() noexcept;
