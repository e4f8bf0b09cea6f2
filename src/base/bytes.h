// Bytes that move once: a view with shared ownership of what it looks at. Copying a SharedBytes
// copies no payload.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace millrace {

// Immutable; may be passed between threads.
class SharedBytes {
 public:
  SharedBytes() = default;
  // Takes the string over.
  explicit SharedBytes(std::string bytes) {
    auto owned = std::make_shared<const std::string>(std::move(bytes));
    view_ = *owned;
    owner_ = std::move(owned);
  }
  // `view` stays valid as long as `owner` lives.
  SharedBytes(std::shared_ptr<const void> owner, std::string_view view)
      : owner_(std::move(owner)), view_(view) {}
  // A part of these bytes under the same owner.
  SharedBytes Sub(std::string_view part) const { return SharedBytes(owner_, part); }

  std::string_view view() const { return view_; }
  const char* data() const { return view_.data(); }
  size_t size() const { return view_.size(); }
  bool empty() const { return view_.empty(); }
  const std::shared_ptr<const void>& owner() const { return owner_; }

 private:
  std::shared_ptr<const void> owner_;
  std::string_view view_;
};

}  // namespace millrace
