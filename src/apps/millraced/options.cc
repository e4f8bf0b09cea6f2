#include "apps/millraced/options.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>

namespace millrace::apps {
namespace {

constexpr char kVersion[] = "millraced " MR_VERSION;

bool IsAddress(const std::string& text) {
  in6_addr address;
  return inet_pton(AF_INET, text.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

void Declare(CLI::App& app, ServerOptions& options, std::vector<std::string>& roles) {
  app.set_version_flag("--version", kVersion);
  app.set_config("--config", "", "TOML file with these options by the same names");
  app.allow_config_extras(false);
  app.add_option("--listen", options.listen, "Addresses to serve on")
      ->delimiter(',')
      ->default_str("127.0.0.1,::1");
  app.add_flag("--allow-unauthenticated-network", options.allow_unauthenticated_network,
               "Serve addresses other than loopback although nobody has to log in");
  auto port = [&app](const char* name, int& value, const char* what) {
    app.add_option(name, value, what)->check(CLI::Range(0, 65535))->capture_default_str();
  };
  port("--pubsub-port", options.pubsub_port, "Port of Pub/Sub (gRPC and REST), 0: any free one");
  port("--dataflow-port", options.dataflow_port, "Port of the Beam job services, 0: any free one");
  port("--http-port", options.http_port, "Port of health, readiness and metrics, 0: any free one");
  app.add_option("--data-dir", options.data_dir, "Where everything durable is kept")
      ->capture_default_str();
  app.add_flag("--in-memory", options.in_memory, "Keep nothing: for unit tests");
  static const std::map<std::string, storage::Durability> durabilities = {
      {"sync", storage::Durability::kSync}, {"async", storage::Durability::kAsync}};
  app.add_option("--durability", options.durability,
                 "sync: what is answered survives a power loss; async: a crash of the process")
      ->transform(CLI::CheckedTransformer(durabilities))
      ->default_str("sync");
  app.add_option("--min-free", options.min_free_bytes,
                 "Free disk space below which publishes are refused (units: KB, MB, GB)")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->default_str("512MB");
  app.add_option("--roles", roles, "What this process does")
      ->delimiter(',')
      ->check(CLI::IsMember({"pubsub", "dataflow"}))
      ->default_str("pubsub,dataflow");
  static const std::map<std::string, LogLevel> levels = {{"debug", LogLevel::kDebug},
                                                         {"info", LogLevel::kInfo},
                                                         {"warning", LogLevel::kWarning},
                                                         {"error", LogLevel::kError}};
  app.add_option("--log-level", options.log_level, "debug, info, warning or error")
      ->transform(CLI::CheckedTransformer(levels))
      ->default_str("info");
}

}  // namespace

std::variant<ServerOptions, ExitNow> ParseOptions(int argc, char** argv) {
  CLI::App app("Millrace server: Pub/Sub messages and Beam pipelines on your own machine.",
               "millraced");
  ServerOptions options;
  std::vector<std::string> roles;
  try {
    Declare(app, options, roles);
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ExitNow{app.exit(error)};
  }
  if (!roles.empty()) {
    options.pubsub = std::find(roles.begin(), roles.end(), "pubsub") != roles.end();
    options.dataflow = std::find(roles.begin(), roles.end(), "dataflow") != roles.end();
  }
  std::vector<std::string> addresses;
  for (const std::string& address : options.listen) {
    if (address == "localhost") {
      addresses.insert(addresses.end(), {"127.0.0.1", "::1"});
    } else {
      addresses.push_back(address);
    }
  }
  options.listen = std::move(addresses);
  return options;
}

bool IsLoopback(const std::string& address) {
  in_addr v4;
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6;
  return inet_pton(AF_INET6, address.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

Status CheckOptions(const ServerOptions& options) {
  if (options.listen.empty()) return InvalidArgument("--listen needs at least one address.");
  for (const std::string& address : options.listen) {
    if (!IsAddress(address)) {
      return InvalidArgument(fmt::format(
          "--listen {} is not a numeric address; write one like 127.0.0.1 or ::1.", address));
    }
    if (!IsLoopback(address) && !options.allow_unauthenticated_network) {
      return InvalidArgument(fmt::format(
          "--listen {} would serve everybody on that network without a login; listen on 127.0.0.1, "
          "or add --allow-unauthenticated-network if that is what you want.",
          address));
    }
  }
  return OkStatus();
}

}  // namespace millrace::apps
