// A map that many threads read and few write: names to living objects.
#pragma once

#include <mutex>
#include <shared_mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace millrace {

// Thread-safe. Values are copied out (use shared pointers); nothing is called while the lock is
// held but their copies.
template <typename Key, typename Value>
class SharedMap {
 public:
  // A default value if there is none.
  template <typename K>
  Value Find(const K& key) const {
    std::shared_lock lock(mutex_);
    auto it = map_.find(key);
    return it == map_.end() ? Value() : it->second;
  }
  void Put(Key key, Value value) {
    std::unique_lock lock(mutex_);
    std::swap(map_[std::move(key)], value);
    lock.unlock();  // the old value goes without the lock
  }
  // Only if the key still means this value.
  bool Erase(const Key& key, const Value& value) {
    std::unique_lock lock(mutex_);
    auto it = map_.find(key);
    if (it == map_.end() || it->second != value) return false;
    Value erased = std::move(it->second);
    map_.erase(it);
    lock.unlock();
    return true;
  }

 private:
  mutable std::shared_mutex mutex_;
  absl::flat_hash_map<Key, Value> map_;
};

}  // namespace millrace
