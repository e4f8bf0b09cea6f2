#include "engine/state.h"

#include <gtest/gtest.h>

#include "storage/memory_store.h"
#include "testing/engine_fakes.h"
#include "testing/manual_executor.h"
#include "windowing/wire.h"

namespace millrace::engine {
namespace {

class StateTest : public ::testing::Test {
 protected:
  StateTest() {
    place_->job = 7;
    place_->stage = {2};
    place_->ranges = 4;
  }

  void Open(size_t page_bytes = 1 << 20) {
    state_ = std::make_shared<StateOverlay>(store_, executor_, place_, ++attempt_, page_bytes);
  }
  // Commits and opens the next.
  void Commit(size_t page_bytes = 1 << 20) {
    state_->Close([this](StatusOr<storage::WriteBatch> batch) {
      ASSERT_TRUE(batch.ok());
      ASSERT_TRUE(store_.Write(*batch).ok());
    });
    executor_.RunAll();
    Open(page_bytes);
  }
  std::string Get(const StateKey& key, int* pages = nullptr) {
    std::string all, token;
    int count = 0;
    do {
      state_->Get(key, token, [&](StatusOr<StatePage> page) {
        ASSERT_TRUE(page.ok()) << page.status();
        all += page->data;
        token = page->continuation;
      });
      executor_.RunAll();
      ++count;
    } while (!token.empty());
    if (pages != nullptr) *pages = count;
    return all;
  }
  void Append(const StateKey& key, std::string data) {
    state_->Append(key, std::move(data), [](Status status) { ASSERT_TRUE(status.ok()); });
    executor_.RunAll();
  }
  void Clear(const StateKey& key) {
    state_->Clear(key, [](Status status) { ASSERT_TRUE(status.ok()); });
    executor_.RunAll();
  }
  static StateKey Bag(std::string key, std::string name = "s") {
    StateKey bag;
    bag.kind = StateKind::kBag;
    bag.transform = "t";
    bag.name = std::move(name);
    bag.key = std::move(key);
    return bag;
  }
  static StateKey Map(std::string map_key, StateKind kind = StateKind::kMultimap) {
    StateKey map = Bag("k");
    map.kind = kind;
    map.map_key = std::move(map_key);
    return map;
  }
  static StateKey List(int64_t start, int64_t end) {
    StateKey list = Bag("k");
    list.kind = StateKind::kOrderedList;
    list.range_start = start;
    list.range_end = end;
    return list;
  }
  static std::string Entry(int64_t at, const std::string& value) {
    std::string entry;
    windowing::AppendVarint(entry, at);
    windowing::AppendBytes(entry, value);
    return entry;
  }

  storage::MemoryStore store_;
  testing::ManualExecutor executor_;
  std::shared_ptr<StatePlace> place_ = std::make_shared<StatePlace>();
  std::shared_ptr<StateOverlay> state_;
  uint64_t attempt_ = 0;
};

TEST_F(StateTest, BagSeesItsOwnWritesAndCommittedOnes) {
  Open();
  Append(Bag("k"), "a");
  Append(Bag("k"), "b");
  EXPECT_EQ(Get(Bag("k")), "ab");
  EXPECT_EQ(Get(Bag("l")), "");
  Commit();
  Append(Bag("k"), "c");
  EXPECT_EQ(Get(Bag("k")), "abc");
  Clear(Bag("k"));
  EXPECT_EQ(Get(Bag("k")), "");
  Append(Bag("k"), "d");
  EXPECT_EQ(Get(Bag("k")), "d");
  Commit();
  EXPECT_EQ(Get(Bag("k")), "d");
  Open();  // what is not committed leaves nothing
  Append(Bag("k"), "x");
  Open();
  EXPECT_EQ(Get(Bag("k")), "d");
}

TEST_F(StateTest, KeysThatBeginAlikeStayApart) {
  Open();
  Append(Bag("k"), "1");
  Append(Bag("kk"), "2");
  Append(Bag("k", "ss"), "3");
  Commit();
  Clear(Bag("k"));
  Commit();
  EXPECT_EQ(Get(Bag("k")), "");
  EXPECT_EQ(Get(Bag("kk")), "2");
  EXPECT_EQ(Get(Bag("k", "ss")), "3");
}

TEST_F(StateTest, PagesEndAtAppends) {
  Open(3);
  for (int i = 0; i < 5; ++i) Append(Bag("k"), std::to_string(i) + std::to_string(i));
  Commit(3);
  for (int i = 5; i < 8; ++i) Append(Bag("k"), std::to_string(i) + std::to_string(i));
  int pages = 0;
  EXPECT_EQ(Get(Bag("k"), &pages), "0011223344556677");
  EXPECT_GT(pages, 3);
}

TEST_F(StateTest, ManyEntriesAreClearedAsARange) {
  Open();
  for (int i = 0; i < 100; ++i) Append(Bag("k"), "v");
  Commit();
  Clear(Bag("k"));
  Append(Bag("k"), "w");
  Commit();
  EXPECT_EQ(Get(Bag("k")), "w");
}

TEST_F(StateTest, Multimap) {
  Open();
  Append(Map("a"), "1");
  Append(Map("b"), "2");
  Append(Map("a"), "3");
  EXPECT_EQ(Get(Map("a")), "13");
  EXPECT_EQ(Get(Map("", StateKind::kMultimapKeys)), "ab");
  Commit();
  Append(Map("c"), "4");
  Clear(Map("a"));
  EXPECT_EQ(Get(Map("", StateKind::kMultimapKeys)), "bc");
  Append(Map("a"), "5");
  EXPECT_EQ(Get(Map("a")), "5");
  EXPECT_EQ(Get(Map("", StateKind::kMultimapKeys)), "abc");
  Clear(Map("", StateKind::kMultimapKeys));
  EXPECT_EQ(Get(Map("b")), "");
  Append(Map("d"), "6");
  Commit();
  EXPECT_EQ(Get(Map("", StateKind::kMultimapKeys)), "d");
  EXPECT_EQ(Get(Map("d")), "6");
}

TEST_F(StateTest, OrderedList) {
  Open();
  Append(List(0, 0), Entry(5, "five") + Entry(-1, "minus"));
  Append(List(0, 0), Entry(3, "three"));
  EXPECT_EQ(Get(List(-10, 10)), Entry(-1, "minus") + Entry(3, "three") + Entry(5, "five"));
  EXPECT_EQ(Get(List(3, 5)), Entry(3, "three"));
  Commit();
  Append(List(0, 0), Entry(4, "four"));
  EXPECT_EQ(Get(List(3, 6)), Entry(3, "three") + Entry(4, "four") + Entry(5, "five"));
  Clear(List(4, 6));
  EXPECT_EQ(Get(List(-10, 10)), Entry(-1, "minus") + Entry(3, "three"));
  Commit();
  EXPECT_EQ(Get(List(-10, 10)), Entry(-1, "minus") + Entry(3, "three"));
}

TEST_F(StateTest, CallsAfterTheEndFail) {
  Open();
  auto old = state_;
  Commit();
  Status status;
  old->Append(Bag("k"), "x", [&](Status outcome) { status = outcome; });
  executor_.RunAll();
  EXPECT_FALSE(status.ok());
}

}  // namespace
}  // namespace millrace::engine
