// URNs of Beam's model that the planner acts upon.
#pragma once

namespace millrace::planner::urns {

inline constexpr char kImpulse[] = "beam:transform:impulse:v1";
inline constexpr char kGroupByKey[] = "beam:transform:group_by_key:v1";
inline constexpr char kFlatten[] = "beam:transform:flatten:v1";
inline constexpr char kParDo[] = "beam:transform:pardo:v1";
inline constexpr char kReshuffle[] = "beam:transform:reshuffle:v1";
inline constexpr char kRedistributeByKey[] = "beam:transform:redistribute_by_key:v1";
inline constexpr char kRedistributeArbitrarily[] = "beam:transform:redistribute_arbitrarily:v1";
inline constexpr char kRead[] = "beam:transform:read:v1";
inline constexpr char kTestStream[] = "beam:transform:teststream:v1";
inline constexpr char kPubSubRead[] = "beam:transform:pubsub_read:v1";
inline constexpr char kPubSubWrite[] = "beam:transform:pubsub_write:v1";
inline constexpr char kPubSubWriteDynamic[] = "beam:transform:pubsub_write:v2";
inline constexpr char kCombinePerKey[] = "beam:transform:combine_per_key:v1";
inline constexpr char kPrecombine[] = "beam:transform:combine_per_key_precombine:v1";
inline constexpr char kMergeAccumulators[] = "beam:transform:combine_per_key_merge_accumulators:v1";
inline constexpr char kExtractOutputs[] = "beam:transform:combine_per_key_extract_outputs:v1";
inline constexpr char kCombineGroupedValues[] = "beam:transform:combine_grouped_values:v1";
inline constexpr char kPairWithRestriction[] = "beam:transform:sdf_pair_with_restriction:v1";
inline constexpr char kSplitAndSize[] = "beam:transform:sdf_split_and_size_restrictions:v1";
inline constexpr char kProcessSized[] =
    "beam:transform:sdf_process_sized_element_and_restrictions:v1";
inline constexpr char kRunnerSource[] = "beam:runner:source:v1";
inline constexpr char kRunnerSink[] = "beam:runner:sink:v1";
inline constexpr char kIterableSideInput[] = "beam:side_input:iterable:v1";
inline constexpr char kMultimapSideInput[] = "beam:side_input:multimap:v1";

}  // namespace millrace::planner::urns
