#include <openssl/sha.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "fmt/format.h"
#include "jobs/artifacts.h"

namespace millrace::jobs {
namespace {

std::string Sha256(const std::string& content) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(content.data()), content.size(), digest);
  std::string hex;
  for (unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace

std::string ArtifactStore::Find(const std::string& sha256) const {
  if (sha256.size() != 64 || sha256.find_first_not_of("0123456789abcdef") != std::string::npos)
    return "";
  const std::string path = directory_ + "/" + sha256;
  std::error_code error;
  return std::filesystem::exists(path, error) ? path : "";
}

StatusOr<std::string> ArtifactStore::Keep(const std::string& content) {
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  const std::string path = directory_ + "/" + Sha256(content);
  if (std::filesystem::exists(path, error)) return path;
  const std::string part = path + ".part";
  {
    std::ofstream file(part, std::ios::binary | std::ios::trunc);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    file.flush();
    if (!file.good())
      return ResourceExhausted(fmt::format("an artifact cannot be written to {}", directory_));
  }
  std::filesystem::rename(part, path, error);
  if (error)
    return ResourceExhausted(
        fmt::format("an artifact cannot be kept in {}: {}", directory_, error.message()));
  return path;
}

bool ArtifactStore::Owns(const std::string& path) const {
  const size_t slash = path.rfind('/');
  return slash != std::string::npos && path.substr(0, slash) == directory_ &&
         !Find(path.substr(slash + 1)).empty();
}

}  // namespace millrace::jobs
