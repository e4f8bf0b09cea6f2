#include "storage/rocks_store.h"

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/listener.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/table_properties_collectors.h>
#include <rocksdb/write_batch.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <utility>
#include <vector>

#include "base/log.h"
#include "storage/rocks_files.h"

namespace millrace::storage {
namespace {

// Names on disk, in the order of Table. Never rename.
constexpr std::array<const char*, kTableCount> kTableNames = {"meta",  "broker", "jobs", "pending",
                                                              "state", "timers", "dedup"};

rocksdb::Slice ToSlice(std::string_view bytes) { return {bytes.data(), bytes.size()}; }
std::string_view ToView(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }

Status ToStatus(const rocksdb::Status& status, std::string_view what) {
  if (status.ok()) return OkStatus();
  std::string text = fmt::format("store: {}: {}", what, status.ToString());
  if (status.IsCorruption()) return DataLoss(text);
  if (status.IsNoSpace()) return ResourceExhausted(text);
  if (status.IsInvalidArgument()) return InvalidArgument(text);
  return Internal(text);
}

// Passes warnings and errors on; keeps no LOG files.
class ForwardingLogger : public rocksdb::Logger {
 public:
  ForwardingLogger() : rocksdb::Logger(rocksdb::InfoLogLevel::WARN_LEVEL) {}
  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list args) override {
    char text[512];
    vsnprintf(text, sizeof text, format, args);
    MR_LOG(kDebug, "rocksdb: {}", text);
  }
};

// Lets the log be made durable before the rows that follow from it.
class FlushListener : public rocksdb::EventListener {
 public:
  explicit FlushListener(std::function<void()> before) : before_(std::move(before)) {}
  void OnFlushBegin(rocksdb::DB*, const rocksdb::FlushJobInfo&) override { before_(); }

 private:
  const std::function<void()> before_;
};

// Open handles; shared by views and iterators, so that the database outlives them.
class Database {
 public:
  ~Database() {
    if (!db_) return;
    for (rocksdb::ColumnFamilyHandle* handle : handles_) {
      (void)db_->DestroyColumnFamilyHandle(handle);
    }
    (void)db_->Close();
  }
  rocksdb::DB& db() { return *db_; }
  rocksdb::ColumnFamilyHandle* table(Table table) { return tables_[static_cast<int>(table)]; }
  const auto& tables() const { return tables_; }

  static StatusOr<std::shared_ptr<Database>> Open(const RocksStoreOptions& options);

 private:
  std::unique_ptr<rocksdb::Env> env_;  // declared before the database that uses it
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;
  std::array<rocksdb::ColumnFamilyHandle*, kTableCount> tables_{};
};

rocksdb::DBOptions MakeDbOptions(const RocksStoreOptions& options) {
  rocksdb::DBOptions db;
  db.create_if_missing = options.create;
  db.atomic_flush = true;
  db.avoid_flush_during_shutdown = true;  // a checkpoint decides what is durable
  db.info_log = std::make_shared<ForwardingLogger>();
  db.stats_dump_period_sec = 0;
  db.stats_persist_period_sec = 0;
  db.max_background_jobs = 2;
  db.max_open_files = 512;
  db.max_file_opening_threads = 1;
  db.skip_stats_update_on_db_open = true;
  db.skip_checking_sst_file_sizes_on_db_open = true;
  db.keep_log_file_num = 1;
  db.max_manifest_file_size = 8 << 20;
  db.db_write_buffer_size = options.memtable_bytes;
  db.bytes_per_sync = 1 << 20;
  db.avoid_unnecessary_blocking_io = true;
  if (options.before_flush) {
    db.listeners.push_back(std::make_shared<FlushListener>(options.before_flush));
  }
  return db;
}

rocksdb::ColumnFamilyOptions MakeTableOptions(const RocksStoreOptions& options,
                                              const std::shared_ptr<rocksdb::Cache>& cache,
                                              bool queue_like) {
  rocksdb::BlockBasedTableOptions blocks;
  blocks.block_cache = cache;
  blocks.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10, false));
  blocks.format_version = 5;
  blocks.block_size = 8 << 10;
  blocks.cache_index_and_filter_blocks = true;
  blocks.pin_l0_filter_and_index_blocks_in_cache = true;
  rocksdb::ColumnFamilyOptions table;
  table.table_factory.reset(rocksdb::NewBlockBasedTableFactory(blocks));
  table.compression = rocksdb::kLZ4Compression;
  table.write_buffer_size = options.memtable_bytes / 2;
  table.max_write_buffer_number = 3;
  table.arena_block_size = 64 << 10;
  table.target_file_size_base = 32 << 20;
  table.max_bytes_for_level_base = 128 << 20;
  // Rows that are put, read once and deleted leave runs of tombstones that scans would wade
  // through.
  if (queue_like) {
    table.table_properties_collector_factories.push_back(
        rocksdb::NewCompactOnDeletionCollectorFactory(4096, 2048));
  }
  return table;
}

