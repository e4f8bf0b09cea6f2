// pubsub-ceiling: the least a google.pubsub.v1 server can do over gRPC. Publish reads the request
// and returns ids; StreamingPull relays in memory. No leases, no redelivery, no recovery: it bounds
// what a real server on the same gRPC could reach on the same machine under the same load.
//
//   pubsub-ceiling --port N [--backlog] [--log DIR] [--group-kb N]
//     --log DIR   a publish is answered after its request stands in an append-only log, with
//     checksum
//                 and one fdatasync a group of waiting publishes: the bound of a durable server
//     --group-kb  most request bytes in one commit (1024)
//     --backlog   keeps messages for subscriptions without an open stream (else they are dropped)
#include <fcntl.h>
#include <google/pubsub/v1/pubsub.grpc.pb.h>
#include <grpcpp/grpcpp.h>
#include <nmmintrin.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "wire.h"

namespace ps = google::pubsub::v1;

namespace millrace::load {
namespace {

bool g_backlog = false;
std::atomic<uint64_t> g_next_id{1000000000000000};
std::atomic<uint64_t> g_acks{0};
size_t g_group_bytes = 1 << 20;  // most request bytes in one commit

// The messages of one publish, as encoded PubsubMessages.
struct Batch {
  std::string bytes;
  std::vector<std::pair<uint32_t, uint32_t>> spans;  // of each message in bytes
  size_t size() const { return spans.size(); }
};

class Wakeable {
 public:
  virtual ~Wakeable() = default;
  virtual void Kick() = 0;
};

struct Sub {
  std::mutex mu;
  std::deque<std::shared_ptr<const Batch>> queue;
  std::vector<Wakeable*> streams;
  size_t turn = 0;
};

struct Topic {
  std::vector<std::shared_ptr<Sub>> subs;
};

std::mutex g_mu;
std::unordered_map<std::string, std::shared_ptr<Topic>> g_topics;
std::unordered_map<std::string, std::shared_ptr<Sub>> g_subs;

std::shared_ptr<Topic> FindTopic(const std::string& name) {
  std::lock_guard l(g_mu);
  auto it = g_topics.find(name);
  return it == g_topics.end() ? nullptr : it->second;
}

void Deliver(Topic& t, std::shared_ptr<const Batch> batch) {
  for (auto& sub : t.subs) {
    Wakeable* kick = nullptr;
    {
      std::lock_guard l(sub->mu);
      if (sub->streams.empty() && !g_backlog) continue;
      sub->queue.push_back(batch);
      // Kick runs under the lock so that the stream cannot go away meanwhile.
      if (!sub->streams.empty()) {
        kick = sub->streams[sub->turn++ % sub->streams.size()];
        kick->Kick();
      }
    }
  }
}

bool Wanted(Topic& t) {
  for (auto& sub : t.subs) {
    std::lock_guard l(sub->mu);
    if (g_backlog || !sub->streams.empty()) return true;
  }
  return false;
}

// ---- durable variants

struct Pending {
  grpc::Slice hold;
  std::string_view request;
  uint64_t first_id = 0;
  std::shared_ptr<Topic> topic;
  std::shared_ptr<const Batch> batch;
  grpc::ServerUnaryReactor* reactor = nullptr;
};

__attribute__((target("sse4.2"))) uint32_t Crc32c(std::string_view s) {
  uint64_t c = 0xffffffff;
  const char* p = s.data();
  size_t n = s.size();
  for (; n >= 8; p += 8, n -= 8) {
    uint64_t v;
    memcpy(&v, p, 8);
    c = _mm_crc32_u64(c, v);
  }
  for (; n; p++, n--) c = _mm_crc32_u8(static_cast<uint32_t>(c), static_cast<unsigned char>(*p));
  return static_cast<uint32_t>(c) ^ 0xffffffff;
}

// One thread commits all publishes that came in while the last commit ran, then answers them.
class Committer {
 public:
  void Start() {
    thread_ = std::thread([this] { Loop(); });
  }
  virtual ~Committer() = default;
  void Add(Pending p) {
    bool wake;
    {
      std::lock_guard l(mu_);
      wake = waiting_.empty();
      waiting_.push_back(std::move(p));
    }
    if (wake) cv_.notify_one();
  }
  void Stop() {
    {
      std::lock_guard l(mu_);
      stop_ = true;
    }
    cv_.notify_one();
    thread_.join();
  }

 protected:
  virtual void Commit(std::vector<Pending>& group) = 0;

