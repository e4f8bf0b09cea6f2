#include "storage/memory_store.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace millrace::storage {
namespace {

std::map<std::string, std::string> All(Store& store, Table table, std::string_view begin = "",
                                       std::string_view end = "", const ReadView* view = nullptr) {
  std::map<std::string, std::string> out;
  auto it = store.NewIterator(table, begin, end, view);
  for (it->Seek(begin); it->Valid(); it->Next()) out.emplace(it->key(), it->value());
  EXPECT_TRUE(it->status().ok());
  return out;
}

TEST(WriteBatch, SerializesAndParses) {
  WriteBatch batch;
  batch.Put(Table::kState, "key", std::string(300, 'x'));
  batch.Delete(Table::kDedup, std::string("\0b", 2));
  batch.DeleteRange(Table::kTimers, "a", "c");
  std::string bytes = batch.Serialize();
  auto parsed = WriteBatch::Parse(bytes);
  ASSERT_TRUE(parsed.ok());
  ASSERT_EQ(parsed->ops().size(), 3u);
  EXPECT_EQ(parsed->Serialize(), bytes);
  EXPECT_EQ(parsed->bytes(), batch.bytes());
  EXPECT_EQ(parsed->ops()[1].key, std::string("\0b", 2));
  for (size_t size = 1; size < bytes.size(); ++size) {
    (void)WriteBatch::Parse(std::string_view(bytes).substr(0, size));  // must not crash
  }
  EXPECT_FALSE(WriteBatch::Parse(std::string_view(bytes).substr(0, 20)).ok());
  EXPECT_FALSE(WriteBatch::Parse("\x03").ok());
}

TEST(MemoryStore, ViewsAndIteratorsDoNotSeeLaterWrites) {
  MemoryStore store;
  WriteBatch batch;
  for (int i = 0; i < 1000; ++i) batch.Put(Table::kState, std::to_string(i), "old");
  ASSERT_TRUE(store.Write(batch).ok());
  auto view = store.NewReadView();
  auto it = store.NewIterator(Table::kState, "", "", nullptr);
  batch.Clear();
  batch.DeleteRange(Table::kState, "2", "8");
  batch.Put(Table::kState, "1", "new");
  ASSERT_TRUE(store.Write(batch).ok());
  EXPECT_EQ(All(store, Table::kState, "", "", view.get()).size(), 1000u);
  EXPECT_EQ(**store.Get(Table::kState, "1", view.get()), "old");
  EXPECT_EQ(**store.Get(Table::kState, "1", nullptr), "new");
  EXPECT_FALSE(store.Get(Table::kState, "5", nullptr)->has_value());
  int seen = 0;
  for (; it->Valid(); it->Next()) {
    EXPECT_EQ(it->value(), "old");
    ++seen;
  }
  EXPECT_EQ(seen, 1000);
}

TEST(MemoryStore, AgreesWithAMapUnderRandomWritesAndReverts) {
  uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  MemoryStore store(/*keep_flushed=*/true);
  std::map<std::string, std::string> model, flushed;
  for (int step = 0; step < 2000; ++step) {
    std::string key = std::to_string(random() % 50);
    std::string other = std::to_string(random() % 50);
    WriteBatch batch;
    switch (random() % 8) {
      case 0:
        ASSERT_TRUE(store.Flush().ok());
        flushed = model;
        break;
      case 1:
        if (random() % 10 == 0) {
          store.RevertToFlushed();
          model = flushed;
        }
        break;
      case 2:
        batch.DeleteRange(Table::kBroker, key, other);
        if (key < other) model.erase(model.lower_bound(key), model.lower_bound(other));
        break;
      case 3:
      case 4:
        batch.Delete(Table::kBroker, key);
        model.erase(key);
        break;
      default:
        batch.Put(Table::kBroker, key, std::to_string(step));
        model[key] = std::to_string(step);
    }
    ASSERT_TRUE(store.Write(batch).ok());
    if (step % 10 == 0) {
      ASSERT_EQ(All(store, Table::kBroker), model);
    }
    if (step % 10 == 0 && key < other) {
      std::map<std::string, std::string> part(model.lower_bound(key), model.lower_bound(other));
      ASSERT_EQ(All(store, Table::kBroker, key, other), part);
    }
  }
}

}  // namespace
}  // namespace millrace::storage
