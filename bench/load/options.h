// The command line of pubsub-load.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include "wire.h"

namespace millrace::load {

struct Options {
  std::string endpoint = "127.0.0.1:8085", mode = "e2e", project = "load", payload = "random",
              label;
  size_t message_size = 1000, batch = 100;
  int concurrency = 8, topics = 1, subscriptions = 1, ordering_keys = 0, streams = 1, channels = 2;
  int pub_threads = 1, pull_threads = 1, attributes = 0, server_pid = 0, ack_deadline = 60;
  int64_t max_outstanding = 10000, max_outstanding_bytes = 100 << 20;
  double seconds = 10, warmup = 2, rate = 0, drain_seconds = 60, linger_seconds = 0.3;
  uint64_t messages = 0;
  bool exactly_once = false, keep = false, no_ack = false;
};

[[noreturn]] inline void Usage(const char* why) {
  std::cerr
      << "pubsub-load: " << why
      << "\n"
         "  --endpoint H:P  --mode publish|streaming-pull|e2e|fanout|ack\n"
         "  --message-size BYTES (24 or more)  --batch N  --concurrency N (publishes in flight)\n"
         "  --seconds S  --warmup S  --rate MSGS_PER_S (0: flat out)  --messages N (prefill of "
         "streaming-pull and ack)\n"
         "  --topics N  --subscriptions N (a topic)  --ordering-keys N (a topic)  --exactly-once  "
         "--no-ack\n"
         "  --streams N (a subscription)  --channels N  --pub-threads N  --pull-threads N\n"
         "  --max-outstanding N  --max-outstanding-bytes N  --ack-deadline S  --attributes N\n"
         "  --payload random|text  --drain-seconds S  --linger-seconds S  --server-pid PID\n"
         "  --project NAME  --label TEXT  --keep\n";
  std::exit(2);
}

inline Options Parse(int argc, char** argv) {
  Options o;
  std::map<std::string, std::string*> strings{{"endpoint", &o.endpoint},
                                              {"mode", &o.mode},
                                              {"project", &o.project},
                                              {"payload", &o.payload},
                                              {"label", &o.label}};
  std::map<std::string, int*> ints{{"concurrency", &o.concurrency},
                                   {"topics", &o.topics},
                                   {"subscriptions", &o.subscriptions},
                                   {"ordering-keys", &o.ordering_keys},
                                   {"streams", &o.streams},
                                   {"channels", &o.channels},
                                   {"pub-threads", &o.pub_threads},
                                   {"pull-threads", &o.pull_threads},
                                   {"attributes", &o.attributes},
                                   {"server-pid", &o.server_pid},
                                   {"ack-deadline", &o.ack_deadline}};
  std::map<std::string, double*> doubles{{"seconds", &o.seconds},
                                         {"warmup", &o.warmup},
                                         {"rate", &o.rate},
                                         {"drain-seconds", &o.drain_seconds},
                                         {"linger-seconds", &o.linger_seconds}};
  std::map<std::string, bool*> flags{
      {"exactly-once", &o.exactly_once}, {"keep", &o.keep}, {"no-ack", &o.no_ack}};
  for (int i = 1; i < argc; i++) {
    std::string a = argv[i];
    if (a.rfind("--", 0) != 0) Usage(("what is " + a + "?").c_str());
    a = a.substr(2);
    if (auto f = flags.find(a); f != flags.end()) {
      *f->second = true;
      continue;
    }
    if (i + 1 >= argc) Usage(("no value for --" + a).c_str());
    std::string v = argv[++i];
    if (auto s = strings.find(a); s != strings.end())
      *s->second = v;
    else if (auto n = ints.find(a); n != ints.end())
      *n->second = std::atoi(v.c_str());
    else if (auto d = doubles.find(a); d != doubles.end())
      *d->second = std::atof(v.c_str());
    else if (a == "message-size")
      o.message_size = std::strtoull(v.c_str(), nullptr, 10);
    else if (a == "batch")
      o.batch = std::strtoull(v.c_str(), nullptr, 10);
    else if (a == "messages")
      o.messages = std::strtoull(v.c_str(), nullptr, 10);
    else if (a == "max-outstanding")
      o.max_outstanding = std::atoll(v.c_str());
    else if (a == "max-outstanding-bytes")
      o.max_outstanding_bytes = std::atoll(v.c_str());
    else
      Usage(("no option --" + a).c_str());
  }
  if (o.message_size < sizeof(PayloadHeader)) Usage("--message-size must be 24 or more");
  if (o.batch < 1 || o.concurrency < 1 || o.topics < 1 || o.channels < 1)
    Usage("counts must be 1 or more");
  if (o.mode == "fanout" && o.subscriptions < 2) o.subscriptions = 10;
  if (o.messages == 0) o.messages = 1000000;
  return o;
}

}  // namespace millrace::load
