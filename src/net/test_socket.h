// A blocking TCP client for the tests of this folder: it sends exactly the bytes it is told.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "net/http_message.h"
#include "net/socket.h"

namespace millrace::net {

// One connection of the test's thread. Every wait ends after 20 s with a failed expectation.
class TestSocket {
 public:
  explicit TestSocket(int port, const std::string& host = "127.0.0.1") {
    bool ipv6 = host.find(':') != std::string::npos;
    fd_ = socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
    LimitWaits();
    int result;
    if (ipv6) {
      sockaddr_in6 address = {};
      address.sin6_family = AF_INET6;
      address.sin6_port = htons(static_cast<uint16_t>(port));
      inet_pton(AF_INET6, host.c_str(), &address.sin6_addr);
      result = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    } else {
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<uint16_t>(port));
      inet_pton(AF_INET, host.c_str(), &address.sin_addr);
      result = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    }
    EXPECT_EQ(result, 0) << "connect to " << host << ":" << port;
  }
  // The accepting end: waits for the next connection to `listener`.
  static std::unique_ptr<TestSocket> Accept(const Listeners& listener) {
    pollfd entry = {listener.sockets[0].get(), POLLIN, 0};
    EXPECT_EQ(poll(&entry, 1, 20000), 1) << "no connection came for 20 s";
    auto accepted = std::unique_ptr<TestSocket>(new TestSocket());
    accepted->fd_ = accept(listener.sockets[0].get(), nullptr, nullptr);
    accepted->LimitWaits();
    return accepted;
  }
  ~TestSocket() { Close(); }
  TestSocket(const TestSocket&) = delete;
  TestSocket& operator=(const TestSocket&) = delete;

  int fd() const { return fd_; }
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  void ShutdownSend() { shutdown(fd_, SHUT_WR); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  // Closes so that the other end sees a reset.
  void Reset() {
    linger now = {1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    Close();
  }
  // True if the other end closes without sending anything more.
  bool ReadEnd() {
    if (!buffer_.empty()) return false;
    char byte;
    ssize_t got = recv(fd_, &byte, 1, 0);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  }
  std::string ReadBytes(size_t count) {
    while (buffer_.size() < count && Fill()) {
    }
    std::string bytes = buffer_.substr(0, count);
    buffer_.erase(0, bytes.size());
    return bytes;
  }
  // One response with Content-Length; status 0 if the connection ended first.
  HttpResponse ReadResponse(bool head = false) {
    HttpResponse response;
    response.status = 0;
    size_t end;
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
      if (!Fill()) return response;
    }
    std::string header = buffer_.substr(0, end + 2);
    buffer_.erase(0, end + 4);
    response.status = std::atoi(header.c_str() + sizeof("HTTP/1.1"));
    for (size_t at = header.find("\r\n") + 2; at < header.size();) {
      size_t line_end = header.find("\r\n", at);
      std::string line = header.substr(at, line_end - at);
      size_t colon = line.find(": ");
      response.headers.emplace_back(line.substr(0, colon), line.substr(colon + 2));
      at = line_end + 2;
    }
    const std::string* length = FindHeader(response.headers, "content-length");
    if (length != nullptr && !head) response.body = ReadBytes(std::stoul(*length));
    return response;
  }

  // A request without a body, up to its empty line.
  std::string ReadRequest() {
    size_t end;
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
      if (!Fill()) return "";
    }
    return ReadBytes(end + 4);
  }

 private:
  TestSocket() = default;
  void LimitWaits() {
    timeval limit = {20, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  bool Fill() {
    char chunk[65536];
    ssize_t got = recv(fd_, chunk, sizeof(chunk), 0);
    EXPECT_FALSE(got < 0 && errno == EAGAIN) << "nothing came for 20 s";
    if (got <= 0) return false;
    buffer_.append(chunk, static_cast<size_t>(got));
    return true;
  }

  int fd_ = -1;
  std::string buffer_;
};

}  // namespace millrace::net
