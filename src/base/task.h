// Move-only callables. A Task is run once; a Callback<R(Args...)> is what asynchronous calls take.
#pragma once

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"

namespace millrace {

using Task = absl::AnyInvocable<void()>;
template <typename Signature>
using Callback = absl::AnyInvocable<Signature>;
// A callable borrowed for the length of a call.
template <typename Signature>
using FunctionRef = absl::FunctionRef<Signature>;

}  // namespace millrace