 private:
  void Loop() {
    for (;;) {
      std::vector<Pending> group;
      {
        std::unique_lock l(mu_);
        cv_.wait(l, [this] { return stop_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        size_t n = 0, bytes = 0;
        while (n < waiting_.size() &&
               (n == 0 || bytes + waiting_[n].request.size() <= g_group_bytes))
          bytes += waiting_[n++].request.size();
        if (n == waiting_.size()) {
          group.swap(waiting_);
        } else {
          auto end = waiting_.begin() + static_cast<ptrdiff_t>(n);
          group.assign(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(end));
          waiting_.erase(waiting_.begin(), end);
        }
      }
      Commit(group);
      for (auto& p : group) {
        if (p.batch) Deliver(*p.topic, p.batch);
        p.reactor->Finish(grpc::Status::OK);
      }
    }
  }
  std::thread thread_;
  std::mutex mu_;
  std::condition_variable cv_;
  std::vector<Pending> waiting_;
  bool stop_ = false;
};

// Writes a group to the log and syncs it.
class LogCommitter : public Committer {
 public:
  explicit LogCommitter(std::string dir) : path_(dir + "/ceiling.log") { Open(); }
  ~LogCommitter() override {
    close(fd_);
    unlink(path_.c_str());
  }

 protected:
  void Commit(std::vector<Pending>& group) override {
    struct Head {
      uint32_t crc, size;
      uint64_t first_id;
    };
    std::vector<Head> heads(group.size());
    std::vector<iovec> iov;
    for (size_t i = 0; i < group.size(); i++) {
      auto r = group[i].request;
      heads[i] = {Crc32c(r), static_cast<uint32_t>(r.size()), group[i].first_id};
      iov.push_back({&heads[i], sizeof(Head)});
      iov.push_back({const_cast<char*>(r.data()), r.size()});
    }
    for (size_t at = 0; at < iov.size();) {
      ssize_t n = writev(fd_, &iov[at], static_cast<int>(std::min<size_t>(iov.size() - at, 1000)));
      if (n < 0) {
        std::perror("writev");
        std::abort();
      }
      written_ += static_cast<uint64_t>(n);
      size_t left = static_cast<size_t>(n);
      while (at < iov.size() && left >= iov[at].iov_len) left -= iov[at++].iov_len;
      if (left) {
        iov[at].iov_base = static_cast<char*>(iov[at].iov_base) + left;
        iov[at].iov_len -= left;
      }
    }
    if (fdatasync(fd_) != 0) {
      std::perror("fdatasync");
      std::abort();
    }
    if (written_ > (1ull << 30)) {
      close(fd_);
      Open();
    }
  }

 private:
  void Open() {
    unlink(path_.c_str());
    fd_ = open(path_.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644);
    if (fd_ < 0) {
      std::perror(path_.c_str());
      std::exit(1);
    }
    written_ = 0;
  }
  std::string path_;
  int fd_ = -1;
  uint64_t written_ = 0;
};

std::unique_ptr<LogCommitter> g_committer;

// Reads a PublishRequest; fills the response's ids, and the batch if any subscription wants it.
// With `durable` delivery is left to the committer.
void PublishRaw(std::string_view in, std::string& out, Pending* durable = nullptr) {
  std::string topic_name;
  size_t n = 0;
  for (wire::Reader r(in); r.Next();) {
    if (r.field() == 1)
      topic_name = r.bytes();
    else if (r.field() == 2)
      n++;
  }
  auto topic = FindTopic(topic_name);
  uint64_t id = g_next_id.fetch_add(n);
  char text[24];
  std::shared_ptr<Batch> batch;
  std::string time;
  if (topic && Wanted(*topic)) {
    batch = std::make_shared<Batch>();
    batch->bytes.reserve(in.size() + n * 40);
    batch->spans.reserve(n);
    timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    wire::PutInt(time, 1, static_cast<uint64_t>(t.tv_sec));
    wire::PutInt(time, 2, static_cast<uint64_t>(t.tv_nsec));
  }
  out.reserve(n * 18);
  for (wire::Reader r(in); r.Next();) {
    if (r.field() != 2) continue;
    int len = std::snprintf(text, sizeof text, "%llu", static_cast<unsigned long long>(id++));
    std::string_view id_text(text, static_cast<size_t>(len));
    wire::PutBytes(out, 1, id_text);
    // A full server looks at each field of each message (limits, attributes, key); so does this
    // one.
    size_t total = 0;
    for (wire::Reader m(r.bytes()); m.Next();) total += m.bytes().size();
    if (batch) {
      size_t at = batch->bytes.size();
      batch->bytes.append(r.bytes());
      wire::PutBytes(batch->bytes, 3, id_text);
      wire::PutBytes(batch->bytes, 4, time);
      batch->spans.emplace_back(static_cast<uint32_t>(at),
                                static_cast<uint32_t>(batch->bytes.size() - at));
    }
    if (total == 0) out.clear();
  }
  if (durable) {
    durable->request = in;
    durable->first_id = id - n;
    durable->topic = topic;
    durable->batch = batch;
  } else if (batch) {
    Deliver(*topic, batch);
  }
}

std::string_view Contiguous(const grpc::ByteBuffer& b, grpc::Slice& hold) {
  auto& nb = const_cast<grpc::ByteBuffer&>(b);
  if (!nb.TrySingleSlice(&hold).ok()) nb.DumpToSingleSlice(&hold);
  return {reinterpret_cast<const char*>(hold.begin()), hold.size()};
}

// ---- StreamingPull

std::shared_ptr<Sub> FindSub(const std::string& name) {
  std::lock_guard l(g_mu);
  auto it = g_subs.find(name);
  return it == g_subs.end() ? nullptr : it->second;
}

class Stream : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>, public Wakeable {
 public:
  Stream() { this->StartRead(&in_); }
  void OnReadDone(bool ok) override {
    if (!ok) {
      bool finish;
      {
        std::lock_guard l(own_);
        closed_ = true;
        finish = !writing_;
      }
      if (finish) End();
      return;
    }
    std::string name;
    uint64_t acks = 0;
    Look(in_, name, acks);
    g_acks += acks;
    if (!name.empty() && !sub_) {
      sub_ = FindSub(name);
      if (!sub_) {
        {
          std::lock_guard l(own_);
          closed_ = true;
        }
        finished_ = true;
        this->Finish(grpc::Status(grpc::StatusCode::NOT_FOUND, "no such subscription"));
        return;
      }
      std::lock_guard l(sub_->mu);
      sub_->streams.push_back(this);
      Kick();
    }
    this->StartRead(&in_);
  }
  // The caller holds sub_->mu.
  void Kick() override {
    std::lock_guard l(own_);
    if (writing_ || closed_ || sub_->queue.empty()) return;
    writing_ = true;
    Fill();
    this->StartWrite(&out_);
  }
  void OnWriteDone(bool ok) override {
    bool finish = false;
    {
      std::lock_guard l(sub_->mu);
      {
        std::lock_guard l2(own_);
        writing_ = false;
        if (!ok) closed_ = true;
        finish = closed_;
      }
      if (!finish) Kick();
    }
    if (finish) End();
  }
  void OnCancel() override {}
  void OnDone() override {
    if (sub_) {
      std::lock_guard l(sub_->mu);
      std::erase(sub_->streams, this);
    }
    delete this;
  }

 private:
  void End() {
    if (finished_.exchange(true)) return;
    this->Finish(grpc::Status::OK);
  }
  static void Look(const grpc::ByteBuffer& in, std::string& name, uint64_t& acks) {
    grpc::Slice hold;
    for (wire::Reader r(Contiguous(in, hold)); r.Next();) {
      if (r.field() == 1)
        name = r.bytes();
      else if (r.field() == 2)
        acks++;
    }
  }
  void Fill() {
    constexpr size_t kMessages = 1000, kBytes = 1 << 20;
    size_t messages = 0, bytes = 0;
    Begin();
    while (!sub_->queue.empty() && messages < kMessages && bytes < kBytes) {
      auto b = sub_->queue.front();
      sub_->queue.pop_front();
      bytes += Append(*b);
      messages += b->size();
    }
    Commit();
  }
  void Begin() {
    bytes_.clear();
    bytes_.reserve(1 << 17);
  }
  size_t Append(const Batch& b) {
    char id[48];
    for (auto [at, size] : b.spans) {
      size_t id_size = static_cast<size_t>(std::snprintf(
          id, sizeof id, "ack:%016llx:%08x", static_cast<unsigned long long>(++acks_), 1u));
      size_t length_size = 1;
      for (uint32_t v = size; v >= 0x80; v >>= 7) length_size++;
      wire::PutVarint(bytes_, 1 << 3 | 2);
      wire::PutVarint(bytes_, 2 + id_size + 1 + length_size + size);
      wire::PutBytes(bytes_, 1, {id, id_size});
      wire::PutBytes(bytes_, 2, std::string_view(b.bytes).substr(at, size));
    }
    return b.bytes.size();
  }
  void Commit() {
    grpc::Slice s(bytes_);
    out_ = grpc::ByteBuffer(&s, 1);
  }

  grpc::ByteBuffer in_, out_;
  std::string bytes_;
  std::shared_ptr<Sub> sub_;
  std::mutex own_;
  bool writing_ = false, closed_ = false;
  std::atomic<bool> finished_{false};
  uint64_t acks_ = 0;
};

// ---- services

template <class Service>
class PublisherAdmin : public Service {
 public:
  grpc::ServerUnaryReactor* CreateTopic(grpc::CallbackServerContext* c, const ps::Topic* in,
                                        ps::Topic* out) override {
    {
      std::lock_guard l(g_mu);
      g_topics[in->name()] = std::make_shared<Topic>();
    }
    *out = *in;
    return Done(c);
  }
  grpc::ServerUnaryReactor* DeleteTopic(grpc::CallbackServerContext* c,
                                        const ps::DeleteTopicRequest* in,
                                        google::protobuf::Empty*) override {
    {
      std::lock_guard l(g_mu);
      g_topics.erase(in->topic());
    }
    return Done(c);
  }

 protected:
  static grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* c) {
    auto* r = c->DefaultReactor();
    r->Finish(grpc::Status::OK);
    return r;
  }
};

template <class Service>
class SubscriberAdmin : public Service {
 public:
  grpc::ServerUnaryReactor* CreateSubscription(grpc::CallbackServerContext* c,
                                               const ps::Subscription* in,
                                               ps::Subscription* out) override {
    {
      std::lock_guard l(g_mu);
      auto sub = std::make_shared<Sub>();
      g_subs[in->name()] = sub;
      auto old = g_topics[in->topic()];
      auto t = old ? std::make_shared<Topic>(*old) : std::make_shared<Topic>();
      t->subs.push_back(sub);
      g_topics[in->topic()] = t;
    }
    *out = *in;
    auto* r = c->DefaultReactor();
    r->Finish(grpc::Status::OK);
    return r;
  }
  grpc::ServerUnaryReactor* DeleteSubscription(grpc::CallbackServerContext* c,
                                               const ps::DeleteSubscriptionRequest* in,
                                               google::protobuf::Empty*) override {
    {
      std::lock_guard l(g_mu);
      g_subs.erase(in->subscription());
    }
    auto* r = c->DefaultReactor();
    r->Finish(grpc::Status::OK);
    return r;
  }
};

using PubCreate = ps::Publisher::WithCallbackMethod_CreateTopic<
    ps::Publisher::WithCallbackMethod_DeleteTopic<ps::Publisher::Service>>;
using SubCreate = ps::Subscriber::WithCallbackMethod_CreateSubscription<
    ps::Subscriber::WithCallbackMethod_DeleteSubscription<ps::Subscriber::Service>>;

class RawPublisher
    : public PublisherAdmin<ps::Publisher::WithRawCallbackMethod_Publish<PubCreate>> {
 public:
  grpc::ServerUnaryReactor* Publish(grpc::CallbackServerContext* c, const grpc::ByteBuffer* in,
                                    grpc::ByteBuffer* out) override {
    Pending p;
    std::string bytes;
    PublishRaw(Contiguous(*in, p.hold), bytes, g_committer ? &p : nullptr);
    grpc::Slice s(bytes);
    *out = grpc::ByteBuffer(&s, 1);
    if (!g_committer) return Done(c);
    auto* r = c->DefaultReactor();
    p.reactor = r;
    g_committer->Add(std::move(p));
    return r;
  }
};

class RawSubscriber
    : public SubscriberAdmin<ps::Subscriber::WithRawCallbackMethod_StreamingPull<SubCreate>> {
 public:
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StreamingPull(
      grpc::CallbackServerContext*) override {
    return new Stream();
  }
};

std::atomic<bool> g_stop{false};

int Main(int argc, char** argv) {
  std::string port = "9085";
  for (int i = 1; i < argc; i++) {
    std::string a = argv[i];
    if (a == "--backlog") {
      g_backlog = true;
    } else if (i + 1 < argc && a == "--port") {
      port = argv[++i];
    } else if (i + 1 < argc && a == "--log") {
      g_committer = std::make_unique<LogCommitter>(argv[++i]);
    } else if (i + 1 < argc && a == "--group-kb") {
      g_group_bytes = std::strtoull(argv[++i], nullptr, 10) << 10;
    } else {
      std::fprintf(stderr, "pubsub-ceiling: what is %s?\n", a.c_str());
      return 2;
    }
  }
  std::signal(SIGTERM, [](int) { g_stop = true; });
  std::signal(SIGINT, [](int) { g_stop = true; });
  if (g_committer) g_committer->Start();
  RawPublisher publisher;
  RawSubscriber subscriber;
  grpc::ServerBuilder b;
  b.AddListeningPort("127.0.0.1:" + port, grpc::InsecureServerCredentials());
  b.SetMaxReceiveMessageSize(-1);
  b.RegisterService(&publisher);
  b.RegisterService(&subscriber);
  auto server = b.BuildAndStart();
  if (!server) return 1;
  std::printf("ready on %s\n", port.c_str());
  std::fflush(stdout);
  while (!g_stop) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  server->Shutdown(std::chrono::system_clock::now());
  if (g_committer) {
    g_committer->Stop();
    g_committer.reset();
  }
  return 0;
}

}  // namespace
}  // namespace millrace::load

int main(int argc, char** argv) { return millrace::load::Main(argc, argv); }
