// The messages that a source has pulled and not yet acked: their ack ids, and when to extend their
// leases.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace millrace::connectors::pubsub {

// Plain data; used on the source's executor.
class LeaseKeeper {
 public:
  // Returns the handle of a newly pulled message.
  uint64_t Add(std::string ack_id) {
    ack_ids_.emplace(next_, std::move(ack_id));
    return next_++;
  }
  // Ack ids of these handles, which are held no longer. Unknown handles give none.
  std::vector<std::string> Take(const std::vector<uint64_t>& handles) {
    std::vector<std::string> taken;
    taken.reserve(handles.size());
    for (uint64_t handle : handles) {
      auto it = ack_ids_.find(handle);
      if (it == ack_ids_.end()) continue;
      taken.push_back(std::move(it->second));
      ack_ids_.erase(it);
    }
    return taken;
  }
  std::vector<std::string> All() const {
    std::vector<std::string> all;
    all.reserve(ack_ids_.size());
    for (const auto& [handle, ack_id] : ack_ids_) all.push_back(ack_id);
    return all;
  }
  bool empty() const { return ack_ids_.empty(); }

 private:
  std::map<uint64_t, std::string> ack_ids_;
  uint64_t next_ = 1;
};

}  // namespace millrace::connectors::pubsub
