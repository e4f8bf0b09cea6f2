#include "pubsub/broker/broker_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

namespace millrace::pubsub {
namespace {

struct SubscriptionFigures {
  std::string name;
  SubscriptionShard::Figures figures;
};

struct TopicFigures {
  std::string name;
  TopicShard::Figures figures;
};

// Collected on the catalogue's executor only.
struct Collection {
  std::vector<TopicFigures> topics;
  std::vector<SubscriptionFigures> subscriptions;
  storage::LogStats log;
  WallTime now;
  size_t waiting = 1;
  Callback<void(std::string)> reply;

  void Arrive();
};

// Project names may hold anything but slashes.
std::string LabelText(std::string_view value) {
  std::string out;
  for (char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

void Head(std::string& out, std::string_view name, std::string_view type, std::string_view help) {
  fmt::format_to(std::back_inserter(out), "# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
}

template <typename List, typename ValueOf>
void Series(std::string& out, std::string_view name, std::string_view type, std::string_view help,
            std::string_view label, const List& list, ValueOf value_of) {
  Head(out, name, type, help);
  for (const auto& one : list) {
    fmt::format_to(std::back_inserter(out), "{}{{{}=\"{}\"}} {}\n", name, label,
                   LabelText(one.name), value_of(one.figures));
  }
}

void WriteTopics(std::string& out, const std::vector<TopicFigures>& topics) {
  auto series = [&](std::string_view name, std::string_view help, auto value_of) {
    Series(out, name, "counter", help, "topic", topics, value_of);
  };
  series("millrace_pubsub_topic_publish_requests_total", "Publish calls accepted.",
         [](const TopicShard::Figures& f) { return f.requests; });
  series("millrace_pubsub_topic_messages_total", "Messages stored by publish calls.",
         [](const TopicShard::Figures& f) { return f.messages; });
  series("millrace_pubsub_topic_bytes_total", "Bytes stored by publish calls.",
         [](const TopicShard::Figures& f) { return f.bytes; });
}

void WriteSubscriptions(std::string& out, const std::vector<SubscriptionFigures>& subscriptions,
                        WallTime now) {
  using Figures = SubscriptionShard::Figures;
  auto series = [&](std::string_view name, std::string_view type, std::string_view help,
                    auto value_of) {
    Series(out, name, type, help, "subscription", subscriptions, value_of);
  };
  series("millrace_pubsub_subscription_backlog_messages", "gauge",
         "Messages not acknowledged, leased ones included.",
         [](const Figures& f) { return f.backlog_messages; });
  series("millrace_pubsub_subscription_backlog_bytes", "gauge", "Their bytes.",
         [](const Figures& f) { return f.backlog_bytes; });
  series("millrace_pubsub_subscription_oldest_unacked_seconds", "gauge",
         "Age of the oldest message not acknowledged; 0 without one.", [now](const Figures& f) {
           if (!f.oldest_unacked_publish) return 0.0;
           return std::max<double>(
               0, static_cast<double>((now - *f.oldest_unacked_publish).count()) / 1e6);
         });
  series("millrace_pubsub_subscription_outstanding_messages", "gauge",
         "Messages leased to subscribers.", [](const Figures& f) { return f.outstanding; });
  series("millrace_pubsub_subscription_open_streams", "gauge", "Open StreamingPull calls.",
         [](const Figures& f) { return f.open_streams; });
  series("millrace_pubsub_subscription_delivered_total", "counter",
         "Messages delivered, redeliveries included.",
         [](const Figures& f) { return f.delivered; });
  series("millrace_pubsub_subscription_acked_total", "counter", "Messages acknowledged.",
         [](const Figures& f) { return f.acked; });
  series("millrace_pubsub_subscription_nacked_total", "counter",
         "Messages given back by subscribers.", [](const Figures& f) { return f.nacked; });
  series("millrace_pubsub_subscription_expired_leases_total", "counter",
         "Leases that ended without an answer.", [](const Figures& f) { return f.expired_leases; });
}

void WriteLog(std::string& out, const storage::LogStats& log) {
  auto series = [&](std::string_view name, std::string_view type, std::string_view help,
                    uint64_t value) {
    Head(out, name, type, help);
    fmt::format_to(std::back_inserter(out), "{} {}\n", name, value);
  };
  series("millrace_log_disk_bytes", "gauge", "Segments of the commit log, spare ones included.",
         log.disk_bytes);
  series("millrace_log_entry_bytes", "gauge", "Bodies of messages not yet dead, as far as known.",
         log.entry_bytes);
  series("millrace_log_groups_total", "counter", "Commit groups written.", log.groups);
}

void Collection::Arrive() {
  if (--waiting > 0) return;
  auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
  std::sort(topics.begin(), topics.end(), by_name);
  std::sort(subscriptions.begin(), subscriptions.end(), by_name);
  std::string out;
  WriteTopics(out, topics);
  WriteSubscriptions(out, subscriptions, now);
  WriteLog(out, log);
  reply(std::move(out));
}

}  // namespace

void CollectMetrics(const ShardRegistry& registry, const storage::LogStats& log, WallTime now,
                    Executor& catalog, Callback<void(std::string)> reply) {
  auto collection = std::make_shared<Collection>();
  collection->log = log;
  collection->now = now;
  collection->reply = std::move(reply);
  for (const auto& topic : registry.Topics())
    collection->topics.push_back({topic->name(), topic->GetFigures()});
  for (const auto& handle : registry.Subscriptions()) {
    ++collection->waiting;
    handle->executor.Post([handle, collection, &catalog] {
      catalog.Post([collection, one = SubscriptionFigures{handle->name,
                                                          handle->shard->GetFigures()}]() mutable {
        collection->subscriptions.push_back(std::move(one));
        collection->Arrive();
      });
    });
  }
  collection->Arrive();
}

}  // namespace millrace::pubsub
