// A bundle: input of one stage on its way through its runner.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/bundle_runner.h"
#include "engine/range_shard.h"

namespace millrace::engine {

struct Item {
  RangeShard* range = nullptr;
  Input work;
  // As the runner counts: elements of the request's data, without timers.
  size_t elements() const;
};

class StateOverlay;

struct Bundle {
  uint64_t attempt = 0;
  StageId stage;
  std::vector<Item> items;
  int fails = 0;                        // of exactly these items
  Duration back_off{};                  // of a parked one: the last
  std::shared_ptr<StateOverlay> state;  // while it runs, if the stage has any
  size_t data_bytes = 0;
};

// Fills data, element_count and timers from the items, in their order.
Status EncodeItems(const std::vector<Item>& items, BundleRequest* request, size_t* bytes);

// Cuts `items` after `elements` elements: what is behind goes to the result. An item may be cut in
// two.
std::vector<Item> CutAfter(std::vector<Item>& items, size_t elements);

// Two halves, if the items can be told apart: runs are cut between elements, keys and panes are not
// cut. Empty: it is one thing.
std::vector<Item> CutHalf(std::vector<Item>& items);

}  // namespace millrace::engine
