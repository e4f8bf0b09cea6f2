// Engine CPU of a GroupByKey: elements of one bundle through routing, cells, panes and commits,
// over memory storage and a runner that does nothing. Prints elements a second for few and for many
// keys.
#include <fmt/format.h>
#include <time.h>

#include <cstdlib>

#include "testing/engine_world.h"

namespace millrace::engine {
namespace {

using testing::EngineWorld;
using testing::FakeCollection;
using testing::FakeElement;
using testing::FakeRunner;
using testing::FakeStage;

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

void Measure(int elements, int keys) {
  Plan plan;
  plan.collections = {FakeCollection("kvs", true)};
  plan.stages = {FakeStage("make", InputKind::kImpulse, Work::kBundle, {}, {0}),
                 FakeStage("group", InputKind::kGrouped, Work::kBundle, {0}, {})};
  EngineWorld world(plan);
  BundleResult made;
  for (int first = 0; first < elements; first += 5000) {
    std::vector<FakeElement> out;
    for (int i = first; i < first + 5000; ++i) {
      FakeElement element;
      element.key = fmt::format("key-{}", i % keys);
      element.value = fmt::format("value-{:08}", i);
      out.push_back(std::move(element));
    }
    made.outputs.push_back(testing::MakeChunk({0}, out, true));
  }
  size_t panes = 0;
  world.setup = [&](FakeRunner& runner) {
    runner.Set({0}, [&made](const BundleRequest&) { return made; });
    runner.Set({1}, [&panes](const BundleRequest& request) {
      panes += request.element_count;
      return BundleResult();
    });
  };
  world.Start();
  const double before = CpuSeconds();
  world.Settle();
  const double seconds = CpuSeconds() - before;
  fmt::print("{} elements in {} keys: {} panes, {:.2f} s CPU, {:.0f} elements/s{}\n", elements,
             keys, panes, seconds, elements / seconds,
             world.listener->finished ? "" : " (did not end)");
}

}  // namespace
}  // namespace millrace::engine

int main() {
  for (int keys : {1000, 1'000'000}) millrace::engine::Measure(1'000'000, keys);
}
