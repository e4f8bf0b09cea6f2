// pubsub-load: load generator and checker for any google.pubsub.v1 endpoint without TLS. See the
// README.md of bench/.
#include <google/pubsub/v1/pubsub.grpc.pb.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "checker.h"
#include "measure.h"
#include "options.h"
#include "publisher.h"
#include "puller.h"
#include "shared.h"
#include "unary_acker.h"

namespace millrace::load {
namespace {

namespace ps = google::pubsub::v1;

double Num(uint64_t v) { return static_cast<double>(v); }
void SleepMs(double ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(static_cast<int>(ms)));
}

void Check(const grpc::Status& st, const std::string& what) {
  if (st.ok()) return;
  std::cerr << "pubsub-load: " << what << ": " << st.error_code() << " " << st.error_message()
            << "\n";
  std::exit(1);
}

// The topics and subscriptions of a run; removed again unless --keep.
class Resources {
 public:
  explicit Resources(Shared& s)
      : s_(s),
        publisher_(ps::Publisher::NewStub(s.channels[0])),
        subscriber_(ps::Subscriber::NewStub(s.channels[0])) {}

  // Returns the seconds it took.
  double Create() {
    const Options& o = s_.o;
    uint64_t begin = NowNs();
    for (int t = 0; t < o.topics; t++) {
      std::string id = "load-" + std::to_string(s_.run) + "-" + std::to_string(t);
      grpc::ClientContext c;
      ps::Topic topic, out;
      topic.set_name("projects/" + o.project + "/topics/" + id);
      Check(publisher_->CreateTopic(&c, topic, &out), "CreateTopic");
      s_.topics.push_back(topic.name());
      for (int k = 0; k < o.subscriptions; k++) {
        grpc::ClientContext c2;
        ps::Subscription sub, sub_out;
        sub.set_name("projects/" + o.project + "/subscriptions/" + id + "-" + std::to_string(k));
        sub.set_topic(topic.name());
        sub.set_ack_deadline_seconds(o.ack_deadline);
        sub.set_enable_message_ordering(o.ordering_keys > 0);
        sub.set_enable_exactly_once_delivery(o.exactly_once);
        Check(subscriber_->CreateSubscription(&c2, sub, &sub_out), "CreateSubscription");
        s_.subs.push_back(sub.name());
      }
    }
    return Num(NowNs() - begin) / 1e9;
  }

  void Delete() {
    google::protobuf::Empty none;
    for (auto& name : s_.subs) {
      grpc::ClientContext c;
      ps::DeleteSubscriptionRequest r;
      r.set_subscription(name);
      subscriber_->DeleteSubscription(&c, r, &none);
    }
    for (auto& name : s_.topics) {
      grpc::ClientContext c;
      ps::DeleteTopicRequest r;
      r.set_topic(name);
      publisher_->DeleteTopic(&c, r, &none);
    }
  }

