#include "fnapi/state_keys.h"

namespace millrace::fnapi {
namespace {

namespace fn = org::apache::beam::model::fn_execution::v1;
using engine::StateKey;
using engine::StateKind;

template <typename Proto>
StateKey User(StateKind kind, const Proto& proto) {
  StateKey key;
  key.kind = kind;
  key.transform = proto.transform_id();
  key.name = proto.user_state_id();
  key.window = proto.window();
  key.key = proto.key();
  return key;
}

template <typename Proto>
StateKey Side(StateKind kind, const Proto& proto) {
  StateKey key;
  key.kind = kind;
  key.transform = proto.transform_id();
  key.name = proto.side_input_id();
  key.window = proto.window();
  return key;
}

}  // namespace

StatusOr<StateKey> ReadStateKey(const fn::StateKey& proto) {
  StateKey key;
  switch (proto.type_case()) {
    case fn::StateKey::kRunner:
      key.kind = StateKind::kRunner;
      key.key = proto.runner().key();
      return key;
    case fn::StateKey::kIterableSideInput:
      return Side(StateKind::kIterableSideInput, proto.iterable_side_input());
    case fn::StateKey::kMultimapSideInput:
      key = Side(StateKind::kMultimapSideInput, proto.multimap_side_input());
      key.key = proto.multimap_side_input().key();
      return key;
    case fn::StateKey::kMultimapKeysSideInput:
      return Side(StateKind::kMultimapKeysSideInput, proto.multimap_keys_side_input());
    case fn::StateKey::kMultimapKeysValuesSideInput:
      return Side(StateKind::kMultimapKeysValuesSideInput, proto.multimap_keys_values_side_input());
    case fn::StateKey::kBagUserState:
      return User(StateKind::kBag, proto.bag_user_state());
    case fn::StateKey::kMultimapKeysUserState:
      return User(StateKind::kMultimapKeys, proto.multimap_keys_user_state());
    case fn::StateKey::kMultimapUserState:
      key = User(StateKind::kMultimap, proto.multimap_user_state());
      key.map_key = proto.multimap_user_state().map_key();
      return key;
    case fn::StateKey::kMultimapEntriesUserState:
      return User(StateKind::kMultimapEntries, proto.multimap_entries_user_state());
    case fn::StateKey::kOrderedListUserState:
      key = User(StateKind::kOrderedList, proto.ordered_list_user_state());
      key.range_start = proto.ordered_list_user_state().range().start();
      key.range_end = proto.ordered_list_user_state().range().end();
      return key;
    default:
      return Unimplemented("a state request for a kind of state that this runner does not know");
  }
}

}  // namespace millrace::fnapi
