// millraced: the Millrace server.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <thread>

#include "apps/millraced/options.h"
#include "apps/millraced/server.h"
#include "base/log.h"

namespace millrace::apps {
namespace {

// An orderly end is a courtesy: everything answered is durable already. So it gets this long at
// most.
constexpr auto kStopLimit = std::chrono::milliseconds(4500);

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

void EndAfterLimit() {
  std::thread([] {
    std::this_thread::sleep_for(kStopLimit);
    MR_LOG(kWarning, "ending without a last checkpoint: it took too long");
    _exit(0);
  }).detach();
}

int Run(const ServerOptions& options) {
  // Before any thread exists, so that all inherit it and only this one takes the signals.
  sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  SetLogLevel(options.log_level);
  StatusOr<std::unique_ptr<Server>> server = Server::Start(options);
  if (!server.ok()) {
    std::string sentence(MessageOf(server.status()));
    if (!sentence.ends_with('.')) sentence += '.';
    std::fprintf(stderr, "millraced: %s\n", sentence.c_str());
    return 1;
  }
  std::printf("%s\n", (*server)->ReadyLine().c_str());
  std::fflush(stdout);
  int signal_number = 0;
  sigwait(&signals, &signal_number);
  EndAfterLimit();
  (*server)->Stop();
  return 0;
}

}  // namespace
}  // namespace millrace::apps

int main(int argc, char** argv) {
  auto parsed = millrace::apps::ParseOptions(argc, argv);
  if (auto* exit_now = std::get_if<millrace::apps::ExitNow>(&parsed)) return exit_now->code;
  return millrace::apps::Run(std::get<millrace::apps::ServerOptions>(parsed));
}
