#include "engine/bundle.h"

#include <utility>

#include "windowing/wire.h"

namespace millrace::engine {
namespace {

// Collects pieces of data: small things are put together, runs go by reference.
class DataWriter {
 public:
  explicit DataWriter(BundleRequest* request) : request_(request) {}
  std::string& open() { return open_; }
  void Close() {
    if (open_.empty()) return;
    bytes_ += open_.size();
    request_->data.emplace_back(std::exchange(open_, {}));
  }
  void Add(SharedBytes piece) {
    if (piece.size() < kCopyBelow) {
      open_.append(piece.view());
      if (open_.size() >= kPieceBytes) Close();
      return;
    }
    Close();
    bytes_ += piece.size();
    request_->data.push_back(std::move(piece));
  }
  void MayClose() {
    if (open_.size() >= kPieceBytes) Close();
  }
  size_t bytes() const { return bytes_ + open_.size(); }

 private:
  static constexpr size_t kCopyBelow = 4 << 10;
  static constexpr size_t kPieceBytes = 256 << 10;
  BundleRequest* request_;
  std::string open_;
  size_t bytes_ = 0;
};

Status Lost() { return DataLoss("engine: pending elements are missing in the store"); }

Status EncodeOne(const Item& item, DataWriter& data, BundleRequest* request) {
  ChunkTable& chunks = item.range->chunks();
  if (const auto* run = std::get_if<Run>(&item.work)) {
    const std::shared_ptr<const PackedChunk> body = chunks.Body(run->chunk);
    if (!body) return Lost();
    data.Add(body->Slice(run->first, run->count));
  } else if (const auto* batch = std::get_if<KeyBatch>(&item.work)) {
    for (const Ref& ref : batch->refs) {
      const std::shared_ptr<const PackedChunk> body = chunks.Body(ref.chunk);
      if (!body) return Lost();
      data.open().append(body->Encoded(ref.index));
    }
    request->timers.insert(request->timers.end(), batch->timers.begin(), batch->timers.end());
    data.MayClose();
  } else if (const auto* pane = std::get_if<CellPane>(&item.work)) {
    MR_RETURN_IF_ERROR(EncodePane(*pane, chunks, data.open()));
    data.MayClose();
  } else if (const auto* source = std::get_if<std::unique_ptr<SourcePending>>(&item.work)) {
    const SourceElement& element = (*source)->element;
    windowing::AppendHeader(data.open(), element.timestamp, windowing::Window::Global(),
                            windowing::Pane::NoFiring());
    data.open().append(element.value.view());
    data.MayClose();
  } else if (const auto* rest = std::get_if<ResidualWork>(&item.work)) {
    const WaitingResidual* residual = item.range->residual(rest->id);
    if (residual == nullptr) return Lost();
    data.open().append(residual->record.element);
  }
  return OkStatus();
}

}  // namespace

size_t Item::elements() const {
  if (const auto* run = std::get_if<Run>(&work)) return run->count;
  if (const auto* batch = std::get_if<KeyBatch>(&work)) return batch->refs.size();
  return 1;
}

Status EncodeItems(const std::vector<Item>& items, BundleRequest* request, size_t* bytes) {
  DataWriter data(request);
  for (const Item& item : items) {
    MR_RETURN_IF_ERROR(EncodeOne(item, data, request));
    request->element_count += item.elements();
  }
  data.Close();
  *bytes = data.bytes();
  return OkStatus();
}

std::vector<Item> CutAfter(std::vector<Item>& items, size_t elements) {
  std::vector<Item> rest;
  size_t at = 0;
  while (at < items.size() && items[at].elements() <= elements) elements -= items[at++].elements();
  if (at == items.size()) return rest;
  if (elements > 0) {
    Item& cut = items[at];
    if (auto* run = std::get_if<Run>(&cut.work)) {
      const auto kept = static_cast<uint32_t>(elements);
      rest.push_back({cut.range, Run{run->chunk, run->first + kept, run->count - kept}});
      run->count = kept;
    } else if (auto* batch = std::get_if<KeyBatch>(&cut.work)) {
      KeyBatch behind;
      behind.entry = batch->entry;
      behind.refs.assign(batch->refs.begin() + static_cast<ptrdiff_t>(elements), batch->refs.end());
      batch->refs.resize(elements);
      rest.push_back({cut.range, std::move(behind)});
    }
    ++at;
  }
  for (size_t i = at; i < items.size(); ++i) rest.push_back(std::move(items[i]));
  items.resize(at);
  return rest;
}

std::vector<Item> CutHalf(std::vector<Item>& items) {
  if (items.size() > 1) {
    size_t total = 0, sum = 0, at = 0;
    for (const Item& item : items) total += item.elements() + 1;
    while (at < items.size() - 1 && (at == 0 || sum + items[at].elements() + 1 <= total / 2))
      sum += items[at++].elements() + 1;
    std::vector<Item> rest;
    for (size_t i = at; i < items.size(); ++i) rest.push_back(std::move(items[i]));
    items.resize(at);
    return rest;
  }
  if (items.size() == 1) {
    auto* run = std::get_if<Run>(&items[0].work);
    if (run != nullptr && run->count > 1) return CutAfter(items, run->count / 2);
  }
  return {};
}

}  // namespace millrace::engine