// Removes the leavings of a creation that a crash cut short.
Status MakeEmpty(Files& files, const std::string& directory) {
  MR_RETURN_IF_ERROR(files.MakeDirectory(directory));
  MR_ASSIGN_OR_RETURN(std::vector<std::string> names, files.List(directory));
  for (const std::string& name : names) MR_RETURN_IF_ERROR(files.Remove(directory + "/" + name));
  return OkStatus();
}

Status SyncAll(Files& files, const std::string& directory) {
  MR_ASSIGN_OR_RETURN(std::vector<std::string> names, files.List(directory));
  for (const std::string& name : names) {
    auto file = files.Open(directory + "/" + name, /*create=*/false);
    // RocksDB's background thread removes what it does not need any more.
    if (file.status().code() == StatusCode::kNotFound) continue;
    MR_RETURN_IF_ERROR(file.status());
    MR_RETURN_IF_ERROR((*file)->Sync());
  }
  return files.SyncDirectory(directory);
}

std::vector<rocksdb::ColumnFamilyDescriptor> DescribeTables(const RocksStoreOptions& options) {
  auto cache = rocksdb::NewLRUCache(options.block_cache_bytes, 2);
  std::vector<rocksdb::ColumnFamilyDescriptor> tables;
  // RocksDB insists on its default column family; nothing is in it.
  tables.emplace_back(rocksdb::kDefaultColumnFamilyName, MakeTableOptions(options, cache, false));
  for (int i = 0; i < kTableCount; ++i) {
    auto table = static_cast<Table>(i);
    bool queue_like = table == Table::kPending || table == Table::kTimers || table == Table::kDedup;
    tables.emplace_back(kTableNames[i], MakeTableOptions(options, cache, queue_like));
  }
  return tables;
}

StatusOr<std::shared_ptr<Database>> Database::Open(const RocksStoreOptions& options) {
  std::shared_ptr<Files> files = options.files ? options.files : RealFiles();
  SyncSwitch syncs;
  if (options.create) {
    syncs = std::make_shared<std::atomic<bool>>(false);
    MR_RETURN_IF_ERROR(MakeEmpty(*files, options.directory));
  }
  auto database = std::make_shared<Database>();
  rocksdb::DBOptions db_options = MakeDbOptions(options);
  if (options.files || syncs) {
    database->env_ = MakeRocksEnv(options.files, syncs);
    db_options.env = database->env_.get();
  }
  std::vector<rocksdb::ColumnFamilyDescriptor> tables = DescribeTables(options);
  std::vector<rocksdb::ColumnFamilyDescriptor> later;
  if (options.create) {
    // Created together after the opening, the tables cost one options file, not one each.
    later.assign(tables.begin() + 1, tables.end());
    tables.resize(1);
  }
  rocksdb::DB* db = nullptr;
  MR_RETURN_IF_ERROR(
      ToStatus(rocksdb::DB::Open(db_options, options.directory, tables, &database->handles_, &db),
               options.directory));
  database->db_.reset(db);
  if (options.create) {
    std::vector<rocksdb::ColumnFamilyHandle*> made;
    MR_RETURN_IF_ERROR(ToStatus(db->CreateColumnFamilies(later, &made), options.directory));
    database->handles_.insert(database->handles_.end(), made.begin(), made.end());
    *syncs = true;
    MR_RETURN_IF_ERROR(SyncAll(*files, options.directory));
  }
  for (int i = 0; i < kTableCount; ++i) database->tables_[i] = database->handles_[i + 1];
  return database;
}

class RocksView : public ReadView {
 public:
  explicit RocksView(std::shared_ptr<Database> database)
      : database_(std::move(database)), snapshot_(database_->db().GetSnapshot()) {}
  ~RocksView() override { database_->db().ReleaseSnapshot(snapshot_); }
  const rocksdb::Snapshot* snapshot() const { return snapshot_; }

