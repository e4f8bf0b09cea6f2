// A stage as a harness would be given, and the bytes that cross its borders, for tests.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "coders/coder.h"
#include "fnapi/stage_program.h"
#include "windowing/wire.h"

namespace millrace::testing {

// One source, one sink of KVs (prefixed key and value, global window), one timer family.
inline std::shared_ptr<const fnapi::StageProgram> KeyedProgram(uint32_t stage = 3) {
  using coders::Coder;
  auto program = std::make_shared<fnapi::StageProgram>();
  const coders::CoderPtr bytes = coders::LengthPrefixed(coders::LeafCoder(Coder::Kind::kOpaque));
  const coders::CoderPtr window = coders::LeafCoder(Coder::Kind::kGlobalWindow);
  const coders::CoderPtr windowed =
      coders::WindowedValueCoder(coders::KvCoder(bytes, bytes), window);
  program->id = engine::StageId{stage};
  program->descriptor.set_id("stage-" + std::to_string(stage));
  program->source = {"source", {}, windowed, true};
  program->sinks.push_back({"sink-0", engine::CollectionId{9}, windowed, true});
  program->timers.push_back(
      {"work", "wake", *coders::MakeCoder(coders::kTimerUrn, "", {bytes, window})});
  return program;
}

inline std::string EncodedPair(std::string_view key, std::string_view value) {
  std::string out;
  const windowing::Window window = windowing::Window::Global();
  windowing::AppendHeader(out, 1000, std::span(&window, 1), windowing::Pane::NoFiring());
  windowing::AppendBytes(out, key);
  windowing::AppendBytes(out, value);
  return out;
}

inline std::string EncodedTimer(std::string_view key, std::string_view tag,
                                windowing::Millis fire) {
  std::string encoded_key;
  windowing::AppendBytes(encoded_key, key);
  windowing::Timer timer;
  timer.key = encoded_key;
  timer.tag = tag;
  timer.windows = windowing::WindowList(windowing::Window::Global());
  timer.fire = timer.hold = fire;
  std::string out;
  windowing::AppendTimer(out, timer);
  return out;
}

}  // namespace millrace::testing
