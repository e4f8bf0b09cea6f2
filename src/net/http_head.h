// Inside the HTTP server: the header of a response as it goes over the wire.
#pragma once

#include <ctime>
#include <string>

#include "net/http_message.h"

namespace millrace::net {

// How the connection goes on after a response.
enum class AfterResponse { kKeepOpen, kKeepOpenHttp10, kClose };

bool HasBody(int http_status);

// Status line, header fields and the empty line. Fields with line breaks in them are left out.
std::string ResponseHead(const HttpResponse& response, const std::string& date,
                         AfterResponse after);

// Value of the Date header for that second.
std::string HttpDate(time_t second);

}  // namespace millrace::net
