#include "storage/commit_log/entry_cache.h"

#include <algorithm>
#include <utility>

namespace millrace::storage {

void EntryCache::Add(const TopicEntry& entry) {
  std::vector<TopicEntry> dropped;  // freed without the lock
  MutexLock lock(mutex_);
  partitions_[entry.partition].push_back(entry);
  order_.push_back(entry.partition);
  bytes_ += entry.body.size() + kOverhead;
  while (bytes_ > limit_bytes_ && !order_.empty()) {
    auto oldest = partitions_.find(order_.front());
    order_.pop_front();
    bytes_ -= oldest->second.front().body.size() + kOverhead;
    dropped.push_back(std::move(oldest->second.front()));
    oldest->second.pop_front();
    if (oldest->second.empty()) partitions_.erase(oldest);
  }
}

std::optional<std::vector<TopicEntry>> EntryCache::Read(TopicPartition partition, uint64_t offset,
                                                        size_t max_bytes) {
  MutexLock lock(mutex_);
  auto found = partitions_.find(partition);
  if (found == partitions_.end()) return std::nullopt;
  const std::deque<TopicEntry>& entries = found->second;
  if (offset < entries.front().first_offset) return std::nullopt;
  auto it = std::partition_point(entries.begin(), entries.end(), [&](const TopicEntry& entry) {
    return entry.first_offset + entry.count <= offset;
  });
  std::vector<TopicEntry> out;
  size_t bytes = 0;
  for (; it != entries.end(); ++it) {
    bytes += it->body.size();
    if (!out.empty() && bytes > max_bytes) break;
    out.push_back(*it);
  }
  return out;
}

}  // namespace millrace::storage
