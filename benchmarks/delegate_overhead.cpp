// The delegate's own cost of a run: an engine that computes nothing, 0 and 60 states
// (30 layers of keys and values).

#include <benchmark/benchmark.h>

#include "delegate/probe_engine.h"
#include "etrt/etrt.h"

namespace {

void run_with_states(benchmark::State& state) {
  etrt::test::ProbeDelegate delegate(static_cast<int>(state.range(0)));
  etrt::Session session;
  etrt::SessionScope use(session);
  if (!delegate.loaded() || delegate.run(0) != executorch::runtime::Error::Ok) {
    state.SkipWithError(etrt::last_error());
    return;
  }
  for (auto _ : state) benchmark::DoNotOptimize(delegate.run(0));
}
BENCHMARK(run_with_states)->Arg(0)->Arg(60)->Unit(benchmark::kMicrosecond);

/// Two conversations in turn on one context: all addresses change with every run.
void run_with_alternating_sessions(benchmark::State& state) {
  etrt::test::ProbeDelegate delegate(static_cast<int>(state.range(0)));
  etrt::Session sessions[2];
  int turn = 0;
  for (auto _ : state) {
    etrt::SessionScope use(sessions[turn ^= 1]);
    benchmark::DoNotOptimize(delegate.run(0));
  }
}
BENCHMARK(run_with_alternating_sessions)->Arg(60)->Unit(benchmark::kMicrosecond);

}  // namespace
