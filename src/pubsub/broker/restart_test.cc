// The broker over real storage: what was answered is there after a restart, clean or not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <future>

#include "pubsub/broker.h"
#include "storage/open.h"

namespace millrace::pubsub {
namespace {

using ::testing::ElementsAre;

constexpr char kTopic[] = "projects/p/topics/t-1";
constexpr char kSubscription[] = "projects/p/subscriptions/s-1";

// A process as apps/ wires it, without doors.
class Node {
 public:
  explicit Node(const std::string& directory) {
    storage::OpenOptions open;
    open.directory = directory;
    open.min_free_bytes = 0;
    open.segment_bytes = 4 << 20;
    auto storage = storage::OpenDirectory(open);
    EXPECT_TRUE(storage.ok()) << storage.status();
    storage_ = *std::move(storage);
    BrokerEnvironment environment{storage_.get(), &clock_, &timers_, &pool_, &blocking_, 1};
    auto broker = Broker::Load(environment, {});
    EXPECT_TRUE(broker.ok()) << broker.status();
    broker_ = *std::move(broker);
    auto position = storage::Checkpointer::ReplayPosition(*storage_->store);
    EXPECT_TRUE(position.ok());
    Status replayed = storage_->log->Replay(
        *position,
        [&](storage::Lsn, const storage::Record& record) { return broker_->Replay(record); });
    EXPECT_TRUE(replayed.ok()) << replayed;
    broker_->Start();
  }
  ~Node() {
    broker_->Stop();
    EXPECT_TRUE(storage_->Close().ok());
  }

  Broker* operator->() { return broker_.get(); }

  template <typename T, typename Call>
  StatusOr<T> Get(Call call) {
    std::promise<StatusOr<T>> answer;
    call([&](StatusOr<T> value) { answer.set_value(std::move(value)); });
    return answer.get_future().get();
  }
  template <typename Call>
  Status Do(Call call) {
    std::promise<Status> answer;
    call([&](Status status) { answer.set_value(std::move(status)); });
    return answer.get_future().get();
  }
  std::vector<Delivery> Pull(int max) {
    std::shared_ptr<void> ticket;
    Broker::PullRequest request;
    request.subscription = kSubscription;
    request.max_messages = max;
    request.return_immediately = true;
    auto deliveries = Get<std::vector<Delivery>>(
        [&](auto reply) { ticket = broker_->Pull(request, std::move(reply)); });
    EXPECT_TRUE(deliveries.ok()) << deliveries.status();
    return deliveries.ok() ? *std::move(deliveries) : std::vector<Delivery>();
  }

 private:
  SystemClock clock_;
  ThreadPool pool_{2, "shards"};
  ThreadPool blocking_{1, "blocking"};
  ThreadTimers timers_{clock_};
  std::unique_ptr<storage::Storage> storage_;
  std::unique_ptr<Broker> broker_;
};

class RestartTest : public ::testing::Test {
 protected:
  RestartTest() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "millrace-restart-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
  }
  ~RestartTest() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
};

SharedBytes Request(int first, int count, size_t bytes) {
  pb::PublishRequest request;
  request.set_topic(kTopic);
  for (int i = 0; i < count; ++i) {
    request.add_messages()->set_data(std::to_string(first + i) + std::string(bytes, 'x'));
  }
  return SharedBytes(request.SerializeAsString());
}

TEST_F(RestartTest, MessagesAndAcksAreThereAgain) {
  {
    Node node(directory_);
    pb::Topic topic;
    topic.set_name(kTopic);
    ASSERT_TRUE(
        node.Get<pb::Topic>([&](auto reply) { node->CreateTopic(topic, std::move(reply)); }).ok());
    pb::Subscription subscription;
    subscription.set_name(kSubscription);
    subscription.set_topic(kTopic);
    ASSERT_TRUE(node.Get<pb::Subscription>([&](auto reply) {
                      node->CreateSubscription(subscription, std::move(reply));
                    })
                    .ok());
    for (int i = 0; i < 200; ++i) {
      ASSERT_TRUE(node.Get<PublishResult>([&](auto reply) {
                        node->Publish(Request(i * 100, 100, 1000), std::move(reply));
                      })
                      .ok());
    }
  }
  int next = 0;
  while (next < 20'000) {
    Node node(directory_);
    int until = next + 5'000;
    while (next < until) {
      auto deliveries = node.Pull(1000);
      ASSERT_FALSE(deliveries.empty());
      std::vector<std::string> ids;
      for (const Delivery& delivery : deliveries) {
        pb::PubsubMessage message;
        ASSERT_TRUE(message.ParseFromArray(delivery.message.data(),
                                           static_cast<int>(delivery.message.size())));
        ASSERT_EQ(std::stoi(message.data()), next);
        ids.push_back(delivery.ack_id);
        ++next;
      }
      ASSERT_TRUE(
          node.Do([&](auto reply) { node->Acknowledge(kSubscription, ids, std::move(reply)); })
              .ok());
    }
    EXPECT_EQ(next, until);
  }
  Node node(directory_);
  EXPECT_TRUE(node.Pull(10).empty());
}

TEST_F(RestartTest, StopRefusesWhatComesLater) {
  Node node(directory_);
  node->Stop();
  EXPECT_EQ(node.Get<PublishResult>(
                    [&](auto reply) { node->Publish(Request(0, 1, 1), std::move(reply)); })
                .status()
                .code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(node.Get<pb::Topic>([&](auto reply) { node->GetTopic(kTopic, std::move(reply)); })
                .status()
                .code(),
            StatusCode::kUnavailable);
}

}  // namespace
}  // namespace millrace::pubsub
