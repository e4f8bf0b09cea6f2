#include "jobs/options.h"

#include <gtest/gtest.h>

namespace millrace::jobs {
namespace {

class OptionsTest : public ::testing::Test {
 protected:
  void Set(const std::string& key, const std::string& text) {
    (*options_.mutable_fields())[key].set_string_value(text);
  }
  void AddServiceOption(const std::string& text) {
    (*options_.mutable_fields())["beam:option:dataflow_service_options:v1"]
        .mutable_list_value()
        ->add_values()
        ->set_string_value(text);
  }
  Options Read(const std::string& request_name = "") {
    StatusOr<Options> read = ReadOptions(options_, request_name);
    EXPECT_TRUE(read.ok()) << read.status();
    return read.value_or(Options{});
  }

  google::protobuf::Struct options_;
};

TEST_F(OptionsTest, Defaults) {
  const Options read = Read();
  EXPECT_EQ(read.job_name, "job");
  EXPECT_FALSE(read.streaming);
  EXPECT_EQ(read.environment_type, "");
  EXPECT_EQ(read.workers, 1);
  EXPECT_EQ(read.timestamp_band, std::chrono::seconds(10));
  EXPECT_EQ(read.bundle_attempts, 4);
}

TEST_F(OptionsTest, TheOptionsNameGoesBeforeTheRequests) {
  EXPECT_EQ(Read("request").job_name, "request");
  Set("job_name", "bare");
  EXPECT_EQ(Read("request").job_name, "bare");
  Set("beam:option:job_name:v1", "full");
  EXPECT_EQ(Read("request").job_name, "full");
}

TEST_F(OptionsTest, ReadsWhatSdksSend) {
  (*options_.mutable_fields())["beam:option:streaming:v1"].set_bool_value(true);
  Set("beam:option:default_environment_type:v1", "loopback");
  Set("beam:option:sdk_worker_parallelism:v1", "3");  // Python sends numbers as text
  Options read = Read();
  EXPECT_TRUE(read.streaming);
  EXPECT_EQ(read.environment_type, "LOOPBACK");
  EXPECT_EQ(read.workers, 3);
  Set("beam:option:environment_type:v1", "EXTERNAL");
  (*options_.mutable_fields())["beam:option:sdk_worker_parallelism:v1"].set_number_value(5);
  read = Read();
  EXPECT_EQ(read.environment_type, "EXTERNAL");
  EXPECT_EQ(read.workers, 5);
}

TEST_F(OptionsTest, WorkersAreBounded) {
  for (const char* odd : {"0", "-1", "1000000", "many", ""}) {
    Set("sdk_worker_parallelism", odd);
    EXPECT_EQ(Read().workers, 1) << odd;
  }
}

TEST_F(OptionsTest, ServiceOptions) {
  AddServiceOption("timestamp_band=500ms");
  AddServiceOption("bundle_retries=9");
  AddServiceOption("enable_prime");  // Dataflow's
  const Options read = Read();
  EXPECT_EQ(read.timestamp_band, std::chrono::milliseconds(500));
  EXPECT_EQ(read.bundle_attempts, 9);
}

TEST_F(OptionsTest, BadServiceOptionsAreRefused) {
  for (const char* bad : {"timestamp_band=soon", "timestamp_band", "bundle_retries=0",
                          "bundle_retries=1001", "bundle_retries=x"}) {
    options_.clear_fields();
    AddServiceOption(bad);
    EXPECT_EQ(ReadOptions(options_, "").status().code(), StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace millrace::jobs
