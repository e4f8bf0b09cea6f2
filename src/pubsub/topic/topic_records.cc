#include "pubsub/topic/topic_records.h"

#include "storage/encoding.h"

namespace millrace::pubsub {

std::string TopicRecord::Serialize() const {
  std::string out;
  out.push_back(static_cast<char>(kind));
  storage::PutVarint(out, first_id);
  storage::PutVarint(out, id_end);
  storage::PutString(out, producer);
  storage::PutVarint(out, sequence);
  return out;
}

StatusOr<TopicRecord> TopicRecord::Parse(std::string_view bytes) {
  storage::ByteReader reader(bytes);
  TopicRecord record;
  uint8_t kind = reader.Byte();
  record.kind = static_cast<Kind>(kind);
  record.first_id = reader.Varint();
  record.id_end = reader.Varint();
  record.producer = std::string(reader.String());
  record.sequence = reader.Varint();
  if (!reader.ok() || kind < 1 || kind > 3)
    return DataLoss("A topic's record in the commit log cannot be read.");
  return record;
}

}  // namespace millrace::pubsub
