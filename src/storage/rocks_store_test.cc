#include "storage/rocks_store.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace millrace::storage {
namespace {

class RocksStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "rocks_store_XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
    Reopen(/*create=*/true);
  }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove_all(directory_);
  }
  void Reopen(bool create = false) {
    store_.reset();
    auto opened = OpenRocksStore({.directory = directory_, .create = create, .files = files_});
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
  }
  std::string Scan(Table table, std::string_view begin, std::string_view end,
                   const ReadView* view = nullptr) {
    std::string out;
    auto it = store_->NewIterator(table, begin, end, view);
    for (; it->Valid(); it->Next()) out += std::string(it->key()) + " ";
    return out;
  }
  void Put(Table table, std::initializer_list<std::string_view> keys) {
    WriteBatch batch;
    for (std::string_view key : keys) batch.Put(table, key, "v");
    ASSERT_TRUE(store_->Write(batch).ok());
  }

  std::shared_ptr<Files> files_;
  std::string directory_;
  std::unique_ptr<Store> store_;
};

TEST_F(RocksStoreTest, TablesAreApartAndScansKeepTheirBounds) {
  Put(Table::kState, {"a", "b", "c", "d"});
  Put(Table::kTimers, {"x"});
  EXPECT_EQ(Scan(Table::kState, "", ""), "a b c d ");
  EXPECT_EQ(Scan(Table::kState, "b", "d"), "b c ");
  EXPECT_EQ(Scan(Table::kTimers, "", ""), "x ");
  EXPECT_FALSE(store_->Get(Table::kTimers, "a", nullptr)->has_value());
}

TEST_F(RocksStoreTest, AViewStaysAsItWas) {
  Put(Table::kState, {"a", "b", "c"});
  auto view = store_->NewReadView();
  WriteBatch batch;
  batch.DeleteRange(Table::kState, "a", "c");
  batch.DeleteRange(Table::kState, "z", "c");  // empty
  batch.Put(Table::kState, "e", "");
  ASSERT_TRUE(store_->Write(batch).ok());
  EXPECT_EQ(Scan(Table::kState, "", "", view.get()), "a b c ");
  EXPECT_EQ(Scan(Table::kState, "", ""), "c e ");
  EXPECT_TRUE(store_->Get(Table::kState, "b", view.get())->has_value());
  store_.reset();  // the view keeps the database open
}

TEST_F(RocksStoreTest, OnlyWhatWasFlushedOutlivesAReopen) {
  Put(Table::kState, {"a"});
  Put(Table::kDedup, {"b"});
  ASSERT_TRUE(store_->Flush().ok());
  Put(Table::kState, {"lost"});
  Reopen();
  EXPECT_EQ(Scan(Table::kState, "", ""), "a ");
  EXPECT_EQ(Scan(Table::kDedup, "", ""), "b ");
}

TEST_F(RocksStoreTest, WorksOverOurFileLayer) {
  store_.reset();
  std::filesystem::remove_all(directory_);
  files_ = RealFiles();
  Reopen(/*create=*/true);
  Put(Table::kState, {"a"});
  ASSERT_TRUE(store_->Flush().ok());
  Reopen();
  EXPECT_EQ(Scan(Table::kState, "", ""), "a ");
}

}  // namespace
}  // namespace millrace::storage
