// Bugs that tests plant to see that they would be caught. All false outside tests.
#pragma once

namespace millrace::engine {

struct Faults {
  bool ack_before_commit = false;       // acks go out before the record is durable
  bool lose_outputs_on_replay = false;  // a replayed record's outputs are not delivered
  bool forget_ids = false;              // committed ids are not remembered
  bool reuse_attempts = false;          // attempt numbers start again after a restart
};

}  // namespace millrace::engine
