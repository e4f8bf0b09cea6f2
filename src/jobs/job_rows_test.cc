#include "jobs/job_rows.h"

#include <gtest/gtest.h>

namespace millrace::jobs {
namespace {

JobRow Row() {
  JobRow row;
  row.uid = 77;
  row.id = "flights-1";
  row.name = "Flights";
  row.state = api::JobState::FAILED;
  row.created = WallTime{123};
  row.changed = WallTime{456};
  row.error = "why";
  row.options = std::string("\x00\x01", 2);
  row.metrics = "m";
  row.drain = true;
  return row;
}

TEST(JobRowsTest, ComeBackAsTheyWere) {
  const JobRow row = Row();
  const StatusOr<JobRow> back = DecodeJobRow(EncodeJobRow(row));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->uid, row.uid);
  EXPECT_EQ(back->id, row.id);
  EXPECT_EQ(back->name, row.name);
  EXPECT_EQ(back->state, row.state);
  EXPECT_EQ(back->created, row.created);
  EXPECT_EQ(back->changed, row.changed);
  EXPECT_EQ(back->error, row.error);
  EXPECT_EQ(back->options, row.options);
  EXPECT_EQ(back->metrics, row.metrics);
  EXPECT_TRUE(back->drain);
}

TEST(JobRowsTest, CutRowsAreRefused) {
  const std::string bytes = EncodeJobRow(Row());
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_EQ(DecodeJobRow(bytes.substr(0, size)).status().code(), StatusCode::kDataLoss) << size;
}

TEST(JobRowsTest, RowsOfANewerServerAreRefused) {
  std::string bytes = EncodeJobRow(Row());
  bytes[0] = 2;
  EXPECT_EQ(DecodeJobRow(bytes).status().code(), StatusCode::kFailedPrecondition);
}

TEST(JobRowsTest, KeysSortByUidWithinTheirPrefix) {
  EXPECT_LT(JobKey(9), JobKey(10));
  EXPECT_LT(JobKey(255), JobKey(uint64_t{1} << 39));
  EXPECT_LT(std::string(kJobPrefix), JobKey(0));
  EXPECT_LT(JobKey(UINT64_MAX), std::string(kJobPrefixEnd));
  EXPECT_GT(PipelineKey(0), std::string(kJobPrefixEnd)) << "listing jobs reads no pipelines";
}

}  // namespace
}  // namespace millrace::jobs
