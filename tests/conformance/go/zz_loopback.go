// Added to the copy of package apiv1 that is tested: some integration tests name a regional
// production endpoint, which wins over PUBSUB_EMULATOR_HOST. With this file every connection of the
// admin clients is dialled to the server under test.
package pubsub

import (
	"context"
	"net"
	"os"

	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
)

func loopbackHook(ctx context.Context, params clientHookParams) ([]option.ClientOption, error) {
	opts, err := emulatorHook(ctx, params)
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", os.Getenv("PUBSUB_EMULATOR_HOST"))
	}
	return append(opts, option.WithGRPCDialOption(grpc.WithContextDialer(dial))), err
}

func init() {
	resolver.SetDefaultScheme("passthrough")
	newTopicAdminClientHook = loopbackHook
	newSubscriptionAdminClientHook = loopbackHook
	newSchemaClientHook = loopbackHook
}
