// An S3 server on a folder, whose folders are the buckets: https://github.com/versity/versitygw
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

// Arguments: HOST:PORT, the folder, and a folder for the metadata of objects, which then need no
// extended attributes of the file system. The credentials are in the environment.
func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(address, folder, metadata string) error {
	sidecar, err := meta.NewSideCar(metadata)
	if err != nil {
		return err
	}
	// CopyObjectThreshold is 0: copies of objects that have bytes are refused, so that tests fail if
	// a file is renamed, which an object store does by copying it.
	store, err := posix.New(folder, sidecar, posix.PosixOpts{SideCarDir: metadata})
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(context.Background(), store, &embedgw.Config{
		RootUserAccess:    os.Getenv("ROOT_ACCESS_KEY"),
		RootUserSecret:    os.Getenv("ROOT_SECRET_KEY"),
		Ports:             []string{address},
		KeepAlive:         true,
		Quiet:             true,
		MaxConnections:    1000,
		MaxRequests:       1000,
		MultipartMaxParts: 10000,
	})
}