 private:
  Shared& s_;
  std::unique_ptr<ps::Publisher::Stub> publisher_;
  std::unique_ptr<ps::Subscriber::Stub> subscriber_;
};

// Lanes: one a topic and ordering key, or without keys enough for each slot to have its own.
void MakeLanes(Shared& s) {
  const Options& o = s.o;
  auto topics = static_cast<size_t>(o.topics);
  size_t lanes = o.ordering_keys > 0 ? topics * static_cast<size_t>(o.ordering_keys)
                                     : static_cast<size_t>(std::max(o.topics, o.concurrency));
  s.lanes.resize(lanes);
  for (size_t l = 0; l < lanes; l++) {
    s.lanes[l].topic = static_cast<int>(l % topics);
    if (o.ordering_keys > 0) {
      char key[32];
      std::snprintf(key, sizeof key, "key-%08zu", l / topics);
      s.lanes[l].key = key;
    }
  }
}

// What a run found, besides what it wrote to `out`.
struct Found {
  Json out;
  Cpu begin, end;
  uint64_t errors = 0, lost = 0;
};

void ReportConfig(const Options& o, Json& out) {
  if (!o.label.empty()) out.Str("label", o.label);
  out.Str("mode", o.mode);
  Json config;
  config.Num("message_size", Num(o.message_size));
  config.Num("batch", Num(o.batch));
  config.Num("concurrency", o.concurrency);
  config.Num("rate", o.rate);
  config.Num("topics", o.topics);
  config.Num("subscriptions", o.subscriptions);
  config.Num("ordering_keys", o.ordering_keys);
  config.Num("exactly_once", o.exactly_once);
  config.Num("streams", o.streams);
  config.Num("max_outstanding", static_cast<double>(o.max_outstanding));
  out.Raw("config", config.Text());
}

// The part of "receive" that every mode with streams has.
void AddReceived(const Options& o, const ReceiveTotals& r, Json& j) {
  j.Num("messages", Num(r.received));
  j.Num("messages_per_response", r.responses ? Num(r.received) / Num(r.responses) : 0);
  j.Num("acks_sent", Num(r.acks_sent));
  if (o.exactly_once) {
    j.Num("acks_confirmed", Num(r.acks_confirmed));
    j.Num("acks_refused", Num(r.acks_refused));
    j.Lat("ack_latency_ms", r.ack_latency);
  }
  j.Num("out_of_order", Num(r.out_of_order));
  j.Num("foreign", Num(r.foreign));
  j.Num("malformed", Num(r.bad));
  j.Num("stream_breaks", Num(r.breaks));
  if (!r.first_error.empty()) j.Str("first_error", r.first_error);
}

void ReportPublished(const Shared& s, const Publisher::Totals& t, size_t slots, double wall,
                     Json& out) {
  Json p;
  p.Num("messages_ok", Num(t.ok));
  p.Num("messages_per_s", Num(t.window_msgs) / wall);
  p.Num("mb_per_s", Num(t.window_msgs * s.o.message_size) / 1e6 / wall);
  p.Num("requests_per_s", Num(t.window_reqs) / wall);
  p.Num("errors", Num(t.errors));
  if (!t.first_error.empty()) p.Str("first_error", t.first_error);
  p.Num("slots", Num(slots));
  p.Lat("latency_ms", t.latency);
  out.Raw("publish", p.Text());
}

// Waits for what was published to arrive, ends the streams and reports.
void FinishReceiving(Shared& s, Puller& pull, uint64_t expected, double wall, Found& f) {
  uint64_t backlog = expected - std::min(expected, pull.unique());
  uint64_t begin = NowNs(), give_up = begin + static_cast<uint64_t>(s.o.drain_seconds * 1e9);
  while (pull.unique() < expected && NowNs() < give_up) SleepMs(2);
  double drain_s = Num(NowNs() - begin) / 1e9;
  SleepMs(s.o.linger_seconds * 1000);
  pull.Stop();
  auto r = pull.totals();
  f.lost = pull.Lost();
  Json j;
  j.Num("messages_per_s", Num(r.window_msgs) / wall);
  j.Num("mb_per_s", Num(r.window_bytes) / 1e6 / wall);
  j.Num("backlog_at_stop", Num(backlog));
  j.Num("drain_s", drain_s);
  j.Num("drain_timed_out", pull.unique() < expected);
  AddReceived(s.o, r, j);
  f.out.Raw("receive", j.Text());
  f.out.Num("messages_per_s", Num(r.window_msgs) / wall);
  f.out.Num("mb_per_s", Num(r.window_bytes) / 1e6 / wall);
  f.out.Lat("latency_ms", r.latency);
  f.out.Num("duplicates", Num(r.duplicates));
  f.errors += r.breaks;
}

// Modes publish, e2e and fanout.
void RunLive(Shared& s, bool pulls, Found& f) {
  const Options& o = s.o;
  Publisher pub(s, UINT64_MAX);
  std::unique_ptr<Puller> pull;
  if (pulls) {
    pull = std::make_unique<Puller>(s);
    pull->Start();
    SleepMs(300);
  }
  uint64_t w0 = NowNs() + static_cast<uint64_t>(o.warmup * 1e9);
  uint64_t w1 = w0 + static_cast<uint64_t>(o.seconds * 1e9);
  s.window_start = w0;
  s.window_end = w1;
  pub.Start();
  SleepUntilNs(w0);
  f.begin = Sample(o);
  SleepUntilNs(w1);
  f.end = Sample(o);
  pub.Stop();
  auto t = pub.totals();
  f.errors += t.errors;
  double wall = Num(w1 - w0) / 1e9;
  ReportPublished(s, t, pub.slots(), wall, f.out);
  if (pulls) {
    FinishReceiving(s, *pull, t.ok * static_cast<uint64_t>(o.subscriptions), wall, f);
    return;
  }
  f.out.Num("messages_per_s", Num(t.window_msgs) / wall);
  f.out.Num("mb_per_s", Num(t.window_msgs * o.message_size) / 1e6 / wall);
  f.out.Lat("latency_ms", t.latency);
}

// Publishes --messages; returns how many deliveries that makes.
uint64_t Prefill(Shared& s, Found& f) {
  uint64_t begin = NowNs();
  Publisher pub(s, s.o.messages);
  s.window_start = 0;
  pub.Start();
  pub.Join();
  double seconds = Num(NowNs() - begin) / 1e9;
  auto t = pub.totals();
  f.errors += t.errors;
  Json p;
  p.Num("messages_ok", Num(t.ok));
  p.Num("messages_per_s", Num(t.ok) / seconds);
  p.Num("errors", Num(t.errors));
  if (!t.first_error.empty()) p.Str("first_error", t.first_error);
  if (s.o.server_pid) p.Num("server_rss_mb", ServerRssMb(s.o.server_pid));
  f.out.Raw("prefill", p.Text());
  return t.ok * static_cast<uint64_t>(s.o.subscriptions);
}

// Mode streaming-pull: from opening the streams to the last message.
void RunDrain(Shared& s, Found& f) {
  uint64_t expected = Prefill(s, f);
  uint64_t give_up = NowNs() + static_cast<uint64_t>(s.o.drain_seconds * 1e9);
  Puller pull(s);
  f.begin = Sample(s.o);
  pull.Start();
  while (pull.unique() < expected && NowNs() < give_up) SleepMs(1);
  f.end = Sample(s.o);
  SleepMs(s.o.linger_seconds * 1000);
  pull.Stop();
  auto r = pull.totals();
  f.lost = pull.Lost();
  double wall = Num(r.last_ns - pull.started()) / 1e9;
  f.out.Num("drain_s", wall);
  f.out.Num("drain_timed_out", r.unique < expected);
  f.out.Num("first_message_ms", Num(r.first_ns - pull.started()) / 1e6);
  f.out.Num("messages_per_s", Num(r.unique) / wall);
  f.out.Num("mb_per_s", Num(r.unique * s.o.message_size) / 1e6 / wall);
  Json j;
  AddReceived(s.o, r, j);
  f.out.Raw("receive", j.Text());
  f.out.Num("duplicates", Num(r.duplicates));
  f.errors += r.breaks;
}

// Mode ack.
void RunUnary(Shared& s, Found& f) {
  uint64_t expected = Prefill(s, f);
  uint64_t give_up = NowNs() + static_cast<uint64_t>(s.o.drain_seconds * 1e9);
  UnaryAcker u(s);
  f.begin = Sample(s.o);
  u.Run(expected, give_up);
  f.end = Sample(s.o);
  f.lost = u.Lost();
  double wall = Num(std::max(u.end, u.begin + 1) - u.begin) / 1e9;
  f.out.Num("messages_per_s", Num(u.acked) / wall);
  f.out.Num("mb_per_s", Num(u.acked * s.o.message_size) / 1e6 / wall);
  f.out.Num("messages_per_pull", u.pulls ? Num(u.totals().received) / Num(u.pulls) : 0);
  f.out.Num("ack_calls_per_s", Num(u.ack_calls) / wall);
  f.out.Lat("latency_ms", u.ack_latency);
  f.out.Lat("pull_latency_ms", u.pull_latency);
  f.out.Num("duplicates", Num(u.totals().duplicates));
  if (!u.first_error.empty()) f.out.Str("first_error", u.first_error);
  f.errors += u.errors;
}

void ReportMachine(const Options& o, double rss_before, Found& f) {
  const Cpu &a = f.begin, &b = f.end;
  double span = Num(b.at - a.at) / 1e9;
  double self = b.self - a.self, server = b.server - a.server;
  f.out.Num("errors", Num(f.errors));
  f.out.Num("lost", Num(f.lost));
  f.out.Num("client_cpu_cores", self / span);
  if (o.server_pid) {
    f.out.Num("server_cpu_cores", server / span);
    f.out.Num("server_rss_before_mb", rss_before);
    f.out.Num("server_rss_after_mb", ServerRssMb(o.server_pid));
  }
  f.out.Num("other_cpu_cores", std::max(0.0, (b.busy - a.busy - self - server) / span));
  f.out.Num("steal_cores", (b.steal - a.steal) / span);
}

int Main(int argc, char** argv) {
  Shared s;
  s.o = Parse(argc, argv);
  const Options& o = s.o;
  s.run = static_cast<uint32_t>(NowNs() ^ (static_cast<uint64_t>(getpid()) << 20));
  for (int i = 0; i < o.channels; i++) s.channels.push_back(NewChannel(o, i));
  auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(10);
  if (!s.channels[0]->WaitForConnected(deadline)) {
    std::cerr << "pubsub-load: no connection to " << o.endpoint << "\n";
    return 1;
  }
  Resources resources(s);
  double admin_s = resources.Create();
  MakeLanes(s);
  double rss_before = o.server_pid ? ServerRssMb(o.server_pid) : 0;
  Found f;
  ReportConfig(o, f.out);
  if (o.mode == "publish" || o.mode == "e2e" || o.mode == "fanout") {
    RunLive(s, o.mode != "publish", f);
  } else if (o.mode == "streaming-pull") {
    RunDrain(s, f);
  } else if (o.mode == "ack") {
    RunUnary(s, f);
  } else {
    Usage("no such mode");
  }
  ReportMachine(o, rss_before, f);
  f.out.Num("admin_calls_per_s", Num(s.topics.size() + s.subs.size()) / admin_s);
  std::cout << f.out.Text() << std::endl;
  if (!o.keep) resources.Delete();
  return 0;
}

}  // namespace
}  // namespace millrace::load

int main(int argc, char** argv) { return millrace::load::Main(argc, argv); }
