#include "fnapi/stage_program.h"

namespace millrace::fnapi {

void SetEndpoints(StageProgram& program, const std::string& url) {
  auto set_port = [&](const std::string& transform) {
    pipe::FunctionSpec* spec = (*program.descriptor.mutable_transforms())[transform].mutable_spec();
    fn::RemoteGrpcPort port;
    port.ParseFromString(spec->payload());
    port.mutable_api_service_descriptor()->set_url(url);
    spec->set_payload(port.SerializeAsString());
  };
  set_port(program.source.transform);
  for (const PortProgram& sink : program.sinks) set_port(sink.transform);
  // Always: Python dials it whether it is needed or not.
  program.descriptor.mutable_state_api_service_descriptor()->set_url(url);
  if (!program.timers.empty())
    program.descriptor.mutable_timer_api_service_descriptor()->set_url(url);
}

}  // namespace millrace::fnapi
