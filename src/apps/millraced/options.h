// What the server is told on its command line or in its config file.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "storage/commit_log.h"

namespace millrace::apps {

struct ServerOptions {
  std::vector<std::string> listen = {"127.0.0.1", "::1"};  // numeric addresses
  bool allow_unauthenticated_network = false;
  int pubsub_port = 8085;
  int dataflow_port = 8099;
  int http_port = 8080;
  std::string data_dir = "./millrace-data";
  bool in_memory = false;
  storage::Durability durability = storage::Durability::kSync;
  uint64_t min_free_bytes = 512ull << 20;
  bool pubsub = true;    // role
  bool dataflow = true;  // role
  LogLevel log_level = LogLevel::kInfo;
};

struct ExitNow {
  int code = 0;  // help and version have been printed, or the error of an option
};

std::variant<ServerOptions, ExitNow> ParseOptions(int argc, char** argv);

// What can be told before anything is opened; one sentence that says what to do.
Status CheckOptions(const ServerOptions& options);

// True for 127.0.0.0/8 and ::1.
bool IsLoopback(const std::string& address);

}  // namespace millrace::apps