 private:
  const std::shared_ptr<Database> database_;
  const rocksdb::Snapshot* const snapshot_;
};

rocksdb::ReadOptions MakeReadOptions(const ReadView* view) {
  rocksdb::ReadOptions read;
  if (view != nullptr) read.snapshot = static_cast<const RocksView*>(view)->snapshot();
  return read;
}

// At the first key of its bounds until Seek says otherwise.
class RocksIterator : public Iterator {
 public:
  RocksIterator(std::shared_ptr<Database> database, Table table, std::string_view begin,
                std::string_view end, const ReadView* view)
      : database_(std::move(database)), begin_(begin), end_(end) {
    begin_slice_ = begin_;
    end_slice_ = end_;
    rocksdb::ReadOptions read = MakeReadOptions(view);
    if (!begin_.empty()) read.iterate_lower_bound = &begin_slice_;
    if (!end_.empty()) read.iterate_upper_bound = &end_slice_;
    iterator_.reset(database_->db().NewIterator(read, database_->table(table)));
  }
  void Seek(std::string_view key) override {
    positioned_ = true;
    iterator_->Seek(ToSlice(key));
  }
  void Next() override {
    Position();
    iterator_->Next();
  }
  bool Valid() const override {
    Position();
    return iterator_->Valid();
  }
  std::string_view key() const override { return ToView(iterator_->key()); }
  std::string_view value() const override { return ToView(iterator_->value()); }
  Status status() const override { return ToStatus(iterator_->status(), "scan"); }

 private:
  void Position() const {
    if (positioned_) return;
    positioned_ = true;
    iterator_->SeekToFirst();
  }

  const std::shared_ptr<Database> database_;
  const std::string begin_;
  const std::string end_;
  rocksdb::Slice begin_slice_;
  rocksdb::Slice end_slice_;
  std::unique_ptr<rocksdb::Iterator> iterator_;
  mutable bool positioned_ = false;
};

// Thread-safe, as RocksDB is.
class RocksStore : public Store {
 public:
  explicit RocksStore(std::shared_ptr<Database> database) : database_(std::move(database)) {}

  StatusOr<std::optional<std::string>> Get(Table table, std::string_view key,
                                           const ReadView* view) override {
    std::string value;
    rocksdb::Status status =
        database_->db().Get(MakeReadOptions(view), database_->table(table), ToSlice(key), &value);
    if (status.IsNotFound()) return std::optional<std::string>();
    MR_RETURN_IF_ERROR(ToStatus(status, "get"));
    return std::optional<std::string>(std::move(value));
  }

  std::unique_ptr<Iterator> NewIterator(Table table, std::string_view begin, std::string_view end,
                                        const ReadView* view) override {
    return std::make_unique<RocksIterator>(database_, table, begin, end, view);
  }

  std::shared_ptr<const ReadView> NewReadView() override {
    return std::make_shared<RocksView>(database_);
  }

  Status Write(const WriteBatch& batch) override {
    rocksdb::WriteBatch rows(batch.bytes() + 64);
    for (const WriteBatch::Op& op : batch.ops()) {
      rocksdb::ColumnFamilyHandle* table = database_->table(op.table);
      rocksdb::Status status;
      if (op.kind == WriteBatch::Op::kPut) {
        status = rows.Put(table, op.key, op.value);
      } else if (op.kind == WriteBatch::Op::kDelete) {
        status = rows.Delete(table, op.key);
      } else if (op.key < op.value) {
        status = rows.DeleteRange(table, op.key, op.value);
      }
      MR_RETURN_IF_ERROR(ToStatus(status, "write"));
    }
    rocksdb::WriteOptions write;
    write.disableWAL = true;
    return ToStatus(database_->db().Write(write, &rows), "write");
  }

  Status Flush() override {
    std::vector<rocksdb::ColumnFamilyHandle*> all(database_->tables().begin(),
                                                  database_->tables().end());
    return ToStatus(database_->db().Flush(rocksdb::FlushOptions(), all), "flush");
  }

 private:
  const std::shared_ptr<Database> database_;
};

}  // namespace

StatusOr<std::unique_ptr<Store>> OpenRocksStore(const RocksStoreOptions& options) {
  MR_ASSIGN_OR_RETURN(std::shared_ptr<Database> database, Database::Open(options));
  return std::unique_ptr<Store>(std::make_unique<RocksStore>(std::move(database)));
}

}  // namespace millrace::storage
