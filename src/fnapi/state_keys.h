// State keys of the Fn API as the engine names them.
#pragma once

#include "base/status.h"
#include "engine/bundle_runner.h"
#include "org/apache/beam/model/fn_execution/v1/beam_fn_api.pb.h"

namespace millrace::fnapi {

StatusOr<engine::StateKey> ReadStateKey(
    const org::apache::beam::model::fn_execution::v1::StateKey& key);

}  // namespace millrace::fnapi
