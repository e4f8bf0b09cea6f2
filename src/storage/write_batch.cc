#include "storage/encoding.h"
#include "storage/store.h"

namespace millrace::storage {
namespace {

constexpr size_t kOpOverhead = 16;

}  // namespace

void WriteBatch::Put(Table table, std::string_view key, std::string_view value) {
  ops_.push_back({Op::kPut, table, std::string(key), std::string(value)});
  bytes_ += key.size() + value.size() + kOpOverhead;
}

void WriteBatch::Delete(Table table, std::string_view key) {
  ops_.push_back({Op::kDelete, table, std::string(key), {}});
  bytes_ += key.size() + kOpOverhead;
}

void WriteBatch::DeleteRange(Table table, std::string_view begin, std::string_view end) {
  ops_.push_back({Op::kDeleteRange, table, std::string(begin), std::string(end)});
  bytes_ += begin.size() + end.size() + kOpOverhead;
}

void WriteBatch::Append(const WriteBatch& other) {
  ops_.insert(ops_.end(), other.ops_.begin(), other.ops_.end());
  bytes_ += other.bytes_;
}

// One byte of kind (low 2 bits) and table, then key and, except for deletes, value.
std::string WriteBatch::Serialize() const {
  std::string out;
  out.reserve(bytes_);
  for (const Op& op : ops_) {
    out.push_back(static_cast<char>(op.kind | static_cast<uint8_t>(op.table) << 2));
    PutString(out, op.key);
    if (op.kind != Op::kDelete) PutString(out, op.value);
  }
  return out;
}

StatusOr<WriteBatch> WriteBatch::Parse(std::string_view bytes) {
  WriteBatch batch;
  ByteReader reader(bytes);
  while (!reader.empty()) {
    uint8_t head = reader.Byte();
    auto kind = static_cast<Op::Kind>(head & 3);
    if (kind > Op::kDeleteRange || (head >> 2) >= kTableCount) {
      return DataLoss("write batch: unknown kind or table");
    }
    std::string_view key = reader.String();
    std::string_view value = kind == Op::kDelete ? std::string_view() : reader.String();
    if (!reader.ok()) return DataLoss("write batch: cut short");
    batch.ops_.push_back(
        {kind, static_cast<Table>(head >> 2), std::string(key), std::string(value)});
    batch.bytes_ += key.size() + value.size() + kOpOverhead;
  }
  return batch;
}

}  // namespace millrace::storage
