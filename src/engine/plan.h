// The immutable plan of a job: stages, what they read, what they write. Made by planner/; the
// engine runs it and knows nothing of pipelines, protos or SDKs. Stage and collection ids are
// positions in the vectors and, for one pipeline, always the same, so that a restarted job finds
// its state again.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/element.h"
#include "windowing/strategy.h"

namespace millrace::engine {

struct CollectionSpec {
  std::string name;  // PCollection id of the pipeline
  bool bounded = true;
  bool keyed = false;  // some consumer needs the key: the producer's runner must split KVs
  windowing::WindowKind window_kind = windowing::WindowKind::kGlobal;
};

enum class InputKind : uint8_t {
  kImpulse,   // one given element, then the end
  kSource,    // a native source (engine/source.h)
  kElements,  // elements of collections, as they come
  kGrouped,   // elements of keyed collections, grouped by key and window; the stage gets KV<K,
              // Iterable<V>> (GroupByKey)
};

enum class Work : uint8_t {
  kBundle,  // a BundleRunner (SDK harness)
  kSink,    // a native sink (engine/sink.h); the stage's pending elements are its outbox
  kPass,    // nothing to run: elements go to the outputs unchanged (Reshuffle; GroupByKey whose
            // consumers live apart)
};

struct TimerFamilySpec {
  std::string transform, family;
  bool event_time = true;
};

// A side input of a transform in this stage: the collection is materialised by window (and key).
struct SideInputSpec {
  std::string transform, name;
  CollectionId collection;
  bool multimap = false;         // keyed access; the collection is keyed
  windowing::Strategy strategy;  // of the side collection: which side window a main window maps to
};

struct StageSpec {
  std::string name;  // for people
  InputKind input = InputKind::kElements;
  Work work = Work::kBundle;
  std::vector<CollectionId> inputs;  // several: a Flatten
  bool keyed = false;                // state or timers: order and exclusion by key
  windowing::Strategy
      strategy;             // of the main input: grouping, expiry of state and timers, late data
  std::string impulse;      // kImpulse: the encoded windowed value
  std::string native_kind;  // kSource, kSink: which factory, e.g. "pubsub"
  std::string native_spec;  // kSource, kSink: its settings, opaque here
  std::string environment;  // kBundle: which runner
  std::vector<CollectionId> outputs;  // what it may produce
  std::vector<TimerFamilySpec> timers;
  std::vector<SideInputSpec> side_inputs;
  // Transforms and collections inside a fused stage, for metrics and people: unique names.
  std::vector<std::string> transforms;
};

struct Plan {
  std::vector<CollectionSpec> collections;  // by CollectionId
  std::vector<StageSpec> stages;            // by StageId, producers before consumers
  bool unbounded =
      false;  // has an unbounded source other than a TestStream: bundles are retried for ever
};

}  // namespace millrace::engine
