// What was received, held against what was published: lost, doubled, out of order.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "histogram.h"
#include "shared.h"
#include "wire.h"

namespace millrace::load {

// What one subscription has received of one lane.
struct Seen {
  std::vector<uint64_t> bits;
  uint64_t next = 0;  // one past the highest number seen
  bool Mark(uint64_t seq) {
    size_t w = seq >> 6;
    if (w >= bits.size()) bits.resize(std::max(w + 1, bits.size() * 2));
    uint64_t b = uint64_t{1} << (seq & 63);
    bool fresh = !(bits[w] & b);
    bits[w] |= b;
    return fresh;
  }
  bool Has(uint64_t seq) const {
    return (seq >> 6) < bits.size() && (bits[seq >> 6] >> (seq & 63) & 1);
  }
};

struct ReceiveTotals {
  uint64_t received = 0, unique = 0, duplicates = 0, out_of_order = 0, foreign = 0, window_msgs = 0,
           window_bytes = 0;
  uint64_t responses = 0, acks_sent = 0, acks_confirmed = 0, acks_refused = 0, breaks = 0, bad = 0;
  uint64_t first_ns = 0, last_ns = 0;
  std::string first_error;
  Histogram latency, ack_latency;
  void Merge(const ReceiveTotals& o) {
    received += o.received;
    unique += o.unique;
    duplicates += o.duplicates;
    out_of_order += o.out_of_order;
    foreign += o.foreign;
    window_msgs += o.window_msgs;
    window_bytes += o.window_bytes;
    responses += o.responses;
    acks_sent += o.acks_sent;
    acks_confirmed += o.acks_confirmed;
    acks_refused += o.acks_refused;
    breaks += o.breaks;
    bad += o.bad;
    if (o.first_ns && (!first_ns || o.first_ns < first_ns)) first_ns = o.first_ns;
    last_ns = std::max(last_ns, o.last_ns);
    if (first_error.empty()) first_error = o.first_error;
    latency.Merge(o.latency);
    ack_latency.Merge(o.ack_latency);
  }
};

// Checks and counts received messages of a set of subscriptions; one thread owns it.
class Checker {
 public:
  Checker(Shared& s, ReceiveTotals& t, std::atomic<uint64_t>& unique)
      : s_(s), t_(t), unique_(unique) {}
  void Message(size_t sub, std::string_view data, uint64_t now) {
    t_.received++;
    PayloadHeader h;
    if (data.size() < sizeof h) {
      t_.foreign++;
      return;
    }
    memcpy(&h, data.data(), sizeof h);
    if (h.run != s_.run || h.lane >= s_.lanes.size()) {
      t_.foreign++;
      return;
    }
    if (data.size() != s_.o.message_size) t_.bad++;
    auto& lanes = seen_[sub];
    if (lanes.empty()) lanes.resize(s_.lanes.size());
    Seen& seen = lanes[h.lane];
    if (!seen.Mark(h.seq)) {
      t_.duplicates++;
      return;
    }
    if (h.seq < seen.next)
      t_.out_of_order++;
    else
      seen.next = h.seq + 1;
    t_.unique++;
    unique_.fetch_add(1, std::memory_order_relaxed);
    if (!t_.first_ns) t_.first_ns = now;
    t_.last_ns = now;
    if (s_.InWindow(now)) {
      t_.window_msgs++;
      t_.window_bytes += data.size();
      t_.latency.Add(now > h.ts_ns ? now - h.ts_ns : 0);
    }
  }
  // Numbers that were published with an OK and never came.
  uint64_t Lost(size_t sub) {
    uint64_t lost = 0;
    int topic = static_cast<int>(sub) / s_.o.subscriptions;
    auto& lanes = seen_[sub];
    if (lanes.empty()) lanes.resize(s_.lanes.size());
    for (size_t l = 0; l < s_.lanes.size(); l++) {
      const Lane& lane = s_.lanes[l];
      if (lane.topic != topic) continue;
      for (uint64_t q = 0; q < lane.next; q++) lost += !lanes[l].Has(q);
      for (auto [first, n] : lane.failed)
        for (uint64_t q = first; q < first + n; q++) lost -= !lanes[l].Has(q);
    }
    return lost;
  }

 private:
  Shared& s_;
  ReceiveTotals& t_;
  std::atomic<uint64_t>& unique_;
  std::map<size_t, std::vector<Seen>> seen_;
};

}  // namespace millrace::load
